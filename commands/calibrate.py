"""``dpd calibrate``: what was measured narrows what is planned."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands.clock import with_today
from commands.files import shipped

if TYPE_CHECKING:
    from dpd.environment.environment import Environment
    from dpd.planning.calibration import Calibration
    from dpd.planning.candidate import Candidate, Case
    from dpd.planning.results import Measured, Result


@click.command(
    "calibrate",
    short_help="Fit the planner to what was measured.",
    epilog="""\b
Examples:
  vllm bench serve … --save-result && dpd calibrate results.json
  dpd calibrate short.json long.json --environment environments/prod.yaml --endpoint llama-70b
  dpd doctor -e prod --json gate.json && dpd calibrate gate.json

Results of vllm bench serve (--save-result), aiperf (profile_export_aiperf.json), guidellm (benchmarks.json) and reports
of the health gate are read. Two runs with prompts of different lengths tell prefill from hand-over.""",
)
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--environment", "file", type=click.Path(path_type=Path), help="The environment that was measured. Default: the only file.")
@click.option("--endpoint", help="The endpoint, when the file has several.")
@click.option("--show", is_flag=True, help="Say what would be stored, and store nothing.")
@with_today
def command(*, results: tuple[Path, ...], file: Path | None, endpoint: str | None, show: bool, today: date) -> int:
    """Fit speed factors, hand-over overhead and link efficiency to measured RESULTS of an endpoint.

    What is found is stored in calibration/<environment>.yaml, with its date and source; dpd plan uses it, and its ranges get narrower.
    """
    from commands.files import write_whole  # noqa: PLC0415
    from dpd.planning.calibration import dumped, path_of  # noqa: PLC0415

    environment = _environment(file)
    measured = [(path, one) for path in results for one in _read(path)]
    calibration, notes = _fitted(environment, endpoint, measured, today)
    text = dumped(calibration)
    click.echo(text, nl=False)
    for note in notes:
        click.echo(f"Note: {note}", err=True)
    if not show:
        write_whole(path_of(environment.name), text)
        click.echo(f"Stored in {path_of(environment.name)}.", err=True)
    return 0


def _environment(file: Path | None) -> "Environment":
    from dpd.environment.load import load  # noqa: PLC0415

    files = [file] if file else shipped()
    if len(files) != 1:
        said = ", ".join(map(str, files)) or "none"
        raise click.ClickException(f"Which environment was measured? Name its file with --environment (there are: {said}).")
    loaded = load(files[0])
    if loaded.environment is None:
        raise click.ClickException(f"{loaded.file} cannot be used; see: dpd check {loaded.file}")
    return loaded.environment


def _read(path: Path) -> "list[Measured]":
    from dpd.planning.results import ResultError, read  # noqa: PLC0415

    try:
        return read(path)
    except ResultError as error:
        raise click.ClickException(f"{error}.") from None


def _fitted(
    environment: "Environment", name: str | None, measured: "Sequence[tuple[Path, Measured]]", today: date
) -> "tuple[Calibration, tuple[str, ...]]":
    from dpd.planning.calibration import CalibrationError, load, path_of  # noqa: PLC0415
    from dpd.planning.case import CaseError  # noqa: PLC0415
    from dpd.planning.closed_form import NoEstimateError  # noqa: PLC0415
    from dpd.planning.fit import FitError, fit  # noqa: PLC0415
    from dpd.planning.results import Result, Transfer  # noqa: PLC0415

    runs = [one for _, one in measured if isinstance(one, Result)]
    try:
        candidate, case, endpoint = _question(environment, name, runs)
        transfers = [one for _, one in measured if isinstance(one, Transfer) and one.endpoint.rpartition("/")[2] in ("", endpoint)]
        if not runs and not transfers:
            raise click.ClickException(f"The reports say nothing of {endpoint}'s hand-overs (check kv.throughput).")
        known = load(path_of(environment.name))
        found = fit(candidate, case, runs, transfers, start=known)
    except (CaseError, FitError, NoEstimateError, CalibrationError) as error:
        raise click.ClickException(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
    days = sorted(one.day for _, one in measured if one.day)
    tools = {path.name: one.tool if isinstance(one, Result) else "health gate" for path, one in measured}
    sources = [f"{path} ({tool})" for path, tool in tools.items()]
    if not runs and known.source:  # a report of the gate leaves the speeds, and where they come from
        sources = list(dict.fromkeys([*known.source.split(", "), *sources]))
    return found.calibration.model_copy(
        update={
            "environment": environment.name,
            "endpoint": endpoint,
            "date": days[-1] if days else today.isoformat(),
            "source": ", ".join(sources),
            "requests": sum(run.requests for run in runs) or found.calibration.requests,
        }
    ), found.notes


def _question(environment: "Environment", name: str | None, runs: "Sequence[Result]") -> "tuple[Candidate, Case, str]":
    """The layout of the file, and its machines under a traffic of the measured lengths."""
    from dpd.planning.case import CaseError, case_of, endpoint_of, of_file  # noqa: PLC0415
    from dpd.planning.traffic import Traffic  # noqa: PLC0415

    _, endpoint = endpoint_of(environment, name)
    longest = max(((round(run.input_tokens), round(run.output_tokens)) for run in runs), default=(1024, 128))
    most = endpoint.model.max_model_len
    if runs and (long := max(run.input_tokens + run.output_tokens for run in runs)) > most:
        raise CaseError(
            "model.max_model_len", f"a run has {long:,.0f} tokens a request, {endpoint.name} takes {most:,}: the results are not of it", ""
        )
    content = {
        "version": 1,
        "arrival": {"rate_per_second": 1.0},
        "input_tokens": {"fixed": max(1, longest[0])},
        "output_tokens": {"fixed": max(1, longest[1])},
        "requests": 50,
    }
    case, _ = case_of(environment, endpoint, Traffic.model_validate(content))
    return of_file(endpoint), case, endpoint.name
