"""AWS Regions: their AZ ids, their partition and which accounts serve images there."""

from dataclasses import dataclass
from functools import cache

from dpd.catalog.tables import csv_table


@dataclass(frozen=True, slots=True)
class Region:
    """One Region. An account id is empty where no source names a registry; another Region's must not stand in for it.

    ``zone_prefix`` begins every AZ id of the Region (``use2`` of ``use2-az1``). ``operator`` is whether AWS's chart of
    the inference operator lists the Region.
    """

    name: str
    partition: str
    dns_suffix: str
    zone_prefix: str
    operator: bool
    health_agent_account: str
    efa_plugin_account: str
    sources: tuple[str, ...]

    def holds_zone(self, availability_zone_id: str) -> bool:
        """Whether an AZ id belongs to this Region."""
        return availability_zone_id.rpartition("-")[0] == self.zone_prefix

    def registry(self, account: str) -> str:
        """Host name of an account's ECR registry in this Region."""
        return f"{account}.dkr.ecr.{self.name}.{self.dns_suffix}"


def _region(row: dict[str, str]) -> Region:
    return Region(
        name=row["name"],
        partition=row["partition"],
        dns_suffix=row["dns_suffix"],
        zone_prefix=row["zone_prefix"],
        operator=row["operator"] == "yes",
        health_agent_account=row["health_agent_account"],
        efa_plugin_account=row["efa_plugin_account"],
        sources=tuple(row["sources"].split()),
    )


@cache
def _regions() -> dict[str, Region]:
    return {row["name"]: _region(row) for row in csv_table("regions")}


def find(name: str) -> Region | None:
    """Return the facts of a Region, or ``None`` for one the catalog does not know."""
    return _regions().get(name)


def of_zone(availability_zone_id: str) -> Region | None:
    """Return the Region an AZ id belongs to, or ``None``: the AZ id alone says it, the account does not matter."""
    return next((region for region in _regions().values() if region.holds_zone(availability_zone_id)), None)


def names() -> tuple[str, ...]:
    """All known Regions, in file order."""
    return tuple(_regions())


def operator_regions() -> tuple[str, ...]:
    """The Regions where AWS's chart of the inference operator has images, in file order."""
    return tuple(name for name, region in _regions().items() if region.operator)
