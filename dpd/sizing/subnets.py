"""How the networks of a VPC are laid out, and how many addresses nodes need."""

import ipaddress
from dataclasses import dataclass
from typing import Final

from dpd.environment.network import Network

AWS_RESERVED_ADDRESSES: Final = 5
"""Addresses that AWS keeps of every subnet (VPC user guide)."""
PUBLIC_PREFIX: Final = 24
CONTROL_PLANE_PREFIX: Final = 24


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


def subnet_plan(network: Network) -> SubnetPlan:
    """Lay out the subnets of a VPC to make.

    Public subnets (for NAT gateways) take the first /24 networks of ``vpc_cidr``, control-plane subnets the next
    ones, skipping what overlaps the GPU subnet. Raises ``ValueError`` when the network is incomplete or too small.
    """
    if network.vpc_cidr is None or network.gpu_subnet is None or network.egress is None or not network.control_plane_availability_zone_ids:
        raise ValueError("vpc_cidr, gpu_subnet, control_plane_availability_zone_ids and egress are needed")
    vpc, gpu = ipaddress.IPv4Network(network.vpc_cidr), ipaddress.IPv4Network(network.gpu_subnet.cidr)
    zones = network.control_plane_availability_zone_ids
    prefix = max(CONTROL_PLANE_PREFIX, min(28, vpc.prefixlen + 3))
    free = (str(block) for block in vpc.subnets(new_prefix=prefix) if not block.overlaps(gpu))
    public_count = len(zones) if network.egress.nat_gateways else 0
    blocks = [block for block, _ in zip(free, range(public_count + len(zones)), strict=False)]
    if len(blocks) < public_count + len(zones):
        raise ValueError(f"{network.vpc_cidr} has no room for {public_count + len(zones)} subnets of /{prefix} beside the GPU subnet")
    return SubnetPlan(
        gpu=PlannedSubnet(network.gpu_subnet.availability_zone_id, network.gpu_subnet.cidr),
        public=tuple(PlannedSubnet(zone, block) for zone, block in zip(zones, blocks[:public_count], strict=False)),
        control_plane=tuple(PlannedSubnet(zone, block) for zone, block in zip(zones, blocks[public_count:], strict=True)),
        secondary_cidr="" if gpu.subnet_of(vpc) else str(gpu),
    )
