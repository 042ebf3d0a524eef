"""Monitors and rules as objects of the Prometheus operator, and dashboards as ConfigMaps that Grafana's sidecar picks up."""

import json
from collections.abc import Sequence
from typing import Any, Final

from charts.manifest import Manifest, chart_of
from dpd.environment.environment import Environment
from dpd.environment.names import EndpointNames, cluster_labels
from dpd.observe import grafana, rules
from dpd.observe.panels import endpoint_dashboard
from dpd.observe.targets import Target, targets
from dpd.observe.watched import Watched, watched

__all__ = ["observe_objects"]

_API: Final = "monitoring.coreos.com/v1"
_DASHBOARD: Final = {"grafana_dashboard": "1"}
"""Label that the sidecar of Grafana's chart looks for."""
Body = dict[str, Any]


def observe_objects(environment: Environment) -> tuple[Manifest, ...]:
    """What the Prometheus operator of a cluster reads; nothing where another path is chosen.

    Of the cluster's own exporters (kube-state-metrics, GPUs) their charts bring the monitors.
    """
    if environment.observe.metrics != "in_cluster":
        return ()
    endpoints = watched(environment)
    interval = f"{environment.observe.scrape_interval_seconds}s"
    bodies = [
        *(_monitor(target, interval) for target in targets(environment, endpoints)),
        *(_rules(it) for it in endpoints),
        *(_dashboards(endpoints) if environment.observe.dashboard_config_maps else ()),
    ]
    return chart_of(bodies)


def _monitor(target: Target, interval: str) -> Body:
    """A PodMonitor: pods have no Service of their own, and every one must be read."""
    relabelings: list[Body] = []
    if target.pattern:
        relabelings.append({"sourceLabels": ["__meta_kubernetes_pod_name"], "regex": target.pattern, "action": "keep"})
    if target.with_node:
        relabelings.append({"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"})
    more = {"relabelings": relabelings} if relabelings else {}
    return {
        "apiVersion": _API,
        "kind": "PodMonitor",
        "metadata": {"name": target.name, "namespace": target.namespace, "labels": cluster_labels()},
        "spec": {
            "selector": {"matchLabels": target.labels},
            "podMetricsEndpoints": [{"portNumber": port, "path": "/metrics", "interval": interval, **more} for port in target.ports],
        },
    }


def _rules(it: Watched) -> Body:
    return {
        "apiVersion": _API,
        "kind": "PrometheusRule",
        "metadata": {"name": it.name, "namespace": it.namespace, "labels": EndpointNames(it.name, it.namespace).labels()},
        "spec": {"groups": rules.groups(it)},
    }


def _dashboards(endpoints: Sequence[Watched]) -> list[Body]:
    """A ConfigMap for each endpoint, in its namespace."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"{it.name}-dashboard",
                "namespace": it.namespace,
                "labels": {**EndpointNames(it.name, it.namespace).labels(), **_DASHBOARD},
            },
            "data": {f"{it.name}.json": json.dumps(grafana.dashboard(endpoint_dashboard(it)), separators=(",", ":"))},
        }
        for it in endpoints
    ]
