"""The llm-d example as a whole: it is checked, rendered and synthesized, and what is applied is what a reviewer reads."""

import json
from typing import Any

from charts.render import render_all
from dpd.checks.llmd import RESOURCES_OF_AN_ENDPOINT
from tests.stacks.conftest import build
from tests.stacks.support import Assembly, synthesized
from tests.stacks.test_addons import by_name, joined
from tests.support import LLMD_EXAMPLE, base, environment, findings

EXAMPLE = {"endpoints": base(LLMD_EXAMPLE)["endpoints"]}


def assembly(changes: dict[str, Any] | None = None) -> Assembly:
    return synthesized(build, {**EXAMPLE, **(changes or {})})


def applied(found: Assembly, part: str) -> list[dict[str, Any]]:
    """Every object that a stack applies."""
    manifests = found.templates[part].properties("Custom::AWSCDK-EKS-KubernetesResource")
    return [body for made in manifests for body in json.loads(joined(made["Manifest"]))]


def test_nothing_stops_it() -> None:
    assert not [one for one in findings(example=LLMD_EXAMPLE) if one.stops]


def test_what_is_applied_is_what_is_rendered() -> None:
    rendered = render_all(environment(EXAMPLE))
    wanted = {(manifest.body["kind"], manifest.body["metadata"]["name"]) for manifest in rendered.endpoints["llama-70b"]}
    made = {(body["kind"], body["metadata"]["name"]) for body in applied(assembly(), "serving")}
    assert wanted <= made
    assert {"Deployment", "NetworkPolicy", "Service", "ConfigMap"} <= {kind for kind, _ in made}


def test_no_operator_and_no_controller_is_installed_for_it() -> None:
    template = assembly().templates["addons"]
    assert "amazon-sagemaker-hyperpod-inference" not in by_name(template)
    assert not template.of("Custom::AWSCDK-EKS-HelmChart")


def test_the_gate_looks_for_its_pods_and_for_no_operator() -> None:
    template = assembly().templates["gate"]
    text = template.text
    assert "hyperpod-inference-system" not in text
    assert "amazon-sagemaker-hyperpod-inference" not in text


def test_clients_are_told_where_it_is() -> None:
    outputs = assembly().templates["serving"].content["Outputs"]
    (url,) = [made["Value"] for name, made in outputs.items() if "Url" in name]
    assert url == "http://llama-70b.inference.svc.cluster.local/v1/chat/completions"
    behind = assembly({"endpoints[0].routing.gateway": {}}).templates["serving"].content["Outputs"]
    (command,) = [made["Value"] for name, made in behind.items() if "LoadBalancerCommand" in name]
    assert command.startswith("kubectl get gateway llama-70b-gateway --namespace inference")


def test_an_endpoint_with_everything_takes_no_more_resources_than_are_reckoned_with() -> None:
    trigger = {"workspace_url": "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1", "query": "up", "target": 1}
    scaled = {"min_replicas": 1, "max_replicas": 1, "prometheus": [trigger]}
    most = {
        "endpoints[0].routing": {"threshold_tokens": 4096, "strategy": "kv_aware", "gateway": {}},
        "endpoints[0].objectives.priority": 1,
        "endpoints[0].prefill.autoscaling": scaled,
        "endpoints[0].decode.autoscaling": scaled,
    }
    made = assembly(most).templates["serving"].of("Custom::AWSCDK-EKS-KubernetesResource")
    assert len(made) - 1 <= RESOURCES_OF_AN_ENDPOINT
