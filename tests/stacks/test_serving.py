"""The serving stack: what is applied is what a reviewer reads, checked by the cluster, and what must stay stays."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd.checks.capacity import OUTPUTS_OF_AN_ENDPOINT
from dpd.review.assembly import MANIFESTS
from tests.stacks.conftest import Whole, changed
from tests.stacks.support import Template
from tests.support import base

MANIFEST = "Custom::AWSCDK-EKS-KubernetesResource"
ON_LUSTRE = {"endpoints[0].model.source": {"lustre": {"path": "/checkpoints/llama"}}}


def serving(changes: dict[str, Any] | None = None) -> Template:
    return changed(changes).templates["serving"]


def objects(template: Template) -> dict[str, list[dict[str, Any]]]:
    """Objects of each manifest by logical id; a reference reads `<REF>`."""
    found = {}
    for id_, resource in template.of(MANIFEST).items():
        text = resource["Properties"]["Manifest"]
        if not isinstance(text, str):
            text = "".join(part if isinstance(part, str) else "<REF>" for part in text["Fn::Join"][1])
        found[id_] = json.loads(text)
    return found


def one(template: Template, kind: str) -> tuple[str, dict[str, Any]]:
    """Logical id of the manifest that holds the only object of a kind, and the object."""
    ((id_, body),) = [(id_, body) for id_, bodies in objects(template).items() for body in bodies if body["kind"] == kind]
    return id_, body


def test_endpoints_are_applied_after_their_namespace_with_strict_validation() -> None:
    template = serving()
    namespace, _ = one(template, "Namespace")
    endpoint, _ = one(template, "InferenceEndpointConfig")
    assert namespace in template.resources[endpoint]["DependsOn"]
    for resource in template.of(MANIFEST).values():
        assert not resource["Properties"].get("SkipValidation")
        assert resource["Properties"]["Overwrite"] is True
        assert "PruneLabel" not in resource["Properties"]
        assert 900 < resource["Properties"]["ServiceTimeout"] < 3600


def test_a_namespace_stays_and_an_endpoint_goes() -> None:
    template = serving()
    assert template.resources[one(template, "Namespace")[0]]["DeletionPolicy"] == "Retain"
    assert template.resources[one(template, "InferenceEndpointConfig")[0]]["DeletionPolicy"] == "Delete"


def test_lustre_is_a_volume_of_the_namespace_only_where_weights_lie_on_it() -> None:
    assert not [body for bodies in objects(serving()).values() for body in bodies if body["kind"].startswith("PersistentVolume")]
    template = serving(ON_LUSTRE)
    id_, volume = one(template, "PersistentVolume")
    assert volume["spec"]["csi"]["volumeHandle"] == "<REF>"
    assert volume["spec"]["csi"]["volumeAttributes"] == {"dnsname": "<REF>", "mountname": "<REF>"}
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert template.resources[id_]["DeletionPolicy"] == "Retain"
    assert "${LUSTRE" not in template.text


def test_an_adopted_file_system_is_named_as_it_is() -> None:
    lustre = {
        "file_system_id": "fs-0123456789abcdef0", "dns_name": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com", "mount_name": "abcd1234",
        "availability_zone_id": "use2-az1", "capacity_gib": 4800, "security_group_id": "sg-0123456789abcdef0",
    }  # fmt: skip
    _, volume = one(serving({**ON_LUSTRE, "storage.lustre": {"existing": lustre}}), "PersistentVolume")
    assert volume["spec"]["csi"]["volumeHandle"] == lustre["file_system_id"]


@pytest.mark.parametrize("api", ["chat_completions", "completions"])
def test_the_url_is_plain_http_on_port_443(api: str) -> None:
    outputs = serving({"endpoints[0].routing.api": api}).content["Outputs"]
    (url,) = [output["Value"] for name, output in outputs.items() if "Url" in name]
    path = api.replace("_", "/")
    assert url == f"http://llama-70b-inference-routing-service.hyperpod-inference-system.svc.cluster.local:443/v1/{path}"
    (command,) = [output["Value"] for name, output in outputs.items() if "LoadBalancer" in name]
    assert "kubectl get ingress alb-llama-70b-inference --namespace hyperpod-inference-system" in command


LLMD = {"endpoints[0].backend": "llm-d", "endpoints[0].kv": {"cpu_tier": False}, "gate.deploy": False}
NEWER = {"endpoints[0].image": {"repository": "a.example/vllm", "tag": "v9", "vllm": "0.27.1", "nixl": "1.4.0"}}


def test_another_revision_takes_the_place_of_the_one_before() -> None:
    before, after = serving(LLMD), serving(LLMD | NEWER)
    old, new = ({id_ for id_ in objects(template) if id_.startswith("Pods")} for template in (before, after))
    assert old
    assert len(old) == len(new)
    assert not old & new, "the same resource would leave the old pods where they are, and their GPUs taken"
    assert set(objects(before)) - old == set(objects(after)) - new
    one_by_name = {body["metadata"]["name"] for id_ in old for body in objects(before)[id_]}
    assert not one_by_name & {body["metadata"]["name"] for id_ in new for body in objects(after)[id_]}


def test_what_pods_need_comes_first_and_what_leads_to_them_last() -> None:
    template = serving(LLMD)
    parts = [(id_, {body["kind"] for body in bodies}) for id_, bodies in objects(template).items()]
    (endpoint,), pods, fronts = ([(id_, kinds) for id_, kinds in parts if id_.startswith(part)] for part in ("Endpoint", "Pods", "Front"))
    assert {"PersistentVolume", "PersistentVolumeClaim", "ServiceAccount"} <= endpoint[1]
    owners = [id_ for id_, kinds in pods if kinds == {"Deployment"}]
    (guards,) = [id_ for id_, kinds in pods if "NetworkPolicy" in kinds]
    (front,) = [id_ for id_, kinds in fronts if "Service" in kinds]
    assert endpoint[0] in template.resources[guards]["DependsOn"]
    assert len(owners) == 3
    for owner in owners:
        assert guards in template.resources[owner]["DependsOn"], "no pod runs before the policy that guards it"
        assert owner in template.resources[front]["DependsOn"]


TRIGGER = {"workspace_url": "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1", "query": "up", "target": 1}


@pytest.mark.parametrize(
    ("choice", "kinds"),
    [
        ({"endpoints[0].routing.gateway": {}}, {"Gateway", "HTTPRoute", "InferencePool", "DestinationRule"}),
        ({"endpoints[0].prefill.autoscaling": {"min_replicas": 1, "max_replicas": 1, "prometheus": [TRIGGER]}},
         {"ScaledObject", "TriggerAuthentication"}),
        ({"endpoints[0].workload": "disaggregated_set"}, {"DisaggregatedSet"}),
    ],
)  # fmt: skip
def test_what_is_no_longer_asked_for_goes(choice: dict[str, Any], kinds: set[str]) -> None:
    """Nothing prunes: an object goes with its resource, so it may share it with none that stays."""
    plain, chosen = (objects(serving(LLMD | changes)) for changes in ({}, choice))
    gone = {body["kind"] for id_ in chosen.keys() - plain.keys() for body in chosen[id_]}
    assert gone == kinds
    for id_ in chosen.keys() & plain.keys():
        assert not {body["kind"] for body in chosen[id_]} & kinds


def test_an_environment_can_have_no_endpoint() -> None:
    assert not serving({"endpoints": []}).of(MANIFEST)


def test_endpoints_with_names_that_differ_in_a_dash_do_not_collide() -> None:
    first = base()["endpoints"][0]
    both = [copy.deepcopy(first) | {"name": name} for name in ("a-b", "ab")]
    template = serving({"endpoints": both})
    assert len([bodies for bodies in objects(template).values() if bodies[0]["kind"] == "InferenceEndpointConfig"]) == 2
    assert len([name for name in template.content["Outputs"] if "Url" in name]) == 2
    assert len(template.content["Outputs"]) == 2 * OUTPUTS_OF_AN_ENDPOINT


def test_other_outputs_that_users_look_for() -> None:
    templates = changed().templates
    outputs = {part: template.content.get("Outputs", {}) for part, template in templates.items()}
    assert outputs["eks"]["KubeconfigCommand"]["Value"] == {
        "Fn::Join": ["", ["aws eks update-kubeconfig --region us-east-2 --name ", {"Ref": "EksCluster"}]]
    }
    assert outputs["hyperpod"]["HyperPodClusterArn"]["Value"] == {"Fn::GetAtt": ["HyperPodCluster", "ClusterArn"]}
    assert outputs["storage"]["ModelBucketUri"]["Value"] == "s3://llama-dpd-dev-models-111122223333-us-east-2"
    assert {"LustreFileSystemId", "LustreMountName"} <= set(outputs["storage"])


def test_what_is_applied_is_what_is_written_for_review(whole: Whole) -> None:
    for name, parts in whole.templates.items():
        applied = [body for part in ("eks", "serving", "gate") for bodies in objects(parts[part]).values() for body in bodies]
        written = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in _files(whole.folder / MANIFESTS / name)]
        key = lambda body: (body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"])  # noqa: E731
        assert sorted(map(key, applied)) == sorted(map(key, written))
        for body in applied:
            if "<REF>" not in json.dumps(body):
                assert body in written


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.yaml"))
