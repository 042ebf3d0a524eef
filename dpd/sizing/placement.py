"""Which pod of an environment goes to which node, under all the constraints that its manifests carry."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dpd.catalog.instances import Instance
from dpd.environment.cluster import InstanceGroup, TrainingPlan
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.sizing.expert_parallel import pods_per_replica
from dpd.sizing.fleet import RoleOnGpus, groups
from dpd.sizing.packing import RESOURCES, PodKind, Vector, exceeding, node_room
from dpd.sizing.pod import PodShape, beside_tiered_storage, whole_shape
from dpd.sizing.subnets import gpu_subnet

_OTHER: Final = {"prefill": "decode", "decode": "prefill"}


@dataclass(frozen=True, slots=True)
class Pods:
    """``count`` equal pods that ask for nodes of one of ``groups``.

    ``gang`` of them start together or not at all. ``label`` is what they are known by; a pod goes to no node with a pod
    whose label it ``avoids``, nor the other way round. All pods with one ``together`` go to one AZ.
    """

    name: str
    path: str
    groups: tuple[str, ...]
    shape: PodShape
    count: int
    gang: int = 1
    label: str = ""
    avoids: str = ""
    together: str = ""

    @property
    def needs(self) -> Vector:
        """What one of them takes, in the order of ``RESOURCES``."""
        return PodKind(self.name, self.shape, 1).needs


@dataclass(frozen=True, slots=True)
class Node:
    """A node as pods find it."""

    group: str
    zone: str
    room: Vector


@dataclass(frozen=True, slots=True)
class Left:
    """Pods without a node, and why there is none."""

    pods: Pods
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Pods by node, in the order of ``nodes``, and those without one."""

    nodes: tuple[Node, ...]
    on: tuple[tuple[tuple[Pods, int], ...], ...]
    left: tuple[Left, ...]

    @property
    def waiting(self) -> int:
        """How many pods have no node."""
        return sum(entry.count for entry in self.left)


