"""Kubernetes versions: how long EKS supports them, and which of them HyperPod's documentation lists."""

from dataclasses import dataclass
from datetime import date
from functools import cache

from dpd.catalog.tables import yaml_table


@dataclass(frozen=True, slots=True)
class KubernetesVersion:
    """One minor version on EKS.

    ``hyperpod`` is whether HyperPod's list of supported versions names it. ``kubectl_layer_version`` is the newest
    release of its kubectl layer package when the catalog was made.
    """

    version: str
    end_of_standard_support: date
    end_of_extended_support: date
    hyperpod: bool
    kubectl_layer_version: str
    sources: tuple[str, ...]

    @property
    def minor(self) -> int:
        """The minor number: 34 of 1.34."""
        return minor(self.version)

    @property
    def kubectl_layer_package(self) -> str:
        """Python package with the kubectl of this version as a Lambda layer."""
        return f"aws-cdk.lambda-layer-kubectl-v{self.minor}"


def minor(version: str) -> int:
    """The minor number of a version such as 1.34."""
    return int(version.partition(".")[2])


@cache
def find(version: str) -> KubernetesVersion | None:
    """Return a minor version such as ``1.34``, or ``None`` when the catalog does not know it."""
    row = yaml_table("kubernetes")["versions"].get(version)
    if row is None:
        return None
    return KubernetesVersion(
        version=version,
        end_of_standard_support=row["end_of_standard_support"],
        end_of_extended_support=row["end_of_extended_support"],
        hyperpod=row["hyperpod"],
        kubectl_layer_version=row["kubectl_layer"],
        sources=tuple(row["sources"]),
    )


def all_versions() -> tuple[KubernetesVersion, ...]:
    """All known versions, oldest first."""
    return tuple(found for version in yaml_table("kubernetes")["versions"] if (found := find(version)))


def shipped_kubectl() -> KubernetesVersion:
    """The version whose kubectl layer this project installs and its stacks use."""
    found = find(yaml_table("kubernetes")["shipped_kubectl"])
    assert found is not None, "data/kubernetes.yaml ships a kubectl that it does not list"
    return found


def control_plane_usd_per_hour(*, extended: bool) -> float:
    """Price of one cluster's control plane in US dollars per hour."""
    return float(yaml_table("kubernetes")["extended_support_usd_per_hour"]["extended" if extended else "standard"])
