"""Capacity: pods beside nodes, now, during an update, and at the scale ceiling."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.support import REMOVE, base, findings

PREFILL, DECODE = "endpoints[0].prefill", "endpoints[0].decode"
P_COUNT, D_COUNT = "cluster.groups.prefill.count", "cluster.groups.decode.count"
SYSTEM = "cluster.groups.system"
PERCENT = "cluster.tiered_storage_memory_percent"
TIERED = {PERCENT: 20, "endpoints[0].kv.shared_tier": "tiered_storage"}


def second(**changes: Any) -> dict[str, Any]:
    """A second endpoint beside the first, half a node for each role of both."""
    other = base()["endpoints"][0]
    other["name"] = "second"
    half = {"tensor_parallel": 4}
    other["prefill"] |= half
    other["decode"] |= half | changes
    return {f"{PREFILL}.tensor_parallel": 4, f"{DECODE}.tensor_parallel": 4, "endpoints[1]": other}


def many(count: int) -> list[dict[str, Any]]:
    """So many endpoints."""
    return [{**base()["endpoints"][0], "name": f"llama-{index}"} for index in range(count)]


def scaling(low: int, high: int) -> dict[str, Any]:
    return {f"{PREFILL}.autoscaling": {"min_replicas": low, "max_replicas": high}}


@pytest.mark.parametrize(
    ("id", "path", "wrong", "right"),
    [
        ("CAP001", D_COUNT, {D_COUNT: 0}, {D_COUNT: 1}),
        ("CAP001", P_COUNT, {f"{PREFILL}.replicas": 2}, {f"{PREFILL}.replicas": 2, P_COUNT: 2}),
        ("CAP001", P_COUNT, {f"{DECODE}.group": "prefill"}, {f"{DECODE}.group": "prefill", P_COUNT: 2}),
        ("CAP001", D_COUNT, {**second(), f"{DECODE}.tensor_parallel": 8}, second()),
        ("CAP002", f"{DECODE}.tensor_parallel", {f"{DECODE}.tensor_parallel": 16}, {f"{DECODE}.tensor_parallel": 8}),
        ("CAP002", f"{DECODE}.efa_devices", {f"{DECODE}.efa_devices": 33}, {f"{DECODE}.efa_devices": 32}),
        ("CAP002", f"{DECODE}.cpus", {f"{DECODE}.cpus": 169}, {f"{DECODE}.cpus": 168}),
        ("CAP002", f"{DECODE}.memory_gib", {f"{DECODE}.memory_gib": 1793}, {f"{DECODE}.memory_gib": 1792}),
        # managed tiered storage keeps a fifth of 2048 GiB, and what is left has the node's reserve as well
        ("CAP002", f"{DECODE}.memory_gib", {**TIERED, f"{DECODE}.memory_gib": 1434}, {**TIERED, f"{DECODE}.memory_gib": 1433}),
        ("CAP009", f"{DECODE}.memory_gib", {**TIERED, PERCENT: 94}, {**TIERED, PERCENT: 93}),
        # GPUs suffice in sum, and do not fit: 3 pods of 5 on two nodes of 8
        ("CAP003", D_COUNT, {f"{DECODE}.tensor_parallel": 5, f"{DECODE}.replicas": 3, D_COUNT: 2},
         {f"{DECODE}.tensor_parallel": 5, f"{DECODE}.replicas": 3, D_COUNT: 3}),
        ("CAP003", D_COUNT, second(efa_devices=32), second(efa_devices=16)),
        ("CAP003", D_COUNT, second(cpus=85), second(cpus=84)),
        ("CAP003", D_COUNT, second(memory_gib=897), second(memory_gib=896)),
        ("CAP004", f"{DECODE}.efa_devices", {f"{DECODE}.efa_devices": 1}, {f"{DECODE}.efa_devices": 32}),
        ("CAP004", f"{DECODE}.efa_devices", {f"{DECODE}.efa_devices": 0}, {}),
        ("CAP004", f"{DECODE}.efa_devices", {f"{DECODE}.tensor_parallel": 4, f"{DECODE}.efa_devices": 32},
         {f"{DECODE}.tensor_parallel": 4, f"{DECODE}.efa_devices": 16}),
        ("CAP005", f"{DECODE}.max_surge", {f"{DECODE}.max_surge": 1}, {f"{DECODE}.max_surge": 1, D_COUNT: 2}),
        ("CAP005", f"{DECODE}.max_surge", {f"{DECODE}.max_surge": 1}, {f"{DECODE}.max_surge": 1, f"{DECODE}.tensor_parallel": 4}),
        ("CAP005", f"{DECODE}.max_surge", {**second(), f"{DECODE}.max_surge": 1}, {**second(), f"{DECODE}.max_surge": 1, D_COUNT: 2}),
        ("CAP006", f"{PREFILL}.autoscaling.max_replicas", scaling(1, 2), {**scaling(1, 2), P_COUNT: 2}),
        ("CAP006", f"{PREFILL}.autoscaling.max_replicas", scaling(1, 3), scaling(1, 1)),
        ("CAP011", "endpoints", {"endpoints": many(101)}, {"endpoints": many(100)}),
        ("CAP007", "cluster.groups", {f"{SYSTEM}.instance_type": "ml.c7g.4xlarge"}, {f"{SYSTEM}.instance_type": "ml.c6i.4xlarge"}),
        ("CAP007", "cluster.groups", {SYSTEM: REMOVE}, {}),
        ("CAP007", "cluster.groups", {f"{SYSTEM}.count": 0}, {f"{SYSTEM}.count": 2}),
        ("CAP007", "cluster.groups", {f"{SYSTEM}.taints": [{"key": "a", "effect": "NoSchedule"}]},
         {f"{SYSTEM}.taints": [{"key": "a", "effect": "PreferNoSchedule"}]}),
        ("CAP007", f"{SYSTEM}.instance_type", {f"{SYSTEM}.instance_type": "ml.c5.2xlarge"}, {f"{SYSTEM}.instance_type": "ml.m5.4xlarge"}),
        ("CAP007", f"{SYSTEM}.count", {f"{SYSTEM}.count": 1}, {f"{SYSTEM}.count": 2}),
        ("CAP008", f"{SYSTEM}.count",
         {"endpoints": [], P_COUNT: 0, D_COUNT: 0, f"{SYSTEM}.count": 1, f"{SYSTEM}.instance_type": "ml.c5.2xlarge"},
         {"endpoints": [], P_COUNT: 0, D_COUNT: 0, f"{SYSTEM}.count": 1}),
        ("CAP009", f"{DECODE}.memory_gib", {f"{DECODE}.memory_gib": 8}, {f"{DECODE}.memory_gib": 128}),
        ("CAP009", f"{DECODE}.memory_gib", {"endpoints[0].kv.cpu_tier_gib": 300}, {"endpoints[0].kv.cpu_tier_gib": 200}),
        ("CAP012", f"{DECODE}.cpus", {f"{DECODE}.cpus": 9}, {f"{DECODE}.cpus": 10}),
        ("CAP010", f"{DECODE}.group", {**second(), f"{DECODE}.group": "prefill"}, second()),
        ("CAP010", f"{DECODE}.group", {f"{PREFILL}.tensor_parallel": 4, f"{DECODE}.tensor_parallel": 4, f"{DECODE}.group": "prefill"},
         {f"{DECODE}.group": "prefill", P_COUNT: 2}),
    ],
)  # fmt: skip
def test_pods_that_do_not_fit_and_the_nearest_that_do(id: str, path: str, wrong: dict[str, Any], right: dict[str, Any]) -> None:
    assert path in {finding.path for finding in findings(wrong, id=id)}
    assert not findings(right, id=id)


def test_the_sum_of_a_group_is_printed() -> None:
    [finding] = findings({f"{PREFILL}.replicas": 3, P_COUNT: 2}, id="CAP001")
    assert finding.message == "llama-70b prefill 3 x 8 = 24 GPUs; 2 x ml.p5.48xlarge = 16 GPUs"
    assert finding.fix == "set count: 3 or lower the replicas"


def test_pods_that_do_not_pack_are_named() -> None:
    [finding] = findings({f"{DECODE}.tensor_parallel": 5, f"{DECODE}.replicas": 3, D_COUNT: 2}, id="CAP003")
    assert "no node is left for 1 of llama-70b decode (5 GPUs, 20 EFA, 105 CPUs, 1120 GiB): what is left on each node is too small" in (
        finding.message
    )
    [efa] = findings(second(efa_devices=32), id="CAP003")
    assert "together they need 48 EFA devices of 32" in efa.message


def test_one_fault_is_said_once() -> None:
    for changes in ({f"{DECODE}.tensor_parallel": 16}, {D_COUNT: 0}, {f"{DECODE}.cpus": 448, f"{DECODE}.max_surge": 1}):
        ids = {it.id for it in findings(changes) if it.id.startswith("CAP") and it.stops}
        assert len(ids - {"CAP001"}) <= 1, ids


@pytest.mark.parametrize(
    ("devices", "level"),
    [(0, Level.ERROR), (1, Level.WARNING), (16, Level.WARNING), (32, None)],
)
def test_fewer_devices_than_the_gpus_carry(devices: int, level: Level | None) -> None:
    found = findings({f"{DECODE}.efa_devices": devices}, id="CAP004")
    assert [finding.level for finding in found] == ([level] if level else [])


@pytest.mark.parametrize(
    ("max_count", "level"),
    [(None, Level.ERROR), (2, Level.ERROR), (3, Level.WARNING)],
)
def test_an_autoscaler_beside_what_the_group_may_become(max_count: int | None, level: Level) -> None:
    changes = scaling(1, 3) | ({"cluster.groups.prefill.max_count": max_count} if max_count else {})
    [finding] = findings(changes, id="CAP006")
    assert finding.level is level
    assert "at the ceiling llama-70b prefill 3 x 8 = 24 GPUs; 1 x ml.p5.48xlarge = 8 GPUs" in finding.message or max_count == 2


def test_why_each_group_cannot_carry_the_system_pods() -> None:
    [finding] = findings({f"{SYSTEM}.instance_type": "ml.c7g.4xlarge"}, id="CAP007")
    assert finding.message == "no group can carry them (system: arm64; prefill: 8 GPUs; decode: 8 GPUs)"


def test_the_host_memory_of_the_ranks_is_printed() -> None:
    [finding] = findings({f"{DECODE}.memory_gib": 64}, id="CAP009")
    assert finding.message == (
        "5 x 8 GPUs for the CPU tier + 16 for weights on their way + 6 x 8 for processes and shared memory + 8 = 113 GiB; the pod has 64"
    )


def test_an_adopted_cluster_may_have_other_nodes() -> None:
    existing = {
        "name": "eks", "security_group_id": "sg-0123456789abcdef0", "authentication_mode": "API", "prerequisites": "exists",
        "oidc_issuer": "https://oidc.eks.us-east-2.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF",
        "oidc_provider_arn": "arn:aws:iam::111122223333:oidc-provider/oidc.eks.us-east-2.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF",
    }  # fmt: skip
    [finding] = findings({SYSTEM: REMOVE, "cluster.existing": existing}, id="CAP007")
    assert finding.level is Level.WARNING
