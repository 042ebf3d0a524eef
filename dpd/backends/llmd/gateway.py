"""A Gateway in front of the router: pool, route, Istio's settings, and a load balancer inside the VPC."""

from typing import Any, Final

from dpd.backends.llmd.picker import POOL_GROUP
from dpd.backends.llmd.ports import target_ports
from dpd.backends.llmd.yaml_text import yaml_text
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.environment.endpoint import Endpoint, Gateway
from dpd.environment.names import LlmdNames

_GATEWAY: Final = "gateway.networking.k8s.io/v1"
_PROXY: Final = "istio-proxy"
Body = dict[str, Any]


def objects(endpoint: Endpoint, site: Site) -> tuple[Body, ...]:
    """What an endpoint with a Gateway has besides its router, in the order in which it is applied; nothing without one."""
    gateway = endpoint.routing.gateway
    if gateway is None:
        return ()
    names = LlmdNames.of(endpoint)
    return (
        _object(endpoint, f"{POOL_GROUP}/v1", "InferencePool", names.pool, spec=_pool(endpoint, site)),
        *(
            [_object(endpoint, "llm-d.ai/v1alpha2", "InferenceObjective", names.objective, spec=_objective(endpoint))]
            if endpoint.objectives.priority is not None
            else []
        ),
        _object(endpoint, "networking.istio.io/v1", "DestinationRule", names.picker, spec=_destination_rule(endpoint, gateway)),
        _object(endpoint, "v1", "ConfigMap", names.gateway, data=_parameters()),
        _gateway(endpoint, gateway),
        _object(endpoint, _GATEWAY, "HTTPRoute", names.route, spec=_route(endpoint, gateway)),
    )


def picker_host(endpoint: Endpoint) -> str:
    """Host name by which a Gateway asks the picker; a rule for another name changes nothing, and nobody says so."""
    names = LlmdNames.of(endpoint)
    return f"{names.picker}.{names.namespace}.svc.cluster.local"


def _pool(endpoint: Endpoint, site: Site) -> Body:
    """Workers of both roles and of one revision, each data parallel rank by its port.

    Without a picker requests fail: any other choice would send them to prefillers as well.
    """
    names = LlmdNames.of(endpoint)
    return {
        "selector": {"matchLabels": names.pool_labels},
        "targetPorts": [{"number": port} for port in target_ports(endpoint, site)],
        "appProtocol": "http",
        "endpointPickerRef": {
            "kind": "Service",
            "name": names.picker,
            "port": {"number": llmd().ports["picker"]},
            "failureMode": "FailClose",
        },
    }


def _objective(endpoint: Endpoint) -> Body:
    pool = {"group": POOL_GROUP, "kind": "InferencePool", "name": LlmdNames.of(endpoint).pool}
    return {"priority": endpoint.objectives.priority, "poolRef": pool}


def _destination_rule(endpoint: Endpoint, gateway: Gateway) -> Body:
    """How the Gateway talks to the picker: with TLS, whose certificate the picker signs itself, and with room for every request.

    A stream to the picker lasts as long as its request, so there is no limit to how long a connection may live.
    """
    facts = _facts()
    return {
        "host": picker_host(endpoint),
        "trafficPolicy": {
            "tls": {"mode": "SIMPLE", "insecureSkipVerify": True},
            "connectionPool": {
                "http": {
                    "http1MaxPendingRequests": facts["connections"],
                    "http2MaxRequests": facts["connections"],
                    "idleTimeout": f"{gateway.idle_timeout_seconds}s",
                },
                "tcp": {"maxConnections": facts["connections"], "connectTimeout": f"{facts['connect_seconds']}s"},
            },
        },
    }


def _parameters() -> dict[str, str]:
    """What Istio merges into the Deployment and the Service that it makes of the Gateway."""
    amount = _facts()["proxy"]
    requests = {"cpu": str(amount["cpus"]), "memory": f"{amount['memory_gib']}Gi"}
    limits = {"cpu": str(amount["cpu_limit"]), "memory": f"{amount['memory_limit_gib']}Gi"}
    container = {"name": _PROXY, "resources": {"requests": requests, "limits": limits}}
    parts = {
        "deployment": {"spec": {"template": {"spec": {"containers": [container]}}}},
        "service": {"spec": {"type": "LoadBalancer"}},
    }
    return {name: yaml_text(part) for name, part in parts.items()}


def _gateway(endpoint: Endpoint, gateway: Gateway) -> Body:
    """One Gateway for each endpoint, with a load balancer that stays inside the VPC and is as patient as the Gateway.

    With several pools behind one, Istio asked the first one's picker for all (https://github.com/istio/istio/issues/58392).
    """
    facts, names = _facts(), LlmdNames.of(endpoint)
    idle = {facts["idle_annotation"]: f"{facts['idle_attribute']}={gateway.idle_timeout_seconds}"}
    body = _object(
        endpoint,
        _GATEWAY,
        "Gateway",
        names.gateway,
        spec={
            "gatewayClassName": gateway.gateway_class,
            "infrastructure": {
                "annotations": {**facts["load_balancer"], **idle},
                "parametersRef": {"group": "", "kind": "ConfigMap", "name": names.gateway},
            },
            "listeners": [
                {"name": "http", "port": llmd().ports["service"], "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "Same"}}}
            ],
        },
    )
    body["metadata"]["labels"]["istio.io/enable-inference-extproc"] = "true"
    return body


def _route(endpoint: Endpoint, gateway: Gateway) -> Body:
    """Everything goes to the pool. The limit counts until the last token, and 0 is none."""
    names = LlmdNames.of(endpoint)
    return {
        "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": names.gateway}],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [{"group": POOL_GROUP, "kind": "InferencePool", "name": names.pool}],
                "timeouts": {"request": f"{gateway.request_timeout_seconds}s"},
            }
        ],
    }


def _object(endpoint: Endpoint, api_version: str, kind: str, name: str, **fields: Any) -> Body:
    names = LlmdNames.of(endpoint)
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": names.namespace, "labels": names.labels()},
        **fields,
    }


def _facts() -> Body:
    facts: Body = llmd().more["gateway"]
    return facts
