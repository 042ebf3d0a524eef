"""What is written beside the manifests for whoever imports it: dashboards of Grafana and CloudWatch, and files of rules."""

import json
from collections.abc import Iterator

from dpd.environment.environment import Environment
from dpd.environment.names import MANAGED_BY, Names
from dpd.observe import cloudwatch, grafana, rules
from dpd.observe.panels import Dashboard, endpoint_dashboard, fleet_dashboard
from dpd.observe.watched import watched


def dashboards(environment: Environment) -> Iterator[Dashboard]:
    """The fleet's page, then one for each endpoint."""
    endpoints = watched(environment)
    if endpoints:
        yield fleet_dashboard(endpoints, Names.of(environment).prefix)
    yield from map(endpoint_dashboard, endpoints)


def files(environment: Environment) -> dict[str, str]:
    """Texts by file, relative to a folder of their own. Each says who made it, as every manifest does."""
    endpoints = watched(environment)
    if not endpoints:
        return {}
    pages = {f"dashboards/{page.uid}.json": _json(grafana.dashboard(page)) for page in dashboards(environment)}
    mark = f"# app.kubernetes.io/managed-by: {MANAGED_BY}\n"
    ruled = {f"rules/{it.namespace}.{it.name}.yaml": mark + rules.text(it) for it in endpoints}
    managed = environment.observe.metrics in ("hyperpod_add_on", "managed_prometheus")
    return {**pages, **ruled, "cloudwatch.json": _json(cloudwatch.dashboard(environment, endpoints, workspace=managed))}


def _json(body: object) -> str:
    return json.dumps(body, indent=1) + "\n"
