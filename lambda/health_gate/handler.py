"""Entry points: two for the provider framework of the CDK, one for a schedule.

Properties of the custom resource: ``SpecUri``, an ``s3://bucket/key`` that holds the spec as JSON text, or ``Spec``, the
text itself; ``Values``, what stands for a mark ``${NAME}`` of that text and only a deployment knows; and ``Digest``, a text
that changes with manifests, image digests and model revision, so that an update proves it again and an unchanged deployment
does not. A scheduled event has the same properties.

An event holds at most 256 KiB on its way through Step Functions and the scheduler, which a spec of many endpoints may exceed;
its address never does: https://github.com/aws/aws-cdk/issues/17362

No state is kept but the time of the start, which the framework hands from ``on_event`` to ``is_complete``. The event
holds ``ResponseURL``, with which anybody could answer CloudFormation: it is never logged.
"""

import json
import logging
import re
import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, Protocol

from health_gate import sinks
from health_gate.clients import clients
from health_gate.reading import BadSpec
from health_gate.report import Report
from health_gate.run import run
from health_gate.spec import Spec

REASON_BYTES: Final = 2000
"""CloudFormation takes 4 KB for the whole response; the framework adds its own words and its stack to the reason. Counted as
JSON writes it, where a quotation mark is two bytes."""
_RESERVE_SECONDS: Final = 15
_PROPERTIES: Final = ("Spec", "SpecUri")
_MARK: Final = re.compile(r"\$\{[A-Z_]+\}")

logging.getLogger("health_gate").setLevel(logging.INFO)


class Context(Protocol):
    """What the gate needs of a Lambda context."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends the invocation."""


class GateFailed(Exception):  # noqa: N818 - CloudFormation shows it as the reason
    """The environment is not proven. The text names the first cause first."""


def on_event(event: Mapping[str, Any], _context: Context) -> dict[str, Any]:
    """Start. The id never changes, so that an update of the gate never deletes it; a Delete has nothing to do."""
    known = event.get("PhysicalResourceId")
    if event["RequestType"] == "Delete":
        return {"PhysicalResourceId": known or "health-gate"}
    if event["RequestType"] == "Update" and _rolling_back(event):
        return {"PhysicalResourceId": known, "RolledBack": True}
    spec = _spec(event["ResourceProperties"])
    return {"PhysicalResourceId": known or f"health-gate-{spec.environment}", "Started": int(time.time())}


def is_complete(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Prove once. Raises ``GateFailed`` when time cannot help, or enough of it has passed."""
    if event["RequestType"] == "Delete" or event.get("RolledBack"):
        return {"IsComplete": True}
    spec = _spec(event["ResourceProperties"])
    waited = time.time() - event["Started"]
    outside = clients(spec)
    report = _proven(event["ResourceProperties"], run(spec, outside, seconds=_seconds(spec, context)))
    if report.open and not report.settled(waited) and waited < spec.deadlines.wait_seconds:
        sinks.write(report, waited_seconds=round(waited))
        return {"IsComplete": False}
    address, _ = sinks.deliver(report, spec.reports, outside.aws)
    sinks.write(report, waited_seconds=round(waited), stored=address)
    if report.open:
        late = "" if report.settled(waited) else f"Not proven after {round(waited / 60)} minutes. "
        raise GateFailed(_reason(f"{late}{report.summary(REASON_BYTES, waited)} {address}".rstrip()))
    return {"IsComplete": True, "Data": {"Outcome": report.outcome.value, "Checks": str(len(report.results)), "Report": address}}


def canary(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Prove on a schedule. An alarm on the metric ``GateFailed`` tells; a failure does not raise, so that Lambda does not try again."""
    spec = _spec(event)
    outside = clients(spec)
    report = _proven(event, run(spec, outside, seconds=_seconds(spec, context)))
    address, lost = sinks.deliver(report, spec.reports, outside.aws)
    sinks.write(report, stored=address)
    return {"Outcome": report.outcome.value, "Summary": report.summary(REASON_BYTES), "Report": address, "Lost": lost}


def _proven(properties: Mapping[str, Any], report: Report) -> Report:
    """The report with the word for what it speaks of: a promotion compares it with what is to be deployed next."""
    return replace(report, digest=str(properties.get("Digest", "")))


def _rolling_back(event: Mapping[str, Any]) -> bool:
    """Whether CloudFormation takes a failed update back.

    It then sends the old properties as one more update. To prove those would fail as well, since the endpoints are still the
    new ones, and a rollback that fails leaves the stack in UPDATE_ROLLBACK_FAILED. Whoever cannot ask proves.
    """
    import botocore.session  # noqa: PLC0415 - half of a cold start, and not needed to answer a Delete

    try:
        client = botocore.session.get_session().create_client("cloudformation")
        (stack,) = client.describe_stacks(StackName=event["StackId"])["Stacks"]
    except Exception as error:
        logging.getLogger("health_gate").warning("The stack's state is not known (%s).", type(error).__name__)
        return False
    return bool(stack["StackStatus"] == "UPDATE_ROLLBACK_IN_PROGRESS")


def _reason(text: str) -> str:
    """A text that is at most ``REASON_BYTES`` long once it is written as JSON."""
    sizes = list(accumulate(len(json.dumps(each, ensure_ascii=False).encode("utf-8", "replace")) - 2 for each in text))
    if not sizes or sizes[-1] <= REASON_BYTES:
        return text
    return text[: bisect_right(sizes, REASON_BYTES - 3)] + "..."


def _seconds(spec: Spec, context: Context) -> float:
    return max(1.0, min(spec.deadlines.run_seconds, context.get_remaining_time_in_millis() / 1000 - _RESERVE_SECONDS))


def _spec(properties: Mapping[str, Any]) -> Spec:
    text, uri = (properties.get(name) for name in _PROPERTIES)
    if not isinstance(text, str) or not text:
        text = _stored(str(uri or ""))
    for name, value in (properties.get("Values") or {}).items():
        # Within a JSON string: an ARN or an id, but nobody should be able to end the string.
        text = text.replace(f"${{{name}}}", json.dumps(str(value))[1:-1])
    if left := _MARK.search(text):
        raise BadSpec(f"nobody says what stands for {left[0]}")
    return Spec.parse(text)


def _stored(uri: str) -> str:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket or not key:
        raise BadSpec("the properties need Spec (JSON text) or SpecUri (s3://bucket/key)")
    import botocore.session  # noqa: PLC0415 - half of a cold start, and not needed to answer a Delete

    body = botocore.session.get_session().create_client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    return str(body, "utf-8")
