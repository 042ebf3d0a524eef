"""Dashboards against Grafana's own schema: its SDK reads each and gives back the same, so no key or word is unknown to it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard as Known

from dpd.catalog import observability
from dpd.observe import cloudwatch, grafana
from dpd.observe.files import dashboards, files
from tests.observe.support import EXAMPLES
from tests.support import environment

TITLES = (
    "Time to first token",
    "Inter-token latency",
    "Queue: prefill",
    "Queue: decode",
    "Running: decode",
    "KV use: decode",
    "Prefix hits: prefill",
    "Requests by path",
    "Hand-over time",
    "Size of a hand-over",
    "KV throughput",
    "KV throughput per EFA device",
    "Failed transfers",
    "GPU activity: prefill",
    "Tensor core activity: decode",
    "GPU temperature, hottest: decode",
    "Xid errors: prefill",
    "EFA traffic: decode",
    "EFA errors: prefill",
    "Restarts: decode",
    "Tokens not read again",
)


def lost(said: Any, again: Any, path: str = "") -> Iterator[str]:
    """What does not come back; the SDK adds defaults, which is no matter."""
    if isinstance(said, dict) and isinstance(again, dict):
        for key, value in said.items():
            yield from lost(value, again[key], f"{path}.{key}") if key in again else [f"{path}.{key}"]
    elif isinstance(said, list) and isinstance(again, list) and len(said) == len(again):
        for index, (one, other) in enumerate(zip(said, again, strict=True)):
            yield from lost(one, other, f"{path}[{index}]")
    elif said != again:
        yield path


def test_a_word_that_grafana_does_not_know_is_lost() -> None:
    body = grafana.dashboard(next(iter(dashboards(environment()))))
    body["panels"][1]["targets"][0]["query_expression"] = "up"
    again = json.loads(JSONEncoder().encode(Known.from_json(json.loads(json.dumps(body)))))
    assert list(lost(body, again)) == [".panels[1].targets[0].query_expression"]


@pytest.fixture(autouse=True, scope="module")
def plugins() -> None:
    register_default_plugins()


@pytest.mark.parametrize("kind", EXAMPLES)
def test_grafana_knows_every_word_of_a_dashboard(kind: str) -> None:
    for page in dashboards(environment(example=EXAMPLES[kind])):
        body = grafana.dashboard(page)
        again = json.loads(JSONEncoder().encode(Known.from_json(json.loads(json.dumps(body)))))
        assert not list(lost(body, again))
        assert len(page.uid) <= 40


@pytest.mark.parametrize("kind", EXAMPLES)
def test_panels_do_not_overlap_and_have_what_was_asked_for(kind: str) -> None:
    fleet, page = dashboards(environment(example=EXAMPLES[kind]))
    for each in (fleet, page):
        places = [panel["gridPos"] for panel in grafana.dashboard(each)["panels"]]
        cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24
    titles = {panel.title for row in page.rows for panel in row.panels}
    assert set(TITLES) <= titles


def test_money_and_throughput_stand_on_their_own() -> None:
    _, page = dashboards(environment())
    rows = {row.title: {panel.title for panel in row.panels} for row in page.rows}
    assert "Cost per hour" in rows["Cost"]
    assert "Saved per hour" in rows["Caches"]
    assert "KV throughput" in rows["KV throughput"]


def test_cloudwatch_names_metrics_of_the_catalog_with_their_dimensions() -> None:
    known = observability.cloudwatch_metrics()
    changes = {"observe.metrics": "managed_prometheus", "endpoints[0].exposure.sagemaker_endpoint": "llama-70b"}
    widgets = cloudwatch.dashboard(environment(changes), workspace=True)["widgets"]
    asked = [metric for widget in widgets for metric in widget["properties"].get("metrics", ())]
    assert asked
    for namespace, name, *rest in asked:
        dimensions = rest[:-1:2]
        assert tuple(dimensions) == known[namespace][name][: len(dimensions)]


def test_every_file_says_who_made_it() -> None:
    for text in files(environment()).values():
        assert "app.kubernetes.io/managed-by: hyperpod-dpd" in text
