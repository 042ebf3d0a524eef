"""Rules about placement: a node for every pod under all of its constraints, now, during an update, and at the scale ceiling."""

from collections.abc import Callable, Iterator
from typing import Final

from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.sizing.fleet import RoleOnGpus, group_path, roles_on_gpus
from dpd.sizing.packing import PodKind, exceeding, node_room, pack
from dpd.sizing.placement import Left, Node, Pods, nodes, place, role_pods

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
    if any(_unplaced(now, at)):
        return  # said by PCK001
    for surging, _kind in now:
        extra = surging.placed.role.max_surge
        if not extra:
            continue
        during = [(it, role_pods(it, environment, _replicas(it) + extra) if it is surging else kind) for it, kind in now]
        for left in _unplaced(during, at):
            path = f"{surging.placed.path}.max_surge"
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
