"""The layout of a VPC, and the addresses that the GPU subnet needs."""

from ipaddress import IPv4Network
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpd.environment.network import Network
from dpd.sizing.addresses import address_need
from dpd.sizing.subnets import SubnetPlan, control_plane_cidrs, gpu_subnet, subnet_plan
from tests.checks.cases import ADOPTED_NETWORK
from tests.support import REMOVE, environment


def network(vpc: str, gpu: str, *, nat: int = 1) -> Network:
    return Network.model_validate(
        {
            "vpc_cidr": vpc,
            "gpu_subnet": {"availability_zone_id": "use2-az1", "cidr": gpu},
            "control_plane_availability_zone_ids": ["use2-az2", "use2-az3"],
            "egress": {"nat_gateways": nat, "interface_endpoints": False},
        }
    )


def cut(plan: SubnetPlan) -> list[IPv4Network]:
    return [IPv4Network(it.cidr) for it in (*plan.public, *plan.control_plane)]


@st.composite
def blocks(draw: st.DrawFn) -> str:
    prefix = draw(st.integers(16, 28))
    return str(IPv4Network((0x0A000000 | draw(st.integers(0, (1 << (prefix - 8)) - 1)) << (32 - prefix), prefix)))


@given(blocks(), blocks(), st.integers(0, 2))
def test_subnets_lie_in_the_vpc_and_never_overlap(vpc: str, gpu: str, nat: int) -> None:
    try:
        plan = subnet_plan(network(vpc, gpu, nat=nat))
    except ValueError:
        assume(condition=False)
    made = cut(plan)
    assert all(block.subnet_of(IPv4Network(vpc)) for block in made)
    assert not any(one.overlaps(other) for one, other in combinations([*made, IPv4Network(gpu)], 2))
    assert len(plan.control_plane) == 2
    assert len(plan.public) == (2 if nat else 0)
    assert [it.availability_zone_id for it in plan.control_plane] == ["use2-az2", "use2-az3"]
    assert bool(plan.secondary_cidr) == (not IPv4Network(gpu).subnet_of(IPv4Network(vpc)))


@given(blocks(), blocks())
def test_a_nat_gateway_that_comes_later_moves_no_subnet(vpc: str, gpu: str) -> None:
    try:
        closed = subnet_plan(network(vpc, gpu, nat=0))
    except ValueError:
        assume(condition=False)
    assert subnet_plan(network(vpc, gpu, nat=2)).control_plane == closed.control_plane


def test_the_reference_layout() -> None:
    plan = subnet_plan(network("10.192.0.0/16", "10.1.0.0/16"))
    assert [str(block) for block in cut(plan)] == ["10.192.0.0/24", "10.192.1.0/24", "10.192.2.0/24", "10.192.3.0/24"]
    assert plan.secondary_cidr == "10.1.0.0/16"


@pytest.mark.parametrize(("vpc", "gpu"), [("10.0.0.0/16", "10.0.0.0/16"), ("10.0.0.0/24", "10.0.0.0/16"), ("10.0.0.0/28", "10.1.0.0/16")])
def test_a_vpc_without_room_says_so(vpc: str, gpu: str) -> None:
    with pytest.raises(ValueError, match="has no room for 4 subnets"):
        subnet_plan(network(vpc, gpu))


def test_half_a_network_has_no_plan() -> None:
    with pytest.raises(ValueError, match="are needed"):
        subnet_plan(Network())
    assert gpu_subnet(Network()) is None


@given(st.integers(0, 6758), st.integers(0, 6758))
def test_the_sum_counts_the_ceiling_of_every_group(count: int, ceiling: int) -> None:
    need = address_need(environment({"cluster.groups.prefill.count": count, "cluster.groups.prefill.max_count": ceiling}))
    assert need.total == 120 + 81 + 81 * max(count, ceiling) + 5 + 8 + 5
    assert 2 ** (32 - need.prefix_length) >= need.total > 2 ** (31 - need.prefix_length)


def test_a_type_of_unknown_need_is_named_and_not_counted() -> None:
    need = address_need(environment({"cluster.groups.decode.instance_type": "ml.p6e-gb200.36xlarge"}))
    assert need.unknown == ("decode",)
    assert need.total == 120 + 81 + 5 + 8 + 5


def test_the_control_plane_has_the_planned_or_the_adopted_networks() -> None:
    assert control_plane_cidrs(environment().network) == ("10.192.2.0/24", "10.192.3.0/24")
    assert control_plane_cidrs(environment(ADOPTED_NETWORK).network) == ("10.192.0.0/24", "10.192.1.0/24")
    assert control_plane_cidrs(environment({"network.egress": REMOVE}).network) == (), "the checks say what is missing"
