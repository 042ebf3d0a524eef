"""Controllers and definitions that endpoints may need on the cluster: charts by version, files by digest."""

from dataclasses import dataclass, field
from functools import cache

from dpd.catalog.tables import yaml_table


@dataclass(frozen=True, slots=True)
class Chart:
    """A Helm chart in one version, and the namespace that its release lives in."""

    chart: str
    repository: str
    version: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A custom resource definition: where its file is, and the digest that the file must have."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Controller:
    """What is installed together. ``service_account`` is ``namespace:name`` of the account that needs an IAM role, if one does."""

    name: str
    version: str
    sources: list[str]
    charts: dict[str, Chart] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    service_account: str = ""
    pods: int = 0
    """Pods that its charts start."""


@cache
def all_controllers() -> dict[str, Controller]:
    """All of them by name, in the order in which they are installed."""
    return {name: _controller(name, **row) for name, row in yaml_table("controllers").items()}


def _controller(
    name: str,
    *,
    version: str,
    sources: list[str],
    charts: dict[str, dict[str, str]] | None = None,
    definitions: dict[str, dict[str, str]] | None = None,
    service_account: str = "",
    pods: int = 0,
) -> Controller:
    return Controller(
        name,
        version,
        sources,
        {release: Chart(**row) for release, row in (charts or {}).items()},
        {made: Definition(**row) for made, row in (definitions or {}).items()},
        service_account,
        pods,
    )
