"""What the pods of the router have in common: where they run, what they may use, and what they may do."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from dpd.backends.llmd.engine import publishes_events
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.environment.endpoint import Endpoint
from dpd.environment.names import INSTANCE_GROUP_LABEL

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RouterPods:
    """``count`` equal pods of the router, with whole CPUs and GiB that their containers ask for together."""

    name: str
    count: int
    cpus: int
    memory_gib: int


def shares_state(endpoint: Endpoint) -> bool:
    """Whether two pickers that decide side by side would know the same.

    Events of the engines reach both. What a picker remembers of its own decisions does not: the approximate record, with
    which ``non_cached`` tokens are counted, requests on their way, and the queue of requests with a priority.
    """
    routing = endpoint.routing
    counts_alike = routing.threshold_tokens == 0 or routing.threshold_counts == "prompt"
    return publishes_events(endpoint) and counts_alike and endpoint.objectives.priority is None


def pods(endpoint: Endpoint) -> Iterator[RouterPods]:
    """What the router of an endpoint adds to the cluster besides its workers."""
    facts = llmd().more["picker"]
    beside = facts["guard" if endpoint.routing.gateway else "proxy"]
    containers = (facts["resources"], beside)
    yield RouterPods("router", 2 if shares_state(endpoint) else 1, *_sums(*containers))
    if endpoint.routing.strategy == "kv_aware":
        yield RouterPods("tokenizer", facts["tokenizer"]["replicas"], *_sums(facts["tokenizer"]))


def _sums(*containers: Body) -> tuple[int, int]:
    return ceil(sum(known["cpus"] for known in containers)), ceil(sum(known["memory_gib"] for known in containers))


def amounts(known: Body) -> Body:
    """Requests, and a limit of memory alone: a router that is throttled holds up every request."""
    return {
        "requests": {"cpu": str(known["cpus"]), "memory": _memory(known["memory_gib"])},
        "limits": {"memory": _memory(known.get("memory_limit_gib") or known["memory_gib"])},
    }


def _memory(gib: float) -> str:
    return f"{gib}Gi" if gib == int(gib) else f"{int(gib * 1024)}Mi"


def pod_security() -> Body:
    """No root, and the runtime's own filter of system calls (the `restricted` Pod Security Standard)."""
    user = llmd().more["picker"]["user"]
    return {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, "fsGroup": user, "seccompProfile": {"type": "RuntimeDefault"}}


def security() -> Body:
    """What remains of the `restricted` standard for a container."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}


def placement(site: Site, labels: dict[str, str]) -> Body:
    """Nodes without GPUs, where there are some, and different ones for equal pods.

    A router beside an engine takes CPUs that feed GPUs, and keeps an expensive node from being given back.
    """
    plain = [name for name in sorted(site.groups) if (known := site.instance(name)) is not None and not known.gpus]
    taints = [taint for name in plain for taint in site.taints(name)]
    tolerations = [{"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in taints]
    groups = {"matchExpressions": [{"key": INSTANCE_GROUP_LABEL, "operator": "In", "values": plain}]}
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {
        **({"tolerations": tolerations} if tolerations else {}),
        "affinity": {
            **({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [groups]}}} if plain else {}),
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]},
        },
    }
