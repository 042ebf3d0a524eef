"""What the preflight compares an account with: names of quotas, CDK's bootstrap, roles and actions of who deploys."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from dpd.catalog.tables import yaml_table

MADE_BY = "always", "network", "eks", "lustre", "key"
"""Parts of a file that ask for actions of their own."""


@dataclass(frozen=True, slots=True)
class ServiceLinkedRole:
    """A role that AWS makes for one of its services. ``when`` is the part of a file that needs it."""

    name: str
    service: str
    when: str


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What `cdk bootstrap` leaves in an account, with ``qualifier`` filled in by who asks."""

    qualifier: str
    parameter: str
    least: int
    execution_role: str
    assumed_roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuotaNames:
    """Names of quotas in Service Quotas; ``{type}`` is an instance type with its ``ml.``."""

    service: str
    on_demand: str
    spot: str
    per_cluster: str
    total: str
    spot_total: str
    volume_gib: str


def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml_table("preflight")
    return table


def _without_sources(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "sources"}


def oldest_days() -> int:
    """After how many days answers are too old to rely on."""
    return int(_table()["oldest_days"])


@cache
def quota_names() -> QuotaNames:
    """The names of quotas."""
    return QuotaNames(**_without_sources(_table()["quotas"]))


@cache
def bootstrap() -> Bootstrap:
    """What CDK needs of an account."""
    row = _without_sources(_table()["bootstrap"])
    return Bootstrap(**{**row, "assumed_roles": tuple(row["assumed_roles"])})


@cache
def service_linked_roles() -> tuple[ServiceLinkedRole, ...]:
    """The roles that AWS makes at first use."""
    return tuple(ServiceLinkedRole(**row) for row in _table()["service_linked_roles"])


def deployer_actions(part: str) -> tuple[str, ...]:
    """What CloudFormation must be allowed for one part of a file."""
    return tuple(_table()["deployer_actions"][part])


def weights_share() -> tuple[float, float]:
    """Least and most of a model's expected bytes that its safetensors files may have."""
    row = _table()["weights"]
    return float(row["least_share"]), float(row["most_share"])
