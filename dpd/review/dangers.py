"""Changes that lose data, capacity or safety. AWS's library calls several of them a plain update."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dpd.review.templates import Effect, ResourceChange, TemplateChanges

_HYPERPOD: Final = "AWS::SageMaker::Cluster"
_LOST: Final = {
    _HYPERPOD: "every node goes, the capacity may not come back, and all endpoints stop",
    "AWS::EKS::Cluster": "HyperPod cannot move to another EKS cluster: the nodes and all endpoints go with it",
    "AWS::EC2::VPC": "nothing can move to another VPC: cluster, nodes and file system are made anew",
    "AWS::EC2::Subnet": "nodes and file system cannot move to another subnet: they are made anew",
    "AWS::FSx::FileSystem": "what is on the file system and nowhere else is lost",
    "AWS::FSx::DataRepositoryAssociation": "what was not exported to the bucket yet stays on the file system",
    "AWS::S3::Bucket": "the weights, or what else is in the bucket, are not in the new one",
    "AWS::KMS::Key": "what was encrypted with the key cannot be read without it",
    "AWS::EC2::SecurityGroup": "nodes keep the old group until they are replaced, and EFA works inside one group alone",
}
"""What goes with a resource, by its type."""
_GROUP: Final = re.compile(r"^InstanceGroups\[(?P<group>[^\]]+)\](?:\.(?P<field>.+))?$")


@dataclass(frozen=True, slots=True)
class Danger:
    """One danger: what happens to which resource, and what that means. ``kind`` is a stable word for machines."""

    kind: str
    stack: str
    resource: str
    what: str
    why: str


_WHY: Final = {
    "left behind": "it goes on existing and costing, and its name stays taken",
    "availability zone changed": "capacity, subnet and file system are in one AZ; nothing of it moves",
    "nodes moved": "nodes do not move: the update is refused, or every node is replaced",
    "orchestrator changed": "a cluster keeps its EKS cluster for life: the service refuses, or makes it anew",
    "instance group removed": "its nodes go with all pods on them, and the capacity may not come back",
    "instance type changed": "a group keeps its type for life: the service refuses the update",
    "more open network": "a review should know why this is needed",
    "more rights": "a review should know why this is needed",
}
_RANK: Final = (
    "replaced", "removed", "instance group removed", "orchestrator changed", "instance type changed", "availability zone changed",
    "nodes moved", "may be replaced", "left behind", "more open network", "more rights",
)  # fmt: skip
_WORDS: Final = {Effect.REPLACED: "replaced", Effect.REMOVED: "removed", Effect.MAY_BE_REPLACED: "may be replaced"}


def dangers(changes: TemplateChanges, *, existing: frozenset[str]) -> tuple[Danger, ...]:
    """Everything dangerous, the worst first. ``existing`` are the stacks that stood before: what is new cannot lose anything."""
    found = [danger for change in changes.resources for danger in _of(change)]
    found += [
        Danger(kind, wider.stack, "", wider.what, _WHY[kind])
        for wider in changes.widenings
        if wider.stack in existing
        for kind in ("more rights" if wider.of_rights else "more open network",)
    ]
    return tuple(sorted(found, key=lambda danger: _RANK.index(danger.kind)))


def _of(change: ResourceChange) -> Iterator[Danger]:
    if change.type in _LOST and change.effect in _WORDS:
        kind = _WORDS[change.effect]
        cause = change.because or "; ".join(str(leaf) for leaf in change.leaves[:3])
        yield Danger(kind, change.stack, change.id, f"{change.type} {kind}{f': {cause}' if cause else ''}", _LOST[change.type])
    for kind, what in _details(change):
        yield Danger(kind, change.stack, change.id, what, _WHY[kind])


def _details(change: ResourceChange) -> Iterator[tuple[str, str]]:
    if change.effect is Effect.KEPT_BEHIND:
        yield "left behind", f"{change.type} leaves the stack and is kept"
    for leaf in change.leaves:
        if leaf.path.endswith(("AvailabilityZone", "AvailabilityZoneId")) and leaf.before and leaf.after:
            yield "availability zone changed", str(leaf)
    if change.type == _HYPERPOD and change.effect is Effect.CHANGED:
        yield from _of_cluster(change)


def _of_cluster(change: ResourceChange) -> Iterator[tuple[str, str]]:
    if change.because:
        yield "nodes moved", f"the cluster changes: {change.because}"
    for leaf in change.leaves:
        group = _GROUP.match(leaf.path)
        if leaf.path.startswith("Orchestrator"):
            yield "orchestrator changed", str(leaf)
        elif group and group["field"] is None and not leaf.after:
            yield "instance group removed", f"group {group['group']}"
        elif group and group["field"] == "InstanceType":
            yield "instance type changed", str(leaf)
        elif group and (group["field"] or "").startswith("OverrideVpcConfig"):
            yield "nodes moved", str(leaf)
