"""Rules about FSx for Lustre."""

from collections.abc import Iterator
from typing import Final

from dpd.catalog import instances
from dpd.catalog import lustre as catalog
from dpd.catalog.instances import Instance
from dpd.checks.registry import Context, Problem, check
from dpd.environment.cluster import InstanceGroup
from dpd.environment.environment import Environment
from dpd.environment.storage import Lustre
from dpd.finding import Level

_CAPACITY: Final = "https://docs.aws.amazon.com/fsx/latest/LustreGuide/increase-storage-capacity.html"
_CONFIGURATION: Final = "https://docs.aws.amazon.com/fsx/latest/APIReference/API_CreateFileSystemLustreConfiguration.html"
_EFA: Final = "https://docs.aws.amazon.com/fsx/latest/LustreGuide/configure-efa-clients.html"
_REFUSED: Final = (
    "https://github.com/aws-samples/amazon-eks-autonomous-driving-data-service/issues/12",
    "https://github.com/hashicorp/terraform-provider-aws/issues/24341",
)
_MADE: Final = ("capacity_gib", "throughput_mbps_per_tib")


def _gpu_groups(environment: Environment) -> Iterator[tuple[str, InstanceGroup, Instance]]:
    for name, group in environment.cluster.groups.items():
        instance = instances.find(group.instance_type)
        if instance and instance.gpus:
            yield name, group, instance


def _throughput(lustre: Lustre | None) -> int | None:
    """The throughput of a file system to make, when it is one that can be bought."""
    if lustre is None or lustre.existing or lustre.throughput_mbps_per_tib not in catalog.throughputs():
        return None
    return lustre.throughput_mbps_per_tib


