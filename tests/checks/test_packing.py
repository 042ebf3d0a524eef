"""A node for every pod: sizes suffice in every wrong input here, and some pod still has nowhere to go."""

from typing import Any

import pytest

from tests.support import LLMD_EXAMPLE, ROOT, base, findings

WIDE = ROOT / "docs" / "example-wide-ep.yaml"
E = "endpoints[0]."
PREFILL, DECODE = E + "prefill", E + "decode"
P_COUNT = "cluster.groups.prefill.count"
PLAN = "arn:aws:sagemaker:us-east-2:111122223333:training-plan/abcdefgh"


def shared(nodes: int, prefillers: int, decoders: int, **more: Any) -> dict[str, Any]:
    """Both roles of four GPUs on one group: two pods on a node, and never one of each."""
    both = {DECODE + ".group": "prefill", DECODE + ".tensor_parallel": 4, PREFILL + ".replicas": prefillers, DECODE + ".replicas": decoders}
    return {**both, P_COUNT: nodes, **{f"{DECODE if key.startswith('d_') else PREFILL}.{key[2:]}": value for key, value in more.items()}}


def scaled(low: int, high: int) -> dict[str, int]:
    return {"min_replicas": low, "max_replicas": high}


def zone(where: str) -> dict[str, Any]:
    return {"cluster.groups.decode.capacity": {"training_plan_arn": PLAN, "availability_zone_id": where}}


MIXED: dict[str, Any] = {DECODE + ".group": "prefill", P_COUNT: 2, PREFILL + ".replicas": 2}


def small_beside(count: int) -> dict[str, Any]:
    """So many decoders of four GPUs on the two nodes of a second endpoint's decoder of eight, which needs one of them whole."""
    second = {**base(LLMD_EXAMPLE)["endpoints"][0], "name": "second"}
    beside = {DECODE + ".tensor_parallel": 4, DECODE + ".replicas": 2, PREFILL + ".replicas": 1, "endpoints[1]": second}
    if not count:
        beside[DECODE + ".replicas"] = 1
    return {**beside, "cluster.groups.decode.count": 2, P_COUNT: 2}


@pytest.mark.parametrize(
    ("id", "path", "wrong", "right"),
    [
        # 3 + 1 pods of four GPUs fill two nodes, and one node would have to take one of each
        ("PCK001", DECODE, shared(2, 3, 1), shared(2, 2, 2)),
        ("PCK001", DECODE, shared(2, 3, 1), shared(3, 3, 1)),
        ("PCK001", DECODE, shared(2, 1, 3), shared(3, 1, 3)),
        ("PCK001", DECODE, shared(2, 3, 1), {**shared(2, 3, 1), E + "backend": "operator", E + "kv.buffer_gib": 8}),
        ("PCK001", PREFILL, zone("use2-az2"), zone("use2-az1")),
        ("PCK002", PREFILL + ".max_surge", shared(2, 2, 1, p_max_surge=1), shared(3, 2, 1, p_max_surge=1)),
        ("PCK002", DECODE + ".max_surge", shared(2, 1, 2, d_max_surge=1), shared(2, 2, 1, d_max_surge=1)),
        ("PCK003", PREFILL + ".autoscaling.max_replicas", shared(2, 1, 1, p_autoscaling=scaled(1, 3)),
         shared(2, 1, 1, p_autoscaling=scaled(1, 2))),
        ("PCK003", DECODE + ".autoscaling.max_replicas", shared(2, 1, 1, d_autoscaling=scaled(1, 3)),
         shared(3, 1, 1, d_autoscaling=scaled(1, 3))),
        # two prefillers of four GPUs on two nodes, one on each, and a decoder of eight; the same endpoint's pods stay close with llm-d
        ("PCK004", DECODE + ".group", {**MIXED, E + "backend": "operator", E + "kv.buffer_gib": 8}, MIXED),
        ("PCK004", DECODE + ".group", {**MIXED, E + "backend": "operator", E + "kv.buffer_gib": 8},
         {**MIXED, E + "backend": "operator", E + "kv.buffer_gib": 8, P_COUNT: 3}),
        ("PCK004", "endpoints[1].decode.group", small_beside(1), small_beside(0)),
    ],
)  # fmt: skip
def test_a_pod_without_a_node_and_the_nearest_with_one(id: str, path: str, wrong: dict[str, Any], right: dict[str, Any]) -> None:
    assert path in {finding.path for finding in findings(wrong, id=id, example=LLMD_EXAMPLE)}
    assert path not in {finding.path for finding in findings(right, id=id, example=LLMD_EXAMPLE)}


def test_the_pod_and_its_reason_are_named() -> None:
    [finding] = findings(shared(2, 3, 1), id="PCK001", example=LLMD_EXAMPLE)
    assert finding.message == (
        "1 of 1 llama-70b decode pods have no node: it may not share a node with inference/llama-70b prefill, which has a pod on "
        "every node of prefill that has room"
    )


def test_another_az_is_named() -> None:
    [finding] = findings(zone("use2-az2"), id="PCK001", example=LLMD_EXAMPLE)
    assert finding.message == (
        "2 of 2 llama-70b prefill pods have no node: it must be in use2-az2 with the rest of its endpoint, and the nodes of prefill are "
        "in use2-az1"
    )


def test_sizes_are_left_to_the_rules_about_sizes() -> None:
    for changes in ({P_COUNT: 0}, {PREFILL + ".cpus": 400}, {PREFILL + ".replicas": 9}, {PREFILL + ".tensor_parallel": 16}):
        assert not [finding for finding in findings(changes, example=LLMD_EXAMPLE) if finding.id in {"PCK001", "PCK002", "PCK003"}], changes


def test_a_group_that_does_not_fit_whole_is_not_placed_at_all() -> None:
    """One replica of two nodes fits, the second has one node: it is a whole group that has no place."""
    changes = {"cluster.groups.decode.count": 3, DECODE + ".replicas": 2}
    [finding] = findings(changes, id="CAP001", example=WIDE)
    assert finding.message == "deepseek-r1 decode 4 x 8 = 32 GPUs; 3 x ml.p5en.48xlarge = 24 GPUs"
    assert not findings({**changes, "cluster.groups.decode.count": 4}, id="CAP001", example=WIDE)


def test_a_sidecar_is_a_part_of_its_pod() -> None:
    """A decoder that asks for every CPU of a node has none left for the sidecar in front of it."""
    [finding] = findings({DECODE + ".cpus": 168}, id="CAP002", example=LLMD_EXAMPLE)
    assert "170 CPUs of 168" in finding.message
    assert not findings({DECODE + ".cpus": 166}, id="CAP002", example=LLMD_EXAMPLE)
    assert not findings(
        {PREFILL + ".replicas": 1, PREFILL + ".tensor_parallel": 8, PREFILL + ".cpus": 168}, id="CAP002", example=LLMD_EXAMPLE
    )


def test_huge_pages_are_shared_by_the_pods_of_a_node() -> None:
    """A node has 10,256 MiB: two prefillers get 5,120 MiB, three of a third each do not get more."""
    assert not findings({PREFILL + ".hugepages_mib": 5120}, id="CAP003", example=LLMD_EXAMPLE)
    [finding] = findings({PREFILL + ".hugepages_mib": 5130}, id="CAP003", example=LLMD_EXAMPLE)
    assert "together they need 10260 MiB of huge pages of 10256" in finding.message
