"""The newest report that the health gate of an environment has left in its bucket."""

import json
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from botocore.exceptions import ClientError

from aws_reads.asking import pages
from aws_reads.session import Clients

DAYS: Final = 7
"""How far back a report is looked for: a schedule writes several a day."""


@dataclass(frozen=True, slots=True)
class LastReport:
    """The newest report as it stands, and where it is; ``content`` is empty when it cannot be read as a report."""

    place: str
    content: dict[str, Any]


def last_report(clients: Clients, bucket: str, prefix: str, environment: str, today: date, days: int = DAYS) -> LastReport | None:
    """The newest report of the last days, or ``None``. Raises botocore's errors."""
    s3 = clients("s3")
    for back in range(days):
        # A report that was written while we looked may be of tomorrow, by the bucket's clock.
        day = today - timedelta(days=back)
        keys = _keys(s3, bucket, f"{prefix}/{environment}/{day:%Y/%m/%d}/")
        if keys:
            newest = max(keys)
            try:
                content = json.loads(s3.get_object(Bucket=bucket, Key=newest)["Body"].read())
            except ValueError:
                content = None
            return LastReport(f"s3://{bucket}/{newest}", content if isinstance(content, dict) else {})
    return None


def _keys(s3: Any, bucket: str, prefix: str) -> list[str]:
    return [each["Key"] for each in pages(s3, "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix) if each["Key"].endswith(".json")]


def code_of(error: ClientError) -> str:
    """The error code of a refusal."""
    return str(error.response["Error"].get("Code", ""))[:60]
