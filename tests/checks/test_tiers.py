"""KV tiers behind prefillers: the smallest wrong input of every kind, and the nearest right one."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.support import LLMD_EXAMPLE, REMOVE, ROOT, findings

E = "endpoints[0]."
KV = E + "kv"
IMAGE = {"repository": "ghcr.io/llm-d/llm-d-aws", "tag": "v9", "digest": "sha256:" + "b" * 64, "vllm": "0.27.1", "nixl": "1.4.0"}
GOOD: dict[str, Any] = {E + "image": IMAGE, KV + ".cpu_tier": True, KV + ".cpu_tier_gib": 64}
LMCACHE: dict[str, Any] = {**GOOD, KV + ".tier_engine": "lmcache", E + "image": {**IMAGE, "lmcache": "0.5.6"}}
MOONCAKE: dict[str, Any] = {
    E + "image": {**IMAGE, "mooncake_efa": "0.3.13"}, KV + ".shared_tier": "mooncake://mooncake-master.mooncake:50051",
}  # fmt: skip


def disk(medium: str = "nvme", path: str = "kv", capacity: int = 2000, more: dict[str, Any] | None = None) -> dict[str, Any]:
    return {**GOOD, KV + ".disk_tier": {"medium": medium, "path": path, "capacity_gib": capacity}, **(more or {})}


def small(capacity: int) -> dict[str, Any]:
    """One GPU of a p5.4xlarge for each prefiller, whose disk is a tenth."""
    return disk(capacity=capacity, more={"cluster.groups.prefill.instance_type": "ml.p5.4xlarge", E + "prefill.tensor_parallel": 1})


def spread(strategy: str, prefillers: int = 2) -> dict[str, Any]:
    return {**GOOD, E + "routing.strategy": strategy, E + "prefill.replicas": prefillers}


@pytest.mark.parametrize(
    ("id", "path", "wrong", "right"),
    [
        ("TIR001", KV + ".cpu_tier", {KV + ".cpu_tier": True}, {}),
        ("TIR001", E + "image.vllm", {**GOOD, E + "image": {**IMAGE, "vllm": "0.27.0"}}, GOOD),
        ("TIR001", E + "image.vllm", {**MOONCAKE, E + "image": {**IMAGE, "vllm": "0.26.9", "mooncake_efa": "0.3.13"}}, MOONCAKE),
        ("TIR002", KV + ".cpu_tier", disk(more={KV + ".cpu_tier": False}), disk()),
        ("TIR003", KV + ".disk_tier.medium", disk(more={"cluster.groups.prefill.instance_type": "ml.p6e-gb200.36xlarge"}), disk()),
        # two pods of four GPUs on a node: 80 % of 30,400 GB are 22,649 GiB
        ("TIR003", KV + ".disk_tier.capacity_gib", disk(capacity=11_325), disk(capacity=11_324)),
        ("TIR003", KV + ".disk_tier.capacity_gib", small(2832), small(2831)),
        ("TIR003", KV + ".disk_tier.capacity_gib", disk("lustre", capacity=4800), disk("lustre", capacity=4799)),
        ("TIR003", KV + ".disk_tier.medium", disk("lustre", more={"storage.lustre": REMOVE}), disk("lustre")),
        ("TIR004", KV + ".disk_tier.path", disk("lustre", "checkpoints/kv"), disk("lustre", "checkpoints-kv")),
        ("TIR004", KV + ".disk_tier.path", disk("lustre", "checkpoints"), disk("nvme", "checkpoints")),
        ("TIR005", KV + ".disk_tier.capacity_gib", disk(), {**disk(), **LMCACHE}),
        ("TIR005", KV + ".disk_tier.medium", {**disk("lustre"), **LMCACHE}, disk("lustre")),
        ("TIR006", KV + ".eviction", {**GOOD, KV + ".eviction": "lfu"}, {**GOOD, KV + ".eviction": "arc"}),
        ("TIR006", KV + ".eviction", {**LMCACHE, KV + ".eviction": "arc"}, {**LMCACHE, KV + ".eviction": "mru"}),
        ("TIR006", KV + ".eviction", {**MOONCAKE, KV + ".eviction": "lru"}, MOONCAKE),
        ("TIR006", KV + ".eviction", {KV + ".eviction": "lru"}, {**GOOD, KV + ".eviction": "lru"}),
        ("TIR007", KV + ".shared_tier", {**MOONCAKE, E + "image": IMAGE}, MOONCAKE),
        ("TIR007", KV + ".shared_tier", {KV + ".shared_tier": MOONCAKE[KV + ".shared_tier"]}, GOOD),
        ("TIR007", KV + ".tier_engine", {**MOONCAKE, KV + ".tier_engine": "native"}, MOONCAKE),
        ("TIR007", KV + ".disk_tier", {**MOONCAKE, KV + ".disk_tier": {"medium": "nvme", "path": "kv", "capacity_gib": 1}}, MOONCAKE),
        # (20 + 4) x 4 GPUs = 96 GiB to register; (19 + 4) x 4 = 92
        ("TIR008", KV + ".cpu_tier_gib", {**MOONCAKE, KV + ".cpu_tier": True, KV + ".cpu_tier_gib": 20},
         {**MOONCAKE, KV + ".cpu_tier": True, KV + ".cpu_tier_gib": 19}),
        ("TIR009", E + "routing.strategy", spread("round_robin"), spread("session")),
        ("TIR009", E + "routing.strategy", spread("load"), spread("load", 1)),
        ("TIR009", E + "routing.strategy", spread("load"), {**MOONCAKE, E + "routing.strategy": "load"}),
        ("TIR009", E + "routing.strategy", {**disk(), E + "routing.strategy": "load"}, {**disk("lustre"), E + "routing.strategy": "load"}),
        # 0.75 x 80 - 131.4 / 4 - 4 = 23.1 GiB of KV on a GPU
        ("TIR010", KV + ".cpu_tier_gib", {**GOOD, KV + ".cpu_tier_gib": 23}, {**GOOD, KV + ".cpu_tier_gib": 24}),
        ("TIR010", KV + ".cpu_tier_gib", {**GOOD, KV + ".cpu_tier_gib": 23}, {**disk(), KV + ".cpu_tier_gib": 23}),
        ("TIR011", KV + ".tier_engine", {KV + ".tier_engine": "native"}, {**GOOD, KV + ".tier_engine": "native"}),
        # the memory of a pod, by the rule for all pods: 4 GPUs x 190 + 33 + 24 + 8 of 896 / 4 x 205 + …
        ("CAP009", E + "prefill.memory_gib", {**GOOD, KV + ".cpu_tier_gib": 208}, {**GOOD, KV + ".cpu_tier_gib": 207}),
        ("CAP009", E + "prefill.memory_gib", {**MOONCAKE, KV + ".cpu_tier": True, KV + ".cpu_tier_gib": 204},
         {**MOONCAKE, KV + ".cpu_tier": True, KV + ".cpu_tier_gib": 203}),
    ],
)  # fmt: skip
def test_a_wrong_tier_and_its_nearest_right_one(id: str, path: str, wrong: dict[str, Any], right: dict[str, Any]) -> None:
    assert path in {finding.path for finding in findings(wrong, id=id, example=LLMD_EXAMPLE)}
    assert path not in {finding.path for finding in findings(right, id=id, example=LLMD_EXAMPLE)}


def test_decoders_have_no_tiers_and_need_no_memory_for_them() -> None:
    changes = {**GOOD, KV + ".cpu_tier_gib": 200, E + "decode.memory_gib": 128}
    assert not findings(changes, id="CAP009", example=LLMD_EXAMPLE)


def test_the_operator_s_tiers_are_another_matter() -> None:
    changes = {KV + ".cpu_tier_gib": 1, KV + ".tier_engine": "lmcache", E + "routing.strategy": "round_robin"}
    assert not [finding for finding in findings(changes) if finding.id.startswith("TIR")]


def test_every_data_parallel_rank_has_a_tier_of_its_own() -> None:
    """Sixteen GiB for each of eight GPUs, in eight ranks of one: what a pod takes does not depend on how they are divided."""
    wide = {
        E + "model.catalog": "deepseek-r1",
        E + "prefill.expert_parallel": {"nodes": 1},
        E + "prefill.replicas": 1,
        KV + ".cpu_tier_gib": 300,
    }
    [finding] = findings({**GOOD, **wide, E + "prefill.tensor_parallel": 1}, id="CAP009", example=LLMD_EXAMPLE)
    assert finding.message.startswith("300 x 8 GPUs for the CPU tier + ")
    [other] = findings({**GOOD, **wide, E + "prefill.tensor_parallel": 8}, id="CAP009", example=LLMD_EXAMPLE)
    assert other.message.startswith("300 x 8 GPUs for the CPU tier + ")


def test_the_reason_against_mooncake_is_given() -> None:
    [finding] = findings({**MOONCAKE, E + "image": IMAGE}, id="TIR007", example=LLMD_EXAMPLE)
    assert finding.message == (
        "the image is not said to have mooncake-transfer-engine-efa, and the ordinary package has no transport for EFA"
    )
    assert "image.mooncake_efa" in finding.fix


def test_linear_attention_hangs_a_mooncake_store(tmp_path: Any) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "qwen3_next", "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, '
        '"hidden_size": 2048, "vocab_size": 151936, "full_attention_interval": 4, "max_position_embeddings": 262144}'
    )
    model = {E + "model": {"config": str(config), "source": {"s3": {"prefix": "qwen/"}}, "max_model_len": 16384}}
    found = findings({**MOONCAKE, **model}, id="TIR007", example=LLMD_EXAMPLE)
    assert [finding.path for finding in found] == [E + "model"]


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({**GOOD, KV + ".eviction": "lfu"}, "use lru, arc or set tier_engine: lmcache"),
        ({**LMCACHE, KV + ".eviction": "arc"}, "use lru, lfu, fifo, mru or set tier_engine: native"),
        ({**MOONCAKE, KV + ".eviction": "lru"}, "remove it"),
    ],
)
def test_what_else_evicts_is_named(changes: dict[str, Any], fix: str) -> None:
    [finding] = findings(changes, id="TIR006", example=LLMD_EXAMPLE)
    assert finding.fix == fix


def test_the_size_of_a_useful_tier_is_advised() -> None:
    [finding] = findings({**GOOD, KV + ".cpu_tier_gib": 5}, id="TIR010", example=LLMD_EXAMPLE)
    assert finding.level is Level.WARNING
    assert finding.message == "5 GiB for each GPU; the KV cache on it has 23.1 GiB"
    advised = int(finding.fix.split(": ")[1].split()[0])
    assert not [one for one in findings({**GOOD, KV + ".cpu_tier_gib": advised}, example=LLMD_EXAMPLE) if one.stops or one.id == "TIR010"]


def test_the_example_with_tiers_has_nothing_wrong() -> None:
    found = findings(example=ROOT / "docs" / "example-tiers.yaml")
    assert not [finding for finding in found if finding.stops]
    assert [finding.id for finding in found if finding.acknowledged] == ["TIR005"]
