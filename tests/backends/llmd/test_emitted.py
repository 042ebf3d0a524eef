"""Whatever the options: flags, transfer settings, LMCache's keys and series are those that the software knows."""

from typing import Any

import pytest

from dpd.backends.emitted import containers, program, unknown
from dpd.backends.llmd.build import build
from dpd.backends.site import Site
from tests.backends.llmd.objects import E
from tests.support import LLMD_EXAMPLE, ROOT, environment

NEW = {f"{E}image": {"repository": "a.example/vllm", "tag": "v1", "vllm": "0.32.0", "nixl": "1.4.0", "lmcache": "0.5.6",
                     "mooncake_efa": "0.3.13"}}  # fmt: skip
TIER = {**NEW, f"{E}kv.cpu_tier": True, f"{E}kv.cpu_tier_gib": 40}
DISK = {f"{E}kv.disk_tier": {"medium": "nvme", "path": "kv", "capacity_gib": 200}}
OPTIONS: dict[str, dict[str, Any]] = {
    **{strategy: {f"{E}routing.strategy": strategy} for strategy in ("kv_aware", "session", "round_robin", "load")},
    "always": {f"{E}routing.threshold_tokens": 0},
    "non_cached": {f"{E}routing.threshold_counts": "non_cached"},
    "fallback": {f"{E}routing.no_prefiller": "fallback"},
    "gateway": {f"{E}routing.gateway": {}, f"{E}objectives.priority": 1},
    "set": {f"{E}workload": "disaggregated_set"},
    "recompute": {f"{E}kv.load_failure": "recompute", f"{E}kv.dtype": "fp8"},
    "pages": {f"{E}prefill.hugepages_mib": 5120, f"{E}decode.hugepages_mib": 5120},
    "native": {**TIER, **DISK, f"{E}kv.eviction": "arc"},
    "lmcache": {**TIER, **DISK, f"{E}kv.tier_engine": "lmcache", f"{E}kv.eviction": "lfu"},
    "mooncake": {**TIER, f"{E}kv.shared_tier": "mooncake://a.b:1"},
    "hub": {f"{E}model.source": {"hub": {"model_id": "a/b", "revision": "c" * 40}}},
}
WIDE: dict[str, dict[str, Any]] = {
    "shipped": {},
    "one rank": {f"{E}{role}.tensor_parallel": 8 for role in ("prefill", "decode")},
    "deepep_v2": {**NEW, f"{E}decode.expert_parallel.all2all": "deepep_v2"},
    "in a set": {f"{E}workload": "disaggregated_set"},
}


@pytest.mark.parametrize(
    ("example", "changes"),
    [*((LLMD_EXAMPLE, one) for one in OPTIONS.values()), *((ROOT / "docs" / "example-wide-ep.yaml", one) for one in WIDE.values())],
    ids=[*OPTIONS, *(f"wide, {name}" for name in WIDE)],
)
def test_nothing_is_unknown(example: Any, changes: dict[str, Any]) -> None:
    known = environment(changes, example=example)
    bodies = build(known.endpoints[0], Site.of(known))
    assert [found for body in bodies for found in unknown(body)] == []
    assert {program(container)[0] for body in bodies for container in containers(body)} >= {"vllm", "llm-d-picker", "llm-d-sidecar"}
