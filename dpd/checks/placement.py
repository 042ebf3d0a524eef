"""Rules about place: one AZ, one subnet, and roles on groups that exist."""

from collections.abc import Iterator
from typing import Final

from dpd.backends.backend import backend
from dpd.catalog import network as rules
from dpd.catalog import regions
from dpd.checks.registry import Context, Problem, check
from dpd.environment import names
from dpd.environment.cluster import TrainingPlan
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.fleet import group_path, groups, roles
from dpd.sizing.subnets import gpu_subnet

_EFA: Final = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html"
_AZ_IDS: Final = "https://docs.aws.amazon.com/global-infrastructure/latest/regions/az-ids.html"
_EKS: Final = "https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"
_DPD: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_CONTROL_PLANE_ZONES: Final = 2
_GROUPS: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks.html"


def _control_plane_zones(environment: Environment) -> list[tuple[str, str]]:
    network = environment.network
    if network.existing:
        path = "network.existing.control_plane_subnets"
        return [
            (f"{path}[{i}].availability_zone_id", it.availability_zone_id) for i, it in enumerate(network.existing.control_plane_subnets)
        ]
    path = "network.control_plane_availability_zone_ids"
    return [(f"{path}[{index}]", zone) for index, zone in enumerate(network.control_plane_availability_zone_ids)]


def _gpu_zone(environment: Environment) -> tuple[str, str] | None:
    found = gpu_subnet(environment.network)
    return (f"{found[0]}.availability_zone_id", found[1].availability_zone_id) if found else None


def _plan_zones(environment: Environment) -> list[tuple[str, str]]:
    return [
        (f"{group_path(name)}.capacity.availability_zone_id", group.capacity.availability_zone_id)
        for name, group in environment.cluster.groups.items()
        if isinstance(group.capacity, TrainingPlan)
    ]


def _lustre_zones(environment: Environment) -> list[tuple[str, str]]:
    lustre = environment.storage.lustre
    existing = lustre.existing if lustre else None
    return [("storage.lustre.existing.availability_zone_id", existing.availability_zone_id)] if existing else []


@check(
    "PLC001", "Every AZ id belongs to the Region",
    why="An AZ id names its Region in front (use2-az1 is in us-east-2). One of another Region is refused when the subnet is made, "
        "after the stacks before it stand.",
    link=_AZ_IDS,
    seen_in=("https://github.com/aws/aws-cdk/issues/9226", "https://github.com/aws/aws-cdk/issues/21690"),
)  # fmt: skip
def _zone_in_region(environment: Environment, _: Context) -> Iterator[Problem]:
    region = regions.find(environment.region)
    gpu = _gpu_zone(environment)
    places = [*([gpu] if gpu else []), *_control_plane_zones(environment), *_plan_zones(environment), *_lustre_zones(environment)]
    for path, zone in places:
        owner = regions.of_zone(zone)
        if region and not zone.startswith(f"{region.zone_prefix}-"):
            where = f"is in {owner.name}" if owner else "is in no Region that the catalog knows"
            message = f"{where}, and the environment in {region.name}, whose AZ ids start with {region.zone_prefix}-"
            yield Problem(path, message, f"write an AZ id of {region.name}, or change region", zone, f"{region.zone_prefix}-az…")


@check(
    "PLC002", "Lustre is in the AZ of the nodes",
    why="The nodes live in one AZ. A file system in another one is mounted across AZs: slower, billed by the gigabyte, and without EFA.",
    link="https://docs.aws.amazon.com/fsx/latest/LustreGuide/mounting-ec2-instance.html",
    seen_in=(
        "https://github.com/awslabs/awsome-distributed-ai/pull/1227", "https://github.com/aws/containers-roadmap/issues/2204",
        "https://github.com/aws/karpenter-provider-aws/issues/3211",
    ),
)  # fmt: skip
def _lustre_zone(environment: Environment, _: Context) -> Iterator[Problem]:
    gpu = _gpu_zone(environment)
    for path, zone in _lustre_zones(environment):
        if gpu and zone != gpu[1]:
            message = f"the file system is in {zone}, the nodes are in {gpu[1]} ({gpu[0]})"
            yield Problem(path, message, f"adopt a file system in {gpu[1]}, or move gpu_subnet to {zone}", zone, gpu[1])


@check(
    "PLC003", "Reserved capacity is in the AZ of the nodes",
    why="A training plan is bound to one AZ. With a subnet in another one the group waits for capacity that never comes, while the plan "
        "is paid for.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/reserve-capacity-with-training-plans.html",
    seen_in=("https://github.com/awslabs/awsome-distributed-ai/issues/204",),
)  # fmt: skip
def _plan_zone(environment: Environment, _: Context) -> Iterator[Problem]:
    gpu = _gpu_zone(environment)
    for path, zone in _plan_zones(environment):
        if gpu and zone != gpu[1]:
            message = f"the plan's capacity is in {zone}, the nodes' subnet in {gpu[1]} ({gpu[0]})"
            yield Problem(path, message, f"move gpu_subnet to {zone}, or use a plan in {gpu[1]}", zone, gpu[1])


