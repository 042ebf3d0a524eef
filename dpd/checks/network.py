"""Rules about the network: made or adopted, open or closed."""

import ipaddress
from collections.abc import Iterator
from typing import Final

from dpd.catalog import limits, node_agents
from dpd.catalog.llmd import llmd
from dpd.checks.registry import Context, Problem, check
from dpd.environment.cluster import PublicAccess
from dpd.environment.environment import Environment
from dpd.finding import Level

_EKS: Final = "https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"
_PRIVATE: Final = "https://docs.aws.amazon.com/eks/latest/userguide/private-clusters.html"
_MADE: Final = ("vpc_cidr", "gpu_subnet", "control_plane_availability_zone_ids", "egress")


def closed(environment: Environment) -> bool:
    """Whether nodes have no way to the internet. False for an adopted network: the file does not say how it is routed."""
    egress = environment.network.egress
    return environment.network.existing is None and egress is not None and egress.nat_gateways == 0


def public_registry(repository: str) -> str | None:
    """The registry on the internet that an image comes from, or ``None`` for one that may be reached privately."""
    host, slash, _ = repository.partition("/")
    if not slash or ("." not in host and ":" not in host and host != "localhost"):
        return "docker.io"
    return host if any(host == known or host.endswith(f".{known}") for known in limits.words("public_registries")) else None


