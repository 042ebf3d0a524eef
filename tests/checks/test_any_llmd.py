"""Whatever a legal file says of an llm-d endpoint, the rules answer; and what they let pass can be rendered."""

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from charts.render import render_all, render_examined
from dpd.catalog import models
from dpd.checks.registry import Context, run
from dpd.environment.environment import Environment
from dpd.finding import Level
from tests.support import LLMD_EXAMPLE, TODAY, environment

E = "endpoints[0]."
TYPES = ("ml.p5.48xlarge", "ml.p5en.48xlarge", "ml.p6-b200.48xlarge", "ml.g6e.48xlarge", "ml.p5.4xlarge", "ml.c5.4xlarge", "ml.none.large")
SOURCES: tuple[dict[str, Any], ...] = (
    {"s3": {"prefix": "a/"}},
    {"lustre": {"path": "/checkpoints/a"}},
    {"hub": {"model_id": "a/b", "revision": "c" * 40}},
    {"volume": {"claim": "weights"}},
    {"volume": {"host_path": "/opt/dlami/nvme/a"}},
)
IMAGES: tuple[dict[str, str], ...] = (
    {"repository": "a.example/b", "tag": "v1", "vllm": "0.28.0", "nixl": "1.4.0", "lmcache": "0.5.6"},
    {"repository": "a.example/b", "tag": "v1", "vllm": "0.21.0", "nixl": "0.9.0"},
)
DISKS = st.fixed_dictionaries(
    {"medium": st.sampled_from(("nvme", "lustre")), "path": st.just("kv"), "capacity_gib": st.sampled_from((1, 1000))}
)
SCALED = st.builds(lambda low, more: {"min_replicas": low, "max_replicas": low + more}, st.integers(0, 3), st.integers(1, 3))


def role(name: str) -> st.SearchStrategy[dict[str, object]]:
    at = f"{E}{name}"
    return st.fixed_dictionaries(
        {f"{at}.replicas": st.integers(1, 3), f"{at}.tensor_parallel": st.sampled_from((1, 2, 3, 4, 8, 16))},
        optional={
            f"{at}.group": st.sampled_from(("system", "prefill", "decode", "nowhere")),
            f"{at}.expert_parallel": st.fixed_dictionaries(
                {"nodes": st.integers(1, 3)}, optional={"all2all": st.sampled_from(("deepep_v2", "deepep_low_latency"))}
            ),
            f"{at}.max_surge": st.integers(0, 2),
            f"{at}.hugepages_mib": st.sampled_from((2, 5120, 20480)),
            f"{at}.privileged": st.booleans(),
            f"{at}.efa_devices": st.integers(0, 33),
            f"{at}.autoscaling": SCALED,
        },
    )


changes = st.builds(
    lambda *parts: {key: value for part in parts for key, value in part.items()},
    role("prefill"),
    role("decode"),
    st.fixed_dictionaries(
        {},
        optional={
            "cluster.groups.prefill.instance_type": st.sampled_from(TYPES),
            "cluster.groups.decode.instance_type": st.sampled_from(TYPES),
            "cluster.groups.prefill.count": st.integers(0, 6),
            "cluster.groups.decode.count": st.integers(0, 6),
            "network.egress": st.just({"nat_gateways": 0, "interface_endpoints": True}),
            f"{E}model.catalog": st.sampled_from(models.names()),
            f"{E}model.source": st.sampled_from(SOURCES),
            f"{E}image": st.sampled_from(IMAGES),
            f"{E}workload": st.sampled_from(("deployments", "disaggregated_set")),
            f"{E}routing.strategy": st.sampled_from(("prefix_aware", "kv_aware", "session", "round_robin", "load")),
            f"{E}routing.threshold_tokens": st.sampled_from((0, 1, 4096, 10**6)),
            f"{E}routing.threshold_counts": st.sampled_from(("prompt", "non_cached")),
            f"{E}routing.no_prefiller": st.sampled_from(("fail", "fallback")),
            f"{E}routing.gateway": st.just({}),
            f"{E}kv.cpu_tier": st.booleans(),
            f"{E}kv.tier_engine": st.sampled_from(("native", "lmcache")),
            f"{E}kv.disk_tier": DISKS,
            f"{E}kv.shared_tier": st.sampled_from(("none", "tiered_storage", "redis://a.b:1", "mooncake://a.b:1")),
            f"{E}kv.eviction": st.sampled_from(("lru", "arc", "lfu", "fifo", "mru")),
            f"{E}kv.load_failure": st.sampled_from(("fail", "recompute")),
            f"{E}kv.dtype": st.sampled_from(("auto", "fp8")),
            f"{E}kv.block_size": st.sampled_from((16, 32, 64, 128)),
            f"{E}objectives.priority": st.integers(-1, 1),
            f"{E}namespace": st.sampled_from(("inference", "n" * 60)),
            f"{E}name": st.sampled_from(("llama-70b", "l" * 44, "l" * 63)),
        },
    ),
)


