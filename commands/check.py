"""``dpd check``: say everything that is wrong with environment files."""

import sys
from datetime import date
from pathlib import Path

import click

from commands.clock import with_today
from commands.files import chosen


@click.command(
    "check",
    short_help="Say everything that is wrong with environment files.",
    epilog="""\b
Examples:
  dpd check
  dpd check environments/dev.yaml --strict
  dpd check --json | jq '.findings[] | select(.level == "error")'""",
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable report (docs/check-report.schema.json).")
@click.option("--strict", is_flag=True, help="Warnings fail as well, unless the file acknowledges them.")
@with_today
def command(*, files: tuple[Path, ...], as_json: bool, strict: bool, today: date) -> int:
    """Check environment files (by default environments/*.yaml) and exit with 1 when an error is left.

    All findings of all files are shown at once. Nothing is contacted: no AWS account, no cluster, no network.
    """
    from commands import report  # noqa: PLC0415
    from dpd.checks.files import examine  # noqa: PLC0415
    from dpd.checks.registry import Context  # noqa: PLC0415
    from dpd.finding import Level  # noqa: PLC0415

    context = Context(today=today)
    examined = examine(chosen(files), context)
    warned = any(finding.level is Level.WARNING and not finding.acknowledged for finding in examined.findings)
    ok = not (examined.stops or (strict and warned))
    if as_json:
        environments = [(loaded.file, loaded.environment.name if loaded.environment else "") for loaded in examined.files]
        click.echo(report.as_json(examined.findings, environments=environments, today=context.today.isoformat(), ok=ok))
    else:
        report.write(examined.findings, files=len(examined.files), stream=sys.stdout)
    return 0 if ok else 1
