"""What a report of the health gate proves, and for how long."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from dpd.finding import Finding
from dpd.promotion.compare import Release
from dpd.promotion.faults import NO_REPORT, NOT_PASSED, OTHER_MODEL, OTHER_RELEASE, STALE


def as_report(body: bytes) -> dict[str, Any]:
    """A report as a mapping; empty when it is none, which no check takes for a proof."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def against(report: Mapping[str, Any] | None, of: Release, *, now: datetime, hours: int, place: str) -> list[Finding]:
    """What stands against a report as the proof of a release. ``place`` is where it was looked for; ``None`` is no report."""
    if report is None:
        return [
            NO_REPORT.finding(place, f"there is no report of the health gate in {of.environment} of the last {hours} hours",
                              f"deploy {of.environment} and wait for its gate, or name the file with --report", limit=f"{hours} hours")
        ]  # fmt: skip
    started, outcome = report.get("started"), report.get("outcome")
    if not isinstance(started, int | float) or isinstance(started, bool) or not isinstance(outcome, str):
        return [NO_REPORT.finding(place, "is not a report of the health gate", "name what the gate stored in the log bucket")]
    found = [*_passed(report, outcome, place), *_young(float(started), now, hours, place)]
    if report.get("digest") != of.digest or not of.digest or report.get("environment") != of.name:
        found.append(
            OTHER_RELEASE.finding(
                place, f"speaks of another release than {of.environment} of this assembly",
                f"deploy this assembly to {of.environment} first; dpd doctor's own reports and those of older gates name no release",
                value=f"{report.get('environment', '')} {str(report.get('digest', ''))[:12]}".strip() or "(nothing)",
                limit=f"{of.name} {of.digest[:12]}",
            )
        )  # fmt: skip
    return found


def _passed(report: Mapping[str, Any], outcome: str, place: str) -> list[Finding]:
    counts = report.get("counts")
    others = [name for name, count in counts.items() if name != "PASS" and count] if isinstance(counts, dict) else ["no counts"]
    passed = counts.get("PASS", 0) if isinstance(counts, dict) else 0
    if outcome == "PASS" and not others and passed:
        return []
    causes = report.get("causes")
    first = f": {causes[0]}" if isinstance(causes, list) and causes else ""
    return [NOT_PASSED.finding(place, f"the newest report does not say PASS{first}", "cure the first cause, then let the gate run again",
                               value=outcome, limit="PASS")]  # fmt: skip


def _young(started: float, now: datetime, hours: int, place: str) -> list[Finding]:
    try:
        age = now - datetime.fromtimestamp(started, UTC)
    except (OverflowError, OSError, ValueError):
        return [STALE.finding(place, "its time is none", "let the gate run again", value=started)]
    if timedelta(minutes=-5) <= age <= timedelta(hours=hours):
        return []
    what = "is of the future" if age < timedelta() else f"is {age.total_seconds() / 3600:,.0f} hours old"
    return [STALE.finding(place, what, "let the gate run again, or allow more with promotion.proof_hours", limit=f"{hours} hours")]


def against_record(endpoint: str, revision: str | None, record: Mapping[str, Any] | None) -> list[Finding]:
    """What the record of a copy of weights (``dpd stage-model``) says against the revision in the file. No record says nothing."""
    if record is None:
        return []
    place = f"{endpoint} model.revision"
    if record.get("complete") is not True:
        return [OTHER_MODEL.finding(place, "the copy of its weights is not complete, by its own record", "run dpd stage-model again")]
    source = str(record.get("source", ""))
    commit = source.rpartition("@")[2] if source.startswith("hub:") else None
    if commit in (None, revision):
        return []
    fix = "write that commit to model.revision, or copy the other weights"
    return [OTHER_MODEL.finding(place, "is not the commit that was copied", fix, value=revision or "(unknown)", limit=commit)]
