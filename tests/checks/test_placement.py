"""Places: one Region, one AZ, and roles on groups that exist and have what they need."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.support import REMOVE, findings

PLAN = "arn:aws:sagemaker:us-east-2:111122223333:training-plan/abcdefgh"
LUSTRE = {
    "file_system_id": "fs-0123456789abcdef0", "dns_name": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com", "mount_name": "abcdefgh",
    "availability_zone_id": "use2-az1", "capacity_gib": 4800, "security_group_id": "sg-0123456789abcdef0",
}  # fmt: skip
EXISTING: dict[str, Any] = {
    "vpc_id": "vpc-0123456789abcdef0", "vpc_cidr": "10.0.0.0/16",
    "route_table_ids": ["rtb-0123456789abcdef0"], "s3_gateway_endpoint": "create",
    "gpu_subnet": {"id": "subnet-0123456789abcdef0", "availability_zone_id": "use2-az1", "cidr": "10.0.0.0/20"},
    "control_plane_subnets": [
        {"id": "subnet-0123456789abcdef1", "availability_zone_id": "use2-az2", "cidr": "10.0.16.0/24"},
        {"id": "subnet-0123456789abcdef2", "availability_zone_id": "use2-az3", "cidr": "10.0.17.0/24"},
    ],
}  # fmt: skip


def plan(zone: str) -> dict[str, Any]:
    return {"cluster.groups.decode.capacity": {"training_plan_arn": PLAN, "availability_zone_id": zone}}


def lustre(zone: str) -> dict[str, Any]:
    return {"storage.lustre": {"existing": {**LUSTRE, "availability_zone_id": zone}}}


def existing(part: str, **changes: str) -> dict[str, Any]:
    network = {**EXISTING}
    if part == "gpu_subnet":
        network["gpu_subnet"] = {**EXISTING["gpu_subnet"], **changes}
    elif part:
        first, second = EXISTING["control_plane_subnets"]
        network["control_plane_subnets"] = [first, {**second, **changes}]
    return {"network": {"existing": network}}


@pytest.mark.parametrize(
    ("id", "path", "wrong", "right"),
    [
        ("PLC001", "network.gpu_subnet.availability_zone_id", {"network.gpu_subnet.availability_zone_id": "use1-az1"}, {}),
        ("PLC001", "network.gpu_subnet.availability_zone_id", {"network.gpu_subnet.availability_zone_id": "xyz9-az1"}, {}),
        ("PLC001", "network.gpu_subnet.availability_zone_id", {"region": "us-west-2"}, {"region": "us-east-2"}),
        ("PLC001", "network.control_plane_availability_zone_ids[1]", {"network.control_plane_availability_zone_ids[1]": "usw2-az3"}, {}),
        ("PLC001", "cluster.groups.decode.capacity.availability_zone_id", plan("euw1-az1"), plan("use2-az1")),
        ("PLC001", "storage.lustre.existing.availability_zone_id", lustre("apne1-az1"), lustre("use2-az1")),
        ("PLC001", "network.existing.gpu_subnet.availability_zone_id", existing("gpu_subnet", availability_zone_id="use1-az1"),
         existing("")),
        ("PLC001", "network.existing.control_plane_subnets[1].availability_zone_id", existing("control", availability_zone_id="use1-az1"),
         existing("")),
        ("PLC002", "storage.lustre.existing.availability_zone_id", lustre("use2-az2"), lustre("use2-az1")),
        ("PLC002", "storage.lustre.existing.availability_zone_id",
         {**existing("gpu_subnet", availability_zone_id="use2-az3"), **lustre("use2-az1")}, {**existing(""), **lustre("use2-az1")}),
        ("PLC003", "cluster.groups.decode.capacity.availability_zone_id", plan("use2-az2"), plan("use2-az1")),
        ("PLC004", "network.control_plane_availability_zone_ids[0]",
         {"region": "us-east-1", "network.control_plane_availability_zone_ids[0]": "use1-az3"},
         {"region": "us-east-1", "network.control_plane_availability_zone_ids[0]": "use1-az2"}),
        ("PLC004", "network.control_plane_availability_zone_ids",
         {"network.control_plane_availability_zone_ids": ["use2-az2", "use2-az2"]},
         {"network.control_plane_availability_zone_ids": ["use2-az2", "use2-az1"]}),
        ("PLC004", "network.control_plane_availability_zone_ids",
         {"network.control_plane_availability_zone_ids": ["use2-az2"]}, {}),
        ("PLC004", "network.existing.control_plane_subnets", existing("control", availability_zone_id="use2-az2"), existing("")),
        ("PLC005", "endpoints[0].decode.group", {"endpoints[0].decode.group": "decoder"}, {"endpoints[0].decode.group": "decode"}),
        ("PLC006", "endpoints[0].decode.group", {"endpoints[0].decode.group": "system"}, {"endpoints[0].decode.group": "decode"}),
        ("PLC007", "cluster.groups.spare",
         {"cluster.groups.spare": {"instance_type": "ml.p5.48xlarge", "count": 1, "capacity": "on_demand"}},
         {"cluster.groups.spare": {"instance_type": "ml.p5.48xlarge", "count": 0, "capacity": "on_demand"}}),
        ("PLC008", "endpoints[0].decode.node_selector.sagemaker.amazonaws.com/instance-group-name",
         {"endpoints[0].decode.node_selector": {"sagemaker.amazonaws.com/instance-group-name": "prefill"}},
         {"endpoints[0].decode.node_selector": {"sagemaker.amazonaws.com/instance-group-name": "decode"}}),
        ("PLC008", "endpoints[0].decode.node_selector.team",
         {"endpoints[0].decode.node_selector": {"team": "a"}},
         {"endpoints[0].decode.node_selector": {"team": "a"}, "cluster.groups.decode.labels": {"team": "a"}}),
        ("PLC009", "cluster.groups.decode.taints[0]",
         {"cluster.groups.decode.taints": [{"key": "gpu", "effect": "NoSchedule"}]},
         {"cluster.groups.decode.taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}),
    ],
)  # fmt: skip
def test_a_wrong_place_and_its_nearest_right_one(id: str, path: str, wrong: dict[str, Any], right: dict[str, Any]) -> None:
    assert path in {finding.path for finding in findings(wrong, id=id)}
    assert not findings(right, id=id)


def test_the_region_of_a_foreign_az_id_is_named() -> None:
    [finding] = findings({"network.gpu_subnet.availability_zone_id": "use1-az1"}, id="PLC001")
    assert finding.message == "is in us-east-1, and the environment in us-east-2, whose AZ ids start with use2-"


def test_all_groups_are_named_when_a_role_misses_its_own() -> None:
    [finding] = findings({"endpoints[0].decode.group": "decoder"}, id="PLC005")
    assert finding.limit == "system, prefill, decode"
    assert finding.value == "decoder"


def test_gpu_nodes_without_endpoints_are_billed_idle() -> None:
    found = findings({"endpoints": []}, id="PLC007")
    assert [finding.level for finding in found] == [Level.WARNING, Level.WARNING]
    assert "1 x ml.p5.48xlarge = 8 GPUs" in found[0].message


def test_places_are_quiet_about_a_network_that_is_not_described() -> None:
    assert not [it for it in findings({"network.gpu_subnet": REMOVE}) if it.id.startswith("PLC")]


def test_pods_that_tolerate_a_taint_may_have_it() -> None:
    taint = {"cluster.groups.decode.taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    assert findings(taint, id="PLC009")
    assert not findings({**taint, "endpoints[0].raw": {"spec": {"tolerations": [{"operator": "Exists"}]}}}, id="PLC009")
