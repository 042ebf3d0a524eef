"""CloudFormation properties that an environment file may set by name."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from dpd.catalog.tables import yaml_table

Kind = Literal["vpc", "eks", "hyperpod", "instance_group", "lustre"]


@dataclass(frozen=True, slots=True)
class Resource:
    """What the provider schema of one resource type lets a template set.

    ``settable`` maps a property to its known sub-properties (empty: not listed). ``managed`` maps a dotted path to
    the reason why this tool sets it itself. ``replaces`` are create-only properties.
    """

    type: str
    settable: dict[str, tuple[str, ...]]
    managed: dict[str, str]
    replaces: tuple[str, ...]


@cache
def resource(kind: Kind) -> Resource:
    """Return the facts of a resource type."""
    row = yaml_table("cloudformation")[kind]
    settable = row["settable"]
    names: dict[str, tuple[str, ...]] = (
        dict.fromkeys(settable, ()) if isinstance(settable, list) else {name: tuple(sub or ()) for name, sub in settable.items()}
    )
    return Resource(type=row["type"], settable=names, managed=row["managed"], replaces=tuple(row["replaces"]))
