"""Every object of the workers, with every option, against the schemas of Kubernetes and of LeaderWorkerSet."""

import copy
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from tests.backends.llmd.objects import E, made
from tests.schemas import check, is_core

BOTH = ("cluster.groups.prefill.instance_type", "cluster.groups.decode.instance_type")
SCALED = {"min_replicas": 1, "max_replicas": 4}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lustre": {E + "model.source": {"lustre": {"path": "/checkpoints/llama"}}},
    "hub": {E + "model.source": {"hub": {"model_id": "a/b", "revision": "c" * 40, "token": {"secret": "hub", "key": "token"}}}},
    "claim": {E + "model.source": {"volume": {"claim": "weights", "path": "llama"}}},
    "nvme": {E + "model.source": {"volume": {"host_path": "/opt/dlami/nvme/llama"}}},
    "autoscaling": {E + "prefill.autoscaling": SCALED, E + "decode.autoscaling": SCALED},
    "hugepages": {E + "prefill.hugepages_mib": 5120, E + "decode.hugepages_mib": 5120},
    "privileged": {E + "prefill.privileged": True},
    "taints": {"cluster.groups.decode.taints": [{"key": "gpu", "effect": "NoExecute"}]},
    "tiers": {E + "kv.cpu_tier": True, E + "kv.disk_tier": {"medium": "nvme", "path": "kv", "capacity_gib": 100}},
    "kv_aware": {E + "routing.strategy": "kv_aware"},
    "gateway": {E + "routing.gateway": {}},
    "p6": dict.fromkeys(BOTH, "ml.p6-b300.48xlarge"),
    "one_group": {E + "decode.group": "prefill", "cluster.groups.prefill.count": 2},
    "variables": {E + "environment": {"A": "0", "HF_TOKEN": {"secret": "hub", "key": "token"}}},
}
WORKLOADS = ("deployments", "disaggregated_set")


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_every_option_against_kubernetes_own_schemas(changes: dict[str, Any], workload: str) -> None:
    for body in made({**changes, E + "workload": workload}):
        if is_core(body):
            kubernetes_validate.validate(body, "1.34", strict=True)


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_every_option_against_the_schema_of_the_set(changes: dict[str, Any], crds: Path) -> None:
    *_, body = made({**changes, E + "workload": "disaggregated_set"})
    check(body, crds)


@pytest.mark.parametrize(
    ("place", "field", "value"),
    [
        (("spec", "roles", 0, "spec"), "groupIdentity", "Hash"), (("spec", "roles", 0, "spec"), "replicas", "2"),
        (("spec", "roles", 0, "spec", "leaderWorkerTemplate"), "restartPolicy", "Never"), (("spec",), "slices", "1"),
    ],
)  # fmt: skip
def test_the_schema_of_the_set_refuses(place: tuple[str | int, ...], field: str, value: object, crds: Path) -> None:
    *_, body = made({E + "workload": "disaggregated_set"})
    body = copy.deepcopy(body)
    inner: Any = body
    for key in place:
        inner = inner[key]
    inner[field] = value
    with pytest.raises(jsonschema.ValidationError):
        check(body, crds)
