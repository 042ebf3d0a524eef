"""The HyperPod cluster as it is now: its instance groups, and the nodes in them."""

from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from aws_reads.session import Clients

RUNNING: Final = "Running"
_MOST_PAGES: Final = 200


@dataclass(frozen=True, slots=True)
class Node:
    """A node. ``status`` is HyperPod's word, such as ``Running``, ``DetachInProgress`` or ``Failure``."""

    id: str
    status: str


@dataclass(frozen=True, slots=True)
class Group:
    """An instance group: nodes that it has, nodes that it is to have, and each of them."""

    name: str
    instance_type: str
    current: int
    target: int
    nodes: tuple[Node, ...]

    @property
    def running(self) -> tuple[Node, ...]:
        """Nodes that run."""
        return tuple(node for node in self.nodes if node.status == RUNNING)


@dataclass(frozen=True, slots=True)
class Fleet:
    """A cluster. ``mode`` is how nodes are provisioned, ``Continuous`` or nothing; ``autoscaler`` is set while Karpenter adds nodes."""

    arn: str
    status: str
    mode: str
    autoscaler: str
    groups: dict[str, Group]


def fleet(clients: Clients, name: str) -> Fleet | None:
    """The cluster of this name, or ``None`` when there is none. Raises botocore's errors for everything else."""
    sagemaker = clients("sagemaker")
    try:
        found = sagemaker.describe_cluster(ClusterName=name)
    except ClientError as error:
        if error.response["Error"].get("Code") == "ResourceNotFound":
            return None
        raise
    nodes: dict[str, list[Node]] = {}
    for node in _nodes(sagemaker, name):
        nodes.setdefault(node["InstanceGroupName"], []).append(Node(node["InstanceId"], node["InstanceStatus"]["Status"]))
    scaling = found.get("AutoScaling") or {}
    return Fleet(
        arn=found["ClusterArn"],
        status=found["ClusterStatus"],
        mode=found.get("NodeProvisioningMode", ""),
        autoscaler=scaling.get("AutoScalerType", "Karpenter") if scaling.get("Mode") == "Enable" else "",
        groups={
            group["InstanceGroupName"]: Group(
                group["InstanceGroupName"], group.get("InstanceType", ""), group.get("CurrentCount", 0), group.get("TargetCount", 0),
                tuple(nodes.get(group["InstanceGroupName"], ())),
            )
            for group in found.get("InstanceGroups", ())
        },
    )  # fmt: skip


def _nodes(sagemaker: Any, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    following: dict[str, str] = {}
    for _ in range(_MOST_PAGES):
        page = sagemaker.list_cluster_nodes(ClusterName=name, MaxResults=100, **following)
        found += page["ClusterNodeSummaries"]
        if not page.get("NextToken"):
            break
        following = {"NextToken": page["NextToken"]}
    return found