@check(
    "LUS001",
    "A Lustre file system is either made or adopted",
    why="Capacity and throughput cost money and have no default; together with `existing` one of the two would be ignored.",
    link=_CONFIGURATION,
    binding=True,
)
def one_way(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask for all of the sizes, or for `existing` alone."""
    lustre = environment.storage.lustre
    if lustre is None:
        return
    given = [key for key in (*_MADE, "metadata_iops", "link", "raw") if getattr(lustre, key)]
    if lustre.existing and given:
        yield Problem(
            path=f"storage.lustre.{given[0]}",
            message=f"{', '.join(given)} would be ignored: an adopted file system is not changed",
            fix="remove it, or remove existing to make a file system",
        )
    missing = [key for key in _MADE if key not in given]
    if not lustre.existing and missing:
        yield Problem(
            path="storage.lustre",
            message=f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            limit="capacity_gib and throughput_mbps_per_tib, or existing",
            fix=f"add {' and '.join(missing)}, or adopt a file system with existing",
        )


@check(
    "LUS002",
    "Lustre throughput can be bought",
    why="FSx refuses another value minutes into the deployment, and the stack rolls back.",
    link=_CONFIGURATION,
    seen_in=_REFUSED,
)
def throughput(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the throughput with those of the deployment type."""
    lustre = environment.storage.lustre
    if lustre and not lustre.existing and lustre.throughput_mbps_per_tib is not None and _throughput(lustre) is None:
        values = ", ".join(str(value) for value in catalog.throughputs())
        yield Problem(
            path="storage.lustre.throughput_mbps_per_tib",
            message="is not a throughput of persistent SSD storage",
            value=lustre.throughput_mbps_per_tib,
            limit=f"{values} MB/s per TiB",
            fix=f"write one of {values}",
        )


@check(
    "LUS003",
    "Lustre capacity can be bought",
    why="Capacity comes in steps, which EFA makes larger, the slower the storage is. FSx refuses others minutes into the deployment.",
    link=_CAPACITY,
    seen_in=_REFUSED,
)
def capacity(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the capacity with the steps for this throughput, with or without EFA."""
    lustre = environment.storage.lustre
    speed = _throughput(lustre)
    if lustre is None or speed is None or lustre.capacity_gib is None:
        return
    if not catalog.capacity_allowed(lustre.capacity_gib, throughput_mbps_per_tib=speed, efa=lustre.efa):
        larger = catalog.next_capacity_gib(lustre.capacity_gib, throughput_mbps_per_tib=speed, efa=lustre.efa)
        way = f"with EFA at {speed} MB/s per TiB" if lustre.efa else "without EFA"
        yield Problem(
            path="storage.lustre.capacity_gib",
            message=f"is not a size {way}",
            value=f"{lustre.capacity_gib:,}",
            limit=f"{catalog.capacity_rule(speed, efa=lustre.efa)}",
            fix=f"write {larger}" + (", or set efa: false" if lustre.efa else ""),
        )


@check(
    "LUS004",
    "Lustre metadata operations can be bought",
    why="FSx refuses other values minutes into the deployment.",
    link=_CONFIGURATION,
)
def metadata(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare provisioned metadata operations with the table."""
    lustre = environment.storage.lustre
    if lustre and not lustre.existing and lustre.metadata_iops is not None and not catalog.metadata_iops_allowed(lustre.metadata_iops):
        yield Problem(
            path="storage.lustre.metadata_iops",
            message="is not a number of metadata operations that can be provisioned",
            value=lustre.metadata_iops,
            limit=catalog.metadata_iops_rule(),
            fix="write one of these, or leave it out: FSx then scales with the capacity",
        )


@check(
    "LUS005",
    "Nodes can mount Lustre over EFA",
    why="EFA clients need an EFA device and Nitro 4 or newer. Other nodes mount over TCP and say so in one line of a log.",
    link=_EFA,
    level=Level.WARNING,
    seen_in=("https://github.com/awslabs/awsome-distributed-ai/pull/1209",),
)
def efa_clients(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of GPU groups that would mount over TCP, and refuse EFA that none of them can use."""
    if environment.storage.lustre is None or not environment.storage.lustre.efa:
        return
    groups = list(_gpu_groups(environment))
    without = [(name, instance) for name, _, instance in groups if not catalog.mounts_over_efa(instance)]
    if groups and len(without) == len(groups):
        yield Problem(
            path="storage.lustre.efa",
            message="no GPU group can mount over EFA: "
            + ", ".join(f"{name} ({instance.type}, {instance.efa or 0} EFA)" for name, instance in without),
            value=True,
            limit="an EFA device and Nitro 4 or newer",
            fix="set efa: false, or use an instance type that has both",
            level=Level.ERROR,
        )
        return
    for name, instance in without:
        yield Problem(
            path=f"cluster.groups.{name}.instance_type",
            message="mounts the file system over TCP, while storage.lustre.efa asks for EFA",
            value=instance.type,
            limit="an EFA device and Nitro 4 or newer",
            fix="use an instance type that has both, or acknowledge the slower mount",
        )


@check(
    "LUS006",
    "Lustre has a connection for every EFA client",
    why="A file system takes a fixed number of EFA connections over all its clients; nodes beyond it fail to mount.",
    link=_EFA,
)
def efa_connections(environment: Environment, _: Context) -> Iterator[Problem]:
    """Add up the connections of all GPU nodes at their scale ceiling."""
    if environment.storage.lustre is None or not environment.storage.lustre.efa:
        return
    parts = [(name, group.most_nodes, catalog.efa_connections(instance)) for name, group, instance in _gpu_groups(environment)]
    needed = sum(nodes * each for _, nodes, each in parts)
    if needed > catalog.most_efa_connections():
        terms = " + ".join(f"{nodes} x {each} ({name})" for name, nodes, each in parts if each)
        yield Problem(
            path="storage.lustre.efa",
            message=f"{terms} = {needed:,} EFA connections",
            value=True,
            limit=f"{catalog.most_efa_connections():,} for a file system",
            fix="set efa: false, or make the groups smaller",
        )


@check(
    "LUS007",
    "A link keeps what was deleted on one side only",
    why="With delete: true, clearing a directory on the file system empties the prefix in the bucket that other environments may read.",
    link="https://docs.aws.amazon.com/fsx/latest/LustreGuide/create-dra-linked-data-repo.html",
    level=Level.WARNING,
)
def link_deletes(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of links that repeat deletions."""
    lustre = environment.storage.lustre
    if lustre and lustre.link and lustre.link.delete:
        yield Problem(
            path="storage.lustre.link.delete",
            message=f"a file deleted below {lustre.link.path} is deleted from the bucket too, and the other way round",
            value=True,
            fix="leave it out, or acknowledge this and turn on bucket versioning",
        )


@check(
    "LUS008",
    "Lustre is large enough for the weights",
    why="Files of a linked bucket are loaded when they are read; when the file system is full the read fails "
    "and the pod never becomes ready.",
    link=_CAPACITY,
)
def holds_weights(environment: Environment, _: Context) -> Iterator[Problem]:
    """Add up the weights of all models that are read from Lustre, each directory once."""
    lustre = environment.storage.lustre
    size_gib = lustre and (lustre.existing.capacity_gib if lustre.existing else lustre.capacity_gib)
    if not size_gib:
        return
    weights = {
        endpoint.model.source.lustre.path: endpoint.model.shape.weight_bytes / 2**30
        for endpoint in environment.endpoints
        if endpoint.model.source.lustre
    }
    if sum(weights.values()) > size_gib:
        terms = " + ".join(f"{gib:,.0f} ({path})" for path, gib in sorted(weights.items()))
        yield Problem(
            path="storage.lustre.existing.capacity_gib" if lustre and lustre.existing else "storage.lustre.capacity_gib",
            message=f"the weights need {terms} = {sum(weights.values()):,.0f} GiB",
            value=f"{size_gib:,}",
            limit=f"at least {sum(weights.values()):,.0f} GiB",
            fix="make the file system larger, or read some weights from S3",
        )


@check(
    "LUS009",
    "An adopted file system is mounted by its own name",
    why="Nodes and pods mount what the DNS name leads to. With the name of another file system, or of one in another Region, they find "
    "other files or nothing, and wait in ContainerCreating.",
    link="https://docs.aws.amazon.com/fsx/latest/LustreGuide/mounting-ec2-instance.html",
)
def own_name(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the DNS name with the file system's id and the environment's Region."""
    existing = environment.storage.lustre and environment.storage.lustre.existing
    if existing:
        expected = f"{existing.file_system_id}.fsx.{environment.region}.amazonaws.com"
        if existing.dns_name.lower().removesuffix(".cn") != expected:
            yield Problem(
                path="storage.lustre.existing.dns_name",
                message=f"is not the name of {existing.file_system_id} in {environment.region}",
                value=existing.dns_name,
                limit=expected,
                fix=f"copy it from: aws fsx describe-file-systems --file-system-ids {existing.file_system_id}",
            )
