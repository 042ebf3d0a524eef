"""``dpd rehearse``: run an endpoint's synthesized prefiller, decoder and router for real on this machine's CPU."""

import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from commands.clock import with_today

if TYPE_CHECKING:
    from dpd.environment.endpoint import Endpoint
    from dpd.environment.environment import Environment

FAULT: Final = 3
_GATE: Final = Path(__file__).parents[1] / "lambda"
"""Where the gate is in a checkout; an installed package has it beside this one."""


class _UnableError(click.ClickException):
    """Nothing could be rehearsed: the fault is not the environment's."""

    exit_code = FAULT


@click.command(
    "rehearse",
    short_help="Run an endpoint on this machine's CPU, before any GPU is paid for.",
    epilog="""\b
Examples:
  dpd rehearse environments/dev.yaml
  dpd rehearse docs/example-llm-d.yaml --endpoint llama-70b --no-faults -o rehearsal

Exit codes: 0 all as it must be, 1 not, 3 it could not be held here (memory, disk, ports, packages).""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--endpoint", "wanted", help="This endpoint. Default: every one of the file.")
@click.option("--prefillers", type=click.IntRange(1, 8), default=1, show_default=True, help="Prefillers, each with a core of its own.")
@click.option("--decoders", type=click.IntRange(1, 8), default=1, show_default=True, help="Decoders, each with a core of its own.")
@click.option("--faults/--no-faults", default=True, show_default=True, help="Break things on purpose, and see that the gate finds them.")
@click.option("--benchmark/--no-benchmark", default=True, show_default=True, help="Measure what the hand-over costs.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("build/rehearsal"),
    show_default=True,
    help="Folder for reports and logs.",
)
@with_today
def command(
    *, file: Path, wanted: str | None, prefillers: int, decoders: int, faults: bool, benchmark: bool, output: Path, today: date,
) -> int:  # fmt: skip
    """Start the prefiller and the decoder of an endpoint as its manifests say, with a tiny model, and let the health gate judge.

    KV moves for real, over NIXL and TCP. What a CPU forces is substituted, from one list that is printed. The engines are
    installed into your cache the first time (about 4 GB, a few minutes). Needs Linux, two cores and 8 GB of memory.
    """
    environment = _environment(file, today)
    if environment is None:
        return 1
    if str(_GATE) not in sys.path and _GATE.is_dir():
        sys.path.insert(0, str(_GATE))
    endpoints = [each for each in environment.endpoints if wanted in (None, each.name)]
    if not endpoints:
        known = ", ".join(each.name for each in environment.endpoints) or "none"
        raise click.ClickException(f"There is no endpoint {str(wanted)[:60]!r}. There are: {known}.")
    wrong = False
    for endpoint in endpoints:
        options = {"prefillers": prefillers, "decoders": decoders}
        wrong |= _one(environment, endpoint, options, output / environment.name / endpoint.name, faults=faults, benchmark=benchmark)
    return int(wrong)


def _one(environment: "Environment", endpoint: "Endpoint", options: dict[str, Any], folder: Path, *, faults: bool, benchmark: bool) -> bool:
    from rehearsal import report  # noqa: PLC0415
    from rehearsal.faults import FAULTS  # noqa: PLC0415
    from rehearsal.install import engines  # noqa: PLC0415
    from rehearsal.run import rehearse, script  # noqa: PLC0415
    from rehearsal.say import Broken, Timed, Unable  # noqa: PLC0415

    say = Timed(click.echo)
    try:
        plan, seen = script(environment, endpoint, _objects(environment, endpoint), **options)
        installed = engines(say, lmcache=plan.handover == "lmcache")
        result = rehearse(
            plan, seen, endpoint, installed, folder.absolute(), say,
            environment=environment.name, faults=FAULTS if faults else (), benchmark=benchmark,
        )  # fmt: skip
    except (Unable, Broken) as error:
        raise _UnableError(str(error)) from None
    written = report.write(result, folder)
    click.echo(report.summary(result))
    click.echo(f"Report: {', '.join(map(str, written))}; logs: {folder / 'logs'}")
    return bool(result.wrong)


def _environment(file: Path, today: date) -> "Environment | None":
    from commands import report  # noqa: PLC0415
    from dpd.checks.files import examine  # noqa: PLC0415
    from dpd.checks.registry import Context  # noqa: PLC0415

    examined = examine([file], Context(today=today))
    if examined.stops:
        report.write([finding for finding in examined.findings if finding.stops], files=1, stream=sys.stderr)
        return None
    (environment,) = examined.environments
    return environment


def _objects(environment: "Environment", endpoint: "Endpoint") -> list[dict[str, Any]]:
    """The endpoint's manifests, as ``dpd render`` writes them."""
    from commands.render import import_charts  # noqa: PLC0415

    import_charts()
    from charts.render import render_endpoint  # noqa: PLC0415
    from dpd.backends.site import Site  # noqa: PLC0415

    return [manifest.body for manifest in render_endpoint(endpoint, Site.of(environment))]
