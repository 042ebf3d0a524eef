"""The observe part: which way metrics go, and who hears of alarms."""

from typing import Annotated, Literal

from pydantic import Field

from dpd.environment.gate import EmailAddress
from dpd.environment.types import Arn, Many, Part, Text

MetricsPath = Literal["hyperpod_add_on", "managed_prometheus", "in_cluster", "none"]


class Observe(Part):
    """Metrics, dashboards and alarms."""

    metrics: MetricsPath = "none"
    """Who collects metrics and evaluates rules. `hyperpod_add_on`: HyperPod's observability add-on with network and scaling metrics
    on, into Amazon Managed Prometheus. `managed_prometheus`: a managed collector, into the same. `in_cluster`: the Prometheus
    operator that the cluster has, by monitors and rules. `none`: nobody; dashboards and rules are still written for review."""
    workspace: (
        Annotated[
            Arn,
            Field(
                pattern=r"^arn:[a-z-]+:aps:[a-z0-9-]+:[0-9]{12}:workspace/ws-[A-Za-z0-9-]+$",
                examples=["arn:aws:aps:us-east-2:111122223333:workspace/ws-11111111-2222-3333-4444-555555555555"],
            ),
        ]
        | None
    ) = None
    """A Prometheus workspace to use. Its alarms go where its own alert manager sends them. Default: one is made and kept."""
    add_on_version: Annotated[Text, Field(pattern=r"^v[0-9][A-Za-z0-9.+-]*$")] | None = None
    """Version of HyperPod's observability add-on. Default: the one that EKS takes, since no document states one."""
    retention_days: Annotated[int, Field(ge=1, le=1095)] | None = None
    """Days that a workspace of our own keeps samples. Default: 150, the service's."""
    scrape_interval_seconds: Annotated[int, Field(ge=15, le=300)] = 30
    """Seconds between two readings of a pod."""
    dashboard_config_maps: bool = False
    """Whether each endpoint's dashboard is a ConfigMap on the cluster as well (`in_cluster`), for the sidecar of Grafana's chart."""
    notify: Annotated[Many[EmailAddress], Field(max_length=10)] = ()
    """E-mail addresses that hear of alarms. Each confirms its subscription once."""
    prefill_input_usd_per_million_tokens: Annotated[float, Field(gt=0)] | None = None
    """What a million prompt tokens are worth that the cache saves. Default: what the prefill pods' time for them costs."""
