"""CloudFormation properties that an environment file may set by name."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from dpd.catalog.tables import yaml_table

Kind = Literal["vpc", "eks", "hyperpod", "instance_group", "lustre", "bucket", "key"]


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
    rows = settable if isinstance(settable, list) else [settable]
    parts = [row if isinstance(row, dict) else {row: ()} for row in rows]
    names: dict[str, tuple[str, ...]] = {name: tuple(sub or ()) for part in parts for name, sub in part.items()}
    return Resource(type=row["type"], settable=names, managed=row["managed"], replaces=tuple(row["replaces"]))
