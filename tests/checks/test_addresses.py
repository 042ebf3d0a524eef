"""Addresses: the sum of a subnet, and networks that AWS would refuse."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.checks.test_placement import EXISTING
from tests.support import REMOVE, findings

GPU = "network.gpu_subnet.cidr"
VPC = "network.vpc_cidr"
SERVICES = "KubernetesNetworkConfig.ServiceIpv4Cidr"
SMALL_LUSTRE = {"storage.lustre.capacity_gib": 1200}


def adopted(**subnets: Any) -> dict[str, Any]:
    return {"network": {"existing": {**EXISTING, **subnets}}}


def control_plane(first: str, second: str) -> dict[str, Any]:
    one, two = EXISTING["control_plane_subnets"]
    return adopted(control_plane_subnets=[{**one, "cidr": first}, {**two, "cidr": second}])


@pytest.mark.parametrize(
    ("id", "path", "wrong", "right"),
    [
        # 2 x 60 + 81 + 81 + 5 (Lustre) + 8 + 5 = 300
        ("ADR001", GPU, {GPU: "10.1.0.0/24"}, {GPU: "10.1.0.0/23"}),
        # 16 prefill nodes: 16 x 81 more than a /22 has
        ("ADR001", GPU, {GPU: "10.1.0.0/22", "cluster.groups.prefill.count": 16}, {GPU: "10.1.0.0/21", "cluster.groups.prefill.count": 16}),
        ("ADR001", GPU, {GPU: "10.1.0.0/23", "cluster.groups.decode.max_count": 4}, {GPU: "10.1.0.0/22",
                                                                                    "cluster.groups.decode.max_count": 4}),
        # an EFA device beside the first takes no address: 120 + 50 + 50 + 18 = 238
        ("ADR001", GPU, {GPU: "10.1.0.0/24"}, {GPU: "10.1.0.0/24", "cluster.groups.prefill.network_interface": "efa_only",
                                               "cluster.groups.decode.network_interface": "efa_only"}),
        ("ADR001", GPU, {GPU: "10.1.0.0/24", "cluster.groups.prefill.network_interface": "efa",
                         "cluster.groups.decode.network_interface": "efa"}, {GPU: "10.1.0.0/23"}),
        ("ADR001", "network.existing.gpu_subnet.cidr", adopted(gpu_subnet={**EXISTING["gpu_subnet"], "cidr": "10.0.0.0/24"}), adopted()),
        ("ADR002", "cluster.groups.lab.instance_type",
         {"cluster.groups.lab": {"instance_type": "ml.p6e-gb200.36xlarge", "count": 1, "capacity": "on_demand"}},
         {"cluster.groups.lab": {"instance_type": "ml.p6e-gb200.36xlarge", "count": 0, "capacity": "on_demand"}}),
        ("ADR003", GPU, {VPC: "10.192.0.0/20", GPU: "10.192.0.0/16"}, {VPC: "10.192.0.0/16", GPU: "10.192.16.0/20"}),
        ("ADR003", "network.existing.control_plane_subnets[0].cidr", control_plane("10.0.8.0/24", "10.0.17.0/24"),
         control_plane("10.0.16.0/24", "10.0.17.0/24")),
        ("ADR003", "network.existing.control_plane_subnets[1].cidr", control_plane("10.0.16.0/23", "10.0.17.0/24"),
         control_plane("10.0.16.0/24", "10.0.17.0/24")),
        *(("ADR008", f"cluster.raw.eks.{SERVICES}", {"cluster.raw.eks": {SERVICES: wrong}},
           {"cluster.raw.eks": {SERVICES: "172.20.0.0/16"}})
          for wrong in ("10.1.128.0/24", "10.192.0.0/16", "10.0.0.0/8", "172.20.0.0/25", "198.51.100.0/24", "some", 7, None)),
        ("ADR004", GPU, {GPU: "172.16.0.0/16"}, {GPU: "100.64.0.0/16"}),
        ("ADR004", GPU, {GPU: "192.168.0.0/16"}, {GPU: "10.200.0.0/16"}),
        ("ADR004", GPU, {GPU: "198.19.0.0/16"}, {GPU: "198.18.0.0/16"}),
        ("ADR004", GPU, {VPC: "10.1.0.0/16", GPU: "10.0.0.0/16"}, {VPC: "10.2.0.0/16", GPU: "10.0.0.0/16"}),
        ("ADR004", GPU, {VPC: "172.20.0.0/16", GPU: "172.31.0.0/16"}, {VPC: "172.20.0.0/16", GPU: "172.30.0.0/16"}),
        ("ADR004", GPU, {VPC: "100.64.0.0/16", GPU: "10.1.0.0/16"}, {VPC: "100.64.0.0/16", GPU: "100.65.0.0/16"}),
        ("ADR005", VPC, {VPC: "10.192.0.0/28"}, {VPC: "10.192.0.0/24"}),
        ("ADR005", VPC, {GPU: "10.192.0.0/16"}, {GPU: "10.192.128.0/17"}),
        ("ADR006", VPC, {VPC: "10.192.0.0/25"}, {VPC: "10.192.0.0/24"}),
        ("ADR006", "network.existing.control_plane_subnets[0].cidr", control_plane("10.0.16.0/28", "10.0.17.0/24"),
         control_plane("10.0.16.0/27", "10.0.17.0/24")),
        ("ADR007", VPC, {VPC: "169.254.0.0/16"}, {VPC: "10.192.0.0/16"}),
        ("ADR007", GPU, {VPC: "172.16.0.0/16", GPU: "172.17.0.0/16"}, {VPC: "172.16.0.0/16", GPU: "172.18.0.0/16"}),
    ],
)  # fmt: skip
def test_a_wrong_network_and_its_nearest_right_one(id: str, path: str, wrong: dict[str, Any], right: dict[str, Any]) -> None:
    assert path in {finding.path for finding in findings(wrong, id=id)}
    assert not findings(right, id=id)


def test_the_sum_is_printed_with_the_subnet_that_would_do() -> None:
    [finding] = findings({GPU: "10.1.0.0/24"}, id="ADR001")
    assert finding.message == (
        "system (ml.c5.4xlarge) 2 x 60 = 120 + prefill (ml.p5.48xlarge) 1 x 81 = 81 + decode (ml.p5.48xlarge) 1 x 81 = 81 + "
        "Lustre 1 x 5 = 5 + load balancers 1 x 8 = 8 + kept by AWS 1 x 5 = 5 = 300 addresses; /24 has 256"
    )
    assert finding.fix.startswith("use a /23 or larger")


def test_a_cluster_too_large_for_any_subnet_says_so() -> None:
    [finding] = findings({"cluster.groups.prefill.max_count": 1000}, id="ADR001")
    assert finding.fix == "lower count and max_count: no subnet is larger than /16"


def test_a_range_that_collides_is_a_warning_and_a_forbidden_one_an_error() -> None:
    assert {finding.level for finding in findings({VPC: "172.17.0.0/16"}, id="ADR007")} == {Level.WARNING}
    assert {finding.level for finding in findings({VPC: "169.254.0.0/16"}, id="ADR007")} == {Level.ERROR}


def test_the_networks_of_an_adopted_vpc_have_been_accepted_by_aws() -> None:
    assert not findings(adopted(gpu_subnet={**EXISTING["gpu_subnet"], "cidr": "172.16.0.0/20"}), id="ADR004")


@pytest.mark.parametrize("key", ["vpc_cidr", "gpu_subnet", "egress", "control_plane_availability_zone_ids"])
def test_half_a_network_is_another_check_s_business(key: str) -> None:
    assert not [finding for finding in findings({f"network.{key}": REMOVE}) if finding.id.startswith("ADR")]
