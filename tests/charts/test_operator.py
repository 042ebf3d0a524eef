"""The operator's object against the schema that the API server would use, for every example and every option."""

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from charts.render import render
from charts.site import Site
from dpd.checks.manifests import beyond_checks, instance_groups, run_manifests
from tests.charts.test_render import EXAMPLES, example
from tests.support import environment

E = "endpoints[0]."
CERTIFICATE = {
    "acm_arn": "arn:aws:acm:us-east-2:111122223333:certificate/12345678-1234-1234-1234-123456789012",
    "domain_name": "llm.example.com", "hosted_zone_id": "Z0123456789",
}  # fmt: skip
SCALED = {
    "min_replicas": 1, "max_replicas": 4,
    "cloudwatch": [{"namespace": "AWS/SageMaker", "metric": "Invocations", "target": 10, "dimensions": {"EndpointName": "a"}}],
    "prometheus": [{"workspace_url": "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1", "query": "up", "target": 0.5}],
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "lustre": {E + "model.source": {"lustre": {"path": "/checkpoints/llama"}}},
    "hub": {E + "model.source": {"hub": {"model_id": "a/b", "revision": "c" * 40, "token": {"secret": "hub", "key": "token"}}}},
    "claim": {E + "model.source": {"volume": {"claim": "weights", "path": "llama"}}},
    "nvme": {E + "model.source": {"volume": {"host_path": "/opt/dlami/nvme/llama"}}},
    "autoscaling": {E + "prefill.autoscaling": SCALED, E + "decode.autoscaling": SCALED},
    "tiers": {E + "kv.shared_tier": "tiered_storage", E + "kv.cpu_tier": False},
    "redis": {E + "kv.shared_tier": "rediss://cache:6379"},
    "cache": {E + "kv.dtype": "fp8", E + "kv.block_size": 64},
    "exposed": {E + "exposure": {"sagemaker_endpoint": "llama", "certificate": CERTIFICATE}},
    "routing": {E + "routing": {"threshold_tokens": 0, "strategy": "kv_aware", "api": "completions"}},
    "no_efa": {E + "prefill.efa_devices": 0, E + "decode.efa_devices": 0},
    "types": {"cluster.groups.decode.instance_type": "ml.p5en.48xlarge"},
    "arguments": {E + "prefill.extra_args": ["--enforce-eager"], E + "decode.node_selector": {"zone": "a"}},
    "variables": {E + "environment": {"A": "0", "HF_TOKEN": {"secret": "hub", "key": "token"}}},
    "image": {
        E + "image": {
            "repository": "lmcache/vllm-openai", "tag": "v0.4.3", "digest": "sha256:" + "a" * 64,
            "lmcache": "0.4.3", "vllm": "0.19.0", "nixl": "1.0.0",
        }
    },
    "raw": {
        E + "raw.spec": {
            "worker": {"requestLimits": {"maxConcurrentRequests": 64}},
            "dataCapture": {"s3Uri": "s3://bucket/capture", "modelPod": {"enabled": True, "bufferConfig": {"batchSize": 5}}},
            "pdSpec": {"topologySpec": {"placementGroup": "pg"}},
        }
    },
}  # fmt: skip


@cache
def schema(crds: Path) -> dict[str, Any]:
    file = crds / "inference.sagemaker.aws.amazon.com_inferenceendpointconfigs.operator-v3.2.yaml"
    content = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    version = next(version for version in content["spec"]["versions"] if version["name"] == "v1")
    found = version["schema"]["openAPIV3Schema"]
    assert isinstance(found, dict)
    return found


def as_json_schema(node: Any) -> Any:
    """An OpenAPI schema of Kubernetes as JSON schema: ``x-kubernetes-int-or-string`` is a union."""
    if isinstance(node, dict):
        node = {key: as_json_schema(value) for key, value in node.items()}
        if node.pop("x-kubernetes-int-or-string", False):
            node.pop("anyOf", None)
            node["type"] = ["integer", "string"]
        return node
    return [as_json_schema(item) for item in node] if isinstance(node, list) else node


def dropped(value: Any, node: dict[str, Any], path: str = "") -> Iterator[str]:
    """Fields that the API server would prune without a word."""
    if isinstance(value, dict) and "additionalProperties" not in node and not node.get("x-kubernetes-preserve-unknown-fields"):
        for key, item in value.items():
            known = node.get("properties", {}).get(key)
            if known is None:
                yield f"{path}.{key}"
            else:
                yield from dropped(item, known, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from dropped(item, node.get("items", {}), f"{path}[]")


def check(body: dict[str, Any], crds: Path) -> None:
    known = schema(crds)
    jsonschema.Draft202012Validator(as_json_schema(known)).validate(body)
    assert list(dropped({"spec": body["spec"]}, {"properties": {"spec": known["properties"]["spec"]}})) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_against_the_schema(path: Path, crds: Path) -> None:
    for group in render(example(path)).endpoints.values():
        for manifest in group:
            check(manifest.body, crds)


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_every_option_against_the_schema(changes: dict[str, Any], crds: Path) -> None:
    (manifest,) = render(environment(changes)).endpoints["llama-70b"]
    check(manifest.body, crds)


@pytest.mark.parametrize(
    ("field", "value"), [("replicas", 0), ("replicas", "1"), ("args", "--seed"), ("nodeSelector", {"a": 1}), ("env", [])], ids=str
)
def test_the_schema_test_can_fail(field: str, value: object, crds: Path) -> None:
    (manifest,) = render(environment()).endpoints["llama-70b"]
    body = copy.deepcopy(manifest.body)  # equal charts share their objects
    body["spec"]["pdSpec"]["prefillSpec"][field] = value
    with pytest.raises((jsonschema.ValidationError, AssertionError)):
        check(body, crds)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_rule_about_manifests_objects_to_an_example(path: Path) -> None:
    made = example(path)
    bodies = [manifest.body for manifest in render(made).manifests()]
    assert run_manifests(bodies, instance_groups(Site.of(made))) == []
    assert beyond_checks(made, bodies) == []


def test_placeholders_are_all_that_a_deployment_must_fill_in() -> None:
    (manifest,) = render(environment(OPTIONS["lustre"])).endpoints["llama-70b"]
    assert manifest.body["spec"]["modelSourceConfig"]["fsxStorage"] == {
        "fileSystemId": "${LUSTRE_FILE_SYSTEM_ID}",
        "dnsName": "${LUSTRE_DNS_NAME}",
        "mountName": "${LUSTRE_MOUNT_NAME}",
    }
