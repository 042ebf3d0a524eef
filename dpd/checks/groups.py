"""Rules about instance groups: how they are bought, labelled, tainted and tested."""

import re
from collections.abc import Iterator
from typing import Final

from dpd.catalog import instances, limits
from dpd.checks.registry import Context, Problem, check
from dpd.environment.cluster import TrainingPlan
from dpd.environment.environment import Environment
from dpd.environment.names import NODE_HEALTH_TAINT
from dpd.finding import Level

_GROUPS: Final = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ClusterInstanceGroupSpecification.html"
_LABELS: Final = "https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set"
_HELM: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-install-packages-using-helm-chart.html"
_DEEP: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-resiliency-deep-health-checks.html"
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_PREFIX: Final = 253


def _owner(key: str) -> str:
    """Whose the key of a label or taint is; empty when anybody's."""
    prefix = key.rpartition("/")[0]
    return next((own for own in limits.words("label_prefixes") if prefix == own or prefix.endswith(f".{own}")), "")


def _key_fault(key: str) -> str:
    """What Kubernetes refuses about the key of a label or taint; empty when nothing."""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name):
        return "must end in a name of at most 63 letters, digits, '-', '_' and '.'"
    if slash and not (len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix)):
        return "must begin with a DNS name before its '/'"
    return ""


def _has_gpus(instance_type: str) -> bool | None:
    instance = instances.find(instance_type)
    return None if instance is None else instance.gpus > 0


