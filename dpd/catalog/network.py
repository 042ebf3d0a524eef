"""Rules of AWS about subnets and networks."""

from functools import cache
from ipaddress import IPv4Network
from typing import Any

from dpd.catalog.tables import yaml_table


def _fact(name: str) -> Any:
    return yaml_table("network")[name]


def subnet_reserved_addresses() -> int:
    """Addresses that AWS keeps of every subnet."""
    return int(_fact("subnet_reserved_addresses")["value"])


def load_balancer_addresses() -> int:
    """Free addresses that a load balancer wants in each of its subnets."""
    return int(_fact("load_balancer")["addresses"])


def load_balancer_longest_prefix() -> int:
    """The smallest subnet a load balancer takes, as a prefix length."""
    return int(_fact("load_balancer")["longest_prefix"])


def control_plane_addresses() -> int:
    """Free addresses that EKS recommends in each control-plane subnet."""
    return int(_fact("control_plane")["recommended_addresses"])


def control_plane_refused_zones() -> frozenset[str]:
    """AZ ids in which EKS takes no control-plane subnet."""
    return frozenset(_fact("control_plane_refused_zones")["value"])


def lustre_addresses(capacity_gib: int) -> int:
    """Addresses of a Lustre file system in its subnet (derived)."""
    fact = _fact("lustre")
    return int(fact["fixed_addresses"]) + -(-capacity_gib // int(fact["gib_per_address"]))


def _networks(names: list[str]) -> tuple[IPv4Network, ...]:
    return tuple(map(IPv4Network, names))


@cache
def refused() -> tuple[IPv4Network, ...]:
    """Networks that no VPC may have."""
    return _networks(_fact("refused")["value"])


@cache
def colliding() -> tuple[IPv4Network, ...]:
    """Networks that services inside AWS, SageMaker among them, use themselves."""
    return _networks(_fact("colliding")["value"])


@cache
def _associations() -> tuple[tuple[IPv4Network, tuple[IPv4Network, ...]], ...]:
    rows = _fact("restricted_associations")["value"]
    return tuple((IPv4Network(row["existing"]), _networks(row["added"])) for row in rows)


def association_conflict(primary: IPv4Network, secondary: IPv4Network) -> tuple[str, IPv4Network] | None:
    """Why a secondary network may not join a VPC: the range of the primary, and the range that is closed to it."""
    rows = [(existing, added) for existing, added in _associations() if existing.overlaps(primary)]
    if not rows:
        closed = _networks(_fact("restricted_associations_elsewhere")["value"])
        return next((("a range outside RFC 1918", block) for block in closed if block.overlaps(secondary)), None)
    return next(((str(existing), block) for existing, added in rows for block in added if block.overlaps(secondary)), None)
