"""``dpd plan``: whether two roles pay for a traffic, with what layout, and what it costs."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands.calibrations import calibration_for
from commands.clock import with_today

if TYPE_CHECKING:
    from dpd.catalog.prices import PriceBook
    from dpd.environment.environment import Environment
    from dpd.environment.load import Loaded
    from dpd.finding import Finding
    from dpd.planning.calibration import Calibration
    from dpd.planning.candidate import Case
    from dpd.planning.plan import Plan, Progress
    from dpd.planning.sweep import Ask
    from dpd.sizing.cost import CostItem


class _Wrong(Exception):  # noqa: N818 - it carries what is said, it is not an error of this program
    """What the user wrote has no answer."""

    def __init__(self, *findings: "Finding") -> None:
        super().__init__()
        self.findings = list(findings)


@click.command(
    "plan",
    short_help="Say whether disaggregation helps, with what layout, and what it costs.",
    epilog="""\b
Examples:
  dpd plan environments/prod.yaml --traffic docs/traffic.yaml
  dpd plan environments/prod.yaml --endpoint llama-70b --traffic traffic.yaml --html plan.html
  dpd plan environments/prod.yaml --traffic trace.jsonl
  dpd plan environments/prod.yaml --traffic traffic.yaml --price ml.p5.48xlarge=63.30 --apply

The traffic file is explained in docs/planning.md. Exit code 1 says that no layout holds the objectives, or that the
question has no answer.""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--traffic", "traffic_file", required=True, type=click.Path(path_type=Path), help="A YAML file, or a trace (.jsonl).")
@click.option("--endpoint", help="The endpoint, when the file has several.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print.")
@click.option("--seed", type=click.IntRange(0, 2**31), default=0, show_default=True, help="Seed of the drawn requests.")
@click.option("--closed-form", is_flag=True, help="Do not simulate, though the simulator is installed.")
@click.option("--calibration", "calibration_file", type=click.Path(path_type=Path), help="Default: calibration/<environment>.yaml.")
@click.option("--price", "prices", multiple=True, metavar="NAME=USD", help="A price by the hour, such as ml.p5.48xlarge=63.30.")
@click.option("--refresh-prices", is_flag=True, help="Ask AWS for the prices of HyperPod nodes, and keep them in prices/<region>.yaml.")
@click.option("--profile", help="AWS profile for --refresh-prices.")
@click.option("--html", "html_file", type=click.Path(path_type=Path, dir_okay=False), help="Write a report (needs the extra pages).")
@click.option("--png", "png_folder", type=click.Path(path_type=Path, file_okay=False), help="Write its pictures (needs the extra pages).")
@click.option("--apply", "apply_", is_flag=True, help="Change the environment file to what the plan advises; comments stay.")
@with_today
def command(
    *, file: Path, traffic_file: Path, endpoint: str | None, form: str, seed: int, closed_form: bool, calibration_file: Path | None,
    prices: tuple[str, ...], refresh_prices: bool, profile: str | None, html_file: Path | None, png_folder: Path | None, apply_: bool,
    today: date,
) -> int:  # fmt: skip
    """Compare serving on colocated workers with prefillers and decoders, over the GPUs that the file has, for a traffic.

    Says what to do and why, what would change that, what the layout needs, what it costs, and how the file must change.
    Latencies are ranges: nothing here was measured on your nodes.
    """
    from commands import report  # noqa: PLC0415

    if (html_file or png_folder) and find_spec("matplotlib") is None:
        raise click.ClickException("matplotlib is not installed. Install it with: pip install 'hyperpod-dpd[pages]'")
    for place in (html_file and html_file.parent, png_folder, file.parent if apply_ else None):
        _may_write(place)
    try:
        loaded, environment = _environment(file)
        if refresh_prices:
            _refresh(environment, profile=profile, today=today)
        book = _book(environment, prices, today=today)
        calibration = calibration_for(environment, calibration_file)
        plan = _plan(loaded, environment, traffic_file, endpoint, seed, book, calibration, simulate=not closed_form)
    except _Wrong as wrong:
        report.write(wrong.findings, files=1, stream=sys.stderr)
        return 1
    return _say(plan, loaded, environment, book, form=form, html_file=html_file, png_folder=png_folder, apply_=apply_, today=today)


