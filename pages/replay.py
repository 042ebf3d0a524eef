"""The report of a replayed day: one HTML file that needs nothing else, and its pictures as PNG."""

from collections.abc import Sequence
from datetime import date
from html import escape
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from dpd.scaling.compare import Replay
from dpd.scaling.day import HOUR, Phase
from dpd.scaling.replay import Moment, Played
from pages.figures import Picture, Style, dress, legend, log_milliseconds
from pages.html import document, folded, table

_CSS: Final = Path(__file__).with_name("page.css")
_COLOURS: Final = ("b", "a", "d", "f")
_DASHES: Final[tuple[object, ...]] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (8, 2, 1, 2)))
_MINUTES: Final = 5
"""Of one point in a picture."""
_HOURS: Final = range(0, 25, 4)
_MOST_MS, _LEAST_MS = 600_000.0, 100.0


def page(replay: Replay, *, title: str, lead: str, verdict: str, notes: Sequence[str], rows: Sequence[Sequence[str]], today: date) -> str:
    """The page. ``rows`` are the arms, as the terminal's table has them, head first."""
    head, *arms = rows
    figures = "".join(
        f"<figure>{picture.svg()}<figcaption>{escape(picture.says)}</figcaption>"
        f"{folded('Numbers', table(picture.columns, [list(map(escape, row)) for row in picture.rows], label=picture.title))}</figure>"
        for picture in pictures(replay)
    )
    body = (
        f'<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p></header><main>',
        f'<section class="verdict no"><h2>{escape(verdict)}</h2></section>',
        f'<h2>Side by side</h2><div class="card">{table(head, [list(map(escape, row)) for row in arms], label="Arms", chosen=0)}</div>',
        f'<h2>The day</h2><div class="figures">{figures}</div>',
        f'<h2>What each phase asks of the roles</h2><div class="card">{_matched(replay)}</div>',
        f'<h2>How far to trust this</h2><div class="card"><ul>{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul></div></main>',
        f"<footer>Written by dpd replay on {today.isoformat()}. It compares policies; no latency in it is a promise.</footer>",
    )
    return document(title, styles=(_CSS,), body=body)


def pngs(replay: Replay) -> dict[str, bytes]:
    """The pictures by file name."""
    return {f"replay-{picture.name}.png": picture.png() for picture in pictures(replay)}


def _matched(replay: Replay) -> str:
    rows = [
        [
            escape(one.phase.name), _clock(one.phase), f"{one.phase.mean_rate:.2f}", f"{one.phase.input_tokens:,.0f}",
            f"{one.phase.cached_share:.0%}", f"{one.prefillers:.2f}", f"{one.decoders:.2f}",
        ]
        for one in replay.matched
    ]  # fmt: skip
    columns = ("phase", "hours", "requests/s", "prompt tokens, median", "found in caches", "prefillers", "decoders")
    return table(columns, rows, label="Phases")


def _clock(phase: Phase) -> str:
    return f"{phase.begins / HOUR:g}–{phase.ends / HOUR:g}"


def pictures(replay: Replay) -> tuple[Picture, ...]:
    """The pictures, in the order of the page: what comes, pods of each role, what waits, latency."""
    return (_traffic(replay), _pods(replay), _queue(replay), _latency(replay))


def _points(played: Played) -> list[Moment]:
    """A moment of every few minutes: the worst one of them, so that no peak is lost."""
    each = max(1, round(_MINUTES * 60 / (played.moments[1].second - played.moments[0].second)))
    groups = [played.moments[start : start + each] for start in range(0, len(played.moments), each)]
    return [max(group, key=lambda moment: moment.ttft_tail) for group in groups]


def _hour(moment: Moment) -> float:
    return moment.second / HOUR


def _panel(axes: Axes, replay: Replay, style: Style, title: str) -> None:
    dress(axes, style, title)
    for number, phase in enumerate(replay.day.phases):
        if number % 2:
            axes.axvspan(phase.begins / HOUR, phase.ends / HOUR, color=style["f"], alpha=0.12, linewidth=0)
    axes.set_xlim(0, 24)
    axes.set_xticks(list(_HOURS))


def _hourly(replay: Replay) -> list[tuple[int, list[list[Moment]]]]:
    return [
        (hour, [[moment for moment in played.moments if hour <= _hour(moment) < hour + 1] for played in replay.played])
        for hour in range(24)
    ]  # fmt: skip


