"""The router of an endpoint: the endpoint picker with its configuration and rights, the proxy beside it, and the way in."""

import hashlib
from typing import Any, Final

from dpd.backends.llmd.engine import FieldRef
from dpd.backends.llmd.envoy import READY_PATH, guard, guards, proxy
from dpd.backends.llmd.pod import variable
from dpd.backends.llmd.ports import target_ports
from dpd.backends.llmd.router_pod import amounts, placement, pod_security, security
from dpd.backends.llmd.strategies import Picking, picking
from dpd.backends.llmd.tokenizer import tokenizer
from dpd.backends.llmd.yaml_text import yaml_text
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.environment.endpoint import Endpoint
from dpd.environment.names import SCRAPER_LABEL, LlmdNames

CONFIG_FILE: Final = "picker.yaml"
PROXY_FILE: Final = "envoy.yaml"
_CONFIG_FOLDER: Final = "/config"
_PROXY_FOLDER: Final = "/etc/envoy"
_TOKEN_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 (where every client looks)
_TOKEN_SECONDS: Final = 3607
_READ: Final = ["get", "list", "watch"]
POOL_GROUP: Final = "inference.networking.k8s.io"
GATEWAY_LABEL: Final = "gateway.networking.k8s.io/gateway-name"
"""What Istio marks the pods of a Gateway with."""
Body = dict[str, Any]


def objects(endpoint: Endpoint, site: Site) -> tuple[Body, ...]:
    """Every object of the router but those of a Gateway, in the order in which they are applied. Raises ``ValueError`` as ``picking``."""
    chosen = picking(endpoint, site)
    files = _files(endpoint, chosen)
    return (
        *(tokenizer(endpoint, site) if chosen.tokenizer else ()),
        _object(endpoint, "v1", "ServiceAccount", automountServiceAccountToken=False),
        _object(endpoint, "rbac.authorization.k8s.io/v1", "Role", rules=rules(endpoint)),
        _role_binding(endpoint),
        _object(endpoint, "v1", "ConfigMap", data=files),
        _network_policy(endpoint, site),
        _object(
            endpoint,
            "policy/v1",
            "PodDisruptionBudget",
            spec={"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": _selector(endpoint)},
        ),
        *services(endpoint),
        _object(endpoint, "apps/v1", "Deployment", spec=_deployment(endpoint, site, chosen, files)),
    )


def rules(endpoint: Endpoint) -> list[Body]:
    """What the picker may read in its own namespace, and no more.

    Pods; behind a Gateway its pool as well, and the resources with which requests name a priority or a model, which this
    version reads from whichever group is installed. It writes nothing: leader election is off, since one of two pickers
    would only wait, and its metrics ask for no token.
    """
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": _READ}
    if endpoint.routing.gateway is None:
        return [pods]
    named = ["inferenceobjectives", "inferencemodelrewrites"]
    return [
        pods,
        {"apiGroups": [POOL_GROUP], "resources": ["inferencepools"], "verbs": _READ},
        {"apiGroups": ["llm-d.ai", "inference.networking.x-k8s.io"], "resources": named, "verbs": _READ},
    ]


def arguments(endpoint: Endpoint, site: Site, chosen: Picking) -> list[str]:
    """The picker's flags. It finds pods by their labels, or behind a Gateway through its pool; of the two it takes one.

    TLS with a certificate that it signs itself is for a Gateway elsewhere; beside its own proxy it speaks in clear.
    """
    names, ports = LlmdNames.of(endpoint), llmd().ports
    found = (
        [f"--pool-name={names.pool}", f"--pool-namespace={names.namespace}", f"--pool-group={POOL_GROUP}"]
        if endpoint.routing.gateway
        else [
            f"--endpoint-selector={','.join(f'{key}={value}' for key, value in sorted(names.pool_labels.items()))}",
            f"--endpoint-target-ports={','.join(map(str, target_ports(endpoint, site)))}",
        ]
    )
    return [
        *found,
        f"--config-file={_CONFIG_FOLDER}/{CONFIG_FILE}",
        f"--grpc-port={ports['picker']}",
        f"--grpc-health-port={ports['picker_health']}",
        f"--metrics-port={ports['picker_metrics']}",
        "--metrics-endpoint-auth=false",
        "--enable-pprof=false",
        f"--secure-serving={'true' if endpoint.routing.gateway else 'false'}",
        "--ha-enable-leader-election=false",
        *(["--allow-experimental-plugins=true"] if chosen.config.alpha() else []),
        "--tracing=false",
        "--zap-encoder=json",
        f"--v={_facts()['log_level']}",
    ]