@check(
    "PLC004", "The control plane spans two AZs in which EKS takes subnets",
    why="EKS refuses a cluster with subnets in fewer than two AZs, and takes none in a few old AZs. GPU nodes want one AZ, so the control "
        "plane has subnets of its own.",
    link=_EKS,
)  # fmt: skip
def _control_plane(environment: Environment, _: Context) -> Iterator[Problem]:
    zones = _control_plane_zones(environment)
    for path, zone in zones:
        if zone in rules.control_plane_refused_zones():
            yield Problem(path, "EKS takes no control-plane subnet in this AZ", "choose another AZ id", zone, "an AZ that EKS supports")
    different = {zone for _path, zone in zones}
    if zones and len(different) < _CONTROL_PLANE_ZONES:
        path, zone = zones[0][0].split("[", maxsplit=1)[0], zones[0][1]
        message = f"all {len(zones)} of them are in {zone}" if len(zones) > 1 else f"names only {zone}"
        value = ", ".join(zone for _path, zone in zones)
        yield Problem(path, message, "name another AZ id of the Region", value, f"{_CONTROL_PLANE_ZONES} different AZ ids")


@check(
    "PLC005", "A role's group exists",
    why="The group's name becomes the node selector of the role's pods; a name that no node carries leaves them Pending.",
    link=_GROUPS,
    binding=True,
)  # fmt: skip
def _group_exists(environment: Environment, _: Context) -> Iterator[Problem]:
    known = ", ".join(environment.cluster.groups)
    for placed in roles(environment):
        if placed.group is None:
            yield Problem(f"{placed.path}.group", "is no group of the cluster", f"write one of: {known}", placed.role.group, known)


@check(
    "PLC006", "A role's group has GPUs",
    why="vLLM's pods ask for GPUs; on a group without any they stay Pending.",
    link=_DPD,
)  # fmt: skip
def _group_has_gpus(environment: Environment, _: Context) -> Iterator[Problem]:
    with_gpus = ", ".join(name for name, _group, instance in groups(environment) if instance.gpus) or "add one with GPUs"
    for placed in roles(environment):
        if placed.instance and not placed.instance.gpus:
            message = f"its nodes ({placed.instance.type}) have 0 GPUs; a {placed.name} pod asks for {placed.role.tensor_parallel}"
            yield Problem(f"{placed.path}.group", message, f"use a group with GPUs: {with_gpus}", placed.role.group, "a group with GPUs")


@check(
    "PLC007", "GPU nodes serve something", level=Level.WARNING,
    why="A GPU node is billed from the moment it stands, whether or not a pod uses it.",
    link="https://aws.amazon.com/sagemaker/ai/pricing/",
)  # fmt: skip
def _idle(environment: Environment, _: Context) -> Iterator[Problem]:
    used = {placed.role.group for placed in roles(environment)}
    for name, group, instance in groups(environment):
        if instance.gpus and group.count and name not in used:
            message = f"no endpoint uses this group: {group.count} x {instance.type} = {group.count * instance.gpus} GPUs are billed idle"
            yield Problem(group_path(name), message, "remove the group, set count: 0, or place a role on it", group.count)


@check(
    "PLC008", "A role's extra node selector can be met",
    why="A pod only goes to nodes that carry every label of its selector. The group is selected already, so another group's name, or a "
        "label that the group does not give its nodes, leaves the pod Pending.",
    link="https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/",
)  # fmt: skip
def _selector(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed in roles(environment):
        if placed.group is None:
            continue
        given = {
            **placed.group.labels,
            names.INSTANCE_GROUP_LABEL: placed.role.group,
            names.INSTANCE_TYPE_LABEL: placed.group.instance_type,
        }
        for key, value in placed.role.node_selector.items():
            path = f"{placed.path}.node_selector.{key}"
            if key in given and given[key] != value:
                message = f"the nodes of group {placed.role.group} carry {key}={given[key]}"
                yield Problem(path, message, "remove it, or name the group in group", value, given[key])
            elif key not in given:
                message = f"group {placed.role.group} does not give its nodes the label {key}"
                fix = f"add it to {group_path(placed.role.group)}.labels, or be sure that something else sets it"
                yield Problem(path, message, fix, value, level=Level.WARNING)


@check(
    "PLC009", "GPU nodes of a serving group carry no taint that pods do not tolerate", level=Level.WARNING,
    why="The operator gives the pods of disaggregated endpoints no tolerations before its version 3.7, so a taint keeps them off "
        "the nodes that were bought for them. Device plugins and CSI drivers need tolerations too.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-inference-release-notes.html",
    seen_in=("https://github.com/aws/sagemaker-hyperpod-cli/pull/449",),
)  # fmt: skip
def _taints(environment: Environment, _: Context) -> Iterator[Problem]:
    used = {
        placed.role.group
        for placed in roles(environment)
        if "tolerations" not in placed.endpoint.raw.spec and not backend(placed.endpoint.backend).capabilities.tolerations
    }
    for name, group, _instance in groups(environment):
        for index, taint in enumerate(group.taints):
            if name in used and taint.effect != "PreferNoSchedule":
                message = f"pods of the roles on group {name} do not tolerate it"
                fix = "remove the taint, or add spec.tolerations under raw on an operator of 3.7 or newer"
                yield Problem(f"{group_path(name)}.taints[{index}]", message, fix, f"{taint.key}={taint.value}:{taint.effect}", "no taint")