def _may_write(folder: Path | None) -> None:
    """Refuse, before anything is computed, a folder in which nothing can be written."""
    if folder is None:
        return
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise click.ClickException(f"Nothing can be written below {there}: it is {'read-only' if there.is_dir() else 'no folder'}.")


def _environment(file: Path) -> "tuple[Loaded, Environment]":
    from dpd.environment.load import load  # noqa: PLC0415

    loaded = load(file)
    if loaded.environment is None:
        raise _Wrong(*loaded.findings)
    return loaded, loaded.environment


def _refresh(environment: "Environment", *, profile: str | None, today: date) -> None:
    from commands import prices  # noqa: PLC0415
    from commands.files import write_whole  # noqa: PLC0415

    types = [group.instance_type for group in environment.cluster.groups.values()]
    try:
        text = prices.refreshed(environment.region, types, profile=profile, today=today)
    except prices.PricesError as error:
        raise click.ClickException(f"Prices were not refreshed: {error}.") from None
    path = prices.path_of(environment.region)
    write_whole(path, text)
    click.echo(f"Prices of {today} are in {path}.", err=True)


def _book(environment: "Environment", said: tuple[str, ...], *, today: date) -> "PriceBook":
    from commands.prices import book  # noqa: PLC0415
    from dpd.catalog.prices import PriceBook  # noqa: PLC0415

    try:
        return PriceBook(book(environment.region, said, today=today))
    except ValueError as error:
        raise click.ClickException(f"{error}.") from None


def _plan(
    loaded: "Loaded", environment: "Environment", traffic_file: Path, name: str | None, seed: int, book: "PriceBook",
    calibration: "Calibration", *, simulate: bool,
) -> "Plan":  # fmt: skip
    """Raises ``_Wrong`` with everything that is wrong."""
    from dpd.catalog import gpus  # noqa: PLC0415
    from dpd.environment.faults import BROKEN_TRACE, UNANSWERABLE  # noqa: PLC0415
    from dpd.planning.case import CaseError, case_of, endpoint_of  # noqa: PLC0415
    from dpd.planning.plan import impossible, make  # noqa: PLC0415
    from dpd.planning.requests import TraceError  # noqa: PLC0415
    from dpd.planning.traffic import load_traffic  # noqa: PLC0415

    traffic, findings = load_traffic(traffic_file)
    if traffic is None:
        raise _Wrong(*findings)
    place = str(traffic_file)
    try:
        index, endpoint = endpoint_of(environment, name)
        case, source = case_of(environment, endpoint, traffic, seed=seed, folder=traffic_file.parent)
    except CaseError as error:
        raise _Wrong(loaded.placed(UNANSWERABLE.finding(error.path, str(error), error.fix))) from None
    except TraceError as error:
        first = error.lines[0] if error.lines else 0
        path = f"{traffic_file.parent / traffic.trace.file}" if traffic.trace else place
        raise _Wrong(BROKEN_TRACE.finding("trace.file", str(error), error.fix).at(path, first)) from None
    if why := impossible(case, calibration):
        fix = "loosen the objective, shorten the prompts, or use faster GPUs; more of the same do not help"
        raise _Wrong(UNANSWERABLE.finding("objectives", why, fix).at(place, 0))
    ask, notes = _engine(case, calibration, simulate=simulate)
    if elsewhere := calibration.strange(environment.name, endpoint.name):
        notes = (elsewhere, *notes)
    with _progress() as progress:
        try:
            return make(
                environment, index, case, source=source, ask=ask, calibration=calibration, prices=book, progress=progress, notes=notes
            )
        except ValueError as error:
            fix = f"take nodes with more or larger GPUs, or a smaller model; speeds are known of {', '.join(gpus.names())}"
            raise _Wrong(loaded.placed(UNANSWERABLE.finding("cluster.groups", str(error), fix))) from None


