"""How the networks of a VPC are laid out."""

import ipaddress
import itertools
from dataclasses import dataclass
from typing import Final

from dpd.environment.network import ExistingSubnet, GpuSubnet, Network

LARGEST_PREFIX: Final = 24
"""Public and control-plane subnets are no larger than this; 251 addresses are plenty for them."""


@dataclass(frozen=True, slots=True)
class PlannedSubnet:
    """A subnet to make."""

    availability_zone_id: str
    cidr: str


@dataclass(frozen=True, slots=True)
class SubnetPlan:
    """All subnets of a VPC that this tool makes. ``secondary_cidr`` is empty when the GPU subnet is inside the VPC's network."""

    gpu: PlannedSubnet
    control_plane: tuple[PlannedSubnet, ...]
    public: tuple[PlannedSubnet, ...]
    secondary_cidr: str


def gpu_subnet(network: Network) -> tuple[str, GpuSubnet | ExistingSubnet] | None:
    """The subnet of all nodes with its place in the file; ``None`` when the file has none."""
    if network.existing:
        return "network.existing.gpu_subnet", network.existing.gpu_subnet
    return ("network.gpu_subnet", network.gpu_subnet) if network.gpu_subnet else None


def subnet_plan(network: Network) -> SubnetPlan:
    """Lay out the subnets of a VPC to make.

    The first /24 networks of ``vpc_cidr`` are kept for public subnets (for NAT gateways), the next ones become
    control-plane subnets, skipping what overlaps the GPU subnet. The public ones are kept even when there is no NAT
    gateway, so that adding one later moves no other subnet. Raises ``ValueError`` when the network is incomplete or
    too small.
    """
    if network.vpc_cidr is None or network.gpu_subnet is None or network.egress is None or not network.control_plane_availability_zone_ids:
        raise ValueError("vpc_cidr, gpu_subnet, control_plane_availability_zone_ids and egress are needed")
    vpc, gpu = ipaddress.IPv4Network(network.vpc_cidr), ipaddress.IPv4Network(network.gpu_subnet.cidr)
    zones = network.control_plane_availability_zone_ids
    prefix = max(LARGEST_PREFIX, min(28, vpc.prefixlen + 3))
    free = (str(block) for block in vpc.subnets(new_prefix=prefix) if not block.overlaps(gpu))
    blocks = list(itertools.islice(free, 2 * len(zones)))
    if len(blocks) < 2 * len(zones):
        raise ValueError(f"{network.vpc_cidr} has no room for {2 * len(zones)} subnets of /{prefix} beside the GPU subnet")
    public, control_plane = blocks[: len(zones)], blocks[len(zones) :]
    return SubnetPlan(
        gpu=PlannedSubnet(network.gpu_subnet.availability_zone_id, network.gpu_subnet.cidr),
        public=tuple(map(PlannedSubnet, zones, public)) if network.egress.nat_gateways else (),
        control_plane=tuple(map(PlannedSubnet, zones, control_plane)),
        secondary_cidr="" if gpu.subnet_of(vpc) else str(gpu),
    )


def control_plane_cidrs(network: Network) -> tuple[str, ...]:
    """Networks of the control-plane subnets, where the Kubernetes API and the Lambda functions have their addresses.

    Empty for a network that is incomplete or too small, which the checks report.
    """
    if network.existing:
        return tuple(subnet.cidr for subnet in network.existing.control_plane_subnets)
    try:
        return tuple(subnet.cidr for subnet in subnet_plan(network).control_plane)
    except ValueError:
        return ()
