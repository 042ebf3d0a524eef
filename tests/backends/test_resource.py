"""The typed resource says what the published schema says."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd.backends.operator.build import build
from dpd.backends.operator.resource import Spec, faults
from dpd.backends.site import Site
from tests.support import environment

CRD = "inference.sagemaker.aws.amazon.com_inferenceendpointconfigs.operator-v3.2.yaml"
SINCE_3_3 = {"loadBalancer.idleTimeoutSeconds", "modelCacheConfig"}
"""Fields that the release notes of 3.3 state, younger than the schema file."""
STRICTER = {"pdSpec"}
"""Required here: a resource without it is not disaggregated."""
SAME_LANGUAGE = {"modelName": r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$"}
"""The file's pattern lacks its end, so it lets dots through that SageMaker refuses."""
STATED_DIFFERENCES = {
    # Negative times and counts are nonsense that the schema lets through.
    "maxDeployTimeInSeconds: minimum None != 0",
    "replicas: minimum None != 0",
    # The pattern ^http$|^grpc$ is written as its two words.
    "worker.modelInvocationPort.name: enum None != ['http', 'grpc']",
    "worker.modelInvocationPort.name: pattern '^http$|^grpc$' != None",
}


def crd_spec(crds: Path) -> dict[str, Any]:
    content = yaml.load((crds / CRD).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    version = next(version for version in content["spec"]["versions"] if version["name"] == "v1")
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert isinstance(spec, dict)
    return spec


def resolved(node: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema node with references followed and the ``null`` branch of optional fields removed."""
    if "$ref" in node:
        return resolved(root["$defs"][node["$ref"].rsplit("/", 1)[1]], root)
    branches = [branch for branch in node.get("anyOf", []) if branch.get("type") != "null"]
    return resolved(branches[0], root) if len(branches) == 1 else node


def compare(theirs: dict[str, Any], ours: dict[str, Any], root: dict[str, Any], path: str = "") -> list[str]:
    ours = resolved(ours, root)
    if "properties" not in ours and "items" not in ours:
        return [
            f"{path}: {key} {theirs.get(key)!r} != {ours.get(key)!r}"
            for key in ("enum", "pattern", "minimum", "maximum", "maxLength", "maxItems")
            if _limit(key, theirs) != _limit(key, ours, path)
        ]
    if "items" in ours:
        return compare(theirs["items"], ours["items"], root, f"{path}[]") if "items" in theirs else [f"{path}: not a list in the schema"]
    known, wanted = ours["properties"], theirs.get("properties", {})
    prefix = f"{path}." if path else ""
    extra = {f"{prefix}{name}" for name in known.keys() - wanted.keys()} - SINCE_3_3
    lacking = {f"{prefix}{name}" for name in wanted.keys() - known.keys()}
    required = {f"{prefix}{name}" for name in set(ours.get("required", [])) ^ set(theirs.get("required", []))} - STRICTER
    problems = [
        f"{place}: {what}" for what, places in (("extra", extra), ("lacking", lacking), ("required?", required)) for place in places
    ]
    for name in known.keys() & wanted.keys():
        problems += compare(wanted[name], known[name], root, f"{prefix}{name}")
    return problems


def _limit(key: str, node: dict[str, Any], path: str = "") -> Any:
    value = node.get(key)
    if key == "enum":
        return set(value or [])
    if key == "pattern" and value is not None:
        return re.sub(r"\\/", "/", value).removesuffix("$" if path in SAME_LANGUAGE else "\0")
    if key in {"minimum", "maximum"} and value is not None and abs(value) >= 2**31 - 1:
        return None
    return value


def test_every_field_of_the_schema_with_its_limits(crds: Path) -> None:
    ours = Spec.model_json_schema(by_alias=True)
    assert set(compare(crd_spec(crds), ours, ours)) == STATED_DIFFERENCES


@pytest.mark.parametrize(
    ("path", "value", "place", "unknown"),
    [
        ("pdSpec.prefillSpec.replicas", 0, "pdSpec.prefillSpec.replicas", False),
        ("pdSpec.routingThreshold", -1, "pdSpec.routingThreshold", False),
        ("pdSpec.routingTreshold", 1, "pdSpec.routingTreshold", True),
        ("pd_spec", {}, "pd_spec", True),
        ("modelName", "Llama-3.3", "modelName", False),
        ("endpointName", "a.b", "endpointName", False),
        ("intelligentRoutingSpec.routingStrategy", "leastloaded", "intelligentRoutingSpec.routingStrategy", False),
        ("worker.resources.limits", {"cpu": "many"}, "worker.resources.limits.cpu", False),
        ("worker.environmentVariables", [{"name": "A", "value": 0}], "worker.environmentVariables.0.value", False),
        ("metrics.modelMetrics.port", 80, "metrics.modelMetrics.port", False),
        ("loadBalancer.healthCheckPath", "health", "loadBalancer.healthCheckPath", False),
        ("modelSourceConfig.modelSourceType", "fsx", "modelSourceConfig", False),
        ("kvCacheSpec.enableL2Cache", True, "kvCacheSpec", False),
        ("kvCacheSpec.l2CacheSpec", {"l2CacheBackend": "redis"}, "kvCacheSpec", False),
        ("instanceTypes", ["ml.p5.48xlarge"], "", False),
        ("dnsConfig", {"hostedZoneId": "Z1"}, "", False),
    ],
)
def test_refuses(path: str, value: object, place: str, unknown: bool) -> None:
    made = environment()
    spec = copy.deepcopy(build(made.endpoints[0], Site.of(made))["spec"])
    assert faults(spec) == []
    *parents, last = path.split(".")
    inside = spec
    for part in parents:
        inside = inside[part]
    inside[last] = value
    found = faults(spec)
    assert [(".".join(map(str, fault.place)), fault.unknown) for fault in found] == [(place, unknown)]
    assert found[0].message
