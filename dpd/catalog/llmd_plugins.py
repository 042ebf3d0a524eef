"""What the llm-d endpoint picker understands: plugins and their parameters by version, headers and flags."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from dpd.catalog.llmd import llmd
from dpd.catalog.tables import yaml_table

ANY: Final = "any"
"""A parameter, or all parameters of a plugin, that the catalog does not look into."""


@dataclass(frozen=True, slots=True)
class PickerPlugin:
    """A plugin of one version.

    ``role`` is what it does: filter, scorer, picker, handler, producer and so on. ``parameters`` maps a name to its type: the
    name of one, a mapping for an object, a list with one element for a list, or ``any``.
    """

    type: str
    role: str
    alpha: bool = False
    parameters: Any = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PickerHeaders:
    """Headers that clients, picker and sidecar exchange. ``decided`` are those that no client may set."""

    destination: str
    prefiller: str
    decided: list[str]
    objective: str
    ttft: str
    itl: str
    session: str
    sources: list[str]


@dataclass(frozen=True, slots=True)
class PickerFacts:
    """What the configuration of every version has in common."""

    api_version: str
    kind: str
    feature_gates: list[str]
    least_block_tokens: int
    headers: PickerHeaders
    active_ports: str


def pinned() -> str:
    """The router version that manifests are made for."""
    return llmd().versions["router"].version


def versions() -> tuple[str, ...]:
    """Router versions whose plugins are known, oldest first."""
    return tuple(yaml_table("llmd_plugins")["versions"])


@cache
def picker_facts() -> PickerFacts:
    """The one entry of the table."""
    table = yaml_table("llmd_plugins")
    return PickerFacts(
        api_version=table["api_version"],
        kind=table["kind"],
        feature_gates=table["feature_gates"],
        least_block_tokens=table["least_block_tokens"],
        headers=PickerHeaders(**table["headers"]),
        active_ports=table["active_ports"]["annotation"],
    )


@cache
def plugins(version: str) -> dict[str, PickerPlugin]:
    """The plugins of a version by type. Raises ``KeyError`` for a version that the catalog has not read."""
    table = yaml_table("llmd_plugins")
    if version not in table["versions"]:
        raise KeyError(version)
    known = table["versions"][: table["versions"].index(version) + 1]
    return {
        name: PickerPlugin(name, row["role"], row.get("alpha", False), _parameters(row, known))
        for name, row in table["plugins"].items()
        if row.get("since", known[0]) in known
    }


def _parameters(row: dict[str, Any], known: list[str]) -> Any:
    base = row.get("parameters", {})
    newer = [more for version, more in row.get("newer", {}).items() if version in known]
    return base if base == ANY else {**base, **{name: kind for more in newer for name, kind in more.items()}}


def decodes_without_prefiller(version: str) -> bool:
    """Whether the picker of a version lets a decoder read the prompt when prefill was wanted and no prefiller is ready."""
    return bool(yaml_table("llmd_plugins")["without_prefiller"][version] == "decodes")


def flags(program: str) -> frozenset[str]:
    """Command-line flags of ``picker`` or ``sidecar`` of the pinned version, with their dashes."""
    return frozenset(f"--{name}" for name in yaml_table("llmd_plugins")["flags"][program])