def services(endpoint: Endpoint) -> tuple[Body, ...]:
    """The picker for whoever asks it, the way in, and the addresses of prefillers that are ready.

    Clients inside the cluster call one name. Behind a Gateway it stands for the Service that Istio makes of it.
    """
    names, ports = LlmdNames.of(endpoint), llmd().ports
    metrics = {"name": "http-metrics", "port": ports["picker_metrics"], "targetPort": "metrics", "protocol": "TCP"}
    asked = {"name": "grpc-ext-proc", "port": ports["picker"], "targetPort": "grpc", "protocol": "TCP", "appProtocol": "kubernetes.io/h2c"}
    way_in = {"name": "http", "port": ports["service"], "targetPort": "inference", "protocol": "TCP", "appProtocol": "http"}
    behind = endpoint.routing.gateway is not None
    front = {"type": "ExternalName", "externalName": names.gateway_host} if behind else {"selector": names.picker_labels, "ports": [way_in]}
    ready = {
        "clusterIP": "None",
        "selector": names.role_labels("prefill"),
        "ports": [{"name": "http", "port": ports["server"], "protocol": "TCP"}],
    }
    return (
        _object(endpoint, "v1", "Service", spec={"selector": names.picker_labels, "ports": [*([asked] if behind else []), metrics]}),
        _object(endpoint, "v1", "Service", names.service, spec=front),
        *([_object(endpoint, "v1", "Service", names.ready_prefillers, spec=ready)] if guards(endpoint) else []),
    )


def _files(endpoint: Endpoint, chosen: Picking) -> dict[str, str]:
    config = proxy(endpoint) if endpoint.routing.gateway is None else guard(endpoint) if guards(endpoint) else None
    text = {PROXY_FILE: yaml_text(config)} if config else {}
    return {CONFIG_FILE: chosen.config.text(), **text}


def _role_binding(endpoint: Endpoint) -> Body:
    names = LlmdNames.of(endpoint)
    return _object(
        endpoint,
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": names.picker},
        subjects=[{"kind": "ServiceAccount", "name": names.picker, "namespace": names.namespace}],
    )


def _network_policy(endpoint: Endpoint, site: Site) -> Body:
    """Clients reach the proxy, a Gateway its picker, and metrics whoever may scrape them. All other ports are the pod's own business.

    The health gate asks from the control-plane subnets, as it does the workers.
    """
    names, ports = LlmdNames.of(endpoint), llmd().ports
    behind = endpoint.routing.gateway is not None
    gateway = [{"podSelector": {"matchLabels": {GATEWAY_LABEL: names.gateway}}}]
    asked = {"from": gateway, "ports": [_port(ports["picker"])]} if behind else {"ports": [_port(ports["envoy"])]}
    scrapers = [
        {"namespaceSelector": {"matchLabels": {SCRAPER_LABEL: "true"}}},
        *({"ipBlock": {"cidr": cidr}} for cidr in site.control_plane_cidrs),
    ]
    beside = [_port(_facts()["ports"]["proxy_health"])] if _beside(endpoint) else []
    return _object(
        endpoint,
        "networking.k8s.io/v1",
        "NetworkPolicy",
        spec={
            "podSelector": _selector(endpoint),
            "policyTypes": ["Ingress"],
            "ingress": [asked, {"from": scrapers, "ports": [_port(ports["picker_metrics"]), *beside]}],
        },
    )


def _port(number: int) -> Body:
    return {"protocol": "TCP", "port": number}


def _deployment(endpoint: Endpoint, site: Site, chosen: Picking, files: dict[str, str]) -> Body:
    """Several pickers that know the same replace each other one by one. A single one goes before the next comes.

    Two that do not know of each other would send one pod too much, and neither would know where a prefix is.
    """
    names = LlmdNames.of(endpoint)
    digest = hashlib.sha256("\n".join(files.values()).encode()).hexdigest()[:8]
    one_by_one = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {
        "replicas": chosen.replicas,
        "selector": _selector(endpoint),
        "strategy": one_by_one if chosen.replicas > 1 else {"type": "Recreate"},
        "template": {
            "metadata": {"labels": {**names.labels(), **names.picker_labels}, "annotations": {"dpd/config": digest}},
            "spec": {
                "serviceAccountName": names.picker,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": _facts()["grace_seconds"],
                "securityContext": pod_security(),
                **placement(site, names.picker_labels),
                "containers": [_picker(endpoint, site, chosen), *_beside(endpoint)],
                "volumes": [_configuration(names.picker, "config", CONFIG_FILE), _token(), *_proxy_volume(endpoint)],
            },
        },
    }


