"""Where a report goes: an encrypted object, a metric for every check, a message on failure, and the log."""

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from health_gate.report import Report, shortened
from health_gate.spec import Reports

_METRICS_A_CALL: Final = 500
_SUBJECT: Final = 100
_MESSAGE: Final = 200_000
_MEASURED: Final = {"ttft_ms": "Milliseconds", "itl_ms": "Milliseconds", "gb_per_second": "Gigabytes/Second"}

log = logging.getLogger("health_gate")


def deliver(report: Report, reports: Reports, aws: Callable[[str], Any]) -> tuple[str, list[str]]:
    """Send a report everywhere. Gives its address and what could not be delivered; that changes no outcome.

    An alarm on the metrics must treat missing data as a breach, so that lost metrics are noticed.
    """
    address = ""
    lost: list[str] = []
    if reports.bucket:
        key = f"{reports.prefix}/{report.environment}/{datetime.fromtimestamp(report.started, UTC):%Y/%m/%d/%H%M%S}.json"
        if _tried(lost, "report", lambda: _store(report, reports, key, aws("s3"))):
            address = f"s3://{reports.bucket}/{key}"
    if reports.namespace:
        _tried(lost, "metrics", lambda: _measure(report, reports.namespace, aws("cloudwatch")))
    if reports.topic_arn and report.open:
        _tried(lost, "message", lambda: _tell(report, reports.topic_arn, address, aws("sns")))
    return address, lost


def write(report: Report, **more: object) -> None:
    """A line of JSON for every check that did not pass, and one for the whole. Neither prompts, tokens nor response URLs are in any."""
    for result in report.open:
        line = {
            "check": result.id,
            "endpoint": result.endpoint,
            "outcome": result.outcome,
            "summary": result.summary,
            "remedy": result.remedy,
        }
        log.warning(json.dumps({**line, "evidence": result.evidence, "seconds": result.seconds}))
    whole = {key: value for key, value in report.as_dict().items() if key != "results"}
    log.info(json.dumps({**whole, **more}))


def _tried(lost: list[str], what: str, send: Callable[[], None]) -> bool:
    try:
        send()
    except Exception as error:
        code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
        log.warning(json.dumps({"lost": what, "error": type(error).__name__, "code": code}))
        lost.append(what)
        return False
    return True


def _store(report: Report, reports: Reports, key: str, s3: Any) -> None:
    encryption = {"ServerSideEncryption": "aws:kms", **({"SSEKMSKeyId": reports.key_arn} if reports.key_arn else {})}
    s3.put_object(Bucket=reports.bucket, Key=key, Body=report.as_json().encode(), ContentType="application/json", **encryption)


def _measure(report: Report, namespace: str, cloudwatch: Any) -> None:
    data = _metrics(report)
    while part := list(islice(data, _METRICS_A_CALL)):
        cloudwatch.put_metric_data(Namespace=namespace, MetricData=part)


def _metrics(report: Report) -> Iterator[dict[str, Any]]:
    environment = {"Name": "Environment", "Value": report.environment}
    yield {"MetricName": "GateFailed", "Dimensions": [environment], "Value": float(bool(report.open)), "Unit": "Count"}
    for result in report.results:
        dimensions = [environment, *([{"Name": "Endpoint", "Value": result.endpoint}] if result.endpoint else [])]
        own = [*dimensions, {"Name": "Check", "Value": result.id}]
        yield {"MetricName": "CheckFailed", "Dimensions": own, "Value": float(not result.passed), "Unit": "Count"}
        for name, unit in _MEASURED.items():
            value = result.evidence.get(name)
            if isinstance(value, int | float):
                yield {"MetricName": name, "Dimensions": dimensions, "Value": float(value), "Unit": unit}


def _tell(report: Report, topic: str, address: str, sns: Any) -> None:
    first = report.causes()[0]
    subject = shortened(f"Health gate {report.outcome}: {report.environment} {first.id}", _SUBJECT)
    sns.publish(TopicArn=topic, Subject=subject, Message=shortened(f"{report.table()}\n{address}".rstrip(), _MESSAGE))
