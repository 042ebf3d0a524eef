"""Rules about instance groups."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.checks.cases import ADOPTED_CLUSTER, Case
from tests.support import REMOVE

PLAN = "arn:aws:sagemaker:us-east-2:111122223333:training-plan/llama"


def plan(arn: str) -> dict[str, Any]:
    return {"cluster.groups.prefill.capacity": {"training_plan_arn": arn, "availability_zone_id": "use2-az1"}}


def labels(**values: str) -> dict[str, Any]:
    return {"cluster.groups.decode.labels": values}


def label(key: str, value: str = "x") -> dict[str, Any]:
    return {"cluster.groups.decode.labels": {key: value}}


def taints(*keys: str, effect: str = "NoSchedule", group: str = "decode") -> dict[str, Any]:
    return {f"cluster.groups.{group}.taints": [{"key": key, "effect": effect} for key in keys]}


def adopted(**values: Any) -> dict[str, Any]:
    return {**ADOPTED_CLUSTER, **{f"cluster.existing.{key}": value for key, value in values.items()}}


PREINSTALLED = adopted(prerequisites="exists")


LABELS = "cluster.groups.decode.labels"


CASES = [
    Case("CLU001", {"cluster.groups.decode.capacity": REMOVE}, "cluster.groups.decode.capacity", "ml.p5.48xlarge has GPUs"),
    Case(
        "CLU002",
        {"cluster.groups.system.max_count": 1},
        "cluster.groups.system.max_count",
        "at least 2",
        {"cluster.groups.system.max_count": 2},
    ),
    *(
        Case("CLU003", plan(wrong), "cluster.groups.prefill.capacity.training_plan_arn", says, plan(PLAN))
        for wrong, says in [
            (PLAN.replace("us-east-2", "us-west-2"), "in us-west-2"),
            (PLAN.replace("111122223333", "444455556666"), "account 444455556666"),
            ("arn:aws:ec2:us-east-2:111122223333:capacity-reservation/cr-0123", "not the ARN of a training plan"),
        ]
    ),
    *(
        Case("CLU004", label(wrong), f"{LABELS}.{wrong}", says, label(right))
        for wrong, says, right in [
            ("a b", "at most 63", "a-b"),
            ("a" * 64, "at most 63", "a" * 63),
            ("-a", "at most 63", "a"),
            ("Example/a", "DNS name", "example/a"),
            ("/a", "DNS name", "example.com/a"),
            ("kubernetes.io/role", "belongs to kubernetes.io", "example.com/role"),
            ("node.kubernetes.io/x", "belongs to kubernetes.io", "kubernetes.io.example.com/x"),
            ("sagemaker.amazonaws.com/instance-group-name", "belongs to sagemaker", "example.com/instance-group-name"),
            ("eks.amazonaws.com/nodegroup", "belongs to eks", "example.com/nodegroup"),
        ]
    ),
    Case("CLU004", label("a", "b c"), f"{LABELS}.a", "not a label value", label("a", "b-c")),
    Case("CLU004", label("a", "b" * 64), f"{LABELS}.a", "at most 63", label("a", "")),
    Case(
        "CLU004",
        taints("sagemaker.amazonaws.com/node-health-status"),
        "cluster.groups.decode.taints[0]",
        "belongs to sagemaker.amazonaws.com",
        taints("example.com/gpu"),
    ),
    Case("CLU004", taints("a", "a"), "cluster.groups.decode.taints[1]", "of another taint", taints("a", "b")),
    Case(
        "CLU005",
        {**PREINSTALLED, **taints("nvidia.com/gpu")},
        "cluster.groups.decode.taints[0]",
        "does not tolerate",
        {**PREINSTALLED, **taints("aws.amazon.com/efa")},
        Level.WARNING,
    ),
    Case(
        "CLU005",
        {**PREINSTALLED, **taints("x")},
        "cluster.groups.decode.taints[0]",
        "does not tolerate",
        {**adopted(prerequisites="install"), **taints("x")},
        Level.WARNING,
    ),
    Case(
        "CLU006",
        {"cluster.groups.system.deep_health_checks": ["instance_stress"]},
        "cluster.groups.system.deep_health_checks",
        "no accelerator",
    ),
    Case(
        "CLU006",
        {"cluster.groups.decode.deep_health_checks": ["instance_stress", "instance_stress"]},
        "cluster.groups.decode.deep_health_checks",
        "twice",
    ),
    Case(
        "CLU006",
        {"cluster.groups.decode.deep_health_checks": ["instance_stress", "instance_connectivity"]},
        "cluster.groups.decode.deep_health_checks",
        "billed while they are tested",
        level=Level.INFO,
    ),
    Case(
        "CLU022",
        {"cluster.groups.system.network_interface": "efa_only"},
        "cluster.groups.system.network_interface",
        "no EFA device",
        {"cluster.groups.decode.network_interface": "efa_only"},
    ),
    Case(
        "CLU020",
        {"cluster.groups.decode.capacity": "spot"},
        "cluster.groups.decode.capacity",
        "endpoints[0].decode",
        {"cluster.groups.decode.capacity": "on_demand"},
        Level.WARNING,
    ),
    Case(
        "CLU020",
        {"cluster.groups.system.capacity": "spot"},
        "cluster.groups.system.capacity",
        "DNS, webhooks and routers",
        {"cluster.groups.system.capacity": "on_demand"},
        Level.WARNING,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case} {case.says}")
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()
