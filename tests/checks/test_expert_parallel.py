"""Experts over several nodes: the smallest wrong input of every kind, and the nearest right one."""

from typing import Any

import pytest

from dpd.catalog.llmd import llmd
from dpd.finding import Level
from tests.support import REMOVE, ROOT, findings

WIDE = ROOT / "docs" / "example-wide-ep.yaml"
E = "endpoints[0]."
PREFILL, DECODE = E + "prefill", E + "decode"
WAY = DECODE + ".expert_parallel.all2all"
NEWER = {"repository": "ghcr.io/llm-d/llm-d-aws", "tag": "v9", "digest": "sha256:" + "b" * 64, "vllm": "0.24.0", "nixl": "1.4.0"}
V2: dict[str, Any] = {WAY: "deepep_v2", DECODE + ".hugepages_mib": 5120, DECODE + ".privileged": True, E + "image": NEWER}


def image(vllm: str) -> dict[str, Any]:
    return {E + "image": {**NEWER, "vllm": vllm}}


def dense() -> dict[str, Any]:
    return {E + "model.catalog": "llama-3.3-70b-instruct"}


def arguments(*texts: str) -> dict[str, Any]:
    return {DECODE + ".extra_args": list(texts)}


@pytest.mark.parametrize(
    ("id", "path", "wrong", "right"),
    [
        ("EXP001", PREFILL + ".expert_parallel", dense(), {}),
        ("EXP001", DECODE + ".expert_parallel", dense(),
         {**dense(), PREFILL + ".expert_parallel": REMOVE, DECODE + ".expert_parallel": REMOVE}),
        ("EXP002", WAY, {WAY: "deepep_low_latency"}, {WAY: "allgather_reducescatter"}),
        ("EXP002", WAY, {WAY: "deepep_high_throughput"}, V2),
        ("EXP002", PREFILL + ".expert_parallel.all2all", {PREFILL + ".expert_parallel.all2all": "deepep_high_throughput"}, {}),
        ("EXP003", DECODE + ".hugepages_mib", {**V2, DECODE + ".hugepages_mib": 5118}, V2),
        ("EXP003", DECODE + ".hugepages_mib", {WAY: "deepep_v2"}, {}),
        ("EXP003", DECODE + ".privileged", {**V2, DECODE + ".privileged": False}, V2),
        ("EXP003", DECODE + ".memory_gib", {**V2, DECODE + ".memory_gib": 128}, {**V2, DECODE + ".memory_gib": 129}),
        ("EXP004", DECODE + ".tensor_parallel", {DECODE + ".tensor_parallel": 3}, {DECODE + ".tensor_parallel": 2}),
        ("EXP004", DECODE + ".tensor_parallel", {DECODE + ".tensor_parallel": 16}, {DECODE + ".tensor_parallel": 8}),
        ("EXP005", DECODE + ".expert_parallel", {DECODE + ".tensor_parallel": 2},
         {DECODE + ".tensor_parallel": 2, PREFILL + ".tensor_parallel": 2}),
        ("EXP005", DECODE + ".expert_parallel", {PREFILL + ".expert_parallel": REMOVE, PREFILL + ".tensor_parallel": 8},
         {DECODE + ".tensor_parallel": 8, PREFILL + ".expert_parallel": REMOVE, PREFILL + ".tensor_parallel": 8}),
        ("EXP006", DECODE + ".expert_parallel.nodes", {DECODE + ".expert_parallel.nodes": 3}, {DECODE + ".expert_parallel.nodes": 4}),
        ("EXP006", DECODE + ".expert_parallel.nodes", {DECODE + ".expert_parallel.nodes": 33}, {DECODE + ".expert_parallel.nodes": 32}),
        ("EXP007", E + "image.vllm", image("0.21.9"), image("0.22.0")),
        ("EXP007", E + "image.vllm", {**V2, **image("0.23.9")}, V2),
        ("EXP007", E + "image", {WAY: "deepep_v2"}, {}),
        ("EXP008", DECODE + ".extra_args[0]", arguments("--enable-dbo"), arguments("--async-scheduling")),
        ("EXP008", DECODE + ".extra_args[0]", arguments("--ubatch-size=2"), arguments("--max-num-batched-tokens=256")),
        ("EXP008", DECODE + ".extra_args[0]", arguments("--all2all-backend", "naive"), arguments("--moe-backend", "triton")),
        ("EXP008", DECODE + ".extra_args[0]", arguments("--data-parallel-rank=1"), {}),
        ("EXP008", DECODE + ".extra_args[0]", arguments("--no-enable-expert-parallel"), {}),
        # the pods of a replica and their nodes, by the rules for all pods
        ("CAP001", "cluster.groups.decode.count", {"cluster.groups.decode.count": 1}, {}),
        ("CAP001", "cluster.groups.decode.count", {DECODE + ".expert_parallel.nodes": 4},
         {DECODE + ".expert_parallel.nodes": 4, "cluster.groups.decode.count": 4}),
        ("CAP002", DECODE + ".hugepages_mib", {DECODE + ".hugepages_mib": 10_258}, {DECODE + ".hugepages_mib": 10_256}),
        # 34.7 GB for everybody and 654 / 16 GB of experts do not fit 0.85 x 80 GiB with activations; 654 / 32 do
        ("MEM001", DECODE + ".tensor_parallel", {"cluster.groups.decode.instance_type": "ml.p5.48xlarge"},
         {"cluster.groups.decode.instance_type": "ml.p5.48xlarge", DECODE + ".expert_parallel.nodes": 4, "cluster.groups.decode.count": 4}),
    ],
)  # fmt: skip
def test_a_wrong_group_and_its_nearest_right_one(id: str, path: str, wrong: dict[str, Any], right: dict[str, Any]) -> None:
    assert path in {finding.path for finding in findings(wrong, id=id, example=WIDE)}
    assert path not in {finding.path for finding in findings(right, id=id, example=WIDE)}


