"""``dpd promote``: whether a release may go from one environment to the next."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from commands.one import UnableError, clients, with_credentials

if TYPE_CHECKING:
    from aws_reads.session import Clients
    from dpd.finding import Finding
    from dpd.promotion.compare import Release

Value = TypeVar("Value")

_MINUTE: Final = 60
_REPORT_BYTES: Final = 50_000_000


@click.command(
    "promote",
    short_help="Say whether what passed in one environment may go to the next.",
    epilog="""\b
Examples:
  dpd promote --from dev --to staging                          # the report is read from dev's log bucket
  dpd promote --from staging --to prod --watch-minutes 60 --profile staging
  dpd promote --from dev --to staging --report report.json     # no AWS call

Exit codes: 0 it may, 1 refused, 3 could not look (no credentials, AWS does not answer).""",
)
@click.option("--from", "from_", required=True, metavar="ENV", help="Environment in which the release passed its health gate.")
@click.option("--to", required=True, metavar="ENV", help="Environment to which it shall go.")
@click.option(
    "--assembly", type=click.Path(path_type=Path), default=Path("cdk.out"), show_default=True, help="The release: folder of its assembly."
)
@click.option("--report", type=click.Path(path_type=Path), help="File of the health gate's report. Default: the newest in the log bucket.")
@click.option("--watch-minutes", type=click.IntRange(0, 1440), default=0, show_default=True, help="Watch the alarms first, this long.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the verdict as JSON too.")
@with_credentials
def command(
    *, from_: str, to: str, assembly: Path, report: Path | None, watch_minutes: int, json_file: Path | None, profile: str | None,
    role_arn: str | None,
) -> int:  # fmt: skip
    """Refuse unless the environment TO gets what passed the health gate in FROM: the same objects, images by their digests and
    model revision, apart from declared differences, with a report of that very release that says PASS and is young.
    """
    from commands import report as printed  # noqa: PLC0415
    from dpd.promotion.compare import differences, release  # noqa: PLC0415
    from dpd.promotion.proof import against  # noqa: PLC0415
    from dpd.review.assembly import NotAnAssemblyError, read  # noqa: PLC0415

    if from_ == to:
        raise click.UsageError("--from and --to name the same environment.")
    try:
        whole = read(assembly)
        before, after = release(whole, from_), release(whole, to)
    except NotAnAssemblyError as error:
        raise click.ClickException(f"{error}.") from None
    hours = int(after.facts["proof_hours"])
    found = differences(before, after)
    known = None if report and not watch_minutes else _clients(before, profile, role_arn)
    if known and watch_minutes:
        found += _watched(known, before, watch_minutes)
    if known:
        found += _recorded(known, before)
    place, proof = _stored(report) if report else _newest(known, before, hours)
    found += against(proof, before, now=datetime.now(UTC), hours=hours, place=place)
    placed = [each.at(f"{from_} -> {to}", 0) for each in found]
    refused = any(each.stops for each in placed)
    if placed:
        printed.details(placed, sys.stderr)
    if json_file:
        json_file.write_text(_as_json(before, after, place, placed, refused=refused), encoding="utf-8")
    click.echo(f"{'Refused' if refused else 'May go'}: {before.name} {before.digest[:12] or '(no gate)'} to {after.name}.", err=refused)
    return 1 if refused else 0


def _as_json(before: "Release", after: "Release", place: str, found: "list[Finding]", *, refused: bool) -> str:
    content = {
        "from": before.environment, "to": after.environment, "release": before.digest, "report": place, "refused": refused,
        "findings": [each.as_dict() for each in found],
    }  # fmt: skip
    return json.dumps(content, indent=2) + "\n"


def _stored(file: Path) -> tuple[str, Mapping[str, Any] | None]:
    from dpd.promotion.proof import as_report  # noqa: PLC0415

    try:
        with file.open("rb") as stream:
            return str(file), as_report(stream.read(_REPORT_BYTES))
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}.") from None


def _clients(before: "Release", profile: str | None, role_arn: str | None) -> "Clients":
    """Clients of the earlier environment's account. Raises ``UnableError`` when the credentials are of another."""
    known = clients(profile=profile, role_arn=role_arn, region=before.region)
    from aws_reads.session import CredentialsError, caller  # noqa: PLC0415

    try:
        account, _ = caller(known)
    except CredentialsError as error:
        raise UnableError(str(error)) from None
    if account != before.account:
        raise UnableError(f"The credentials are of account {account}; {before.environment} is in {before.account}. Name another --profile.")
    return known


def _newest(known: "Clients | None", before: "Release", hours: int) -> tuple[str, Mapping[str, Any] | None]:
    from aws_reads.release import newest_report  # noqa: PLC0415

    assert known is not None
    return _told(partial(newest_report, known, before.facts["reports"], now=datetime.now(UTC), hours=hours))


def _recorded(known: "Clients", before: "Release") -> "list[Finding]":
    """What the records of copied weights say of the revisions in the files."""
    from aws_reads.release import weights_record  # noqa: PLC0415
    from dpd.promotion.proof import against_record  # noqa: PLC0415

    kept = {endpoint: model for endpoint, model in before.models.items() if model["record"]}
    return [
        each
        for endpoint, model in kept.items()
        for each in against_record(endpoint, model["revision"], _told(partial(weights_record, known, **model["record"])))
    ]


def _told(ask: Callable[[], Value]) -> Value:
    from aws_reads.release import UnreadableError  # noqa: PLC0415

    try:
        return ask()
    except UnreadableError as error:
        raise UnableError(str(error)) from None


def _watched(known: "Clients", before: "Release", minutes: int) -> "list[Finding]":
    """Look every minute, and give up as soon as something is raised."""
    from aws_reads.release import alarm_states  # noqa: PLC0415
    from dpd.promotion.alarms import raised  # noqa: PLC0415

    prefix = before.facts["alarms"]
    for left in range(minutes, -1, -1):
        if found := raised(_told(partial(alarm_states, known, prefix)), prefix, last=left == 0):
            return found
        if left:
            time.sleep(_MINUTE)
    return []
