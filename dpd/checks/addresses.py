"""Rules about IPv4 addresses and networks, which cannot be changed once nodes stand in them."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from itertools import combinations
from typing import Final

from dpd.catalog import network as rules
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.addresses import address_need
from dpd.sizing.fleet import group_path, groups
from dpd.sizing.subnets import SubnetPlan, gpu_subnet, subnet_plan

_CIDRS: Final = "https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html"
_SUBNETS: Final = "https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html"
_CNI: Final = "https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"
_WIDEST_SERVICES, _NARROWEST_SERVICES = 12, 24
_FOR_SERVICES: Final = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
_CNI_REPORT: Final = "https://github.com/aws/amazon-vpc-cni-k8s/issues/2846"


def _networks(environment: Environment) -> list[tuple[str, IPv4Network]]:
    """Every network that the file states, with its place."""
    network = environment.network
    found: list[tuple[str, str]] = []
    if network.existing:
        path = "network.existing"
        found += [(f"{path}.vpc_cidr", network.existing.vpc_cidr), (f"{path}.gpu_subnet.cidr", network.existing.gpu_subnet.cidr)]
        for index, subnet in enumerate(network.existing.control_plane_subnets):
            if subnet != network.existing.gpu_subnet:
                found.append((f"{path}.control_plane_subnets[{index}].cidr", subnet.cidr))
    else:
        found += [("network.vpc_cidr", network.vpc_cidr)] if network.vpc_cidr else []
        found += [("network.gpu_subnet.cidr", network.gpu_subnet.cidr)] if network.gpu_subnet else []
    return [(path, IPv4Network(cidr)) for path, cidr in found]


@check(
    "ADR001", "The GPU subnet has an address for every node, pod and device",
    why="Each node takes addresses for its pods and for every EFA device: 81 on ml.p5.48xlarge. When they run out, pods hang in "
        "ContainerCreating and new nodes do not join; the subnet cannot be made larger.",
    link=_SUBNETS, seen_in=(_CNI_REPORT,),
)  # fmt: skip
def _enough(environment: Environment, _: Context) -> Iterator[Problem]:
    subnet = gpu_subnet(environment.network)
    if subnet is None:
        return
    path, cidr = f"{subnet[0]}.cidr", IPv4Network(subnet[1].cidr)
    need = address_need(environment)
    if need.total > cidr.num_addresses:
        widest = 16
        fix = (
            f"use a /{need.prefix_length} or larger, set network_interface: efa_only on GPU groups, or lower count and max_count"
            if need.prefix_length >= widest
            else f"lower count and max_count: no subnet is larger than /{widest}"
        )
        message = f"{need}; /{cidr.prefixlen} has {cidr.num_addresses:,}"
        yield Problem(path, message, fix, cidr, f"{cidr.num_addresses:,} addresses")


@check(
    "ADR002", "The addresses of every node are known", level=Level.WARNING,
    why="A type whose need nobody states counts as 0 in the sum of the subnet, which may then be too small.",
    link=_CNI, seen_in=(_CNI_REPORT,),
)  # fmt: skip
def _known_need(environment: Environment, _: Context) -> Iterator[Problem]:
    for name, group, instance in groups(environment):
        if group.most_nodes and instance.addresses_per_node is None:
            message = f"no source states how many addresses a node of {instance.type} takes; {group.most_nodes} of them are not in the sum"
            yield Problem(f"{group_path(name)}.instance_type", message, "leave room for them in the GPU subnet", instance.type)


@check(
    "ADR003", "Networks do not overlap by half",
    why="A subnet lies inside one network of its VPC, and subnets never overlap. CloudFormation finds out halfway through the stack.",
    link=_SUBNETS,
    binding=True,
)  # fmt: skip
def _overlap(environment: Environment, _: Context) -> Iterator[Problem]:
    found = _networks(environment)
    vpcs = [(path, cidr) for path, cidr in found if path.endswith("vpc_cidr")]
    subnets = [(path, cidr) for path, cidr in found if not path.endswith("vpc_cidr")]
    for vpc_path, vpc in vpcs:
        for path, cidr in subnets:
            if cidr.overlaps(vpc) and not cidr.subnet_of(vpc):
                message = f"{cidr} reaches beyond {vpc} ({vpc_path}): it must lie inside it, or wholly outside"
                yield Problem(path, message, f"choose a network inside {vpc}, or one that shares no address with it", cidr, f"inside {vpc}")
    for (_first_path, first), (path, second) in combinations(subnets, 2):
        if first.overlaps(second):
            yield Problem(path, f"{second} and {first} share addresses", "correct the networks of the subnets", second, f"outside {first}")


@check(
    "ADR004", "The GPU subnet's network may join the VPC",
    why="Some private ranges cannot be added to a VPC that has another one: services reach into VPCs from those ranges themselves.",
    link=_CIDRS,
)  # fmt: skip
def _association(environment: Environment, _: Context) -> Iterator[Problem]:
    network = environment.network
    # The networks of an adopted VPC have been accepted already.
    if network.existing or network.vpc_cidr is None or network.gpu_subnet is None:
        return
    vpc, gpu = IPv4Network(network.vpc_cidr), IPv4Network(network.gpu_subnet.cidr)
    if gpu.overlaps(vpc):
        return
    conflict = rules.association_conflict(vpc, gpu)
    if conflict:
        existing, closed = conflict
        message = f"{gpu} lies in {closed}, and a VPC with {vpc} (in {existing}) takes no secondary network from there"
        yield Problem("network.gpu_subnet.cidr", message, f"choose one inside {vpc}, or in 100.64.0.0/10", gpu, f"outside {closed}")


def _made(environment: Environment) -> SubnetPlan | str | None:
    """The subnets to make, why they cannot be made, or ``None`` when other checks speak about the network."""
    network = environment.network
    if network.existing or not (network.vpc_cidr and network.gpu_subnet and network.egress):
        return None
    vpc, gpu = IPv4Network(network.vpc_cidr), IPv4Network(network.gpu_subnet.cidr)
    if not network.control_plane_availability_zone_ids or (gpu.overlaps(vpc) and not gpu.subnet_of(vpc)):
        return None
    try:
        return subnet_plan(network)
    except ValueError as error:
        return str(error)


@check(
    "ADR005", "The VPC has room for its subnets",
    why="Public and control-plane subnets are cut out of vpc_cidr, beside the GPU subnet where that lies inside.",
    link=_SUBNETS,
    binding=True,
)  # fmt: skip
def _room(environment: Environment, _: Context) -> Iterator[Problem]:
    plan = _made(environment)
    if isinstance(plan, str):
        fix = "choose a larger vpc_cidr, or a GPU subnet outside of it"
        yield Problem("network.vpc_cidr", plan, fix, environment.network.vpc_cidr)


@check(
    "ADR006", "Control-plane subnets take a load balancer and the control plane",
    why="A load balancer of an endpoint lives in the control-plane subnets (it wants two AZs) and takes none smaller than /27 with 8 free "
        "addresses; EKS asks for 16 more.",
    link="https://docs.aws.amazon.com/elasticloadbalancing/latest/application/application-load-balancers.html",
)  # fmt: skip
def _control_plane(environment: Environment, _: Context) -> Iterator[Problem]:
    existing = environment.network.existing
    for index, subnet in enumerate(existing.control_plane_subnets if existing else ()):
        path = f"network.existing.control_plane_subnets[{index}].cidr"
        yield from _small_control_plane(path, IPv4Network(subnet.cidr), "adopt a larger subnet")
    plan = _made(environment)
    if isinstance(plan, SubnetPlan):
        # All are of one size.
        yield from _small_control_plane("network.vpc_cidr", IPv4Network(plan.control_plane[0].cidr), "choose a larger vpc_cidr")


def _small_control_plane(path: str, subnet: IPv4Network, fix: str) -> Iterator[Problem]:
    longest = rules.load_balancer_longest_prefix()
    if subnet.prefixlen > longest:
        parts = (rules.subnet_reserved_addresses(), rules.load_balancer_addresses(), rules.control_plane_addresses())
        message = (
            f"the control-plane subnet {subnet} has {subnet.num_addresses} addresses; "
            f"{parts[0]} kept by AWS + {parts[1]} for a load balancer + {parts[2]} for EKS = {sum(parts)}"
        )
        yield Problem(path, message, fix, subnet, f"/{longest} or larger")


@check(
    "ADR007", "Networks keep clear of ranges that AWS uses",
    why="169.254.0.0/16 is link-local and refused. 172.17.0.0/16 is used inside AWS services, SageMaker among them, so that answers from "
        "there never arrive.",
    link=_CIDRS,
)  # fmt: skip
def _reserved(environment: Environment, _: Context) -> Iterator[Problem]:
    for path, cidr in _networks(environment):
        for block in rules.refused():
            if cidr.overlaps(block):
                yield Problem(path, f"{cidr} lies in {block}, which no VPC may have", "choose a private network", cidr, f"outside {block}")
        for block in rules.colliding():
            if cidr.overlaps(block):
                message = f"{cidr} shares addresses with {block}, which services such as SageMaker use themselves"
                yield Problem(path, message, "choose another network", cidr, f"outside {block}", level=Level.WARNING)


@check(
    "ADR008", "Service addresses are no addresses of the VPC",
    why="EKS refuses a service network that shares addresses with the VPC, after the network was made; and what lies behind a shared "
        "address cannot be reached from pods.",
    link="https://docs.aws.amazon.com/eks/latest/APIReference/API_KubernetesNetworkConfigRequest.html",
)  # fmt: skip
def _services(environment: Environment, _: Context) -> Iterator[Problem]:
    for key, value in environment.cluster.raw.eks.items():
        if key != "KubernetesNetworkConfig.ServiceIpv4Cidr":
            continue
        path, fix = f"cluster.raw.eks.{key}", "choose a private network of /12 to /24 that nothing else uses"
        try:
            services = IPv4Network(value)
        except (ValueError, TypeError):
            yield Problem(path, "is no IPv4 network", fix, value)
            continue
        private = any(services.subnet_of(block) for block in _FOR_SERVICES)
        if not private or not _WIDEST_SERVICES <= services.prefixlen <= _NARROWEST_SERVICES:
            yield Problem(path, "is not a private network of /12 to /24", fix, services, "/12 to /24")
        for place, other in _networks(environment):
            if services.overlaps(other):
                yield Problem(path, f"{services} shares addresses with {other} ({place})", fix, services, f"outside {other}")
                break
