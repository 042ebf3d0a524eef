"""Rules about what the account can give: quotas, offers, plans, addresses."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from dpd.catalog import preflight
from dpd.checks.registry import Context, Problem, check
from dpd.environment.cluster import TrainingPlan
from dpd.environment.environment import Environment
from dpd.environment.names import Names
from dpd.finding import Level
from dpd.preflight.questions import quota_of
from dpd.preflight.view import answers_about, each, found
from dpd.sizing.addresses import address_need
from dpd.sizing.subnets import gpu_subnet

if TYPE_CHECKING:
    from dpd.preflight.facts import TrainingPlan as Plan

_QUOTAS: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-prerequisites.html"
_PLANS: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/reserve-capacity-with-training-plans.html"
_OFFERS: Final = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-discovery.html"
_SUBNETS: Final = "https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html"
_HYPERPOD: Final = "hyperpod-cluster"
_ENDS_SOON: Final = timedelta(days=14)
_RAISE: Final = (
    "ask for more: aws service-quotas request-service-quota-increase --service-code sagemaker --quota-code {code} --desired-value {need}"
)


def _nodes(environment: Environment, context: Context) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Nodes that run now by type, of this cluster and of others; none where that is not known."""
    known = answers_about(environment, context.preflight).nodes.get(Names.of(environment).hyperpod_cluster)
    return (known.own, known.others) if known else ({}, {})


def _short(
    path: str, name: str, need: int, context: Context, environment: Environment, words: str, *, likely: bool = False
) -> Iterator[Problem]:
    """A quota that is missing or too small for what is needed of it."""
    quotas = answers_about(environment, context.preflight).quota
    if name not in quotas:
        return
    level = Level.WARNING if likely else None
    if (quota := quotas[name]) is None:
        yield Problem(path, f"the Region has no quota {name!r}", "take a type or a Region that HyperPod offers", need, level=level)
    elif quota.limit < need:
        fix = _RAISE.format(code=quota.code, need=need) if quota.adjustable else "it cannot be raised: make the cluster smaller"
        yield Problem(
            path, f"{words} = {need}, the account has {quota.limit:g} ({name}, {quota.code})", fix, need, f"{quota.limit:g}", level
        )


