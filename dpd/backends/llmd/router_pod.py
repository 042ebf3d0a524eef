"""What the pods of the router have in common: where they run, what they may use, and what they may do."""

from typing import Any

from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.environment.names import INSTANCE_GROUP_LABEL

Body = dict[str, Any]


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
