"""What the health gate needs on the cluster: the exporter of EFA's counters, and the rights to read exactly what it reads.

The namespace of a backend exists once its add-on is installed, so these objects are applied after it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from charts.gate.exporter import efa_counters
from charts.manifest import Manifest, chart_of
from charts.prerequisites.access import Rule, granted, granted_in
from charts.prerequisites.nodes import with_efa
from dpd.catalog import node_agents, regions
from dpd.catalog.node_agents import EFA_COUNTERS
from dpd.environment.environment import Environment
from dpd.environment.names import GATE_READER_GROUP
from dpd.gate.spec import document

__all__ = ["gate_objects"]

_NAME: Final = "dpd-gate-readers"
_SUBJECT: Final = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GATE_READER_GROUP}
_LIST: Final = ("list",)


def gate_objects(environment: Environment) -> tuple[Manifest, ...]:
    """The exporter, a cluster role for nodes, definitions and webhooks, and a role in every namespace that the gate looks into.

    Raises ``LookupError`` as ``charts.prerequisites.prerequisites``.
    """
    spec = document(environment)
    bodies = [*_exporter(environment, spec)]
    bodies += list(granted(_NAME, _NAME, _SUBJECT, _everywhere(definition["name"] for definition in spec["definitions"])))
    for namespace, rules in sorted(_by_namespace(spec).items()):
        bodies += granted_in(namespace, f"{_NAME}-{namespace}", _SUBJECT, tuple(rules))
    return chart_of(bodies)


def _exporter(environment: Environment, spec: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    if not any(endpoint["wire"] for endpoint in spec["endpoints"]):
        return ()
    region, cluster = regions.find(environment.region), environment.cluster
    if region is None:
        raise LookupError(f"the Region {environment.region!r} is not in the catalog")
    image = node_agents.find(EFA_COUNTERS).image(region, cluster.agent_repositories.get(EFA_COUNTERS, ""))
    return efa_counters(image, with_efa(cluster.groups))


def _everywhere(definitions: Iterable[str]) -> tuple[Rule, ...]:
    known = tuple(definitions)
    return (
        (("",), ("namespaces",), ("get",), ("kube-system",)),
        (("",), ("nodes",), _LIST),
        (("admissionregistration.k8s.io",), ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"), _LIST),
        *(((("apiextensions.k8s.io",), ("customresourcedefinitions",), ("get",), known),) if known else ()),
    )


def _by_namespace(spec: Mapping[str, Any]) -> dict[str, list[Rule]]:
    """Rules by namespace: endpoints of Services for webhooks; of an endpoint its pods with their logs and events, and its objects.

    The proxies are the way through the API server to a port that the security group does not open. Clients' requests go
    to the router's Service, which is named. Counters are of one pod, and a decoder is asked alone, so those go to a pod; the names
    of pods are not known beforehand.
    """
    slices: Rule = (("discovery.k8s.io",), ("endpointslices",), _LIST)
    pods: tuple[Rule, ...] = ((("",), ("pods", "events"), _LIST), (("",), ("pods/log",), ("get",)))
    read: Rule = (("",), ("pods/proxy",), ("get",))
    ask: Rule = (("",), ("pods/proxy",), ("get", "create"))
    found: dict[str, list[Rule]] = {namespace: [slices] for namespace in spec["webhook_namespaces"]}

    def add(namespace: str, *rules: Rule) -> None:
        mine = found.setdefault(namespace, [])
        mine.extend(rule for rule in rules if rule not in mine)

    for endpoint in spec["endpoints"]:
        counted = {"prefill", *([endpoint["decisions"]["role"]] if endpoint["decisions"] else [])}
        for name, role in endpoint["pods"].items():
            add(role["namespace"], *pods, *([slices] if role["service"] else []))
            if role["service"]:
                add(role["namespace"], (("",), ("services/proxy",), ("create",), _services(spec, role["namespace"])))
            if name == "decode" or name in counted:
                add(role["namespace"], ask if name == "decode" else read)
        for resource in endpoint["resources"]:
            place = _place(endpoint, resource)
            add(place, ((resource["group"],), (resource["plural"],), ("get",), _names(spec, place, resource)))
        if wire := endpoint["wire"]:
            add(wire["namespace"], (("",), ("pods",), _LIST), read)
    return {namespace: _narrowed(rules, read, ask) for namespace, rules in found.items()}


def _narrowed(rules: list[Rule], read: Rule, ask: Rule) -> list[Rule]:
    """Without the lesser right where the greater is there."""
    return [rule for rule in rules if rule != read or ask not in rules]


def _services(spec: Mapping[str, Any], namespace: str) -> tuple[str, ...]:
    """The routers' Services of a namespace, as the path of the API server's proxy names them."""
    roles = [role for endpoint in spec["endpoints"] for role in endpoint["pods"].values()]
    return tuple(
        sorted({f"http:{role['service']}:{role['service_port']}" for role in roles if role["service"] and role["namespace"] == namespace})
    )


def _place(endpoint: Mapping[str, Any], resource: Mapping[str, Any]) -> str:
    return str(resource["namespace"] or endpoint["namespace"])


def _names(spec: Mapping[str, Any], namespace: str, like: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of all objects of a kind in a namespace, whichever endpoint's."""
    return tuple(
        sorted(
            {
                resource["name"]
                for endpoint in spec["endpoints"]
                for resource in endpoint["resources"]
                if _place(endpoint, resource) == namespace and (resource["group"], resource["plural"]) == (like["group"], like["plural"])
            }
        )
    )
