"""EKS add-ons: the one table of versions, floors and service accounts."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from dpd.catalog.tables import yaml_table

INFERENCE: Final = "amazon-sagemaker-hyperpod-inference"
_VERSION: Final = re.compile(r"v(\d{1,5})\.(\d{1,5})\.(\d{1,5})-eksbuild\.(\d{1,5})")


@dataclass(frozen=True, slots=True)
class AddOn:
    """One EKS add-on that the cluster needs.

    ``version`` is the pinned version where it is the same for every Kubernetes version, else empty and
    ``versions`` maps Kubernetes versions to pins. ``floor`` is the oldest version that works, empty when none is
    known, and ``floor_reason`` says why. ``needs_nodes`` is whether it can become ACTIVE only once nodes run.
    """

    name: str
    version: str
    versions: dict[str, str]
    floor: str
    floor_reason: str
    namespace: str
    service_accounts: tuple[str, ...]
    needs_nodes: bool
    sources: tuple[str, ...]

    def version_for(self, kubernetes_version: str) -> str | None:
        """The pinned version for a Kubernetes version; ``None`` where no source states one (EKS then picks its default)."""
        return self.version or self.versions.get(kubernetes_version)


def version_key(version: str) -> tuple[int, int, int, int]:
    """A version such as ``v1.4.0-eksbuild.1`` as numbers that compare. Raises ``ValueError`` for another shape."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ValueError(f"{version[:80]!r} is not an add-on version such as v1.4.0-eksbuild.1")
    major, minor, patch, build = (int(part) for part in match.groups())
    return major, minor, patch, build


def _add_on(name: str, row: dict[str, Any]) -> AddOn:
    version = row["version"]
    return AddOn(
        name=name,
        version=version if isinstance(version, str) else "",
        versions=version if isinstance(version, dict) else {},
        floor=row.get("floor", ""),
        floor_reason=row.get("floor_reason", ""),
        namespace=row["namespace"],
        service_accounts=tuple(row["service_accounts"]),
        needs_nodes=row["needs_nodes"],
        sources=tuple(row["sources"]),
    )


@cache
def find(name: str) -> AddOn | None:
    """Return the add-on of that name, or ``None``."""
    row = yaml_table("add_ons").get(name)
    return None if row is None else _add_on(name, row)


@cache
def all_add_ons() -> tuple[AddOn, ...]:
    """All add-ons, in the order in which they are installed."""
    return tuple(_add_on(name, row) for name, row in yaml_table("add_ons").items())


def operator_version(add_on_version: str) -> str:
    """The inference operator's version in a version of its add-on: that of the newest known add-on not above it.

    Empty for an add-on older than all known ones. Raises ``ValueError`` when it is not an add-on version.
    """
    known = {version_key(version): str(operator) for version, operator in yaml_table("add_ons")[INFERENCE]["operator"].items()}
    return max(((key, operator) for key, operator in known.items() if key <= version_key(add_on_version)), default=((), ""))[1]