def _traffic(replay: Replay) -> Picture:
    def draw(style: Style) -> Figure:
        figure = Figure(figsize=(5.6, 3.8), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        moments = _points(replay.played[0])
        _panel(upper, replay, style, "What comes")
        upper.plot([_hour(moment) for moment in moments], [moment.rate for moment in moments], color=style["ink"], linewidth=1.4)
        upper.set_ylabel("requests/s")
        upper.set_ylim(bottom=0)
        _panel(lower, replay, style, "")
        edges = [replay.matched[0].phase.begins / HOUR, *(one.phase.ends / HOUR for one in replay.matched)]
        for values, colour, dash, name in (
            ([one.prefillers for one in replay.matched], "b", "-", "prefillers"),
            ([one.decoders for one in replay.matched], "a", (0, (5, 2)), "decoders"),
        ):
            lower.stairs(values, edges, color=style[colour], linewidth=2, linestyle=dash, label=name, baseline=None)
        lower.set_ylabel("matched pods")
        lower.set_ylim(bottom=0)
        lower.set_xlabel("hour of the day")
        legend(figure, lower, style)
        return figure

    rows = tuple(
        (one.phase.name, _clock(one.phase), f"{one.phase.mean_rate:.2f}", f"{one.prefillers:.2f}", f"{one.decoders:.2f}")
        for one in replay.matched
    )
    says = "Requests a second, and the pods of each role that keep up with each phase: their ratio is another one from phase to phase."
    return Picture("traffic", "What comes", says, ("phase", "hours", "requests/s", "prefillers", "decoders"), rows, draw)


def _pods(replay: Replay) -> Picture:
    def draw(style: Style) -> Figure:
        figure = Figure(figsize=(5.6, 4.4), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        for axes, name, title in ((upper, "prefillers", "Ready prefillers"), (lower, "decoders", "Ready decoders")):
            _panel(axes, replay, style, title)
            for played, colour, dash in zip(replay.played, _COLOURS, _DASHES, strict=True):
                moments = _points(played)
                counts = [getattr(moment, name) for moment in moments]
                axes.step(
                    [_hour(moment) for moment in moments], counts,
                    where="post", color=style[colour], linestyle=dash, linewidth=1.8, label=played.arm.name,
                )  # fmt: skip
            most = max(getattr(moment, name) for played in replay.played for moment in played.moments)
            axes.set_ylim(0, most * 1.15)
            axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        lower.set_xlabel("hour of the day")
        legend(figure, lower, style)
        return figure

    rows = tuple(
        (f"{hour}", *(f"{max(m.prefillers for m in arm)}:{max(m.decoders for m in arm)}" for arm in arms)) for hour, arms in _hourly(replay)
    )
    says = "Pods that are ready. Those that are starting are paid for as well, and count in the GPU-hours."
    return Picture("pods", "Ready pods", says, ("hour", *(played.arm.name for played in replay.played)), rows, draw)


def _queue(replay: Replay) -> Picture:
    def draw(style: Style) -> Figure:
        figure = Figure(figsize=(5.6, 4.4), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        for axes, name, title, unit in (
            (upper, "queued_tokens", "Prompt tokens that wait for prefill", 1e3),
            (lower, "waiting", "Answers that wait for decode", 1.0),
        ):
            _panel(axes, replay, style, title)
            for played, colour, dash in zip(replay.played, _COLOURS, _DASHES, strict=True):
                moments = _points(played)
                values = [getattr(moment, name) / unit for moment in moments]
                axes.plot(
                    [_hour(moment) for moment in moments], values,
                    color=style[colour], linestyle=dash, linewidth=1.8, label=played.arm.name,
                )  # fmt: skip
            most = max(1.0, *(getattr(moment, name) / unit for played in replay.played for moment in played.moments))
            axes.set_yscale("symlog", linthresh=1.0)
            axes.set_ylim(0, most * 2)
            axes.yaxis.set_major_locator(FixedLocator([0.0, *(10.0**power for power in range(7) if 10.0**power <= most)]))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        upper.set_ylabel("thousands")
        lower.set_ylabel("sequences")
        lower.set_xlabel("hour of the day")
        legend(figure, lower, style)
        return figure

    rows = tuple(
        (f"{hour}", *(f"{max(m.queued_tokens for m in arm):,.0f} / {max(m.waiting for m in arm):,.0f}" for arm in arms))
        for hour, arms in _hourly(replay)
    )
    says = "What waits: linear up to 1, logarithmic above. Tokens in front of prefillers, sequences in front of decoders."
    return Picture("queue", "What waits", says, ("hour", *(played.arm.name for played in replay.played)), rows, draw)


def _latency(replay: Replay) -> Picture:
    goal_ms = replay.system.ttft_seconds * 1e3

    def draw(style: Style) -> Figure:
        figure = Figure(figsize=(5.6, 3.8), layout="constrained")
        axes = figure.add_subplot()
        _panel(axes, replay, style, "Time to first token, 99 of 100")
        high = goal_ms
        for played, colour, dash in zip(replay.played, _COLOURS, _DASHES, strict=True):
            moments = _points(played)
            values = [min(_MOST_MS, moment.ttft_tail * 1e3) for moment in moments]
            high = max(high, *values)
            axes.plot(
                [_hour(moment) for moment in moments], values, color=style[colour], linestyle=dash, linewidth=1.8, label=played.arm.name
            )
        axes.axhline(goal_ms, color=style["goal"], linewidth=1.4, linestyle=(0, (4, 3)), label=f"objective, {goal_ms / 1e3:g} s")
        log_milliseconds(axes, min(_LEAST_MS, goal_ms / 2), high * 1.3)
        axes.set_xlabel("hour of the day")
        legend(figure, axes, style)
        return figure

    def share(arm: list[Moment]) -> str:
        return f"{sum(m.rate * m.good_share for m in arm) / sum(m.rate for m in arm):.1%}"

    rows = tuple((f"{hour}", *map(share, arms)) for hour, arms in _hourly(replay))
    says = "Latency of the slowest hundredth, cut at ten minutes. The numbers are the share of each hour's requests within both objectives."
    return Picture("latency", "Time to first token", says, ("hour", *(played.arm.name for played in replay.played)), rows, draw)
