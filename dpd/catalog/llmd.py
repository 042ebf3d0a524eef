"""The llm-d backend: one set of versions, its images, ports, labels and names."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from dpd.catalog.tables import yaml_table


@dataclass(frozen=True, slots=True)
class Version:
    """A component of the set. ``oldest`` is the first version that the objects of this tool fit, where one is known."""

    version: str
    sources: list[str]
    oldest: str = ""


@dataclass(frozen=True, slots=True)
class RouterImage:
    """One of the router's images, pinned by its digest."""

    repository: str
    tag: str
    digest: str
    sources: list[str]

    @property
    def reference(self) -> str:
        """What to pull."""
        return f"{self.repository}:{self.tag}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"


@dataclass(frozen=True, slots=True)
class Llmd:
    """The table. ``more`` holds the sections of the single modules, by name."""

    versions: dict[str, Version]
    images: dict[str, RouterImage]
    ports: dict[str, int]
    labels: dict[str, str]
    worker_labels: dict[str, str]
    containers: dict[str, str]
    sources: list[str]
    owned_variables: dict[str, str]
    """Environment variables of the workers that this tool sets, by their beginnings, with the reason."""
    more: dict[str, Any] = field(default_factory=dict)

    def owner_reason(self, variable: str) -> str:
        """Why a user must not set an environment variable; empty when they may."""
        return next((reason for begin, reason in self.owned_variables.items() if variable.startswith(begin)), "")


@cache
def llmd() -> Llmd:
    """The one entry of the table."""
    table = dict(yaml_table("llmd"))
    return Llmd(
        versions={name: Version(**row) for name, row in table.pop("versions").items()},
        images={name: RouterImage(**row) for name, row in table.pop("images").items()},
        **{key: table.pop(key) for key in ("ports", "labels", "worker_labels", "containers", "sources", "owned_variables")},
        more=table,
    )
