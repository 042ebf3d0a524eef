"""Which pods are read, and how: as monitors for the Prometheus operator, or as jobs for a managed collector."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from dpd.catalog.llmd import llmd
from dpd.catalog.operator import operator
from dpd.environment.environment import Environment
from dpd.environment.names import EFA_COUNTERS, EFA_COUNTERS_LABELS, GATE_NAMESPACE, MANAGED_BY
from dpd.gate.wire import PORT
from dpd.observe.watched import ROLES, RoleName, Watched

Body = dict[str, Any]
_PATH: Final = "/metrics"
_COMPONENT: Final = "app.kubernetes.io/component"
_NAME: Final = "app.kubernetes.io/name"
_MANAGED: Final = "app.kubernetes.io/managed-by"


@dataclass(frozen=True, slots=True)
class Target:
    """Pods of a namespace that are read on ``ports``. ``labels`` select them; ``pattern``, when it is not empty, whole names too."""

    name: str
    namespace: str
    labels: dict[str, str]
    ports: tuple[int, ...]
    pattern: str = ""
    with_node: bool = False
    """Whether their series get the node's name: what they count is the node's."""


def targets(environment: Environment, endpoints: Sequence[Watched]) -> Iterator[Target]:
    """Everything that is read in an environment: both roles and the picker of every endpoint, and the EFA counters of the nodes."""
    for it in endpoints:
        for role in ROLES:
            labels, pattern = _selection(it, role)
            yield Target(f"{it.name}-{role}", it.namespace, labels, it.role(role).ports, pattern)
        if it.picker_pattern:
            picker = {_COMPONENT: "picker", _NAME: it.name}
            yield Target(f"{it.name}-picker", it.namespace, picker, (llmd().ports["picker_metrics"],))
    if environment.gate.deploy and any(it.efa_counted for it in endpoints):
        yield Target(EFA_COUNTERS, GATE_NAMESPACE, dict(EFA_COUNTERS_LABELS), (PORT,), with_node=True)


def _selection(it: Watched, role: RoleName) -> tuple[dict[str, str], str]:
    """Labels of every revision of a role; the operator's say nothing of the endpoint, so there the name decides."""
    if it.backend == "llm-d":
        known = llmd().labels
        return {known["guide"]: it.name, known["role"]: role}, ""
    return {operator().role_label: role}, it.role(role).pattern


def scrape_configuration(*, interval_seconds: int, cluster_exporters: bool) -> str:
    """What Amazon Managed Prometheus's collector reads: every endpoint of this tool, whatever their number.

    ``cluster_exporters`` are kube-state-metrics and the GPU exporter, which HyperPod's add-on brings and reads by itself.
    """
    role = llmd().labels["role"]
    jobs = [
        _job(
            "dpd-llm-d",
            [
                _keep(_MANAGED, MANAGED_BY),
                _keep(role, "prefill|decode"),
                _source("container_port_name", "modelserver(-[0-9]+)?"),
            ],
            "vllm:.+|lmcache:.+",
        ),
        _job(
            "dpd-pickers",
            [_keep(_MANAGED, MANAGED_BY), _keep(_COMPONENT, "picker"), _source("container_port_name", "metrics")],
            "llm_d_epp_.+",
        ),
        _job(
            "dpd-operator",
            [
                _keep(operator().role_label, "prefill|decode"),
                _source("container_port_number", str(operator().ports["server"])),
            ],
            "vllm:.+|lmcache:.+",
        ),
        _job(
            "dpd-efa",
            [
                _source("namespace", GATE_NAMESPACE),
                _keep(_NAME, EFA_COUNTERS),
                _source("container_port_number", str(PORT)),
                {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "node"},
            ],
            "node_amazonefa_.+",
        ),
    ]
    if cluster_exporters:
        jobs += [
            {
                **_job("kube-state-metrics", [_keep(_NAME, "kube-state-metrics"), _source("container_port_number", "8080")], "kube_pod_.+"),
                "honor_labels": True,
            },
            {
                **_job(
                    "dcgm-exporter",
                    [_keep(_NAME, "dcgm-exporter|nvidia-dcgm-exporter"), _source("container_port_number", "9400")],
                    "DCGM_.+",
                ),
                "honor_labels": True,
            },
        ]
    every = f"{interval_seconds}s"
    content = {"global": {"scrape_interval": every, "scrape_timeout": f"{min(10, interval_seconds)}s"}, "scrape_configs": jobs}
    return str(yaml.safe_dump(content, sort_keys=False, width=4096))


def _job(name: str, relabelings: list[Body], kept: str) -> Body:
    """A job over all pods of the cluster that keeps some of them, and of what they export the families that anybody asks for."""
    return {
        "job_name": name,
        "metrics_path": _PATH,
        "kubernetes_sd_configs": [{"role": "pod"}],
        "relabel_configs": [
            *relabelings,
            _source("phase", "Running"),
            {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
            {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        ],
        "metric_relabel_configs": [{"source_labels": ["__name__"], "regex": f"{kept}|up", "action": "keep"}],
    }


def _keep(label: str, regex: str) -> Body:
    return _source(f"label_{''.join(c if c.isalnum() else '_' for c in label)}", regex)


def _source(what: str, regex: str) -> Body:
    name = "__meta_kubernetes_namespace" if what == "namespace" else f"__meta_kubernetes_pod_{what}"
    return {"source_labels": [name], "regex": regex, "action": "keep"}
