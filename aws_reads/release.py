"""What a promotion asks of the earlier environment: its newest health gate report, how its alarms fare, and whose weights it serves."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from aws_reads.asking import code, missing
from aws_reads.gate_report import last_report
from aws_reads.session import UNREACHABLE, Clients
from dpd.promotion.proof import as_report

Value = TypeVar("Value")
Reports = Mapping[str, str]
"""``bucket``, ``prefix`` and ``environment`` of the health gate's reports."""


class UnreadableError(Exception):
    """Nothing could be asked; the text says what and why."""


def newest_report(clients: Clients, reports: Reports, *, now: datetime, hours: int) -> tuple[str, dict[str, Any] | None]:
    """The newest report of the last hours and its address, or the folder that has none. Raises ``UnreadableError``."""
    bucket, prefix, environment = reports["bucket"], reports["prefix"], reports["environment"]
    place = f"s3://{bucket}/{prefix}/{environment}/"
    found = told(f"reports in {place}", lambda: last_report(clients, bucket, prefix, environment, now.date(), days=2 + hours // 24))
    return (found.place, found.content) if found else (place, None)


def weights_record(clients: Clients, bucket: str, key: str) -> dict[str, Any] | None:
    """What `dpd stage-model` wrote down of a copy of weights; ``None``: it made none. Raises ``UnreadableError``."""

    def ask() -> dict[str, Any] | None:
        try:
            return as_report(clients("s3").get_object(Bucket=bucket, Key=key)["Body"].read())
        except ClientError as error:
            missing(error, "NoSuchKey", "404")
            return None

    return told(f"s3://{bucket}/{key}", ask)


def alarm_states(clients: Clients, prefix: str) -> dict[str, str]:
    """State of every alarm whose name begins so, composite ones too. Raises ``UnreadableError``."""
    asked = {"AlarmNamePrefix": prefix, "AlarmTypes": ["MetricAlarm", "CompositeAlarm"]}
    answers = told(
        f"alarms that begin with {prefix}", lambda: list(clients("cloudwatch").get_paginator("describe_alarms").paginate(**asked))
    )
    alarms = [alarm for page in answers for kind in ("MetricAlarms", "CompositeAlarms") for alarm in page.get(kind, ())]
    return {alarm["AlarmName"]: alarm["StateValue"] for alarm in alarms}


def told(what: str, ask: Callable[[], Value]) -> Value:
    """An answer. Raises ``UnreadableError`` when there is none."""
    try:
        return ask()
    except ClientError as error:
        raise UnreadableError(f"AWS does not tell about {what} ({code(error)}).") from None
    except UNREACHABLE as error:
        raise UnreadableError(f"AWS cannot be asked about {what} ({type(error).__name__}).") from None
