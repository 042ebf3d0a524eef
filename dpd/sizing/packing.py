"""How pods fill nodes: GPUs, EFA devices, CPUs, memory, huge pages and pod slots at the same time."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dpd.catalog.instances import Instance
from dpd.catalog.runtime_versions import huge_pages
from dpd.sizing.pod import PodShape, usable_cpus, usable_memory_gib

NODE_AGENT_PODS: Final = 9
"""Pods that every node runs besides the roles: CNI, kube-proxy, Pod Identity, two CSI drivers, device plugins, health agent (counted)."""

RESOURCES: Final = ("GPUs", "EFA devices", "CPUs", "GiB of memory", "pod slots", "MiB of huge pages")
Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PodKind:
    """``count`` equal pods."""

    name: str
    shape: PodShape
    count: int

    @property
    def needs(self) -> Vector:
        """What one pod takes, in the order of ``RESOURCES``."""
        return self.shape.gpus, self.shape.efa_devices, self.shape.cpus, self.shape.memory_gib, 1, self.shape.hugepages_mib


@dataclass(frozen=True, slots=True)
class Packing:
    """The pods of each node, and the pods without a node."""

    nodes: tuple[tuple[PodKind, ...], ...]
    left: tuple[PodKind, ...]

    @property
    def left_count(self) -> int:
        """How many pods found no node."""
        return sum(kind.count for kind in self.left)


def node_room(instance: Instance) -> Vector:
    """What a node offers to pods, in the order of ``RESOURCES``, after what the node keeps for itself."""
    slots = instance.pod_slots
    return (
        instance.gpus,
        instance.efa or 0,
        usable_cpus(instance),
        usable_memory_gib(instance),
        1 << 30 if slots is None else max(0, slots - NODE_AGENT_PODS),
        huge_pages()["node_mib"] if instance.efa else 0,
    )


def exceeding(needs: Vector, room: Vector) -> tuple[str, ...]:
    """The resources of which more is needed than there is: ``("16 GPUs of 8",)``."""
    return tuple(f"{need} {name} of {have}" for name, need, have in zip(RESOURCES, needs, room, strict=True) if need > have)


def total(kinds: Iterable[PodKind]) -> Vector:
    """What all pods take together."""
    return tuple(map(sum, zip((0,) * len(RESOURCES), *(tuple(need * kind.count for need in kind.needs) for kind in kinds), strict=True)))


def pack(kinds: Sequence[PodKind], room: Vector, nodes: int) -> Packing:
    """Place pods on ``nodes`` equal nodes, largest pods first, each on the first node with room.

    The Kubernetes scheduler is no better than this at packing, so pods left over here may wait there too.
    """
    free = [room] * nodes
    placed: list[list[PodKind]] = [[] for _ in range(nodes)]
    left = []
    for kind in sorted(kinds, key=operator.attrgetter("needs"), reverse=True):
        waiting, needs = kind.count, kind.needs
        for index, space in enumerate(free):
            if not waiting:
                break
            if space[0] < needs[0]:
                continue  # the GPUs are gone first on nearly every node, and there may be thousands of nodes
            fits = min([waiting, *(have // need for have, need in zip(space, needs, strict=True) if need)])
            if fits > 0:
                free[index] = tuple(have - fits * need for have, need in zip(space, needs, strict=True))
                placed[index].append(PodKind(kind.name, kind.shape, fits))
                waiting -= fits
        if waiting:
            left.append(PodKind(kind.name, kind.shape, waiting))
    return Packing(tuple(map(tuple, placed)), tuple(left))