@check(
    "NET001",
    "A network is either made or adopted, with all its keys",
    why="Half a network cannot be made, and keys beside `existing` would be ignored without a word.",
    link=_EKS,
    binding=True,
)
def one_way(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask for all keys of a VPC to make, or for `existing` alone."""
    network = environment.network
    given = [key for key in _MADE if getattr(network, key)]
    if network.existing:
        for key in (*given, *(key for key in ("flow_logs", "raw") if key in network.model_fields_set)):
            yield Problem(
                path=f"network.{key}",
                message="is about a network to make, beside one to adopt, which is not changed",
                fix="remove it, or remove existing",
            )
        return
    missing = [key for key in _MADE if key not in given]
    if missing:
        yield Problem(
            path="network",
            message=f"a network to make needs {', '.join(missing)} as well" if given else "says nothing about a network",
            limit=f"{', '.join(_MADE)}; or existing",
            fix=f"add {', '.join(missing)}" + ("" if given else "; or adopt a network with existing"),
        )


@check(
    "NET002",
    "Adopted subnets are different ones",
    why="The same subnet twice gives the control plane one AZ less than it seems, and a subnet is in one AZ only.",
    link=_EKS,
)
def different_subnets(environment: Environment, _: Context) -> Iterator[Problem]:
    """Look for a subnet id that stands twice, or with two AZ ids or networks."""
    existing = environment.network.existing
    if existing is None:
        return
    seen: dict[str, str] = {}
    for index, subnet in enumerate(existing.control_plane_subnets):
        path = f"network.existing.control_plane_subnets[{index}]"
        first = seen.setdefault(subnet.id, path)
        if first != path:
            yield Problem(path=f"{path}.id", message=f"stands twice, first at {first}", value=subnet.id, fix="name a subnet of another AZ")
        if subnet.id == existing.gpu_subnet.id and subnet != existing.gpu_subnet:
            yield Problem(
                path=f"{path}.id",
                message="is the GPU subnet, with another AZ id or network than network.existing.gpu_subnet says",
                value=subnet.id,
                fix="copy both from: aws ec2 describe-subnets",
            )


@check(
    "NET003",
    "A closed network has interface endpoints",
    why="Without NAT, nodes reach ECR, STS, EKS and CloudWatch through interface endpoints only. "
    "Without those they never join the cluster.",
    link=_PRIVATE,
)
def endpoints_when_closed(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask a network without NAT for interface endpoints."""
    egress = environment.network.egress
    if closed(environment) and egress and not egress.interface_endpoints:
        yield Problem(
            path="network.egress.interface_endpoints",
            message="there is no NAT gateway either, so nodes reach no AWS service but S3",
            value=False,
            fix="set interface_endpoints: true, or make a NAT gateway",
        )


@check(
    "NET004",
    "A closed network pulls images from a private registry",
    why="Public registries, Amazon's own included, have no VPC endpoint. Pods stay in ImagePullBackOff on billed nodes. An ECR of another "
    "Region is as far away.",
    link=_PRIVATE,
)
def private_images(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse images that a network without NAT cannot reach."""
    if not closed(environment):
        return
    mirror = f"{environment.account}.dkr.ecr.{environment.region}.amazonaws.com/…"
    for index, endpoint in enumerate(environment.endpoints):
        path = f"endpoints[{index}].image"
        if endpoint.image is None:
            yield Problem(
                path=path,
                message="the default image is in a public registry, which a network without NAT cannot reach",
                fix=f"copy the image to {mirror} and name it here, or make a NAT gateway",
            )
            continue
        repository = endpoint.image.repository
        registry = public_registry(repository) or _ecr_elsewhere(repository, environment.region)
        if registry:
            yield Problem(
                path=f"{path}.repository",
                message=f"a network without NAT cannot reach {registry[:80]}",
                value=repository,
                limit=f"an ECR registry in {environment.region}, or one inside the VPC",
                fix=f"copy the image to {mirror} and name it here, or make a NAT gateway",
            )


def _ecr_elsewhere(repository: str, region: str) -> str | None:
    host = repository.partition("/")[0]
    return host if ".dkr.ecr." in host and f".dkr.ecr.{region}." not in host else None


@check(
    "NET005",
    "A closed network pulls the images of node agents from a mirror",
    why="NVIDIA publishes its device plugin on nvcr.io only. Without it nodes have no nvidia.com/gpu, and every pod stays Pending. Without "
    "the exporter of EFA's counters (unless gate.efa_counters is false) the health gate cannot prove that KV crossed EFA.",
    link=_PRIVATE,
)
def private_agents(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask a network without NAT for a mirror of what comes from a public registry."""
    if not closed(environment):
        return
    for name in node_agents.names():
        if name == node_agents.EFA_COUNTERS and not (environment.gate.deploy and environment.gate.efa_counters):
            continue
        repository = environment.cluster.agent_repositories.get(name, node_agents.find(name).repository)
        registry = public_registry(repository) if "." in repository.partition("/")[0] else None
        if registry:
            yield Problem(
                path=f"cluster.agent_repositories.{name}",
                message=f"a network without NAT cannot reach {registry[:80]}",
                value=repository,
                fix="copy the image to an ECR repository of this Region and name it here",
            )


@check(
    "NET007",
    "A closed network pulls the images of llm-d's router from mirrors",
    why="They are published on ghcr.io and docker.io. Without the router no request reaches a worker, and without its sidecar no decoder "
    "becomes ready, on billed nodes.",
    link=_PRIVATE,
)
def private_router(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask a network without NAT for mirrors of what its endpoints need."""
    served = [endpoint for endpoint in environment.endpoints if endpoint.backend == "llm-d"]
    if not closed(environment) or not served:
        return
    knows_tokens = any(endpoint.routing.strategy == "kv_aware" for endpoint in served)
    for name, public in llmd().router_repositories().items():
        repository = environment.cluster.router_repositories.get(name, public)
        registry = public_registry(repository) or _ecr_elsewhere(repository, environment.region)
        if registry and (name != "tokenizer" or knows_tokens):
            yield Problem(
                path=f"cluster.router_repositories.{name}",
                message=f"a network without NAT cannot reach {registry[:80]}",
                value=repository,
                fix="copy the image, by its digest, to an ECR repository of this Region and name it here",
            )


@check(
    "NET006",
    "Networks that may reach the Kubernetes API are public and narrow",
    why="EKS compares public_cidrs with the address it sees from the internet, so a private network never matches, and a very short prefix "
    "is most of the internet.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html",
    level=Level.WARNING,
)
def api_networks(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of private and of very broad networks, and of one that stands twice."""
    access = environment.cluster.api_access
    for index, text in enumerate(access.public_cidrs if isinstance(access, PublicAccess) else ()):
        network = ipaddress.IPv4Network(text)
        path = f"cluster.api_access.public_cidrs[{index}]"
        if network.prefixlen < limits.broadest_public_network():
            yield Problem(
                path=path,
                message=f"lets {network.num_addresses:,} addresses try the Kubernetes API",
                value=text,
                limit=f"/{limits.broadest_public_network()} or longer",
                fix="name the networks that you work from",
            )
        elif any(network.subnet_of(private) for private in _PRIVATE_NETWORKS):
            yield Problem(
                path=path,
                message="is a private network, which is not how the internet sees you",
                value=text,
                fix="write the public address of your NAT or VPN; inside the VPC the private endpoint always works",
            )


_PRIVATE_NETWORKS: Final = tuple(ipaddress.IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
