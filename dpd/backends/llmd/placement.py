"""On which nodes the pods of a role run, and beside which others."""

from typing import Any, Final

from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.names import INSTANCE_GROUP_LABEL, INSTANCE_TYPE_LABEL, LlmdNames
from dpd.sizing.placement import apart

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_OTHER: Final = {"prefill": "decode", "decode": "prefill"}


def node_selector(role: Role, site: Site) -> dict[str, str]:
    """The role's group and its type as HyperPod labels its nodes, with ``ml.`` in front, and what the file adds."""
    return {
        INSTANCE_GROUP_LABEL: role.group,
        INSTANCE_TYPE_LABEL: site.groups[role.group].instance_type,
        **dict(sorted(role.node_selector.items())),
    }


def tolerations(role: Role, site: Site) -> list[dict[str, str]]:
    """The group's own taints, each by its value. HyperPod's mark of a failed node is never among them: its pods must go."""
    return [{"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in site.taints(role.group)]


def affinity(endpoint: Endpoint, role_name: str, site: Site) -> dict[str, Any]:
    """All workers of the endpoint in one zone, and the roles on different hosts where there are two.

    EFA does not cross zones. Within a host it has no way back to itself either, so KV between two pods of one node takes
    paths that are slow or crash (https://github.com/ofiwg/libfabric/issues/12328). Where both roles share a group, equal
    pods come together first; scattered, they would leave the other role no host.
    """
    worker = {"labelSelector": _workers(endpoint, *_OTHER), "topologyKey": ZONE}
    alike = {"weight": 100, "podAffinityTerm": {"labelSelector": _workers(endpoint, role_name), "topologyKey": HOST}}
    other = {"labelSelector": _workers(endpoint, _OTHER[role_name]), "topologyKey": HOST}
    split, shared = apart(endpoint, site.groups), endpoint.prefill.group == endpoint.decode.group
    return {
        "podAffinity": {_REQUIRED: [worker], **({_PREFERRED: [alike]} if split and shared else {})},
        **({"podAntiAffinity": {_REQUIRED: [other]}} if split else {}),
    }


def _workers(endpoint: Endpoint, *roles: str) -> dict[str, Any]:
    """Pods of some roles, of any revision: those of the revision before are still in the same place while they go."""
    labels = llmd().labels
    return {
        "matchLabels": {labels["guide"]: LlmdNames.of(endpoint).endpoint},
        "matchExpressions": [{"key": labels["role"], "operator": "In", "values": list(roles)}],
    }
