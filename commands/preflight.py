"""``dpd preflight``: ask the account, before anything is billed."""

import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from commands.clock import with_today
from commands.files import write_whole
from commands.one import FAULT, UnableError, clients, one_file, with_credentials, with_environment

if TYPE_CHECKING:
    from aws_reads.session import Clients
    from dpd.environment.environment import Environment
    from dpd.preflight.facts import Facts

_FAMILY: Final = "PRE"


@click.command(
    "preflight",
    short_help="Ask the account whether an environment can be deployed.",
    epilog="""\b
Examples:
  dpd preflight -c env=dev
  dpd preflight -e prod --profile prod-reader
  dpd preflight environments/prod.yaml --role-arn arn:aws:iam::111122223333:role/preflight

Exit codes: 0 nothing stops, 1 findings that stop, 3 AWS did not answer everything (no credentials, denied, throttled).""",
)
@with_environment
@with_credentials
@click.option("--json", "as_json", is_flag=True, help="Print the findings as `dpd check --json` does.")
@with_today
def command(*, file: Path | None, name: str | None, profile: str | None, role_arn: str | None, as_json: bool, today: date) -> int:
    """Read quotas, capacity, weights, keys, versions and permissions, and say what a deployment would miss.

    Nothing is changed. The answers go to preflight/<environment>.json, without secrets, and `dpd check` and every synthesis
    read them from there.
    """
    from commands import report  # noqa: PLC0415
    from dpd.checks.files import examine  # noqa: PLC0415
    from dpd.checks.registry import Context  # noqa: PLC0415
    from dpd.environment.load import load  # noqa: PLC0415
    from dpd.preflight import store  # noqa: PLC0415

    path = one_file(file, name)
    loaded = load(path)
    if loaded.environment is None:
        report.write(loaded.findings, files=1, stream=sys.stderr)
        return 1
    facts = _asked(loaded.environment, clients(profile=profile, role_arn=role_arn, region=loaded.environment.region))
    if (known := facts.answers.caller.get("")) and known.account == loaded.environment.account:
        write_whole(store.path_for(path), facts.text())
        context = Context(today=today)
    else:
        # What another account says must not lie there as if it were the environment's.
        context = Context(today=today, preflight=store.Reading(str(store.path_for(path)), facts))
    examined = examine([path], context)
    found = [finding for finding in examined.findings if finding.id.startswith(_FAMILY)]
    stops = any(finding.stops for finding in found)
    if as_json:
        click.echo(report.as_json(found, environments=[(loaded.file, loaded.environment.name)], today=today.isoformat(), ok=not stops))
    else:
        report.write(found, files=1, stream=sys.stdout)
    if besides := sum(finding.stops for finding in examined.findings) - sum(finding.stops for finding in found):
        click.echo(f"Besides, the file itself is wrong in {report.plural(besides, 'place')}: dpd check {path}", err=True)
    return 1 if stops else FAULT if any(one.reason != "no_call" for one in facts.unanswered) else 0


def _asked(environment: "Environment", known: "Clients") -> "Facts":
    """The answers; of a caller in another account only who it is."""
    from aws_reads.gather import gather  # noqa: PLC0415
    from aws_reads.session import CredentialsError, caller  # noqa: PLC0415
    from dpd.preflight.facts import Answers, Caller, Facts  # noqa: PLC0415

    now = datetime.now(UTC)
    try:
        account, arn = known.once("caller", lambda: caller(known))
        if account == environment.account:
            return gather(environment, known, now, told=lambda said: click.echo(f"Asked account {account}: {said}.", err=True))
    except CredentialsError as error:
        raise UnableError(str(error)) from None
    return Facts(
        version=1,
        environment=environment.name,
        account=environment.account,
        region=environment.region,
        taken_at=now.replace(microsecond=0),
        answers=Answers(caller={"": Caller(account=account, arn=arn)}),
    )
