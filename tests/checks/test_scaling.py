"""Policies that scale: the smallest wrong one of each kind, and the nearest right one."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import EXAMPLE, LLMD_EXAMPLE, findings

WORKSPACE = "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1"
CLUSTER = "http://prometheus.monitoring.svc.cluster.local:9090"
P, D = "endpoints[0].prefill.autoscaling", "endpoints[0].decode.autoscaling"


COLLECTED = {"observe.metrics": "managed_prometheus"}


def scaled(role: str = P, /, **more: Any) -> dict[str, Any]:
    return {role: {"min_replicas": 1, "max_replicas": 2, **more}, **COLLECTED}


def tokens(role: str = P, /, **more: Any) -> dict[str, Any]:
    return scaled(role, tokens={"prometheus": WORKSPACE, **more})


def prometheus(query: str) -> dict[str, Any]:
    return scaled(prometheus=[{"workspace_url": WORKSPACE, "query": query, "target": 1}])


def cloudwatch(**more: Any) -> dict[str, Any]:
    return scaled(cloudwatch=[{"namespace": "N", "metric": "M", "target": 1, "statistic": "Sum", **more}])


@pytest.mark.parametrize(
    ("id", "wrong", "path"),
    [
        ("SCL001", prometheus("avg(vllm:kv_cache_usage_perc)"), f"{P}.prometheus[0].query"),
        ("SCL001", prometheus("( avg by (role) (x)) / 2"), f"{P}.prometheus[0].query"),
        ("SCL001", prometheus("max(vllm:num_requests_waiting)"), f"{P}.prometheus[0].query"),
        ("SCL001", prometheus("quantile(0.9, x)"), f"{P}.prometheus[0].query"),
        ("SCL001", cloudwatch(statistic="Average"), f"{P}.cloudwatch[0].statistic"),
        ("SCL002", tokens() | {f"{P}.scale_down_stabilization_seconds": 899}, f"{P}.scale_down_stabilization_seconds"),
        ("SCL002", cloudwatch() | {f"{P}.scale_down_stabilization_seconds": 0}, f"{P}.scale_down_stabilization_seconds"),
        ("SCL003", cloudwatch(period_seconds=960), f"{P}.cloudwatch[0].period_seconds"),
        ("SCL004", tokens(utilization=0.91), f"{P}.tokens.utilization"),
        ("SCL004", tokens(D, utilization=0.95), f"{D}.tokens.utilization"),
        ("SCL005", tokens(backlog_seconds=1.9), f"{P}.tokens.backlog_seconds"),
        ("SCL005", tokens(tokens_per_second=2000), "endpoints[0].objectives.ttft_p99_ms"),
        ("SCL005", tokens(D, backlog_seconds=1), f"{D}.tokens.backlog_seconds"),
        ("SCL006", {**tokens(), "cluster.groups.prefill.instance_type": "ml.g5.48xlarge"}, f"{P}.tokens.tokens_per_second"),
        ("SCL007", scaled(tokens={"prometheus": CLUSTER}), f"{P}.tokens.prometheus"),
        ("SCL007", scaled(tokens={"prometheus": f"{WORKSPACE}/api/v1"}), f"{P}.tokens.prometheus"),
        ("SCL009", tokens() | {"observe.metrics": "none"}, f"{P}.tokens.prometheus"),
        ("SCL009", tokens() | {"observe.scrape_interval_seconds": 61}, "observe.scrape_interval_seconds"),
        ("SCL009", {**tokens(), **tokens(D), "observe.scrape_interval_seconds": 300}, "observe.scrape_interval_seconds"),
        (
            "SCL008",
            {"endpoints[0].raw.spec.pdSpec.autoScalingSpec.decodingAutoScaling.minReplicaCount": 0},
            "endpoints[0].raw.spec.pdSpec.autoScalingSpec.decodingAutoScaling.minReplicaCount",
        ),
    ],
)
def test_what_is_wrong_has_its_id_and_place(id: str, wrong: dict[str, Any], path: str) -> None:
    assert [finding.path for finding in findings(wrong, id=id)] == [path]


@pytest.mark.parametrize(
    ("example", "right"),
    [
        (EXAMPLE, tokens()),
        (EXAMPLE, tokens(D)),
        (EXAMPLE, tokens() | {"observe.scrape_interval_seconds": 60}),
        (EXAMPLE, cloudwatch() | {"observe.metrics": "none"}),
        (EXAMPLE, tokens(utilization=0.9)),
        (EXAMPLE, tokens(backlog_seconds=1.8)),
        (EXAMPLE, tokens(tokens_per_second=2100)),
        (EXAMPLE, tokens() | {f"{P}.scale_down_stabilization_seconds": 900}),
        (EXAMPLE, cloudwatch(period_seconds=900)),
        (EXAMPLE, cloudwatch(statistic="SampleCount")),
        (EXAMPLE, prometheus("sum(avg_over_time(x[5m]))")),
        (EXAMPLE, prometheus("avg_over_time(total[5m])")),
        (EXAMPLE, {**tokens(tokens_per_second=5000), "cluster.groups.prefill.instance_type": "ml.g5.48xlarge"}),
        (EXAMPLE, {"endpoints[0].raw.spec.pdSpec.autoScalingSpec.decodingAutoScaling.minReplicaCount": 1}),
        (LLMD_EXAMPLE, scaled(tokens={"prometheus": CLUSTER})),
        (LLMD_EXAMPLE, tokens()),
    ],
)
def test_what_is_right_is_quiet(example: Path, right: dict[str, Any]) -> None:
    assert [finding for finding in findings(right, example=example) if finding.id.startswith("SCL")] == []


@pytest.mark.parametrize(
    ("id", "changes"),
    [
        ("OPR009", {D: {"min_replicas": 0, "max_replicas": 1, "tokens": {"prometheus": WORKSPACE}}}),
        ("OPR011", scaled(tokens={"prometheus": WORKSPACE.replace("us-east-2", "us-west-2")})),
        # Both ceilings together: each fits alone.
        ("CAP006", {**tokens(), "endpoints[0].prefill.tensor_parallel": 8, "cluster.groups.prefill.max_count": 1}),
        ("ADR001", {**tokens(), "cluster.groups.prefill.max_count": 1000}),
    ],
)
def test_bounds_that_other_families_keep_hold_for_tokens_too(id: str, changes: dict[str, Any]) -> None:
    assert [finding for finding in findings(changes, id=id) if finding.level != "info"]


def test_ceilings_of_all_roles_count_together() -> None:
    """Two roles on one group, each of whose ceilings would fit alone."""
    group = {"cluster.groups.both": {"instance_type": "ml.p5.48xlarge", "count": 3, "max_count": 3, "capacity": "on_demand"}}
    placed = {"endpoints[0].prefill.group": "both", "endpoints[0].decode.group": "both"}
    alone = {**group, **placed, **tokens()}
    assert findings(alone, id="CAP006") == []
    (found,) = findings({**alone, **tokens(D)}, id="CAP006")
    assert "4" in found.message


def test_a_role_without_autoscaling_is_no_business_of_these_rules() -> None:
    assert [finding for finding in findings() if finding.id.startswith("SCL")] == []
