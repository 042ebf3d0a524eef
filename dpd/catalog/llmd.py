"""The llm-d backend: one set of versions, its images, ports, labels and names."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

from dpd.catalog.tables import yaml_table

RouterImageName = Literal["picker", "sidecar", "envoy", "tokenizer"]


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
    """Environment variables of the workers that this tool sets, with the reason; a name that ends in ``_`` stands for all that begin so."""
    faults: list[dict[str, str]]
    """Versions in a serving image with a fault of their own: ``part``, ``version``, ``symptom`` and ``link``."""
    driver: dict[str, Any]
    """The NVIDIA driver that the default image needs: ``cuda`` and ``least``."""
    more: dict[str, Any] = field(default_factory=dict)

    def router_repositories(self) -> dict[RouterImageName, str]:
        """Where the images of the router come from. The tokenizer's is only pulled for KV-aware routing."""
        made: dict[RouterImageName, str] = {name: self.images[name].repository for name in ("picker", "sidecar", "envoy")}
        return {**made, "tokenizer": str(self.more["picker"]["tokenizer"]["repository"])}

    def owner_reason(self, variable: str) -> str:
        """Why a user must not set an environment variable; empty when they may."""
        owned = self.owned_variables
        return owned.get(variable) or next((owned[begin] for begin in owned if begin.endswith("_") and variable.startswith(begin)), "")


_PLAIN: Final = ("ports", "labels", "worker_labels", "containers", "sources", "owned_variables", "faults", "driver")


@cache
def llmd() -> Llmd:
    """The one entry of the table."""
    table = dict(yaml_table("llmd"))
    return Llmd(
        versions={name: Version(**row) for name, row in table.pop("versions").items()},
        images={name: RouterImage(**row) for name, row in table.pop("images").items()},
        **{key: table.pop(key) for key in _PLAIN},
        more=table,
    )
