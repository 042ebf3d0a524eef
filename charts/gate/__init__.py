"""What the health gate may read of the cluster: exactly what it reads, and logs only where endpoints and routers are.

The namespace of a backend exists once its add-on is installed, so these objects are applied after it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cdk8s import App

from charts.manifest import Manifest, chart_of
from charts.prerequisites.access import Rule, granted, granted_in
from dpd.environment.environment import Environment
from dpd.environment.names import GATE_READER_GROUP
from dpd.gate.spec import document

__all__ = ["gate_readers"]

_NAME: Final = "dpd-gate-readers"
_SUBJECT: Final = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GATE_READER_GROUP}
_LIST: Final = ("list",)


def gate_readers(environment: Environment) -> tuple[Manifest, ...]:
    """A cluster role for nodes, definitions and webhooks, and a role in every namespace that the gate looks into."""
    spec = document(environment)
    bodies = list(granted(_NAME, _NAME, _SUBJECT, _everywhere(definition["name"] for definition in spec["definitions"])))
    for namespace, rules in sorted(_by_namespace(spec).items()):
        bodies += granted_in(namespace, f"{_NAME}-{namespace}", _SUBJECT, tuple(rules))
    return chart_of(App(), "gate", bodies)


def _everywhere(definitions: Iterable[str]) -> tuple[Rule, ...]:
    known = tuple(definitions)
    return (
        (("",), ("namespaces",), ("get",), ("kube-system",)),
        (("",), ("nodes",), _LIST),
        (("admissionregistration.k8s.io",), ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"), _LIST),
        *(((("apiextensions.k8s.io",), ("customresourcedefinitions",), ("get",), known),) if known else ()),
    )


def _by_namespace(spec: Mapping[str, Any]) -> dict[str, list[Rule]]:
    """Rules by namespace: endpoints of Services for webhooks; of an endpoint its pods with their logs and events, and its object.

    ``pods/proxy`` is the way through the API server to a port that the security group does not open.
    """
    slices: Rule = (("discovery.k8s.io",), ("endpointslices",), _LIST)
    pods: tuple[Rule, ...] = (
        (("",), ("pods", "events"), _LIST),
        (("",), ("pods/log",), ("get",)),
        (("",), ("pods/proxy",), ("get", "create")),
    )
    found: dict[str, list[Rule]] = {namespace: [slices] for namespace in spec["webhook_namespaces"]}

    def add(namespace: str, *rules: Rule) -> None:
        mine = found.setdefault(namespace, [])
        mine.extend(rule for rule in rules if rule not in mine)

    for endpoint in spec["endpoints"]:
        for role in endpoint["pods"].values():
            add(role["namespace"], *pods, *([slices] if role["service"] else []))
        resource = endpoint["resource"]
        named = tuple(each["resource"]["name"] for each in spec["endpoints"] if each["namespace"] == endpoint["namespace"])
        add(endpoint["namespace"], ((resource["group"],), (resource["plural"],), ("get",), named))
    return found
