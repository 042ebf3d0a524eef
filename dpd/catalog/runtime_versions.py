"""Software in the serving image: mixes that fail, and environment variables with an owner."""

from typing import Any, cast

from dpd.catalog.tables import yaml_table


def known_to_fail() -> tuple[dict[str, str], ...]:
    """Mixes that fail: version prefixes by component, ``symptom`` and ``link``."""
    return tuple(yaml_table("runtime_versions")["known_to_fail"])


def documented() -> dict[str, str]:
    """The mix that AWS documents, by component."""
    return cast("dict[str, str]", yaml_table("runtime_versions")["documented"])


def owner_reason(variable: str) -> str:
    """Why a user must not change an environment variable; empty when they may."""
    table = yaml_table("runtime_versions")
    beginnings = (reason for begin, reason in table["owned_beginnings"].items() if variable.startswith(begin))
    return cast("str", table["owned"].get(variable) or next(beginnings, ""))


def words(table: str) -> tuple[str, ...]:
    """One of the lists: ``efa_beginnings``, ``tcp_providers``, ``backend_variables``, ``advertised_addresses``."""
    return tuple(cast("list[str]", yaml_table("runtime_versions")[table]))


def switches() -> dict[str, dict[str, Any]]:
    """Variables that turn hardware off: ``bad`` is the truth value that does, ``effect`` is what happens then."""
    return cast("dict[str, dict[str, Any]]", yaml_table("runtime_versions")["switches"])


def huge_pages() -> dict[str, Any]:
    """``variable``, ``resource`` and ``amount`` of EFA's huge pages, and ``node_mib``: what a node with EFA sets aside."""
    return cast("dict[str, Any]", yaml_table("runtime_versions")["huge_pages"])


def interfaces() -> dict[str, str]:
    """``own``: the pod's interface; ``not_routable``: the one of EKS Pod Identity."""
    return cast("dict[str, str]", yaml_table("runtime_versions")["interfaces"])
