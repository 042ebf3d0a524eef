"""What must change in an environment file for a layout, as edits of single values."""

import math
from dataclasses import dataclass
from typing import Any, Final

from dpd.catalog.operator import operator
from dpd.environment.environment import Environment
from dpd.environment.yaml_edit import Change
from dpd.environment.yaml_file import dotted
from dpd.planning.candidate import Candidate, Case, Outcome
from dpd.planning.case import nodes_of

_DEVIATIONS: Final = 3
"""Sequences at once beyond the mean, in standard deviations, that a decoder must take."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One value of the file: what stands there, ``None`` for nothing, and what shall."""

    change: Change
    before: Any

    @property
    def path(self) -> str:
        """Dotted path."""
        return dotted(self.change[0])

    @property
    def after(self) -> Any:
        """The new value."""
        return self.change[1]


@dataclass(frozen=True, slots=True)
class Patch:
    """The edits that make a file ask for a layout, and what a person must still do."""

    candidate: Candidate
    edits: tuple[Edit, ...]
    by_hand: tuple[str, ...]


def patch_of(environment: Environment, index: int, case: Case, outcome: Outcome, buffer_gib: int, sequences: float) -> Patch:
    """The edits of an endpoint, only those that change something."""
    endpoint, candidate = environment.endpoints[index], outcome.candidate
    here = ("endpoints", index)
    wanted: list[tuple[Change, Any]] = []
    by_hand: tuple[str, ...] = ()
    for name, role, replicas, ranks in (
        ("prefill", endpoint.prefill, candidate.prefillers, candidate.prefill_tensor_parallel),
        ("decode", endpoint.decode, candidate.decoders, candidate.tensor_parallel),
    ):
        wanted.append((((*here, name, "replicas"), replicas), role.replicas))
        wanted.append((((*here, name, "tensor_parallel"), ranks), role.tensor_parallel))
        if role.autoscaling is not None:
            low, high = role.autoscaling.min_replicas, role.autoscaling.max_replicas
            wanted.append((((*here, name, "autoscaling", "min_replicas"), min(low, replicas)), low))
            most = replicas if _full(environment, index, role.group) else max(high, replicas)
            wanted.append((((*here, name, "autoscaling", "max_replicas"), most), high))
            if most < high:
                by_hand += (f"the {name} replicas fill the nodes: to let them scale, give {role.group} a max_count",)
    wanted.append((((*here, "routing", "threshold_tokens"), candidate.threshold_tokens), endpoint.routing.threshold_tokens))
    if endpoint.kv.buffer_gib is not None:
        wanted.append((((*here, "kv", "buffer_gib"), max(buffer_gib, endpoint.kv.buffer_gib)), endpoint.kv.buffer_gib))
    most = math.ceil(sequences + _DEVIATIONS * math.sqrt(sequences))
    allowed = endpoint.decode.max_concurrent_sequences or operator().default_max_sequences["decode"]
    if most > allowed:
        wanted.append((((*here, "decode", "max_concurrent_sequences"), most), endpoint.decode.max_concurrent_sequences))
    groups, left = _groups(environment, index, case, candidate)
    by_hand = (*left, *by_hand)
    edits = tuple(Edit(change, before) for change, before in (*wanted, *groups) if change[1] != before)
    if edits and endpoint.prefill.efa_devices is not None and candidate.prefill_tensor_parallel != endpoint.prefill.tensor_parallel:
        by_hand += ("efa_devices of the roles belong to the old tensor parallel size: remove them, or write them anew",)
    return Patch(candidate, edits, by_hand)


def _groups(environment: Environment, index: int, case: Case, candidate: Candidate) -> tuple[list[tuple[Change, Any]], tuple[str, ...]]:
    """The nodes of both roles: a group each where each fills whole nodes, else one group for both."""
    endpoint = environment.endpoints[index]
    first, second = endpoint.prefill.group, endpoint.decode.group
    count = {name: environment.cluster.groups[name].count for name in (first, second)}
    each = case.instance.gpus
    parts = {first: candidate.prefillers * candidate.prefill_tensor_parallel, second: candidate.decoders * candidate.tensor_parallel}
    if _others(environment, index) & {first, second}:
        return [], (f"{nodes_of(candidate, case)} nodes for this endpoint: other endpoints share its groups, so set the counts yourself",)
    if first == second:
        return [_count(first, nodes_of(candidate, case), count)], ()
    if all(gpus % each == 0 for gpus in parts.values()):
        return [_count(name, gpus // each, count) for name, gpus in parts.items()], ()
    shared = ((("endpoints", index, "prefill", "group"), second), first)
    by_hand = (f"both roles share the nodes of {second}; group {first} is left empty and may be removed",)
    return [shared, _count(second, nodes_of(candidate, case), count), _count(first, 0, count)], by_hand


def _others(environment: Environment, index: int) -> set[str]:
    """The groups of the other endpoints."""
    return {role.group for at, other in enumerate(environment.endpoints) if at != index for _, role in other.roles}


def _full(environment: Environment, index: int, group: str) -> bool:
    """Whether the layout's replicas are all that a group will have room for: its count is set to their nodes, and it does not grow."""
    return group not in _others(environment, index) and environment.cluster.groups[group].max_count is None


def _count(name: str, nodes: int, count: dict[str, int]) -> tuple[Change, Any]:
    return (("cluster", "groups", name, "count"), nodes), count[name]
