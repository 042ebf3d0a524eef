"""In which order an environment is taken down, what stays on purpose, and what nobody's template will remove."""

from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, Final

from dpd.environment.names import ADDONS, EKS, GATE, HYPERPOD, NETWORK, PARTS, SERVING, STORAGE
from dpd.review.assembly import Assembly, NotAnAssemblyError, Stack

CLUSTER_TAG: Final = "elbv2.k8s.aws/cluster"
"""Tag of everything that the load balancer controller makes for a cluster:
https://kubernetes-sigs.github.io/aws-load-balancer-controller/latest/guide/ingress/annotations/#resource-tags"""
_KEEPS: Final = frozenset({"Retain", "RetainExceptOnCreate", "Snapshot"})
_OBJECT: Final = "Custom::AWSCDK-EKS-KubernetesResource"
_NAMES: Final = ("BucketName", "LogGroupName", "AliasName", "Name", "ClusterName")
_WHY: Final = {
    GATE: "nothing is proven while things go; its functions in the VPC need up to 20 minutes to give back their network interfaces",
    SERVING: "the operator's custom resources: while its controllers run, they remove load balancers, pods and SageMaker endpoints",
    ADDONS: "the operator and its controllers, once they have nothing left to clean up",
    HYPERPOD: "before EKS: its nodes are members of the cluster, and the other way round leaves them behind",
    EKS: "the control plane, once no node is left",
    STORAGE: "file system, buckets and key leave the stack and are kept",
    NETWORK: "last: everything else has interfaces in it",
}
_SIDE_BY_SIDE: Final = "nothing else waits for it"


@dataclass(frozen=True, slots=True)
class Kept:
    """A resource that leaves its stack and goes on existing."""

    type: str
    id: str
    name: str
    how: str


@dataclass(frozen=True, slots=True)
class Step:
    """A stack to delete. ``key`` is what `cdk destroy` calls it."""

    part: str
    key: str
    stack: str
    why: str
    protected: bool
    kept: tuple[Kept, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """What no template holds: made by a controller or a service, with the way to find it."""

    what: str
    find: str


@dataclass(frozen=True, slots=True)
class Teardown:
    """The whole of it."""

    environment: str
    name: str
    account: str
    region: str
    eks_cluster: str
    sagemaker_endpoints: tuple[str, ...]
    steps: tuple[Step, ...]
    left: tuple[Left, ...]

    @property
    def protected(self) -> tuple[Step, ...]:
        """Stacks that refuse to be deleted, by the assembly."""
        return tuple(step for step in self.steps if step.protected)


def teardown(assembly: Assembly, environment: str) -> Teardown:
    """Raises ``NotAnAssemblyError`` when the assembly has no such environment, or an older tool made it."""
    stacks = {stack.part: stack for stack in assembly.stacks.values() if stack.environment == environment}
    summary = assembly.summaries.get(environment, {})
    if not stacks or "promotion" not in summary:
        raise NotAnAssemblyError(f"{assembly.folder} has no environment {environment[:60]!r}; it has: {', '.join(assembly.environments)}")
    name, region = f"{summary['app']}-{environment}", str(summary["region"])
    own_cluster = _property(stacks, EKS, "AWS::EKS::Cluster", "Name")
    cluster = own_cluster or str(summary["promotion"]["eks_cluster"])
    endpoints = tuple(_endpoints(assembly, environment))
    return Teardown(
        environment=environment,
        name=name,
        account=str(summary["account"]),
        region=region,
        eks_cluster=cluster,
        sagemaker_endpoints=endpoints,
        steps=tuple(_step(stacks[part], with_cluster=own_cluster) for part in _order(stacks)),
        left=tuple(_left(stacks, name, cluster, endpoints)),
    )


def _order(stacks: dict[str, Stack]) -> list[str]:
    """Each stack before those that it waits for, in one order that is always the same."""
    known = {part: index for index, part in enumerate(PARTS)}
    graph = TopologicalSorter({part: [other for other in stack.after if other in stacks] for part, stack in stacks.items()})
    graph.prepare()
    found: list[str] = []
    while graph.is_active():
        # What the parts do not name (a side stack) is made, and so removed, beside what it waits for.
        ready = sorted(graph.get_ready(), key=lambda part: (known.get(part, -1), part))
        found += ready
        graph.done(*ready)
    return found[::-1]


def _step(stack: Stack, *, with_cluster: str) -> Step:
    """Objects on a cluster that goes too are not kept for long."""
    kept = tuple(each for each in _kept(stack) if not (with_cluster and each.type == _OBJECT))
    return Step(stack.part, stack.key, stack.name, _WHY.get(stack.part, _SIDE_BY_SIDE), stack.protected, kept)


def _kept(stack: Stack) -> Iterator[Kept]:
    for id_, resource in stack.template.get("Resources", {}).items():
        how = resource.get("DeletionPolicy", "Delete")
        if how in _KEEPS and resource["Type"] != "AWS::S3::BucketPolicy":
            properties = resource.get("Properties", {})
            name = next((str(properties[key]) for key in _NAMES if isinstance(properties.get(key), str)), "")
            yield Kept(resource["Type"], id_, name, how)


def _property(stacks: dict[str, Stack], part: str, type_: str, key: str) -> str:
    resources = stacks[part].template.get("Resources", {}).values() if part in stacks else ()
    return next((str(each["Properties"][key]) for each in resources if each["Type"] == type_ and key in each.get("Properties", {})), "")


def _endpoints(assembly: Assembly, environment: str) -> Iterator[str]:
    for path, body in assembly.objects.items():
        if path.split("/")[0] == environment and body["kind"] == "InferenceEndpointConfig":
            name: Any = body.get("spec", {}).get("endpointName")
            if name:
                yield str(name)


def _left(stacks: dict[str, Stack], name: str, cluster: str, endpoints: tuple[str, ...]) -> Iterator[Left]:
    balancers = f"aws resourcegroupstaggingapi get-resources --tag-filters Key={CLUSTER_TAG},Values={cluster}"
    yield Left("Load balancers, target groups and their security groups, when the add-on went before the custom resources", balancers)
    for endpoint in endpoints:
        yield Left(
            f"SageMaker endpoint {endpoint} with its configuration and model, when the operator could not remove them",
            f"aws sagemaker describe-endpoint --endpoint-name {endpoint}",
        )
    if _property(stacks, STORAGE, "AWS::S3::Bucket", "BucketName"):
        yield Left("Certificates that the operator brought into ACM", "aws acm list-certificates, then describe: in use by nothing")
    hyperpod = _property(stacks, HYPERPOD, "AWS::SageMaker::Cluster", "ClusterName") or name
    yield Left("Logs of the nodes", f"aws logs describe-log-groups --log-group-name-prefix /aws/sagemaker/Clusters/{hyperpod}/")
    yield Left(
        "Network interfaces: of Lambda for up to 20 minutes, of a kept Lustre file system until it is deleted, and of GuardDuty's endpoint "
        "where runtime monitoring is on. The network stands until they are gone",
        "aws ec2 describe-network-interfaces --filters Name=vpc-id,Values=<VPC>",
    )
    yield Left("A training plan or a reservation, which is paid for until it ends", "aws sagemaker list-training-plans")
    yield Left("Files and images that CDK published", "cdk gc --unstable=gc aws://<account>/<Region>")
