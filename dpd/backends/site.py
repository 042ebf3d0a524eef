"""What a workload needs to know of the place it runs in, as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dpd.catalog import instances
from dpd.catalog.instances import Instance
from dpd.catalog.llmd import RouterImageName
from dpd.environment.cluster import InstanceGroup, Taint
from dpd.environment.environment import Environment
from dpd.environment.names import Names
from dpd.sizing.pod import beside_tiered_storage
from dpd.sizing.subnets import control_plane_cidrs

LUSTRE_FILE_SYSTEM_ID: Final = "${LUSTRE_FILE_SYSTEM_ID}"
LUSTRE_DNS_NAME: Final = "${LUSTRE_DNS_NAME}"
LUSTRE_MOUNT_NAME: Final = "${LUSTRE_MOUNT_NAME}"
PLACEHOLDERS: Final = (LUSTRE_FILE_SYSTEM_ID, LUSTRE_DNS_NAME, LUSTRE_MOUNT_NAME)
"""What only a deployment knows. The stacks put CDK tokens in their place; GitOps users put the stack's outputs there."""


@dataclass(frozen=True, slots=True)
class LustreSite:
    """A Lustre file system as manifests name it: real values when it was adopted, else the placeholders."""

    file_system_id: str
    dns_name: str
    mount_name: str
    capacity_gib: int


@dataclass(frozen=True, slots=True)
class Site:
    """The typed values that manifests take of an environment.

    ``tags`` are those of every AWS resource. ``control_plane_cidrs`` are the networks from which the Kubernetes API and the
    health gate call pods.
    """

    prefix: str
    environment: str
    region: str
    model_bucket: str
    model_bucket_region: str
    groups: dict[str, InstanceGroup]
    tags: dict[str, str]
    control_plane_cidrs: tuple[str, ...]
    lustre: LustreSite | None = None
    tiered_storage_memory_percent: int | None = None
    router_repositories: Mapping[RouterImageName, str] = field(default_factory=dict)
    """Mirrors of the images of llm-d's router."""

    @classmethod
    def of(cls, environment: Environment) -> "Site":
        """The site of an environment."""
        names = Names.of(environment)
        bucket = environment.storage.models.bucket
        return cls(
            prefix=names.prefix,
            environment=environment.name,
            region=environment.region,
            model_bucket=names.model_bucket if isinstance(bucket, str) else bucket.existing,
            model_bucket_region=environment.region if isinstance(bucket, str) else bucket.region,
            groups=environment.cluster.groups,
            tags={**environment.tags, "app": environment.app, "environment": environment.name},
            control_plane_cidrs=control_plane_cidrs(environment.network),
            lustre=_lustre(environment),
            tiered_storage_memory_percent=environment.cluster.tiered_storage_memory_percent,
            router_repositories=environment.cluster.router_repositories,
        )

    def taints(self, group: str) -> tuple[Taint, ...]:
        """What keeps pods off a group's nodes unless they tolerate it."""
        return self.groups[group].taints if group in self.groups else ()

    def instance(self, group: str) -> Instance | None:
        """The nodes of a group as pods find them; ``None`` for a group or a type that is not known (the checks say so)."""
        known = instances.find(self.groups[group].instance_type) if group in self.groups else None
        return known and beside_tiered_storage(known, self.tiered_storage_memory_percent)


def _lustre(environment: Environment) -> LustreSite | None:
    lustre = environment.storage.lustre
    if lustre is None:
        return None
    if lustre.existing is not None:
        known = lustre.existing
        return LustreSite(known.file_system_id, known.dns_name, known.mount_name, known.capacity_gib)
    return LustreSite(LUSTRE_FILE_SYSTEM_ID, LUSTRE_DNS_NAME, LUSTRE_MOUNT_NAME, lustre.capacity_gib or 0)
