"""Who may open a connection to the workers. KV itself crosses EFA, which only security groups see."""

from collections.abc import Iterator
from typing import Any, Final

from dpd.backends.llmd.engine import of_role, publishes_events, server_port
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.environment.endpoint import Endpoint
from dpd.environment.names import SCRAPER_LABEL, LlmdNames

_OTHER: Final = {"prefill": "decode", "decode": "prefill"}
Peer = dict[str, Any]


def network_policy(endpoint: Endpoint, role_name: str, site: Site) -> dict[str, Any]:
    """What may reach the pods of a role, and nothing else may.

    Requests come from the router, or for a prefiller from the sidecars of decoders. The roles call each other's side
    channel, where NIXL's addresses are exchanged. The health gate asks engines from a function in the control-plane
    subnets, where the Kubernetes API has its addresses too; probes come from the node itself, which is always let in.
    """
    names = LlmdNames.of(endpoint)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": names.workload(role_name), "namespace": endpoint.namespace, "labels": names.labels(role_name)},
        "spec": {
            "podSelector": {"matchLabels": names.role_labels(role_name)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": peers, **({"ports": ports} if ports else {})} for peers, ports in _ingress(endpoint, role_name, site)],
        },
    }


def _ingress(endpoint: Endpoint, role_name: str, site: Site) -> Iterator[tuple[list[Peer], list[Peer]]]:
    names, known = LlmdNames.of(endpoint), llmd().ports
    role, _, ranks = of_role(endpoint, role_name, site)
    requests, side_channel = _ports(known["server"], ranks), _ports(known["side_channel"], ranks)
    engine = _ports(server_port(role_name), ranks)
    events = [_ports(known["kv_events"], ranks)] if publishes_events(endpoint) else []

    yield [_pods(names.picker_labels)], [requests, *events]
    if endpoint.routing.gateway and role_name == "decode":
        yield [_pods({"gateway.networking.k8s.io/gateway-name": names.gateway})], [requests]
    other = _pods(names.role_labels(_OTHER[role_name]))
    yield [other], [side_channel, *([requests] if role_name == "prefill" else [])]
    if role.expert_parallel:
        yield [_pods(names.role_labels(role_name))], []
    if site.control_plane_cidrs:
        blocks = [{"ipBlock": {"cidr": cidr}} for cidr in site.control_plane_cidrs]
        yield blocks, [requests, *([engine] if engine != requests else [])]
    yield [{"namespaceSelector": {"matchLabels": {SCRAPER_LABEL: "true"}}}], [engine]


def _pods(labels: dict[str, str]) -> Peer:
    return {"podSelector": {"matchLabels": labels}}


def _ports(first: int, ranks: int) -> Peer:
    """One port for each data parallel rank, counted up from the first."""
    return {"protocol": "TCP", "port": first, **({"endPort": first + ranks - 1} if ranks > 1 else {})}
