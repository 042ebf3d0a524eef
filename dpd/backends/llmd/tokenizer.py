"""What turns prompts into the model's tokens for a picker that knows which blocks its engines hold.

It is vLLM without an engine: the same chat template and tokenizer as the workers', and no weights in memory.
"""

from typing import Any, Final

from dpd.backends.llmd.engine import model
from dpd.backends.llmd.pod import variable
from dpd.backends.llmd.router_pod import amounts, placement, pod_security, security
from dpd.backends.llmd.weights import weights
from dpd.backends.site import Site
from dpd.backends.workload import HEALTH_PATH
from dpd.catalog.images import default_image
from dpd.catalog.llmd import llmd
from dpd.environment.endpoint import Endpoint
from dpd.environment.names import LlmdNames

_SCRATCH: Final = "/tmp"  # noqa: S108 (of the pod)
Body = dict[str, Any]


def tokenizer(endpoint: Endpoint, site: Site) -> tuple[Body, ...]:
    """Deployment, Service and who may call it. Raises ``ValueError`` as the weights do."""
    names, port = LlmdNames.of(endpoint), int(_facts()["port"])
    callers = [{"podSelector": {"matchLabels": names.picker_labels}}]
    selector = {"matchLabels": names.tokenizer_labels}
    policy = {
        "podSelector": selector,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": callers, "ports": [{"protocol": "TCP", "port": port}]}],
    }
    budget = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": selector}
    service = {"selector": names.tokenizer_labels, "ports": [{"name": "http", "port": port, "targetPort": "http", "protocol": "TCP"}]}
    specs = {
        ("networking.k8s.io/v1", "NetworkPolicy"): policy,
        ("policy/v1", "PodDisruptionBudget"): budget,
        ("v1", "Service"): service,
        ("apps/v1", "Deployment"): _deployment(endpoint, site),
    }
    metadata = {"name": names.tokenizer, "namespace": names.namespace, "labels": names.labels()}
    return tuple({"apiVersion": api, "kind": kind, "metadata": dict(metadata), "spec": spec} for (api, kind), spec in specs.items())


def image(endpoint: Endpoint) -> str:
    """vLLM for CPUs in the version of the workers: another one may render a prompt to other tokens."""
    version = (endpoint.image or default_image(endpoint.backend)).vllm
    return f"{_facts()['repository']}:v{version}"


def arguments(endpoint: Endpoint) -> list[str]:
    """What to render, and under which name clients ask for it."""
    hub = endpoint.model.source.hub
    return [
        model(endpoint),
        f"--served-model-name={endpoint.served_name}",
        f"--max-model-len={endpoint.model.max_model_len}",
        *([f"--revision={hub.revision}"] if hub else []),
        f"--port={_facts()['port']}",
    ]


def _deployment(endpoint: Endpoint, site: Site) -> Body:
    names, facts = LlmdNames.of(endpoint), _facts()
    mounted, hub = weights(endpoint, site), endpoint.model.source.hub
    health = {"httpGet": {"path": HEALTH_PATH, "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5}
    container = {
        "name": "tokenizer",
        "image": image(endpoint),
        "imagePullPolicy": "IfNotPresent",
        "command": ["vllm", "launch", "render"],
        "args": arguments(endpoint),
        "env": [
            variable("HOME", _SCRATCH),
            variable("HF_HOME", f"{_SCRATCH}/huggingface"),
            variable("USER", str(llmd().more["workers"]["user"])),
            *([variable("HF_TOKEN", hub.token)] if hub and hub.token else []),
        ],
        "ports": [{"name": "http", "containerPort": facts["port"], "protocol": "TCP"}],
        "resources": amounts(facts),
        "startupProbe": {**health, "failureThreshold": 60},
        "livenessProbe": {**health, "failureThreshold": 3},
        "readinessProbe": {**health, "failureThreshold": 3},
        "securityContext": security(),
        "volumeMounts": [{"name": "scratch", "mountPath": _SCRATCH}, *mounted.mounts],
    }
    pod = {
        "serviceAccountName": names.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        **placement(site, names.tokenizer_labels),
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}, *mounted.volumes],
    }
    return {
        "replicas": facts["replicas"],
        "selector": {"matchLabels": names.tokenizer_labels},
        "template": {"metadata": {"labels": {**names.labels(), **names.tokenizer_labels}}, "spec": pod},
    }


def _facts() -> Body:
    facts: Body = llmd().more["picker"]["tokenizer"]
    return facts
