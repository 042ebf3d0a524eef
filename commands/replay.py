"""``dpd replay``: rehearse a scaling policy on a day of traffic, beside a fixed ratio and KEDA's defaults."""

import json
import re
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands.calibrations import calibration_for
from commands.clock import with_today

if TYPE_CHECKING:
    from dpd.environment.environment import Environment
    from dpd.scaling.compare import Replay

_PODS = re.compile(r"([1-9][0-9]{0,3}):([1-9][0-9]{0,3})")


def _ceilings(_context: click.Context, _parameter: click.Parameter, given: str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    found = _PODS.fullmatch(given)
    if found is None:
        raise click.BadParameter(f"{given[:40]!r} is not PREFILLERS:DECODERS, such as 6:3")
    return int(found[1]), int(found[2])


@click.command(
    "replay",
    short_help="Rehearse how the roles scale over a day of traffic.",
    epilog="""\b
Examples:
  dpd replay environments/prod.yaml
  dpd replay environments/prod.yaml --endpoint llama-70b --ceilings 6:3 --html replay.html
  dpd replay environments/prod.yaml --peak-rate 12 --input-tokens 8000 --format json

The day has a ramp, a burst, hours of shared prefixes and a wave of long contexts. How it is
computed, and what it leaves out, is in docs/scaling.md.""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--endpoint", help="The endpoint, when the file has several.")
@click.option(
    "--ceilings",
    callback=_ceilings,
    metavar="P:D",
    help="Most prefillers and decoders. Default: the file's max_replicas, or what its nodes hold.",
)
@click.option(
    "--peak-rate",
    type=click.FloatRange(0, 1e5, min_open=True),
    help="Requests a second in the burst. Default: 90 % of what the ceilings bear.",
)
@click.option(
    "--input-tokens", type=click.IntRange(16, 10_000_000), default=4000, show_default=True, help="Median prompt of ordinary requests."
)
@click.option("--output-tokens", type=click.IntRange(1, 1_000_000), default=300, show_default=True, help="Mean answer.")
@click.option(
    "--start-seconds", type=click.FloatRange(0, 14_400), help="From the decision until a pod is ready. Default: the pod's start-up budget."
)
@click.option("--seed", type=click.IntRange(0, 2**31), default=0, show_default=True, help="Seed of the minutes' noise.")
@click.option("--calibration", "calibration_file", type=click.Path(path_type=Path), help="Default: calibration/<environment>.yaml.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print.")
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write a report with pictures (needs the extra pages).")
@click.option("--png", "png_folder", type=click.Path(path_type=Path), help="Write the pictures into a folder (needs the extra pages).")
@with_today
def command(
    *, file: Path, endpoint: str | None, ceilings: tuple[int, int] | None, peak_rate: float | None, input_tokens: int, output_tokens: int,
    start_seconds: float | None, seed: int, calibration_file: Path | None, form: str, html_file: Path | None, png_folder: Path | None,
    today: date,
) -> int:  # fmt: skip
    """Live a day four times: with the token policy, with KEDA's defaults, and with pods that stay as they are.

    Says what share of the requests is within the objectives and how many GPU-hours the pods take, side by side. Nothing is asked of a
    cluster, and nothing is measured: token velocities are estimates unless the file or a calibration says better.
    """
    from commands import replay_words as words  # noqa: PLC0415
    from commands import report  # noqa: PLC0415
    from commands.files import write_whole  # noqa: PLC0415
    from dpd.environment.faults import UNANSWERABLE  # noqa: PLC0415
    from dpd.environment.load import load  # noqa: PLC0415
    from dpd.planning.case import CaseError, endpoint_of  # noqa: PLC0415
    from dpd.scaling.question import Ask, ReplayError, replay_of  # noqa: PLC0415

    loaded = load(file)
    if loaded.environment is None:
        report.write(loaded.findings, files=1, stream=sys.stderr)
        return 1
    measured = calibration_for(loaded.environment, calibration_file)
    ask = Ask(
        input_tokens, output_tokens, peak_rate, ceilings, start_seconds, measured.prefill_speed, measured.decode_speed,
        measured.link_efficiency, measured.handover_overhead_ms / 1e3, seed,
    )  # fmt: skip
    try:
        index, _ = endpoint_of(loaded.environment, endpoint)
        replay = replay_of(loaded.environment, index, ask)
    except (CaseError, ReplayError) as error:
        report.write([loaded.placed(UNANSWERABLE.finding(error.path, str(error), error.fix))], files=1, stream=sys.stderr)
        return 1
    files = _pages(loaded.environment, index, replay, html_file, png_folder, today=today) if html_file or png_folder else {}
    if form == "json":
        click.echo(json.dumps(words.as_dict(replay), indent=2, ensure_ascii=False))
    else:
        report.show(list(words.lines(replay)), sys.stdout)
    for place, content in files.items():
        write_whole(place, content)
        click.echo(f"Written: {place}", err=True)
    return 0


def _pages(
    environment: "Environment", index: int, replay: "Replay", html_file: Path | None, png_folder: Path | None, *, today: date
) -> dict[Path, str | bytes]:
    """What is to be written. Everything is drawn before anything is written."""
    from commands import replay_words as words  # noqa: PLC0415

    try:
        from pages.replay import page, pngs  # noqa: PLC0415
    except ImportError as error:
        raise click.ClickException(f"{error.name} is not installed. Install it with: pip install 'hyperpod-dpd[pages]'") from None
    title = f"A day of {environment.endpoints[index].name} in {environment.name}"
    files: dict[Path, str | bytes] = {}
    if html_file:
        files[html_file] = page(
            replay, title=title, lead=f"{words.lead(replay)}.", verdict=f"{words.verdict(replay)}.", notes=words.notes(replay),
            rows=words.rows(replay), today=today,
        )  # fmt: skip
    return files | {png_folder / name: content for name, content in pngs(replay).items()} if png_folder else files