@check(
    "PRE020",
    "The quota of every instance type covers its nodes",
    why="Each type has its own HyperPod quota, often 0 and separate from that of EC2. A cluster above it is refused, or stays without "
    "nodes while everything around it is billed.",
    link=_QUOTAS,
    seen_in=("https://github.com/awslabs/awsome-distributed-ai/issues/204", "https://github.com/awslabs/awsome-distributed-ai/issues/198"),
)
def quotas(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare the nodes of all groups of a type, at their ceiling, and those of other clusters, with the quota."""
    _, others = _nodes(environment, context)
    parts: dict[str, list[tuple[str, int]]] = {}
    types, planned = {}, Counter[str]()
    for name, group in environment.cluster.groups.items():
        if group.most_nodes:
            quota = quota_of(group)
            parts.setdefault(quota, []).append((name, group.most_nodes))
            types[quota] = group.instance_type
            planned[quota] += isinstance(group.capacity, TrainingPlan) and group.most_nodes
    for quota, groups in parts.items():
        own, elsewhere = sum(count for _, count in groups), others.get(types[quota], 0)
        words = " + ".join(f"{count} ({name})" for name, count in groups) + (f" + {elsewhere} in other clusters" if elsewhere else "")
        path = f"cluster.groups.{groups[0][0]}.instance_type"
        limit = answers_about(environment, context.preflight).quota.get(quota)
        # AWS's page does not say whether nodes of a plan count, nor what quotas of spot are called; other clusters may be gone by then.
        spot = quota == preflight.quota_names().spot.format(type=types[quota])
        likely = spot if limit is None else limit.limit >= own - planned[quota]
        yield from _short(path, quota, own + elsewhere, context, environment, words, likely=likely)


@check(
    "PRE021",
    "The quotas of clusters cover the cluster",
    why="Besides the quota of each type there is one of nodes in a cluster, one of nodes in all clusters, and one of the size of volumes.",
    link=_QUOTAS,
)
def cluster_quotas(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare sums of nodes and the largest volume with their quotas."""
    named, others = preflight.quota_names(), sum(_nodes(environment, context)[1].values())
    count = {
        spot: sum(group.most_nodes for group in environment.cluster.groups.values() if (group.capacity == "spot") is spot)
        for spot in (False, True)
    }
    total = sum(count.values())
    elsewhere = f" and {others} in others" if others else ""
    yield from _short("cluster.groups", named.per_cluster, total, context, environment, "nodes of the cluster")
    yield from _short("cluster.groups", named.total, total + others, context, environment, f"nodes of the cluster{elsewhere}")
    if count[True]:
        yield from _short("cluster.groups", named.spot_total, count[True], context, environment, "spot nodes of the cluster", likely=True)
    for name, group in environment.cluster.groups.items():
        if group.data_volume_gib:
            path = f"cluster.groups.{name}.data_volume_gib"
            yield from _short(path, named.volume_gib, group.data_volume_gib, context, environment, "GiB of a volume")


@check(
    "PRE022",
    "The AZ offers every instance type",
    why="Types with GPUs are in a few AZs of a Region. Elsewhere a group stays without nodes, whatever the quota says.",
    link=_OFFERS,
)
def offered(environment: Environment, context: Context) -> Iterator[Problem]:
    """Look for the GPU subnet's AZ id among those that offer the type."""
    place = gpu_subnet(environment.network)
    zone = place[1].availability_zone_id if place else ""
    for question, answer in each(environment, answers_about(environment, context.preflight).offering, "offering"):
        zones = sorted(answer.zones) if answer else []
        if zone not in zones:
            fix = f"move network.gpu_subnet to {' or '.join(zones)}" if zones else "take another type or Region"
            said = f"{question.subject} is not offered in {zone}"
            yield Problem(question.path, said, fix, question.subject, ", ".join(zones) or f"no AZ of {environment.region}")


@check(
    "PRE023",
    "Every AZ is open to the account",
    why="An AZ id that the account does not have makes the subnet fail; one that is impaired makes it wait.",
    link="https://docs.aws.amazon.com/ram/latest/userguide/working-with-az-ids.html",
)
def zones(environment: Environment, context: Context) -> Iterator[Problem]:
    """Look at existence and state of each AZ."""
    for question, answer in each(environment, answers_about(environment, context.preflight).zone, "zone"):
        if answer is None or answer.state != "available":
            said = f"is {answer.state}" if answer else f"is no AZ of this account in {environment.region}"
            fix = "look with: aws ec2 describe-availability-zones --query 'AvailabilityZones[].[ZoneId,State]'"
            yield Problem(question.path, said, fix, question.subject, "an AZ in state available")


@check(
    "PRE024",
    "Every training plan carries its group",
    why="A plan is of one type, one AZ and one number of nodes, and for HyperPod or for training jobs, not both. A group that does not fit "
    "its plan gets no nodes, and the plan is paid for all the same.",
    link=_PLANS,
)
def plans(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare target, status, type, AZ and count of each plan with its groups."""
    answers = answers_about(environment, context.preflight)
    wanted: Counter[str] = Counter()
    for name, group in environment.cluster.groups.items():
        if not isinstance(group.capacity, TrainingPlan) or (arn := group.capacity.training_plan_arn) not in answers.training_plan:
            continue
        path, plan = f"cluster.groups.{name}.capacity", answers.training_plan[arn]
        wanted[arn] += group.most_nodes
        if plan is None:
            yield Problem(
                f"{path}.training_plan_arn", "there is no such training plan", "look with: aws sagemaker list-training-plans", arn
            )
        else:
            yield from _unfit(path, plan, group.instance_type, group.capacity.availability_zone_id, wanted[arn])


def _unfit(path: str, plan: "Plan", instance_type: str, zone: str, nodes: int) -> Iterator[Problem]:
    arn = f"{path}.training_plan_arn"
    if plan.targets and _HYPERPOD not in plan.targets:
        yield Problem(arn, "the plan is not for HyperPod clusters", f"name a plan for {_HYPERPOD}", ", ".join(plan.targets), _HYPERPOD)
    if plan.status != "Active":
        begins = f", it begins {plan.start:%Y-%m-%d %H:%M} UTC" if plan.start and plan.status in {"Scheduled", "Pending"} else ""
        level = Level.WARNING if begins else None
        yield Problem(arn, f"the plan is {plan.status}{begins}", "deploy while the plan is active", plan.status, "Active", level)
    fitting = [one for one in plan.reserved if one.instance_type == instance_type]
    if plan.reserved and not fitting:
        has = ", ".join(sorted({one.instance_type for one in plan.reserved}))
        yield Problem(arn, f"the plan has no {instance_type}", "name another plan, or take its type", instance_type, has)
        return
    zones = {one.zone_id for one in fitting if one.zone_id}
    if zones and zone not in zones:
        fix = "write the plan's AZ id, here and for the GPU subnet"
        yield Problem(f"{path}.availability_zone_id", "the plan is in another AZ", fix, zone, ", ".join(sorted(zones)))
    count = sum(one.count for one in fitting) or plan.total
    if count < nodes:
        yield Problem(arn, f"{nodes} nodes are to come from {count} of the plan", "lower count or max_count", nodes, f"{count}")


@check(
    "PRE025",
    "Training plans last",
    why="When a plan ends, its nodes are taken away with whatever they serve.",
    link=_PLANS,
    level=Level.WARNING,
)
def plan_ends(environment: Environment, context: Context) -> Iterator[Problem]:
    """Warn two weeks before the end of a plan, and of one that is over."""
    for question, plan in found(environment, answers_about(environment, context.preflight).training_plan, "training_plan"):
        if plan.end and plan.end.date() - context.today <= _ENDS_SOON:
            over = plan.end.date() < context.today
            said = f"the plan {'ended' if over else 'ends'} {plan.end:%Y-%m-%d %H:%M} UTC"
            yield Problem(question.path, said, "extend it, or move the group to other capacity", level=Level.ERROR if over else None)


@check(
    "PRE026",
    "Adopted subnets are what the file says",
    why="AZ, network and VPC of an adopted subnet are the ground of all arithmetic here; what differs shows when nodes fail to start.",
    link=_SUBNETS,
)
def subnets(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare each subnet with the file."""
    if (existing := environment.network.existing) is None:
        return
    listed = {subnet.id: subnet for subnet in (existing.gpu_subnet, *existing.control_plane_subnets)}
    for question, answer in each(environment, answers_about(environment, context.preflight).subnet, "subnet"):
        if answer is None:
            yield Problem(question.path, f"there is no such subnet in {environment.region}", "correct the id", question.subject)
            continue
        said, place = listed[question.subject], question.path.removesuffix(".id")
        for field, written, real in (
            ("availability_zone_id", said.availability_zone_id, answer.zone_id),
            ("cidr", said.cidr, answer.cidr),
            ("id", existing.vpc_id, answer.vpc_id),
        ):
            if written != real:
                what = f"the subnet is in {real}" if field == "id" else f"the subnet has {real}"
                yield Problem(f"{place}.{field}", what, "write what is there, or adopt another subnet", written, real)


@check(
    "PRE027",
    "The adopted GPU subnet has free addresses",
    why="Others live in an adopted subnet too. A node that gets no address is billed and never joins.",
    link=_SUBNETS,
)
def free_addresses(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare the free addresses with the need of all groups at their ceiling."""
    if (existing := environment.network.existing) is None:
        return
    subnet = answers_about(environment, context.preflight).subnet.get(existing.gpu_subnet.id)
    need = address_need(environment)
    # AWS has taken its own off already.
    wanted = sum(item.addresses for item in need.items if item.what != "kept by AWS")
    if subnet and subnet.free < wanted:
        running = sum(_nodes(environment, context)[0].values())
        also = f"; {running} nodes of this environment have theirs already" if running else ""
        lines = " + ".join(str(item) for item in need.items if item.what != "kept by AWS")
        yield Problem(
            "network.existing.gpu_subnet.id", f"{lines} = {wanted:,} addresses, {subnet.free:,} are free{also}",
            "free addresses, adopt a larger subnet, or set network_interface: efa_only", wanted, f"{subnet.free:,}",
            Level.WARNING if running else None,
        )  # fmt: skip


@check(
    "PRE028",
    "Adopted security groups have the rules that the file says",
    why="The checks of EFA read the file. A rule that stands there alone does not let a byte through.",
    link="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html#efa-start-security",
)
def security_groups(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare each group's rules both ways."""
    existing = environment.network.existing
    listed = {group.id: group for group in (existing.security_groups if existing else ())}
    for question, answer in each(environment, answers_about(environment, context.preflight).security_group, "security_group"):
        if answer is None:
            yield Problem(question.path, f"there is no such security group in {environment.region}", "correct the id", question.subject)
            continue
        place = question.path.removesuffix(".id")
        written = {(rule.direction, rule.protocol, rule.peer) for rule in listed[question.subject].rules}
        real = {(rule[0], rule[1], rule[2]) for rule in answer.rules}
        for said, rules, fix, level in (
            ("the file has a rule that the group has not", written - real, "add it to the group, or take it out of the file", None),
            ("the group has a rule that the file has not", real - written, "write it here", Level.WARNING),
        ):
            for rule in sorted(rules):
                yield Problem(f"{place}.rules", f"{said}: {' '.join(rule)}", fix, question.subject, level=level)
        if existing and answer.vpc_id and answer.vpc_id != existing.vpc_id:
            yield Problem(question.path, f"the group is of {answer.vpc_id}", "adopt a group of this VPC", question.subject, existing.vpc_id)
