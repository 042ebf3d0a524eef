"""Rules about placement: a node for every pod under all of its constraints, now, during an update, and at the scale ceiling."""

from collections.abc import Callable, Iterator
from typing import Final

from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.expert_parallel import pod_gpus
from dpd.sizing.fleet import RoleOnGpus, group_path, roles_on_gpus
from dpd.sizing.packing import PodKind, exceeding, node_room, pack
from dpd.sizing.placement import Left, Node, Pods, apart, nodes, place, role_pods, spread

_SCHEDULER: Final = "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity"
_SCALING: Final = "https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/"
_SURGE: Final = "https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#max-surge"

Count = Callable[[RoleOnGpus], int]


def _replicas(it: RoleOnGpus) -> int:
    return it.placed.role.replicas


def _most(it: RoleOnGpus) -> int:
    return it.placed.most_replicas


def _all(environment: Environment, count: Count) -> list[tuple[RoleOnGpus, Pods]]:
    return [(it, role_pods(it, environment, count(it))) for it in roles_on_gpus(environment)]


def _fit_by_size(pods: list[tuple[RoleOnGpus, Pods]], at: tuple[Node, ...]) -> set[str]:
    """The groups whose pods fit by size alone: of the others the rules about capacity speak."""
    by_group: dict[str, list[Pods]] = {}
    for _it, kind in pods:
        by_group.setdefault(kind.groups[0], []).append(kind)
    rooms = {it.placed.role.group: node_room(it.instance) for it, _kind in pods}
    return {
        group
        for group, kinds in by_group.items()
        if not any(exceeding(kind.needs, rooms[group]) for kind in kinds)
        and not pack(
            [PodKind(kind.name, kind.shape, kind.count) for kind in kinds], rooms[group], sum(node.group == group for node in at)
        ).left
    }


def _unplaced(pods: list[tuple[RoleOnGpus, Pods]], at: tuple[Node, ...]) -> Iterator[Left]:
    """Pods that fit by size and still have no node."""
    able = _fit_by_size(pods, at)
    if any(kind.avoids or kind.together or kind.gang > 1 for _it, kind in pods):
        yield from (left for left in place([kind for _it, kind in pods], at).left if left.pods.groups[0] in able)


def _counted(left: Left) -> str:
    return f"{left.count} of {left.pods.count} {left.pods.name} pods have no node: {left.why}"


@check(
    "PCK001", "Every pod has a node that it accepts",
    why="Prefill and decode pods of llm-d keep off each other's nodes and stay in one AZ, and the pods of an expert parallel group start "
        "together. GPUs may suffice, and a pod still waits for ever for a node that meets all of it, with every node billed.",
    link=_SCHEDULER,
    seen_in=("https://github.com/llm-d/llm-d/pull/1101", "https://github.com/kvcache-ai/Mooncake/issues/2222"),
)  # fmt: skip
def _now(environment: Environment, _: Context) -> Iterator[Problem]:
    for left in _unplaced(_all(environment, _replicas), nodes(environment)):
        group = left.pods.groups[0]
        fix = f"add nodes to {group_path(group)}, give the role a group of its own in the same AZ, or lower the replicas"
        yield Problem(left.pods.path, _counted(left), fix, group, "a node for each pod")


@check(
    "PCK002", "Extra pods of a rolling update have a node that they accept",
    why="A new pod starts before an old one goes. Where the other role is on every node with room, it never starts, and the update never "
        "ends.",
    link=_SURGE,
    seen_in=("https://github.com/defilantech/LLMKube/issues/192",),
)  # fmt: skip
def _update(environment: Environment, _: Context) -> Iterator[Problem]:
    at, now = nodes(environment), _all(environment, _replicas)
    surging = [it for it, _kind in now if it.placed.role.max_surge]
    if not surging or any(_unplaced(now, at)):
        return  # said by PCK001
    for one in surging:
        extra = one.placed.role.max_surge
        during = [(it, role_pods(it, environment, _replicas(it) + extra) if it is one else kind) for it, kind in now]
        for left in _unplaced(during, at):
            path = f"{one.placed.path}.max_surge"
            yield Problem(path, f"during an update {_counted(left)}", "set max_surge: 0, or add a node", extra, "0 without such a node")


@check(
    "PCK003", "Pods that an autoscaler adds have a node that they accept",
    why="An autoscaler asks for pods and the scheduler finds no node that they accept: the load rises and nothing happens.",
    link=_SCALING,
)  # fmt: skip
def _ceiling(environment: Environment, _: Context) -> Iterator[Problem]:
    now, ceiling = _all(environment, _replicas), _all(environment, _most)
    if [kind for _it, kind in now] == [kind for _it, kind in ceiling] or any(_unplaced(now, nodes(environment))):
        return
    scaled = next(it for it in roles_on_gpus(environment) if _most(it) > _replicas(it))
    for left in _unplaced(ceiling, nodes(environment, most=True)):
        path = f"{scaled.placed.path}.autoscaling.max_replicas"
        fix = f"lower max_replicas, or raise {group_path(left.pods.groups[0])}.max_count"
        yield Problem(path, f"at the ceiling {_counted(left)}", fix, _most(scaled), "a node for each pod")


@check(
    "PCK004", "Small pods leave whole nodes for large ones", level=Level.WARNING,
    why="The scheduler of EKS spreads pods: it prefers the node with the most left. Small pods that come first then stand on every node of "
        "a group, and a pod that needs a whole one waits for ever, although all of them would fit if they were packed.",
    link="https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins",
    seen_in=("https://github.com/aws-samples/aws-efa-eks/issues/4",),
)  # fmt: skip
def _scattered(environment: Environment, _: Context) -> Iterator[Problem]:
    at, pods = nodes(environment), _all(environment, _replicas)
    able = _fit_by_size(pods, at)
    for it, large in pods:
        group = it.placed.role.group
        small = [kind for other, kind in pods if _stands_in_the_way(it, other)]
        count = sum(node.group == group for node in at)
        if group not in able or not small or count == 0:
            continue
        free = spread(small, node_room(it.instance), count)
        room = sum(min(have // need for have, need in zip(space, large.needs, strict=True) if need) for space in free)
        if room < large.count:
            names = " and ".join(f"{kind.count} {kind.name} pods of {kind.shape.gpus} GPUs" for kind in small)
            message = f"spread over {count} nodes, {names} leave room for {room} of {large.count} pods of {large.shape.gpus} GPUs"
            fix = "give the role a group of its own, or deploy it first and acknowledge this"
            yield Problem(f"{it.placed.path}.group", message, fix, group, "a group of its own")


def _stands_in_the_way(large: RoleOnGpus, other: RoleOnGpus) -> bool:
    """Whether the other role's pods are smaller and may be on any node of the group. llm-d keeps equal pods of one endpoint close."""
    if other.placed.role.group != large.placed.role.group or large.placed.role is other.placed.role:
        return False
    close = large.placed.endpoint is other.placed.endpoint and apart(large.placed.endpoint, {large.placed.role.group: large.group})
    return pod_gpus(other.placed.role, other.instance) < pod_gpus(large.placed.role, large.instance) and not close
