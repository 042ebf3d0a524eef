"""Which roles run on which groups: the view of an environment that the arithmetic starts from."""

from collections.abc import Iterator
from dataclasses import dataclass

from dpd.catalog import instances
from dpd.catalog.instances import Instance
from dpd.environment.cluster import InstanceGroup
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.environment import Environment
from dpd.sizing.pod import beside_tiered_storage


@dataclass(frozen=True, slots=True)
class PlacedRole:
    """A role with its place in the file. ``group`` and ``instance`` are ``None`` where the file names what does not exist."""

    endpoint_path: str
    endpoint: Endpoint
    name: str
    role: Role
    group: InstanceGroup | None
    instance: Instance | None

    @property
    def path(self) -> str:
        """Dotted path of the role: ``endpoints[0].decode``."""
        return f"{self.endpoint_path}.{self.name}"

    @property
    def label(self) -> str:
        """The role as a message calls it: ``llama-70b decode``."""
        return f"{self.endpoint.name} {self.name}"

    @property
    def most_replicas(self) -> int:
        """Most pods of the role at the same time, a rolling update left aside."""
        return max(self.role.replicas, self.role.autoscaling.max_replicas if self.role.autoscaling else 0)


@dataclass(frozen=True, slots=True)
class RoleOnGpus:
    """A role whose group exists and whose instance type is known and has GPUs: what memory and packing can be said of."""

    placed: PlacedRole
    group: InstanceGroup
    instance: Instance


def group_path(name: str) -> str:
    """Dotted path of a group."""
    return f"cluster.groups.{name}"


def roles(environment: Environment) -> Iterator[PlacedRole]:
    """Every role of every endpoint, in file order."""
    for index, endpoint in enumerate(environment.endpoints):
        for name, role in endpoint.roles:
            group = environment.cluster.groups.get(role.group)
            instance = instances.find(group.instance_type) if group else None
            yield PlacedRole(f"endpoints[{index}]", endpoint, name, role, group, instance)


def roles_on_gpus(environment: Environment) -> Iterator[RoleOnGpus]:
    """The roles whose group exists, is of a known type and has GPUs with known memory. The instance has the memory left to pods."""
    percent = environment.cluster.tiered_storage_memory_percent
    for placed in roles(environment):
        if placed.group and placed.instance and placed.instance.gpus and placed.instance.gpu_memory_mib:
            yield RoleOnGpus(placed, placed.group, beside_tiered_storage(placed.instance, percent))


def groups(environment: Environment) -> Iterator[tuple[str, InstanceGroup, Instance]]:
    """The groups of a known instance type, in file order."""
    for name, group in environment.cluster.groups.items():
        instance = instances.find(group.instance_type)
        if instance:
            yield name, group, instance
