"""The build that copies weights: its image, size and longest time."""

from dataclasses import dataclass
from functools import cache

from dpd.catalog.tables import yaml_table


@dataclass(frozen=True, slots=True)
class Build:
    """A CodeBuild environment."""

    image: str
    compute_type: str
    longest_minutes: int


@cache
def build() -> Build:
    """The environment of the copy."""
    row = yaml_table("staging")
    return Build(row["image"], row["compute_type"], row["longest_minutes"])
