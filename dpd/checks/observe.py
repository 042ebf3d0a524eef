"""Rules about the observe part: whether anybody looks, and whether what is asked for can be had."""

from collections.abc import Iterator
from typing import Final

from dpd.catalog import observability
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level

_PAGE: Final = "docs/observe.md"
_QUOTAS: Final = "https://docs.aws.amazon.com/prometheus/latest/userguide/AMP_quotas.html"
_METRICS: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/hyperpod-observability-cluster-metrics.html"
MANAGED: Final = ("hyperpod_add_on", "managed_prometheus")
RULES_OF_AN_ENDPOINT: Final = 45
"""Most rules that one endpoint has; a test counts them."""
MOST_ENDPOINTS_OF_A_STACK: Final = 30
"""Endpoints whose rules fit into one template of 1 MB; a test measures them."""


@check(
    "OBS001",
    "Somebody collects metrics",
    level=Level.INFO,
    why="Without it KV that falls back to TCP, a full cache or an idle pool is found by clients. The health gate looks once an "
    "hour, with a handful of prompts.",
    link=_PAGE,
)
def collected(environment: Environment, _: Context) -> Iterator[Problem]:
    """No path."""
    if environment.endpoints and environment.observe.metrics == "none":
        fix = "set observe.metrics to hyperpod_add_on, managed_prometheus or in_cluster"
        yield Problem("observe.metrics", "dashboards and rules are written, and nobody evaluates them", fix, "none")


@check(
    "OBS002",
    "What is said of observability is not ignored",
    why="A workspace, a version or an address that no path uses looks like a watch that is kept, and is none.",
    link=_PAGE,
)
def nothing_ignored(environment: Environment, _: Context) -> Iterator[Problem]:
    """Settings that the chosen path does not read."""
    observe = environment.observe
    fix = "remove it, or choose the path that reads it"
    uses: tuple[tuple[str, bool, tuple[str, ...]], ...] = (
        ("workspace", observe.workspace is not None, MANAGED),
        ("retention_days", observe.retention_days is not None, MANAGED),
        ("notify", bool(observe.notify), MANAGED),
        ("add_on_version", observe.add_on_version is not None, ("hyperpod_add_on",)),
        ("dashboard_config_maps", observe.dashboard_config_maps, ("in_cluster",)),
    )
    for name, given, paths in uses:
        if given and observe.metrics not in paths:
            said = f"observe.metrics is {observe.metrics}, which does not read it"
            yield Problem(f"observe.{name}", said, fix, getattr(observe, name), " or ".join(paths))
    if observe.workspace and observe.retention_days is not None:
        yield Problem("observe.retention_days", "a workspace that is adopted keeps its own retention", "remove it", observe.retention_days)


@check(
    "OBS003",
    "A workspace that is adopted is in this account and Region",
    why="Collectors and rules are made for a workspace beside them: with another Region's or account's ARN the deployment fails half way.",
    link="https://docs.aws.amazon.com/prometheus/latest/userguide/AMP-collector-how-to.html",
)
def workspace_here(environment: Environment, _: Context) -> Iterator[Problem]:
    """Another account or Region."""
    if workspace := environment.observe.workspace:
        region, account = workspace.split(":")[3:5]
        if (region, account) != (environment.region, environment.account):
            here = f"{environment.region}, {environment.account}"
            yield Problem(
                "observe.workspace", f"it is in {region}, account {account}", "name a workspace of this environment", workspace, here
            )


@check(
    "OBS004",
    "The rules of all endpoints fit into a workspace",
    level=Level.WARNING,
    why="A workspace of Amazon Managed Prometheus takes 2,000 rules until somebody asks for more; the deployment that "
    "brings the next fails.",
    link=_QUOTAS,
)
def rules_fit(environment: Environment, _: Context) -> Iterator[Problem]:
    """Too many endpoints."""
    most, rules = int(observability.managed_prometheus()["rules_per_workspace"]), RULES_OF_AN_ENDPOINT * len(environment.endpoints)
    if environment.observe.metrics in MANAGED and rules > most:
        yield Problem(
            "endpoints", f"their rules are about {rules:,}", "ask for a higher quota, and accept this", rules, f"at most {most:,}"
        )


@check(
    "OBS005",
    "The rules of all endpoints fit into a template",
    why="CloudFormation takes templates of 1 MB. Rules of more endpoints than that would end a synth after everything else was built.",
    link="https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html",
)
def template_fits(environment: Environment, _: Context) -> Iterator[Problem]:
    """Too many endpoints for the stack that deploys them."""
    number = len(environment.endpoints)
    if environment.observe.metrics != "none" and number > MOST_ENDPOINTS_OF_A_STACK:
        fix = "split the endpoints over two environments, or set observe.metrics to none and load the files that dpd render writes"
        yield Problem(
            "endpoints", f"{number} endpoints have more rules than a template holds", fix, number, f"at most {MOST_ENDPOINTS_OF_A_STACK}"
        )


@check(
    "OBS006",
    "EFA's counters can be compared with the KV that was counted",
    level=Level.WARNING,
    why="A connector counts the bytes that it moves, whatever the network. Without the devices' counters a fall-back is seen by its speed "
    "alone, and the panels of EFA traffic and errors stay away.",
    link=_METRICS,
)
def counted(environment: Environment, _: Context) -> Iterator[Problem]:
    """Metrics without the exporter."""
    if environment.observe.metrics != "none" and environment.endpoints and not (environment.gate.deploy and environment.gate.efa_counters):
        fix = "set gate.deploy and gate.efa_counters to true"
        yield Problem("gate.efa_counters", "nobody reads the counters of the EFA devices", fix, environment.gate.efa_counters)