def _proxy_volume(endpoint: Endpoint) -> list[Body]:
    return [_configuration(LlmdNames.of(endpoint).picker, "envoy", PROXY_FILE)] if _beside(endpoint) else []


def _picker(endpoint: Endpoint, site: Site, chosen: Picking) -> Body:
    ports, health = llmd().ports, {"grpc": {"port": llmd().ports["picker_health"], "service": "inference-extension"}}
    return {
        "name": llmd().containers["picker"],
        "image": llmd().images["picker"].reference,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments(endpoint, site, chosen),
        "env": [variable("NAMESPACE", FieldRef("metadata.namespace")), variable("POD_NAME", FieldRef("metadata.name"))],
        "ports": [
            {"name": "grpc", "containerPort": ports["picker"], "protocol": "TCP"},
            {"name": "grpc-health", "containerPort": ports["picker_health"], "protocol": "TCP"},
            {"name": "metrics", "containerPort": ports["picker_metrics"], "protocol": "TCP"},
        ],
        "resources": amounts(_facts()["resources"]),
        "livenessProbe": {**health, "initialDelaySeconds": 5, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**health, "periodSeconds": 2},
        "lifecycle": _pause(_facts()["notice_seconds"]),
        "securityContext": security(),
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True},
            {"name": "token", "mountPath": _TOKEN_FOLDER, "readOnly": True},
        ],
    }


def _beside(endpoint: Endpoint) -> list[Body]:
    """The proxy, or behind a Gateway the guard.

    A pod that is not ready has no place in the picker's Service, and without a picker the pool fails every request.
    """
    facts, ready = _facts(), _facts()["ready"]
    if endpoint.routing.gateway is None:
        way_in = {"name": "inference", "containerPort": llmd().ports["envoy"], "protocol": "TCP"}
        return [_envoy(llmd().containers["envoy"], facts["proxy"], READY_PATH, [way_in])]
    return [_envoy("guard", facts["guard"], ready["path"], [])] if guards(endpoint) else []


def _envoy(name: str, amount: Body, ready: str, ports: list[Body]) -> Body:
    health = _facts()["ports"]["proxy_health"]

    def probe(path: str, failures: int) -> Body:
        return {"httpGet": {"path": path, "port": health}, "periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": failures}

    return {
        "name": name,
        "image": llmd().images["envoy"].reference,
        "imagePullPolicy": "IfNotPresent",
        "command": ["envoy"],
        "args": [
            f"--config-path={_PROXY_FOLDER}/{PROXY_FILE}",
            f"--concurrency={amount['threads']}",
            "--log-level=warn",
            "--disable-hot-restart",
        ],
        "ports": [*ports, {"name": "proxy-health", "containerPort": health, "protocol": "TCP"}],
        "resources": amounts(amount),
        "startupProbe": probe(READY_PATH, 12),
        "livenessProbe": probe(READY_PATH, 6),
        "readinessProbe": probe(ready, 2),
        "lifecycle": _pause(_facts()["notice_seconds"] + _facts()["drain_seconds"]),
        "securityContext": security(),
        "volumeMounts": [{"name": "envoy", "mountPath": _PROXY_FOLDER, "readOnly": True}],
    }


def _pause(seconds: int) -> Body:
    """Time in which a container of a pod that goes still serves: clients notice, and the picker, then the proxy, finish what they have."""
    return {"preStop": {"sleep": {"seconds": seconds}}}


def _configuration(name: str, volume: str, file: str) -> Body:
    return {"name": volume, "configMap": {"name": name, "items": [{"key": file, "path": file}]}}


def _token() -> Body:
    """The account's token, as a volume that only the picker mounts: the proxy beside it, which clients talk to, gets none."""
    return {
        "name": "token",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]
        },
    }


def _selector(endpoint: Endpoint) -> Body:
    return {"matchLabels": LlmdNames.of(endpoint).picker_labels}


def _object(endpoint: Endpoint, api_version: str, kind: str, name: str = "", **fields: Any) -> Body:
    names = LlmdNames.of(endpoint)
    metadata = {"name": name or names.picker, "namespace": names.namespace, "labels": names.labels()}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _facts() -> Body:
    facts: Body = llmd().more["picker"]
    return facts