def _engine(case: "Case", calibration: "Calibration", *, simulate: bool) -> "tuple[Ask | None, tuple[str, ...]]":
    """The simulator where it is installed and knows the GPU, else nothing, with the reason."""
    if not simulate:
        return None, ("closed form only, as you asked: queues are computed, an engine's scheduling is not",)
    from dpd.planning.known_models import missing  # noqa: PLC0415

    if why := missing(case):
        return None, (f"closed form only: {why}",)
    from dpd.planning.simulation import simulated  # noqa: PLC0415

    return simulated(calibration), ()


@contextmanager
def _progress() -> "Iterator[Progress]":
    """A bar on a terminal that is worth one; nothing elsewhere."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _what, _done, _of: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def advance(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(f"Trying {what}", total=of)
            bar.update(tasks[what], completed=done)

        yield advance


def _say(
    plan: "Plan", loaded: "Loaded", environment: "Environment", book: "PriceBook", *, form: str, html_file: Path | None,
    png_folder: Path | None, apply_: bool, today: date,
) -> int:  # fmt: skip
    from commands import plan_words, report  # noqa: PLC0415
    from commands.files import write_whole  # noqa: PLC0415
    from dpd.environment.yaml_edit import EditError  # noqa: PLC0415
    from dpd.planning.verdict import Decision  # noqa: PLC0415
    from dpd.sizing.cost import at_rest  # noqa: PLC0415

    path = Path(loaded.file)
    with path.open(encoding="utf-8", newline="") as stream:
        before = stream.read()
    refused = ""
    try:
        after = plan_words.patched(plan, before)
    except EditError as error:
        after, refused = before, str(error)
    diff = plan_words.diff_of(before, after, loaded.file)
    items = at_rest(environment, book)
    files = _pages(plan, items, diff, html_file, png_folder, today=today) if html_file or png_folder else {}
    if form == "json":
        click.echo(json.dumps(plan_words.as_dict(plan, items=items, diff=diff), indent=2, ensure_ascii=False))
    else:
        report.show(list(plan_words.lines(plan, items=items, diff=diff)), sys.stdout)
    for place, content in files.items():
        write_whole(place, content)
        click.echo(f"Written: {place}", err=True)
    if refused:
        click.echo(f"The file cannot be edited: {refused}.", err=True)
    code = 1 if plan.verdict.decision is Decision.NONE else 0
    return max(code, _apply(plan, path, before, after, refused=refused, today=today)) if apply_ else code


def _pages(
    plan: "Plan", items: "Sequence[CostItem]", diff: str, html_file: Path | None, png_folder: Path | None, *, today: date
) -> dict[Path, str | bytes]:
    """What is to be written. Everything is drawn before anything is written."""
    from commands import plan_words as words  # noqa: PLC0415
    from pages.build import page_of  # noqa: PLC0415

    needs = words.needs(plan) if plan.sizing else ()
    page = page_of(
        plan, facts=words.facts(plan), needs=needs, costs=words.costs(plan, items), trust=words.trust(plan), diff=diff, today=today
    )
    files: dict[Path, str | bytes] = {html_file: page.html()} if html_file else {}
    return files | {png_folder / name: content for name, content in page.pngs().items()} if png_folder else files


def _apply(plan: "Plan", path: Path, before: str, after: str, *, refused: str, today: date) -> int:
    """Write the patched file, unless the advice is another one or the result has errors that the file had not."""
    from commands import report  # noqa: PLC0415
    from commands.edits import new_errors  # noqa: PLC0415
    from commands.files import write_whole  # noqa: PLC0415
    from dpd.planning.plan import advises_roles  # noqa: PLC0415

    if not advises_roles(plan):
        click.echo(f"Nothing was applied: the advice is: {plan.verdict.decision}.", err=True)
        return 1
    if refused:
        click.echo("Nothing was applied.", err=True)
        return 1
    if after == before:
        click.echo("Nothing to apply: the file asks for this layout already.", err=True)
        return 0

    new = new_errors(path, before, after, today=today)
    if new:
        report.write(new, files=1, stream=sys.stderr)
        click.echo("Nothing was applied: the file would have these errors. Change them by hand, with the edits above.", err=True)
        return 1
    write_whole(path, after)
    click.echo(f"Applied to {path}. Read it with git diff, then: dpd check {path}", err=True)
    return 0
