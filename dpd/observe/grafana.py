"""Dashboards in the words of Grafana's dashboard schema. Every panel asks the Prometheus that the page's own variable names."""

from collections.abc import Iterator
from typing import Any, Final

from dpd.environment.names import MANAGED_BY
from dpd.observe.panels import Dashboard, Panel, Query

Body = dict[str, Any]
SCHEMA_VERSION: Final = 39
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHT: Final = {"lines": 8, "number": 4, "table": 7}
_KINDS: Final = {"lines": "timeseries", "number": "stat", "table": "table"}
_COLUMNS: Final = 24


def dashboard(page: Dashboard) -> Body:
    """A page as Grafana imports it."""
    return {
        "uid": page.uid,
        "title": page.title,
        "description": f"Made by HyperPod DPD (app.kubernetes.io/managed-by: {MANAGED_BY}); changes by hand are lost.",
        "tags": list(page.tags),
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]},
        "panels": list(_placed(page)),
    }


def _placed(page: Dashboard) -> Iterator[Body]:
    """Headings and panels from left to right, top to bottom."""
    top = number = 0
    for row in page.rows:
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": _place(0, top, _COLUMNS, 1)}
        top, left, tallest = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > _COLUMNS:
                top, left, tallest = top + tallest, 0, 0
            number += 1
            height = _HEIGHT[panel.kind]
            yield _panel(number, panel, _place(left, top, panel.width, height))
            left, tallest = left + panel.width, max(tallest, height)
        top += tallest


def _place(left: int, top: int, width: int, height: int) -> Body:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(number: int, panel: Panel, place: Body) -> Body:
    return {
        "id": number,
        "type": _KINDS[panel.kind],
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [_target(index, query, panel) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
    }


def _target(index: int, query: Query, panel: Panel) -> Body:
    now = panel.kind == "table"
    return {
        "refId": chr(ord("A") + index),
        "datasource": _SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
        "range": not now,
        "instant": now,
        **({"format": "table"} if now else {}),
    }


def _defaults(panel: Panel) -> Body:
    steps = [{"value": None, "color": "green"}, *({"value": limit, "color": "red"} for limit in panel.limits)]
    drawn = {"custom": {"lineWidth": 1, "fillOpacity": 5, "thresholdsStyle": {"mode": "line" if panel.limits else "off"}}}
    return {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}, **(drawn if panel.kind == "lines" else {})}


def _options(panel: Panel) -> Body:
    if panel.kind == "lines":
        return {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "number":
        return {"reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""}}
    return {"showHeader": True}
