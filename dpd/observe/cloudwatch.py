"""The CloudWatch dashboard: the health gate and the AWS parts, which no Prometheus sees."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dpd.backends.site import Site
from dpd.catalog import observability
from dpd.environment.environment import Environment
from dpd.environment.names import Names
from dpd.gate.spec import METRIC_NAMESPACE
from dpd.observe.watched import Watched, watched

Body = dict[str, Any]
_COLUMNS: Final = 24
_WIDTH, _HEIGHT = 8, 6
WORKSPACE_ID: Final = "${PROMETHEUS_WORKSPACE_ID}"
"""Only a deployment knows it; the stack puts a reference there."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with the values of its dimensions, in the order of the catalog."""

    namespace: str
    name: str
    values: tuple[str, ...]
    statistic: str = "Average"
    label: str = ""

    @property
    def dimensions(self) -> dict[str, str]:
        """Names and values. Raises ``KeyError`` for a metric that the catalog does not have."""
        names = observability.cloudwatch_metrics()[self.namespace][self.name]
        return dict(zip(names, self.values, strict=False))


@dataclass(frozen=True, slots=True)
class Picture:
    """A widget. ``limit`` is a line across it."""

    title: str
    metrics: tuple[Metric, ...]
    limit: float | None = None


def pictures(environment: Environment, endpoints: Sequence[Watched] | None = None, *, workspace: bool = False) -> Iterator[Picture]:
    """What is drawn: what the gate found and measured; Lustre; SageMaker endpoints; the Prometheus workspace."""
    known, name = watched(environment) if endpoints is None else endpoints, Names.of(environment).prefix
    if environment.gate.deploy:
        yield Picture("Health gate failed", (Metric(METRIC_NAMESPACE, "GateFailed", (name,), "Maximum"),), 1)
        for metric, title in (
            ("ttft_ms", "Time to first token, measured by the gate"),
            ("itl_ms", "Inter-token latency, measured by the gate"),
            ("gb_per_second", "KV throughput of a rank, measured by the gate"),
        ):
            yield Picture(title, tuple(Metric(METRIC_NAMESPACE, metric, (name, it.name), "Average", it.name) for it in known))
    if lustre := Site.of(environment).lustre:
        place = (lustre.file_system_id,)
        yield Picture("Lustre: free space", (Metric("AWS/FSx", "FreeDataStorageCapacity", place, "Sum"),))
        traffic = tuple(Metric("AWS/FSx", metric, place, "Sum") for metric in ("DataReadBytes", "DataWriteBytes"))
        yield Picture("Lustre: traffic", traffic)
    for it in known:
        if it.sagemaker_endpoint:
            metrics = ("Invocations", "Invocation4XXErrors", "Invocation5XXErrors")
            named = tuple(Metric("AWS/SageMaker", metric, (it.sagemaker_endpoint, "AllTraffic"), "Sum") for metric in metrics)
            yield Picture(f"SageMaker endpoint {it.sagemaker_endpoint}", named)
    if workspace:
        yield Picture("Prometheus: active series", (Metric("AWS/Prometheus", "ActiveSeries", (WORKSPACE_ID,), "Maximum"),))
        lost = ("DiscardedSamples", "AlertManagerNotificationsFailed")
        yield Picture("Prometheus: what was lost", tuple(Metric("AWS/Prometheus", metric, (WORKSPACE_ID,), "Sum") for metric in lost), 1)


def dashboard(environment: Environment, endpoints: Sequence[Watched] | None = None, *, workspace: bool = False) -> Body:
    """The body of a CloudWatch dashboard, with placeholders."""
    made = "Made by HyperPod DPD (app.kubernetes.io/managed-by: hyperpod-dpd). What pods export is in Grafana; the runbook has every alarm."
    widgets: list[Body] = [{"type": "text", "x": 0, "y": 0, "width": _COLUMNS, "height": 1, "properties": {"markdown": made}}]
    for index, picture in enumerate(pictures(environment, endpoints, workspace=workspace)):
        line, column = divmod(index, _COLUMNS // _WIDTH)
        place = {"x": column * _WIDTH, "y": 1 + line * _HEIGHT, "width": _WIDTH, "height": _HEIGHT}
        widgets.append({"type": "metric", **place, "properties": _properties(environment.region, picture)})
    return {"widgets": widgets}


def text(environment: Environment, endpoints: Sequence[Watched] | None = None, *, workspace: bool = False) -> str:
    """The same as JSON."""
    return json.dumps(dashboard(environment, endpoints, workspace=workspace), separators=(",", ":"))


def _properties(region: str, picture: Picture) -> Body:
    return {
        "title": picture.title,
        "region": region,
        "view": "timeSeries",
        "period": 300,
        "metrics": [_line(metric) for metric in picture.metrics],
        **({"annotations": {"horizontal": [{"value": picture.limit}]}} if picture.limit is not None else {}),
    }


def _line(metric: Metric) -> list[Any]:
    flat = [part for pair in metric.dimensions.items() for part in pair]
    options = {"stat": metric.statistic, **({"label": metric.label} if metric.label else {})}
    return [metric.namespace, metric.name, *flat, options]
