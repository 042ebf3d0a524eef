"""What a promotion asks of the earlier environment: its newest health gate report, and how its alarms fare."""

from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from aws_reads.asking import code, pages
from aws_reads.session import UNREACHABLE, Clients
from dpd.promotion.proof import as_report


class UnreadableError(Exception):
    """Nothing could be asked; the text says what and why."""


def newest_report(clients: Clients, bucket: str, prefix: str, *, now: datetime, hours: int) -> tuple[str, dict[str, Any] | None]:
    """The newest report of the last hours and its address, or the folder that has none. Raises ``UnreadableError``.

    Reports lie in folders by day under the time at which they began, so a folder's last key is its newest report.
    """
    days = {(now - timedelta(hours=hour)).strftime("%Y/%m/%d"): None for hour in (*range(0, hours, 24), hours)}
    try:
        for day in days:
            found = pages(clients("s3"), "list_objects_v2", "Contents", Bucket=bucket, Prefix=f"{prefix}/{day}/")
            if keys := sorted(each["Key"] for each in found):
                body = clients("s3").get_object(Bucket=bucket, Key=keys[-1])["Body"].read()
                return f"s3://{bucket}/{keys[-1]}", as_report(body)
    except (ClientError, *UNREACHABLE) as error:
        raise UnreadableError(f"Reports in s3://{bucket}/{prefix}/ cannot be read ({_why(error)}).") from None
    return f"s3://{bucket}/{prefix}/", None


def alarm_states(clients: Clients, prefix: str) -> dict[str, str]:
    """State of every alarm whose name begins so, composite ones too. Raises ``UnreadableError``."""
    try:
        client = clients("cloudwatch")
        asked = {"AlarmNamePrefix": prefix, "AlarmTypes": ["MetricAlarm", "CompositeAlarm"]}
        answers = list(client.get_paginator("describe_alarms").paginate(**asked))
    except (ClientError, *UNREACHABLE) as error:
        raise UnreadableError(f"Alarms that begin with {prefix} cannot be read ({_why(error)}).") from None
    alarms = [alarm for page in answers for kind in ("MetricAlarms", "CompositeAlarms") for alarm in page.get(kind, ())]
    return {alarm["AlarmName"]: alarm["StateValue"] for alarm in alarms}


def _why(error: Exception) -> str:
    return code(error) if isinstance(error, ClientError) else type(error).__name__