SCALER = {
    "min_replicas": 1,
    "max_replicas": 2,
    "prometheus": [{"workspace_url": "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1", "query": "up", "target": 1}],
}
LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {f"{E}workload": "disaggregated_set"},
    {f"{E}prefill.autoscaling": SCALER},
    {f"{E}prefill.hugepages_mib": 5120, f"{E}decode.hugepages_mib": 5120},
    {f"{E}decode.privileged": True},
    {"cluster.groups.decode.count": 2, f"{E}decode.replicas": 2},
    {"cluster.groups.decode.taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    {
        f"{E}model.catalog": "deepseek-v3",
        **{f"cluster.groups.{group}.count": 2 for group in ("prefill", "decode")},
        **{f"cluster.groups.{group}.instance_type": "ml.p5en.48xlarge" for group in ("prefill", "decode")},
        **{
            f"{E}{role}": {"group": role, "replicas": 1, "tensor_parallel": 1, "expert_parallel": {"nodes": 2}}
            for role in ("prefill", "decode")
        },
    },
)
NEW: dict[str, Any] = {f"{E}image": IMAGES[0]}
TIERS: tuple[dict[str, Any], ...] = (
    {},
    {f"{E}kv.load_failure": "recompute", f"{E}kv.dtype": "fp8"},
    {f"{E}kv.block_size": 64},
    {**NEW, f"{E}kv.cpu_tier": True, f"{E}kv.cpu_tier_gib": 40},
    {**NEW, f"{E}kv.cpu_tier": True, f"{E}kv.cpu_tier_gib": 40, f"{E}kv.tier_engine": "lmcache"},
    {
        **NEW,
        f"{E}kv.cpu_tier": True,
        f"{E}kv.cpu_tier_gib": 40,
        f"{E}kv.disk_tier": {"medium": "nvme", "path": "kv", "capacity_gib": 200},
    },
)
PLAUSIBLE = st.builds(
    lambda *parts: {key: value for part in parts for key, value in part.items()},
    st.sampled_from(LAYOUTS),
    st.sampled_from(TIERS),
    st.fixed_dictionaries(
        {},
        optional={
            f"{E}model.source": st.sampled_from(SOURCES[:4]),
            f"{E}routing.strategy": st.sampled_from(("prefix_aware", "kv_aware", "session", "round_robin", "load")),
            f"{E}routing.threshold_tokens": st.sampled_from((0, 1, 4096)),
            f"{E}routing.threshold_counts": st.sampled_from(("prompt", "non_cached")),
            f"{E}routing.no_prefiller": st.sampled_from(("fail", "fallback")),
            f"{E}routing.gateway": st.just({}),
            f"{E}routing.api": st.sampled_from(("chat_completions", "completions")),
        },
    ),
)


def errors(changed: dict[str, Any]) -> tuple[Environment, list[str]]:
    known = environment(changed, example=LLMD_EXAMPLE)
    found = run(known, Context(today=TODAY))
    for finding in found:
        assert finding.message
        assert finding.fix
        assert finding.path
        assert finding.link.startswith(("https://", "docs/"))
    return known, [finding.id for finding in found if finding.level is Level.ERROR]


@settings(max_examples=50, deadline=None)
@given(changes)
def test_every_legal_file_is_answered(changed: dict[str, Any]) -> None:
    known, wrong = errors(changed)
    if not wrong:
        assert render_all(known).endpoints


@settings(max_examples=30, deadline=None)
@given(PLAUSIBLE)
def test_what_the_rules_let_pass_can_be_rendered(changed: dict[str, Any]) -> None:
    known, wrong = errors(changed)
    assume(not wrong)
    (rendered,), unfit = render_examined([known])
    assert unfit == []
    assert rendered.endpoints["llama-70b"]
    assert render_all(known) == rendered
