"""Rules about what the account can give."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dpd.finding import Level
from dpd.preflight.facts import Nodes, Offering, Quota, Reserved, SecurityGroup, Subnet, TrainingPlan, Zone
from tests.checks.answers import PLAN, VPC, Told, said
from tests.checks.cases import ADOPTED_NETWORK, SELF

P5 = "ml.p5.48xlarge for cluster usage"
SPOT = "ml.p5.48xlarge for cluster spot instance usage"
PER_CLUSTER = "Maximum number instances allowed per SageMaker HyperPod cluster"
TOTAL = "Total number of instances allowed across SageMaker HyperPod clusters"
SPOT_TOTAL = "Total number of Spot instances allowed across SageMaker HyperPod clusters"
VOLUME = "Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance"
CLUSTER = "llama-dpd-dev"
PREFILL = "cluster.groups.prefill"
GPU_SUBNET = "subnet-0000000000000000c"
PLACE = "network.existing.gpu_subnet"
GROUP = "network.existing.security_groups[0]"
PLAN_PATH = f"{PREFILL}.capacity.training_plan_arn"
PLANNED: dict[str, Any] = {
    f"{PREFILL}.capacity": {"training_plan_arn": PLAN, "availability_zone_id": "use2-az1"},
}
ON_SPOT: dict[str, Any] = {f"{PREFILL}.capacity": "spot", "cluster.groups.decode.capacity": "spot"}
RULES = [{"direction": way, "protocol": "-1", "peer": SELF} for way in ("ingress", "egress")]
GROUPED: dict[str, Any] = {**ADOPTED_NETWORK, "network.existing.security_groups": [{"id": SELF, "rules": RULES}]}


def quota(name: str, limit: float, *, adjustable: bool = True) -> dict[tuple[str, str], Any]:
    return {("quota", name): Quota(name=name, code="L-1234ABCD", limit=limit, adjustable=adjustable)}


def plan(**given: Any) -> dict[tuple[str, str], Any]:
    fit = Reserved(instance_type="ml.p5.48xlarge", count=1, zone_id="use2-az1")
    return {
        ("training_plan", PLAN): TrainingPlan(
            **{"status": "Active", "total": 1, "targets": ("hyperpod-cluster",), "reserved": (fit,), **given}
        )
    }


def subnet(**given: Any) -> dict[tuple[str, str], Any]:
    fit = {"vpc_id": VPC, "zone_id": "use2-az1", "cidr": "10.1.0.0/16", "free": 60_000}
    return {("subnet", GPU_SUBNET): Subnet(**{**fit, **given})}


def group(*rules: tuple[str, str, str], vpc: str = VPC) -> dict[tuple[str, str], Any]:
    return {("security_group", SELF): SecurityGroup(vpc_id=vpc, rules=rules)}


def day(month: int, number: int) -> datetime:
    return datetime(2026, month, number, 12, tzinfo=UTC)


BOTH = (("egress", "-1", SELF), ("ingress", "-1", SELF))
CASES = [
    Told("PRE020", quota(P5, 1), f"{PREFILL}.instance_type", "1 (prefill) + 1 (decode) = 2, the account has 1", quota(P5, 2)),
    Told("PRE020", quota(P5, 0), f"{PREFILL}.instance_type", "--quota-code L-1234ABCD --desired-value 2", quota(P5, 2)),
    Told("PRE020", quota(P5, 1, adjustable=False), f"{PREFILL}.instance_type", "cannot be raised", quota(P5, 2, adjustable=False)),
    Told("PRE020", {("quota", P5): None}, f"{PREFILL}.instance_type", f"the Region has no quota '{P5}'"),
    Told("PRE020", quota(P5, 4), f"{PREFILL}.instance_type", "4 (prefill) + 1 (decode) = 5", quota(P5, 5), {f"{PREFILL}.max_count": 4}),
    Told(
        "PRE020",
        {**quota(P5, 3), ("nodes", CLUSTER): Nodes(others={"ml.p5.48xlarge": 2})},
        f"{PREFILL}.instance_type",
        "2 in other clusters = 4",
        {**quota(P5, 4), ("nodes", CLUSTER): Nodes(others={"ml.p5.48xlarge": 2}, own={"ml.p5.48xlarge": 2})},
        level=Level.WARNING,
    ),
    # whether nodes of a plan count is not stated
    Told("PRE020", quota(P5, 1), f"{PREFILL}.instance_type", "the account has 1", quota(P5, 2), PLANNED, Level.WARNING),
    Told("PRE020", quota(SPOT, 1), f"{PREFILL}.instance_type", f"({SPOT}, L-1234ABCD)", quota(SPOT, 2), ON_SPOT),
    # the names of spot's quotas are not on AWS's page
    Told("PRE020", {("quota", SPOT): None}, f"{PREFILL}.instance_type", "has no quota", quota(SPOT, 2), ON_SPOT, Level.WARNING),
    Told("PRE021", quota(PER_CLUSTER, 3), "cluster.groups", "nodes of the cluster = 4", quota(PER_CLUSTER, 4)),
    Told(
        "PRE021",
        {**quota(TOTAL, 8), ("nodes", CLUSTER): Nodes(others={"ml.g5.xlarge": 5})},
        "cluster.groups",
        "and 5 in others = 9",
        {**quota(TOTAL, 9), ("nodes", CLUSTER): Nodes(others={"ml.g5.xlarge": 5})},
    ),
    Told("PRE021", {("quota", TOTAL): None}, "cluster.groups", "has no quota"),
    Told("PRE021", quota(SPOT_TOTAL, 1), "cluster.groups", "spot nodes", quota(SPOT_TOTAL, 2), ON_SPOT, Level.WARNING),
    Told(
        "PRE021",
        quota(VOLUME, 1024),
        f"{PREFILL}.data_volume_gib",
        "GiB of a volume = 1025",
        quota(VOLUME, 1025),
        {f"{PREFILL}.data_volume_gib": 1025},
    ),
    Told(
        "PRE022",
        {("offering", "ml.p5.48xlarge"): Offering(zones=("use2-az2", "use2-az3"))},
        f"{PREFILL}.instance_type",
        "move network.gpu_subnet to use2-az2 or use2-az3",
        {("offering", "ml.p5.48xlarge"): Offering(zones=("use2-az1",))},
    ),
    Told("PRE022", {("offering", "ml.p5.48xlarge"): Offering()}, f"{PREFILL}.instance_type", "no AZ of us-east-2"),
    Told("PRE023", {("zone", "use2-az1"): None}, "network.gpu_subnet.availability_zone_id", "no AZ of this account"),
    Told(
        "PRE023",
        {("zone", "use2-az3"): Zone(name="us-east-2c", state="impaired")},
        "network.control_plane_availability_zone_ids[1]",
        "is impaired",
    ),
    *(
        Told("PRE024", wrong, f"{PREFILL}.capacity.{field}", says, plan(), PLANNED, level)
        for wrong, field, says, level in [
            ({("training_plan", PLAN): None}, "training_plan_arn", "there is no such training plan", Level.ERROR),
            (plan(status="Failed"), "training_plan_arn", "the plan is Failed", Level.ERROR),
            (plan(status="Scheduled", start=day(12, 3)), "training_plan_arn", "begins 2026-12-03 12:00 UTC", Level.WARNING),
            (plan(targets=("training-job",)), "training_plan_arn", "not for HyperPod", Level.ERROR),
            (
                plan(reserved=(Reserved(instance_type="ml.p5en.48xlarge", count=1, zone_id="use2-az1"),)),
                "training_plan_arn",
                "the plan has no ml.p5.48xlarge",
                Level.ERROR,
            ),
            (
                plan(reserved=(Reserved(instance_type="ml.p5.48xlarge", count=1, zone_id="use2-az2"),)),
                "availability_zone_id",
                "use2-az2",
                Level.ERROR,
            ),
        ]
    ),
    Told(
        "PRE024", plan(), PLAN_PATH, "2 nodes are to come from 1 of the plan",
        plan(reserved=(Reserved(instance_type="ml.p5.48xlarge", count=2, zone_id="use2-az1"),)),
        {**PLANNED, f"{PREFILL}.count": 2},
    ),
    Told("PRE025", plan(end=day(12, 13)), PLAN_PATH, "ends 2026-12-13", plan(end=day(12, 14)), PLANNED, Level.WARNING),
    Told("PRE025", plan(end=day(11, 28)), PLAN_PATH, "ended 2026-11-28", plan(), PLANNED),
    Told("PRE026", {("subnet", GPU_SUBNET): None}, f"{PLACE}.id", "no such subnet", subnet(), ADOPTED_NETWORK),
    Told("PRE026", subnet(zone_id="use2-az2"), f"{PLACE}.availability_zone_id", "has use2-az2", subnet(), ADOPTED_NETWORK),
    Told("PRE026", subnet(cidr="10.2.0.0/16"), f"{PLACE}.cidr", "has 10.2.0.0/16", subnet(), ADOPTED_NETWORK),
    Told("PRE026", subnet(vpc_id="vpc-0000000000000000f"), f"{PLACE}.id", "vpc-0000000000000000f", subnet(), ADOPTED_NETWORK),
    Told("PRE028", {("security_group", SELF): None}, f"{GROUP}.id", "no such", group(*BOTH), GROUPED),
    Told("PRE028", group(BOTH[0]), f"{GROUP}.rules", f"has not: ingress -1 {SELF}", group(*BOTH), GROUPED),
    Told(
        "PRE028", group(*BOTH, ("ingress", "tcp", "0.0.0.0/0")), f"{GROUP}.rules",
        "the file has not: ingress tcp 0.0.0.0/0", group(*BOTH), GROUPED, Level.WARNING,
    ),
    Told("PRE028", group(*BOTH, vpc="vpc-0000000000000000f"), f"{GROUP}.id", "is of vpc-0", group(*BOTH), GROUPED),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_smallest_wrong_and_nearest_right(case: Told) -> None:
    case.verify()


def needed() -> int:
    (found,) = said(ADOPTED_NETWORK, subnet(free=0))
    return int(found.value)


def test_free_addresses() -> None:
    wrong, right = said(ADOPTED_NETWORK, subnet(free=needed() - 1)), said(ADOPTED_NETWORK, subnet(free=needed()))
    assert [(one.id, one.path, one.level) for one in wrong] == [("PRE027", f"{PLACE}.id", Level.ERROR)]
    assert f"{needed() - 1:,} are free" in wrong[0].message
    assert "kept by AWS" not in wrong[0].message
    assert not right


def test_nodes_that_run_have_their_addresses_already() -> None:
    running = {("nodes", CLUSTER): Nodes(own={"ml.p5.48xlarge": 2})}
    (found,) = said(ADOPTED_NETWORK, {**subnet(free=10), **running})
    assert (found.id, found.level) == ("PRE027", Level.WARNING)
    assert "2 nodes of this environment" in found.message