def test_the_usable_ways_are_named() -> None:
    [finding] = findings({WAY: "deepep_low_latency"}, id="EXP002", example=WIDE)
    assert finding.message == "needs GPU-initiated InfiniBand, and ml.p5en.48xlarge has 16 EFA devices instead"
    assert finding.fix == "use allgather_reducescatter or deepep_v2"


@pytest.mark.parametrize(
    ("nodes", "way", "level", "says"),
    [
        (3, "allgather_reducescatter", Level.WARNING, "3 nodes x 8 GPUs = 24 for 256 experts: 16 GPUs have one more"),
        (3, "deepep_v2", Level.ERROR, "16 GPUs have one more"),
        (33, "allgather_reducescatter", Level.ERROR, "8 GPUs have none"),
    ],
)
def test_a_remainder_is_a_loss_or_an_end(nodes: int, way: str, level: Level, says: str) -> None:
    changes = {**V2, DECODE + ".expert_parallel": {"nodes": nodes, "all2all": way}}
    [finding] = findings(changes, id="EXP006", example=WIDE)
    assert finding.level is level
    assert says in finding.message
    assert finding.fix == f"set nodes: {2 if nodes == 3 else 32}"


def test_ranks_beyond_the_ports_of_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """No type of the catalog has more than eight GPUs, so the pool is made smaller here."""
    monkeypatch.setitem(llmd().more["wide_ep"], "pool_ports", 4)
    found = findings(id="EXP005", example=WIDE)
    assert [finding.path for finding in found] == [PREFILL + ".tensor_parallel", DECODE + ".tensor_parallel"]
    assert found[0].message == "8 GPUs / 1 = 8 ranks in a pod"
    assert found[0].fix == "set tensor_parallel: 2 or more"
    both = {PREFILL + ".tensor_parallel": 2, DECODE + ".tensor_parallel": 2}
    assert not findings(both, id="EXP005", example=WIDE)


def test_the_example_of_the_guide_has_nothing_wrong() -> None:
    assert not [finding for finding in findings(example=WIDE) if finding.stops]


def test_weights_of_a_group_are_summed_up_and_the_nodes_they_need() -> None:
    small = {"cluster.groups.decode.instance_type": "ml.p5.48xlarge"}
    [finding] = findings(small, id="MEM001", example=WIDE)
    assert "weights 32.3 / 1 + experts 609.0 / 16 = 70.4 GiB + 4 GiB for activations = 74.4 GiB" in finding.message
    nodes = int(finding.fix.split(":")[1].split(",")[0])
    enough = {**small, DECODE + ".expert_parallel.nodes": nodes, "cluster.groups.decode.count": nodes}
    assert not findings(enough, id="MEM001", example=WIDE)
    few = {**small, DECODE + ".expert_parallel.nodes": nodes - 1, "cluster.groups.decode.count": nodes - 1}
    assert findings(few, id="MEM001", example=WIDE)
