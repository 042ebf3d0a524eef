"""What changes in Kubernetes objects, and what that does to pods and to requests."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from dpd.catalog.llmd import llmd
from dpd.review.assembly import Assembly
from dpd.review.leaves import Leaf, leaves

Consequence = Literal["restarts pods", "re-routes requests", "scales", "changes rights", "interrupts requests"]

_POD_PARTS: Final = {
    "InferenceEndpointConfig": (
        "spec.worker", "spec.pdSpec.prefillSpec", "spec.pdSpec.decodingSpec", "spec.modelSourceConfig", "spec.modelName",
        "spec.instanceType", "spec.kvCacheSpec", "spec.pdSpec.topologySpec",
    ),
    "Deployment": ("spec.template",),
    "DaemonSet": ("spec.template",),
    "StatefulSet": ("spec.template",),
    "Job": ("spec.template",),
    "LeaderWorkerSet": ("spec.leaderWorkerTemplate",),
    "DisaggregatedSet": ("spec.roles",),
    "ConfigMap": ("data",),
}  # fmt: skip
"""Fields that are part of what runs in a pod."""
_ROUTE_PARTS: Final = {
    "InferenceEndpointConfig": (
        "spec.pdSpec.routingThreshold", "spec.intelligentRoutingSpec", "spec.invocationEndpoint", "spec.loadBalancer", "spec.tlsConfig",
        "spec.endpointName", "spec.dnsConfig",
    ),
    **dict.fromkeys(("Service", "HTTPRoute", "Gateway", "InferencePool", "InferenceObjective", "DestinationRule", "Ingress"), ("spec",)),
    "NetworkPolicy": ("spec",),
    "ConfigMap": ("data",),
}  # fmt: skip
_SCALERS: Final = frozenset({"ScaledObject", "HorizontalPodAutoscaler"})
_OWNERS: Final = frozenset({"Deployment", "LeaderWorkerSet", "DisaggregatedSet"})
"""What owns pods of one revision, and goes when the next revision has its own."""
_RIGHTS: Final = frozenset({"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "ServiceAccount"})


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One object that is added, removed or changed. ``folder`` is its endpoint, or one of the folders that begin with ``_``."""

    environment: str
    folder: str
    kind: str
    namespace: str
    name: str
    effect: Literal["added", "removed", "changed"]
    leaves: tuple[Leaf, ...] = ()
    consequences: tuple[Consequence, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"


def compare_objects(before: Assembly, after: Assembly) -> tuple[ObjectChange, ...]:
    """Compare manifests by environment, kind, namespace and name; the number in a file's name does not matter."""
    old, new = _by_identity(before), _by_identity(after)
    return tuple(_changes(old, new))


_Identity = tuple[str, str, str, str, str]


def _by_identity(assembly: Assembly) -> dict[_Identity, dict[str, Any]]:
    result: dict[_Identity, dict[str, Any]] = {}
    for path, body in assembly.objects.items():
        environment, folder = path.split("/")[:2]
        metadata = body.get("metadata", {})
        result[environment, folder, str(body["kind"]), str(metadata.get("namespace", "")), str(metadata.get("name", ""))] = body
    return result


def _changes(old: dict[_Identity, dict[str, Any]], new: dict[_Identity, dict[str, Any]]) -> Iterator[ObjectChange]:
    for identity, body in new.items():
        if identity not in old:
            yield ObjectChange(*identity, "added")
        elif body != old[identity]:
            found = tuple(leaves(old[identity], body))
            yield ObjectChange(*identity, "changed", found, _consequences(identity[2], found))
    served = {identity[:2] for identity, body in new.items() if _revision(identity[2], body)}
    for identity, body in old.items():
        if identity not in new:
            succeeded = bool(_revision(identity[2], body)) and identity[:2] in served
            yield ObjectChange(*identity, "removed", consequences=("interrupts requests",) if succeeded else ())


def _revision(kind: str, body: dict[str, Any]) -> str:
    """The revision of an endpoint's pods that an object owns; its name has it, so the next one is another object."""
    labels = body.get("metadata", {}).get("labels") or {}
    return str(labels.get(llmd().labels["revision"], "")) if kind in _OWNERS else ""


def _consequences(kind: str, found: tuple[Leaf, ...]) -> tuple[Consequence, ...]:
    result: dict[Consequence, None] = {}
    for leaf in found:
        for consequence in _of_leaf(kind, leaf.path):
            result[consequence] = None
    return tuple(result)


def _of_leaf(kind: str, path: str) -> Iterator[Consequence]:
    if kind in _RIGHTS:
        yield "changes rights"
    elif kind in _SCALERS or path.rsplit(".", 1)[-1] in {"replicas", "InitialReplicaCount"} or ".autoScalingSpec" in path:
        yield "scales"
    else:
        if any(_inside(path, part) for part in _POD_PARTS.get(kind, ())):
            yield "restarts pods"
        if any(_inside(path, part) for part in _ROUTE_PARTS.get(kind, ())):
            yield "re-routes requests"


def _inside(path: str, part: str) -> bool:
    return path == part or path.startswith((f"{part}.", f"{part}["))
