"""Interface endpoints that a closed network needs."""

from dataclasses import dataclass
from functools import cache

from dpd.catalog.tables import yaml_table


@dataclass(frozen=True, slots=True)
class VpcEndpoint:
    """One endpoint; ``service`` is the part of its name after ``com.amazonaws.<region>.``. ``derived``: no AWS page states the need."""

    service: str
    why: str
    derived: bool
    source: str


@cache
def interface_endpoints() -> tuple[VpcEndpoint, ...]:
    """All interface endpoints, in file order."""
    return tuple(VpcEndpoint(row["service"], row["why"], row["basis"] == "derived", row["source"]) for row in yaml_table("vpc_endpoints"))
