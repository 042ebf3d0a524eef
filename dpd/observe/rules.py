"""Rules of an endpoint for a Prometheus, in its own format: PrometheusRule objects and Amazon Managed Prometheus both hold it."""

import json
from typing import Any, Final

import yaml

from dpd.observe.alarms import Alarm, alarms
from dpd.observe.records import Record, records
from dpd.observe.watched import Watched

RUNBOOK: Final = "docs/runbook.md"
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
Body = dict[str, Any]


def groups(it: Watched) -> list[Body]:
    """One group of rules: a group runs in order, so what is recorded comes before the alarms that read it."""
    rules = [*(_record(it, record) for record in records(it)), *(_alarm(it, alarm) for alarm in alarms(it))]
    return [{"name": f"{it.namespace}.{it.name}", "interval": "30s", "rules": rules}]


def text(it: Watched) -> str:
    """A file of rules."""
    return str(yaml.dump({"groups": groups(it)}, Dumper=_DUMPER, sort_keys=False, width=4096))


def compact(it: Watched) -> str:
    """The same as JSON, which YAML's readers take: a template has a limit of its own."""
    return json.dumps({"groups": groups(it)}, separators=(",", ":"))


def labels(it: Watched) -> dict[str, str]:
    """Labels of everything that is recorded of an endpoint or fires for it."""
    return {"environment": it.environment, "namespace": it.namespace, "endpoint": it.name}


def _record(it: Watched, record: Record) -> Body:
    return {"record": record.name, "expr": record.expression, "labels": {**labels(it), **dict(record.labels)}}


def _alarm(it: Watched, alarm: Alarm) -> Body:
    kind = alarm.kind
    return {
        "alert": kind.name,
        "expr": alarm.expression,
        "for": kind.after,
        "labels": {**labels(it), "severity": kind.severity},
        "annotations": {"summary": f"{it.name}: {kind.title}", "runbook": f"{RUNBOOK}#{kind.name.lower()}"},
    }