@dataclass(slots=True)
class _Space:
    """What is left of a node, and who is on it."""

    node: Node
    free: Vector
    labels: set[str] = field(default_factory=set)
    avoided: set[str] = field(default_factory=set)
    pods: list[tuple[Pods, int]] = field(default_factory=list)

    def welcomes(self, pods: Pods) -> bool:
        """Whether nobody here minds the pods, nor they anybody."""
        return (not pods.avoids or pods.avoids not in self.labels) and (not pods.label or pods.label not in self.avoided)

    def fits(self, needs: Vector) -> int:
        """How many pods of this size go here."""
        return min(have // need for have, need in zip(self.free, needs, strict=True) if need)

    def take(self, pods: Pods, count: int) -> None:
        """Put pods here."""
        self.free = tuple(have - count * need for have, need in zip(self.free, pods.needs, strict=True))
        self.labels.add(pods.label)
        self.avoided.add(pods.avoids)
        self.pods.append((pods, count))


def zone_of(environment: Environment, group: InstanceGroup) -> str:
    """AZ id of a group's nodes: that of its training plan, else of the subnet for GPU nodes. Empty where the file says neither."""
    if isinstance(group.capacity, TrainingPlan):
        return group.capacity.availability_zone_id
    found = gpu_subnet(environment.network)
    return found[1].availability_zone_id if found else ""


def nodes(environment: Environment, *, most: bool = False) -> tuple[Node, ...]:
    """The nodes of every group of a known type; with ``most`` as many as each group may grow to."""
    percent = environment.cluster.tiered_storage_memory_percent
    return tuple(
        Node(name, zone_of(environment, group), node_room(beside_tiered_storage(instance, percent)))
        for name, group, instance in groups(environment)
        for _ in range(group.most_nodes if most else group.count)
    )


def closed(group: InstanceGroup) -> bool:
    """Whether a taint keeps pods that tolerate nothing off the nodes of a group."""
    return any(taint.effect != "PreferNoSchedule" for taint in group.taints)


def carries_system_pods(group: InstanceGroup, instance: Instance) -> bool:
    """Whether pods that ask for no GPU and tolerate nothing find nodes here."""
    return not instance.gpus and instance.architecture == "amd64" and group.count > 0 and not closed(group)


def apart(endpoint: Endpoint, groups: Mapping[str, InstanceGroup]) -> bool:
    """Whether prefill and decode pods of an endpoint may not share a node: with llm-d wherever there are two nodes or more.

    EFA has no way from a node to itself that is worth its name (https://github.com/kvcache-ai/Mooncake/issues/2222,
    https://github.com/ofiwg/libfabric/issues/12328). The operator's pods carry no such rule.
    """
    used = {role.group for _name, role in endpoint.roles}
    return endpoint.backend == "llm-d" and sum(groups[name].count for name in used if name in groups) > 1


def role_pods(it: RoleOnGpus, environment: Environment, replicas: int) -> Pods:
    """The pods of a role with so many replicas, with what its manifests demand of a node."""
    placed, role = it.placed, it.placed.role
    endpoint, size = placed.endpoint, pods_per_replica(role)
    own = endpoint.backend == "llm-d"
    key = f"{endpoint.namespace}/{endpoint.name}"
    separate = apart(endpoint, environment.cluster.groups)
    return Pods(
        name=placed.label,
        path=placed.path,
        groups=(role.group,),
        shape=whole_shape(endpoint, placed.name, it.instance),
        count=replicas * size,
        gang=size,
        label=f"{key} {placed.name}",
        avoids=f"{key} {_OTHER[placed.name]}" if separate else "",
        together=key if own else "",
    )


def place(pods: Iterable[Pods], nodes: Sequence[Node]) -> Placement:
    """Put pods on nodes, largest first, each on the first node that has room for it and no pod that it avoids.

    Of a gang that does not fit whole nothing is placed. Equal sizes are tried in both orders, and the better one counts: what
    is left over then may wait in a cluster as well, whose scheduler sees one pod at a time and packs no better.
    """
    largest = sorted(pods, key=operator.attrgetter("needs"), reverse=True)
    first = _placed(largest, nodes)
    if not first.left:
        return first
    turned = largest[::-1]
    other = _placed(sorted(turned, key=operator.attrgetter("needs"), reverse=True), nodes)
    return min(first, other, key=operator.attrgetter("waiting"))


def spread(pods: Iterable[Pods], room: Vector, nodes: int) -> list[Vector]:
    """What equal nodes have left when pods are dealt out to them one by one, as a scheduler does that prefers the emptiest node."""
    free, place_of = [room] * nodes, 0
    for kind in pods:
        for _ in range(kind.count):
            for step in range(nodes):
                at = (place_of + step) % nodes
                if not exceeding(kind.needs, free[at]):
                    free[at] = tuple(have - need for have, need in zip(free[at], kind.needs, strict=True))
                    place_of = at + 1
                    break
    return free


def _placed(kinds: Sequence[Pods], nodes: Sequence[Node]) -> Placement:
    spaces = [_Space(node, node.room) for node in nodes]
    by_group: dict[str, list[_Space]] = {}
    for space in spaces:
        by_group.setdefault(space.node.group, []).append(space)
    zones: dict[str, str] = {}
    left = []
    for kind in kinds:
        there = [space for name in kind.groups for space in by_group.get(name, ())]
        missing = _put(kind, there, zones)
        if missing:
            left.append(Left(kind, missing, _why(kind, there, zones)))
    return Placement(tuple(nodes), tuple(tuple(space.pods) for space in spaces), tuple(left))


def _put(kind: Pods, there: Sequence[_Space], zones: dict[str, str]) -> int:
    """Place as many whole gangs as fit; returns the pods left over."""
    needs, chosen, found = kind.needs, list[tuple[_Space, int]](), 0
    zone = zones.get(kind.together, "") if kind.together else ""
    for space in there:
        if found == kind.count:
            break
        if space.free[0] < needs[0]:
            continue  # the GPUs are gone first on nearly every node, and there may be thousands of nodes
        if (zone and space.node.zone != zone) or not space.welcomes(kind):
            continue
        fits = min(space.fits(needs), kind.count - found)
        if fits > 0:
            chosen.append((space, fits))
            found += fits
            zone = zone or (space.node.zone if kind.together else "")
    whole = found // kind.gang * kind.gang
    if whole and kind.together:
        zones[kind.together] = zone
    waiting = whole
    for space, fits in chosen:
        if waiting:
            taken = min(fits, waiting)
            space.take(kind, taken)
            waiting -= taken
    return kind.count - whole


def _why(kind: Pods, there: Sequence[_Space], zones: dict[str, str]) -> str:
    """The first constraint that no node meets, in words."""
    where = " or ".join(kind.groups) or "no group"
    if not there:
        return f"{where} has no node"
    near = [space for space in there if space.node.zone == zones.get(kind.together, space.node.zone)]
    if not near:
        return f"it must be in {zones[kind.together]} with the rest of its endpoint, and the nodes of {where} are in {there[0].node.zone}"
    needs = kind.needs
    if not any(not exceeding(needs, space.node.room) for space in near):
        return f"it asks for {', '.join(exceeding(needs, near[0].node.room))} that a node of {where} offers"
    able = [space for space in near if not exceeding(needs, space.free)]
    if able and not any(space.welcomes(kind) for space in able):
        return f"it may not share a node with {kind.avoids}, which has a pod on every node of {where} that has room"
    if able and kind.gang > 1:
        fitting = sum(space.fits(needs) for space in able if space.welcomes(kind))
        return f"{kind.gang} pods start together, and {fitting} more fit on {where}"
    friendly = [space for space in near if space.welcomes(kind)] or near
    most = tuple(max(column) for column in zip(*(space.free for space in friendly), strict=True))
    short = [f"{need:,} {name}, {have:,} at most" for name, need, have in zip(RESOURCES, needs, most, strict=True) if need > have]
    return f"no node of {where} has left {'; '.join(short)}" if short else f"no node of {where} has all of it left at once"
