"""Counting: which nodes of which instance group can take pods, and what keeps the others from it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

INSTANCE_GROUP_LABEL: Final = "sagemaker.amazonaws.com/instance-group-name"
_KEEPS_PODS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_GROUPS_SHOWN: Final = 5
_OBSTACLES_SHOWN: Final = 3


@dataclass(slots=True)
class Group:
    """An instance group: how many schedulable nodes it must have, how many it has, and why other nodes do not count."""

    name: str
    minimum: int
    schedulable: int = 0
    obstacles: Counter[str] = field(default_factory=Counter)

    @property
    def complete(self) -> bool:
        """Whether the group has enough schedulable nodes."""
        return self.schedulable >= self.minimum

    def __str__(self) -> str:
        most = sorted(self.obstacles.items(), key=lambda item: (-item[1], item[0]))[:_OBSTACLES_SHOWN]
        why = ", ".join(f"{count} {obstacle}" for obstacle, count in most)
        if not why:
            why = "no other node has joined" if self.schedulable else "no node has joined"
        return f"group {self.name}: {self.schedulable} of {self.minimum} nodes schedulable ({why})"


def taint_text(taint: Mapping[str, Any]) -> str:
    """A taint as kubectl writes it: ``key=value:effect`` or ``key:effect``."""
    value = taint.get("value") or ""
    return f"{taint.get('key')}{'=' if value else ''}{value}:{taint.get('effect')}"


def obstacle(node: Mapping[str, Any], tolerated: frozenset[str] = frozenset()) -> str:
    """What keeps pods off a node, or an empty text. ``tolerated`` are taints, as kubectl writes them, that do not count."""
    spec = node.get("spec") or {}
    conditions = (node.get("status") or {}).get("conditions") or []
    if (node.get("metadata") or {}).get("deletionTimestamp"):
        return "being deleted"
    if not any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions):
        return "not Ready"
    if spec.get("unschedulable"):
        return "cordoned"
    for taint in spec.get("taints") or []:
        if taint.get("effect") in _KEEPS_PODS_AWAY and (text := taint_text(taint)) not in tolerated:
            return f"tainted {text}"
    return ""


def count(nodes: Iterable[Mapping[str, Any]], minimums: Mapping[str, int], tolerated: frozenset[str] = frozenset()) -> list[Group]:
    """Count nodes by instance group, in the order of ``minimums``. Nodes of other groups do not count."""
    groups = {name: Group(name, minimum) for name, minimum in minimums.items()}
    for node in nodes:
        labels = (node.get("metadata") or {}).get("labels") or {}
        group = groups.get(labels.get(INSTANCE_GROUP_LABEL, ""))
        if group is None:
            continue
        if reason := obstacle(node, tolerated):
            group.obstacles[reason] += 1
        else:
            group.schedulable += 1
    return list(groups.values())


def missing(groups: Iterable[Group]) -> str:
    """One sentence on the groups that are not complete, short enough for an event of CloudFormation."""
    incomplete = [group for group in groups if not group.complete]
    more = f"; and {len(incomplete) - _GROUPS_SHOWN} more groups" if len(incomplete) > _GROUPS_SHOWN else ""
    return "; ".join(str(group) for group in incomplete[:_GROUPS_SHOWN]) + more