@check(
    "CLU001",
    "GPU nodes say how they are bought",
    why="On-demand p5 nodes are billed by the hour from the moment that they start; a default would spend money that nobody agreed to.",
    link=_GROUPS,
)
def capacity(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask every group with GPUs for `capacity`."""
    for name, group in environment.cluster.groups.items():
        if group.capacity is None and _has_gpus(group.instance_type):
            yield Problem(
                path=f"cluster.groups.{name}.capacity",
                message=f"is missing, and {group.instance_type} has GPUs",
                limit="on_demand, spot, or {training_plan_arn: …, availability_zone_id: …}",
                fix="say how the nodes are bought",
            )


@check(
    "CLU002",
    "A group's ceiling is not below its count",
    why="Addresses, connections and quotas are reckoned with the ceiling; one below the count reserves nothing for what is there.",
    link=_GROUPS,
)
def ceiling(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare max_count with count."""
    for name, group in environment.cluster.groups.items():
        if group.max_count is not None and group.max_count < group.count:
            yield Problem(
                path=f"cluster.groups.{name}.max_count",
                message=f"count is {group.count}",
                value=group.max_count,
                limit=f"at least {group.count}",
                fix="raise it, or leave it out",
            )


@check(
    "CLU003",
    "A training plan belongs to this account and Region",
    why="HyperPod looks the plan up when it makes the group. A plan of another account or Region is not found, after everything else "
    "was made.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/reserve-capacity-with-training-plans.html",
)
def plans(environment: Environment, _: Context) -> Iterator[Problem]:
    """Check kind, Region and account of every plan's ARN."""
    for name, group in environment.cluster.groups.items():
        if not isinstance(group.capacity, TrainingPlan):
            continue
        arn = group.capacity.training_plan_arn
        service, region, account, resource = arn.split(":", 5)[2:]
        path = f"cluster.groups.{name}.capacity.training_plan_arn"
        if service != "sagemaker" or not resource.startswith("training-plan/"):
            yield Problem(path, "is not the ARN of a training plan", "copy it from: aws sagemaker list-training-plans", arn)
        elif (region, account) != (environment.region, environment.account):
            yield Problem(
                path,
                f"is a plan of account {account} in {region}",
                "use a plan of this account and Region",
                arn,
                f"{environment.account} in {environment.region}",
            )


@check(
    "CLU004",
    "Labels and taints are ones that Kubernetes takes",
    why="HyperPod sets them again and again on every node. One that Kubernetes refuses is refused for ever, and one that HyperPod owns is "
    f"overwritten: {NODE_HEALTH_TAINT} as a taint of yours takes every node out of service.",
    link=_LABELS,
)
def labels_and_taints(environment: Environment, _: Context) -> Iterator[Problem]:
    """Check syntax, owner and uniqueness of labels and taints."""
    for name, group in environment.cluster.groups.items():
        place = f"cluster.groups.{name}"
        pairs = [(f"{place}.labels.{key}", key, value) for key, value in group.labels.items()]
        pairs += [(f"{place}.taints[{index}]", taint.key, taint.value) for index, taint in enumerate(group.taints)]
        for path, key, value in pairs:
            fault, owner = _key_fault(key), _owner(key)
            if fault:
                yield Problem(path, f"the key {fault}", "correct the key", key)
            elif owner:
                yield Problem(path, f"the key belongs to {owner}", "use a prefix of your own, such as example.com/", key)
            elif value and not _NAME.fullmatch(value):
                yield Problem(
                    path,
                    "the value is not a label value",
                    "correct the value",
                    value,
                    "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
                )
        seen: set[tuple[str, str]] = set()
        for index, taint in enumerate(group.taints):
            if (taint.key, taint.effect) in seen:
                yield Problem(f"{place}.taints[{index}]", "has the key and effect of another taint", "keep one of them", taint.key)
            seen.add((taint.key, taint.effect))


@check(
    "CLU005",
    "The EFA plugin of HyperPod's chart tolerates the taints",
    why="The chart's EFA device plugin tolerates a fixed list, and nvidia.com/gpu is not on it: nodes with that taint have GPUs and no "
    "EFA, "
    "and KV is handed over by TCP without a word. The plugin that this tool installs tolerates every taint of the groups.",
    link=_HELM,
    level=Level.WARNING,
)
def chart_tolerations(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of taints on GPU groups where the chart was installed by somebody else."""
    existing = environment.cluster.existing
    if existing is None or existing.prerequisites != "exists":
        return
    tolerated = limits.words("chart_efa_plugin_tolerations")
    for name, group in environment.cluster.groups.items():
        for index, taint in enumerate(group.taints if _has_gpus(group.instance_type) else ()):
            if taint.key not in tolerated and taint.effect != "PreferNoSchedule":
                yield Problem(
                    path=f"cluster.groups.{name}.taints[{index}]",
                    message="the EFA device plugin of the chart that runs there does not tolerate this taint by default",
                    value=taint.key,
                    limit=", ".join(tolerated),
                    fix="remove the taint, or add the toleration to the chart's values and acknowledge this",
                )


@check(
    "CLU006",
    "Deep health checks are meant",
    why="Deep health checks stress GPUs and network before a node may run pods. They add a long start, billed, and UpdateCluster fails "
    "meanwhile.",
    link=_DEEP,
    level=Level.INFO,
)
def deep_checks(environment: Environment, _: Context) -> Iterator[Problem]:
    """Say what they cost; refuse them where there is nothing to test."""
    for name, group in environment.cluster.groups.items():
        if not group.deep_health_checks:
            continue
        path = f"cluster.groups.{name}.deep_health_checks"
        value = ", ".join(group.deep_health_checks)
        if _has_gpus(group.instance_type) is False:
            yield Problem(
                path,
                f"{group.instance_type} has no accelerator to test",
                "remove it; deep health checks are for accelerators",
                value,
                level=Level.ERROR,
            )
        elif len(set(group.deep_health_checks)) < len(group.deep_health_checks):
            yield Problem(path, "names a check twice", "name each check once", value, level=Level.ERROR)
        else:
            yield Problem(
                path, "new nodes are billed while they are tested and serve nothing", "leave it out to start sooner, or keep it", value
            )


@check(
    "CLU020",
    "Serving nodes are not taken back at two minutes' notice",
    why="EC2 takes spot capacity back when others pay for it. An endpoint has one decode role: with its node every request ends, and "
    "nobody says when a node of this size comes back.",
    link="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-interruptions.html",
    level=Level.WARNING,
)
def spot(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of spot capacity under a role or under the system pods, once for each group."""
    groups = environment.cluster.groups.items()
    used = {name: "what DNS, webhooks and routers need" for name, group in groups if _has_gpus(group.instance_type) is False}
    used |= {role.group: f"endpoints[{index}].{name}" for index, one in enumerate(environment.endpoints) for name, role in one.roles}
    for name, group in environment.cluster.groups.items():
        if group.capacity == "spot" and name in used:
            yield Problem(
                path=f"cluster.groups.{name}.capacity",
                message=f"{used[name]} runs on nodes that can be taken away",
                value=group.capacity,
                fix="use on_demand or a training plan, or acknowledge this where an outage is accepted",
            )


@check(
    "CLU022",
    "Only nodes with EFA have EFA interfaces",
    why="HyperPod refuses an EFA interface on a type without EFA when it makes the group, after everything else was made.",
    link="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
)
def efa_interfaces(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse `network_interface` on groups whose nodes have no EFA device."""
    for name, group in environment.cluster.groups.items():
        instance = instances.find(group.instance_type)
        if group.network_interface and instance and not instance.efa:
            yield Problem(
                path=f"cluster.groups.{name}.network_interface",
                message=f"{instance.type} has no EFA device",
                value=group.network_interface,
                fix="remove it",
            )
