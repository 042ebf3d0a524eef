"""Pictures of a plan. Drawn once; written as SVG whose colours follow the page, or as PNG. Same numbers, same bytes.

Colours are chosen to differ for colour-blind readers and in grey; kinds differ by line and marker too.
"""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import matplotlib as mpl

mpl.use("svg")

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from dpd.planning.candidate import Band

Kind = Literal["colocated", "disaggregated"]
Style = dict[str, str]

LIGHT: Final[Style] = {
    "ink": "#1b2430", "soft": "#5a6675", "grid": "#dfe4ea", "paper": "#ffffff", "goal": "#b3261e",
    "a": "#b45309", "b": "#1d5fd1", "c": "#8a5a00", "d": "#0f766e", "e": "#6d28d9", "f": "#9aa5b1",
}  # fmt: skip
DARK: Final[Style] = {
    "ink": "#e7ecf2", "soft": "#a3afbd", "grid": "#313b47", "paper": "#161c24", "goal": "#ff8a80",
    "a": "#f2a65a", "b": "#7db2ff", "c": "#e0c060", "d": "#4fd1c0", "e": "#b79cff", "f": "#6b7785",
}  # fmt: skip
_STAND_INS: Final = {name: f"#{0xA1B200 + number:06x}" for number, name in enumerate(LIGHT)}
"""Colours that stand for a name until the SVG is written."""
_KIND_COLOURS: Final[dict[Kind, tuple[str, ...]]] = {"colocated": ("a", "c"), "disaggregated": ("b", "d", "e")}
_DASHES: Final = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
_MARKERS: Final[dict[Kind, str]] = {"colocated": "s", "disaggregated": "o"}
_SIZE: Final = (5.6, 3.8)
_MOST_TIMES: Final = 30
"""How far above the objective a latency is still shown; beyond it a queue grows and the number means nothing."""
_MOST_TICKS: Final = 7
_SETTINGS: Final[Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "dpd", "text.parse_math": False, "font.family": "DejaVu Sans", "font.size": 11,
    "axes.titlesize": 12.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "legend.fontsize": 10, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "xtick.major.size": 0, "ytick.major.size": 0, "xtick.minor.size": 0,
    "ytick.minor.size": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """What a layout does at one rate. Latencies in milliseconds with their bands, goodput in requests a second."""

    rate: float
    ttft: float
    ttft_band: Band
    itl: float
    itl_band: Band
    goodput: float
    goodput_band: Band
    link_share: float
    saturated: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A layout over rates."""

    name: str
    kind: Kind
    points: tuple[Point, ...]
    banded: bool = False
    """Whether its band is drawn. With more than two the picture is a fog; the tables have all of them."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The chosen split at one routing threshold."""

    tokens: int
    ttft: float
    ttft_band: Band
    itl: float
    itl_band: Band
    handed_over: float
    """Share of the requests that are handed over."""
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """One GPU of a role: parts in GiB, in the order of ``MEMORY_PARTS``, and its whole memory."""

    name: str
    parts: tuple[float, ...]
    gpu_gib: float


MEMORY_PARTS: Final = ("weights", "activations", "KV cache", "PD buffer", "runtime")
_MEMORY_COLOURS: Final = ("b", "c", "d", "a", "f")


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn figure: a name for its file, a title, what it shows in words, and its numbers as a table."""

    name: str
    title: str
    says: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    draw: Callable[[Style], Figure] = field(compare=False)

    def svg(self) -> str:
        """The figure for a page: colours are ``var(--name)``, ids begin with the name, and a reader hears title and words."""
        with mpl.rc_context(_SETTINGS):
            out = io.StringIO()
            self.draw(_STAND_INS).savefig(out, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
        return _inline(out.getvalue(), self)

    def png(self, style: Style = LIGHT) -> bytes:
        """The figure as a picture file."""
        with mpl.rc_context(_SETTINGS):
            figure = self.draw(style)
            figure.set_facecolor(style["paper"])
            out = io.BytesIO()
            FigureCanvasAgg(figure).print_figure(
                out, format="png", dpi=160, metadata={"Software": None}, facecolor=style["paper"], bbox_inches="tight", pad_inches=0.2
            )
        return out.getvalue()


def _inline(text: str, picture: Picture) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{picture.name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{picture.name}-\1)", text)
    text = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{picture.name}-\1"', text)
    for name, colour in _STAND_INS.items():
        text = text.replace(colour, f"var(--{name})")
    text = re.sub(r"'DejaVu Sans'(?:, [^;\"]*)?", "var(--font)", text)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    assert size is not None
    head = f'<svg viewBox="0 0 {size[1]} {size[2]}" role="img" aria-labelledby="{picture.name}-t {picture.name}-d">'
    head += f'<title id="{picture.name}-t">{_escaped(picture.title)}</title><desc id="{picture.name}-d">{_escaped(picture.says)}</desc>'
    return head + text[text.index(">") + 1 :].rstrip()


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _axes(style: Style, title: str, *, height: float = _SIZE[1]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_SIZE[0], height), layout="constrained")
    axes = figure.add_subplot()
    dress(axes, style, title)
    return figure, axes


def dress(axes: Axes, style: Style, title: str) -> None:
    """Title, spines, ticks and grid in the colours of a style."""
    axes.set_title(title, color=style["ink"], pad=10)
    axes.set_facecolor("none")
    for side in ("left", "bottom"):
        axes.spines[side].set_color(style["grid"])
    axes.tick_params(colors=style["soft"], which="both")
    axes.xaxis.label.set_color(style["soft"])
    axes.yaxis.label.set_color(style["soft"])
    axes.grid(axis="y", color=style["grid"], linewidth=0.8)
    axes.set_axisbelow(True)


def _styles(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Line styles: a colour for each layout of a kind, and dashes that differ too."""
    seen: dict[Kind, int] = {}
    result = []
    for curve in curves:
        number = seen[curve.kind] = seen.get(curve.kind, -1) + 1
        colours = _KIND_COLOURS[curve.kind]
        result.append({"colour": colours[number % len(colours)], "dash": _DASHES[number % len(_DASHES)], "marker": _MARKERS[curve.kind]})
    return result


def _milliseconds(value: float, _: object = None) -> str:
    return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"  # noqa: PLR2004 (milliseconds in a second)


def log_milliseconds(axes: Axes, low: float, high: float) -> None:
    """A logarithmic axis of times, with few ticks."""
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    for bases in ((1, 2, 5), (1, 3), (1,)):
        ticks = [base * 10.0**power for power in range(-2, 8) for base in bases if low <= base * 10.0**power <= high]
        if len(ticks) <= _MOST_TICKS:
            break
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(_milliseconds))


def legend(figure: Figure, axes: Axes, style: Style) -> None:
    """The legend below a figure."""
    handles, labels = axes.get_legend_handles_labels()
    box = figure.legend(handles, labels, loc="outside lower left", ncols=2 if len(labels) > 1 else 1, handlelength=2.4, columnspacing=1.4)
    for text in box.get_texts():
        text.set_color(style["ink"])


def latency(
    name: str, title: str, curves: Sequence[Curve], goal_ms: float, value: Callable[[Point], tuple[float, Band]], says: str
) -> Picture:
    """A latency against the rate, with its band, and the objective. A layout ends where its queue would grow."""

    def draw(style: Style) -> Figure:
        figure, axes = _axes(style, title)
        most = goal_ms * _MOST_TIMES
        low, high = goal_ms, goal_ms
        for curve, how in zip(curves, _styles(curves), strict=True):
            shown = [point for point in curve.points if not point.saturated and value(point)[0] <= most]
            rates = [point.rate for point in shown]
            middle, bands = [value(point)[0] for point in shown], [value(point)[1] for point in shown]
            colour = style[how["colour"]]
            if curve.banded:
                tops = [min(band.high, most) for band in bands]
                axes.fill_between(rates, [band.low for band in bands], tops, color=colour, alpha=0.15, linewidth=0)
                high = max([high, *tops])
            low, high = min([low, *middle]), max([high, *middle])
            axes.plot(rates, middle, color=colour, linestyle=how["dash"], marker=how["marker"], markersize=5, linewidth=2, label=curve.name)
            _end(axes, curve, shown, value, colour)
        axes.axhline(goal_ms, color=style["goal"], linewidth=1.4, linestyle=(0, (4, 3)), label=f"objective, {_milliseconds(goal_ms)}")
        log_milliseconds(axes, low / 1.3, high * 1.3)
        axes.set_xlabel("requests a second")
        axes.set_xlim(left=0)
        legend(figure, axes, style)
        return figure

    rows = tuple(
        (curve.name, f"{point.rate:g}", "queue grows" if point.saturated else span_ms(value(point)[1]))
        for curve in curves
        for point in curve.points
    )
    return Picture(name, title, says, ("layout", "requests/s", "range"), rows, draw)


def _end(axes: Axes, curve: Curve, shown: Sequence[Point], value: Callable[[Point], tuple[float, Band]], colour: str) -> None:
    """A cross where a layout stops to keep up."""
    if shown and len(shown) < len(curve.points):
        last = shown[-1]
        axes.plot([last.rate], [value(last)[0]], marker="X", markersize=9, color=colour, linestyle="none")


def span_ms(band: Band) -> str:
    """A range of milliseconds as people write it: ``0.80 to 3.20 s``."""
    if not math.isfinite(band.high):
        return "no end"
    unit, size = ("s", 1e3) if band.high >= 1e3 else ("ms", 1.0)  # noqa: PLR2004 (milliseconds in a second)
    high = band.high / size
    digits = 0 if high >= 100 else 1 if high >= 10 or unit == "ms" else 2  # noqa: PLR2004 (three digits tell enough)
    return f"{band.low / size:.{digits}f} to {high:.{digits}f} {unit}"


def goodput(curves: Sequence[Curve], title: str, says: str) -> Picture:
    """Requests a second within both objectives against those that come."""

    def draw(style: Style) -> Figure:
        figure, axes = _axes(style, title)
        most = max(point.rate for curve in curves for point in curve.points)
        axes.plot([0, most], [0, most], color=style["soft"], linewidth=1.4, linestyle=(0, (1, 2)), label="every request")
        for curve, how in zip(curves, _styles(curves), strict=True):
            rates, colour = [point.rate for point in curve.points], style[how["colour"]]
            axes.plot(
                rates, [point.goodput for point in curve.points],
                color=colour, linestyle=how["dash"], marker=how["marker"], markersize=5, linewidth=2, label=curve.name,
            )  # fmt: skip
        axes.set_xlabel("requests a second that come")
        axes.set_ylabel("within both objectives")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        legend(figure, axes, style)
        return figure

    rows = tuple(
        (curve.name, f"{point.rate:g}", f"{point.goodput_band.low:.2f} to {min(point.rate, point.goodput_band.high):.2f}")
        for curve in curves for point in curve.points
    )  # fmt: skip
    return Picture("goodput", title, says, ("layout", "requests/s", "within both objectives, requests/s"), rows, draw)


def thresholds(points: Sequence[Threshold], title: str, goal: tuple[float, float], says: str) -> Picture:
    """TTFT and inter-token latency over the routing threshold."""

    def draw(style: Style) -> Figure:
        figure = Figure(figsize=_SIZE, layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        at = list(range(len(points)))
        parts = (
            (upper, "b", "TTFT", goal[0], [(point.ttft, point.ttft_band) for point in points]),
            (lower, "a", "inter-token", goal[1], [(point.itl, point.itl_band) for point in points]),
        )
        for axes, colour, label, limit, values in parts:
            dress(axes, style, title if axes is upper else "")
            bands = [band for _, band in values]
            axes.fill_between(at, [band.low for band in bands], [band.high for band in bands], color=style[colour], alpha=0.13, linewidth=0)
            axes.plot(at, [value for value, _ in values], color=style[colour], marker="o", markersize=5, linewidth=2)
            low, high = min(limit, *(band.low for band in bands)), max(limit, *(band.high for band in bands))
            axes.axhline(limit, color=style["goal"], linewidth=1.4, linestyle=(0, (4, 3)))
            log_milliseconds(axes, low / 1.4, min(high, limit * _MOST_TIMES) * 1.4)
            axes.set_ylabel(label)
            for number, point in enumerate(points):
                if point.chosen:
                    axes.axvline(number, color=style["soft"], linewidth=1, linestyle=(0, (1, 2)))
        lower.set_xticks(at, ["all" if point.tokens == 0 else f"≥ {point.tokens:,}" for point in points])
        lower.set_xlabel("prompts that are handed over, by tokens")
        return figure

    rows = tuple(
        (
            f"{point.tokens:,}",
            f"{point.handed_over:.0%}",
            span_ms(point.ttft_band),
            span_ms(point.itl_band),
            "chosen" if point.chosen else "",
        )
        for point in points
    )
    return Picture("threshold", title, says, ("threshold, tokens", "handed over", "TTFT", "inter-token", ""), rows, draw)


def link(curves: Sequence[Curve], title: str, says: str) -> Picture:
    """Busy share of the busiest KV link against the rate, on a logarithmic axis."""
    moving = [curve for curve in curves if any(point.link_share > 0 for point in curve.points)]

    def draw(style: Style) -> Figure:
        figure, axes = _axes(style, title)
        shares = [point.link_share for curve in moving for point in curve.points if point.link_share > 0]
        for curve, how in zip(curves, _styles(curves), strict=True):
            shown = [point for point in curve.points if point.link_share > 0]
            if shown:
                axes.plot(
                    [point.rate for point in shown], [point.link_share for point in shown],
                    color=style[how["colour"]], linestyle=how["dash"], marker=how["marker"], markersize=5, linewidth=2, label=curve.name,
                )  # fmt: skip
        low, high = min(0.001, *shares) / 1.5, max(1.0, *shares) * 2
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(FixedLocator([10**power for power in range(-5, 3) if low <= 10**power <= high]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:g} %"))
        axes.axhline(1.0, color=style["goal"], linewidth=1.4, linestyle=(0, (4, 3)), label="full: the link is the bottleneck")
        axes.axhspan(1.0, high, color=style["goal"], alpha=0.07, linewidth=0)
        axes.set_xlabel("requests a second")
        axes.set_xlim(left=0)
        legend(figure, axes, style)
        return figure

    rows = tuple((curve.name, f"{point.rate:g}", f"{point.link_share:.2%}") for curve in moving for point in curve.points)
    return Picture("link", title, says, ("layout", "requests/s", "busy"), rows, draw)


def memory(bars: Sequence[Memory], title: str, says: str) -> Picture:
    """Memory of one GPU of each role, stacked."""

    def draw(style: Style) -> Figure:
        figure, axes = _axes(style, title, height=1.9 + 0.62 * len(bars))
        axes.grid(visible=False)
        at = list(range(len(bars)))
        start = [0.0] * len(bars)
        for number, (part, colour) in enumerate(zip(MEMORY_PARTS, _MEMORY_COLOURS, strict=True)):
            sizes = [bar.parts[number] for bar in bars]
            if any(sizes):
                axes.barh(at, sizes, left=start, height=0.56, color=style[colour], edgecolor=style["paper"], linewidth=1.2, label=part)
            for place, size in zip(at, sizes, strict=True):
                if size >= 0.07 * max(bar.gpu_gib for bar in bars):
                    axes.text(
                        start[place] + size / 2, place, f"{size:.0f}", ha="center", va="center", color=style["paper"], fontweight="bold"
                    )
            start = [left + size for left, size in zip(start, sizes, strict=True)]
        for place, bar in zip(at, bars, strict=True):
            axes.plot([bar.gpu_gib] * 2, [place - 0.4, place + 0.4], color=style["goal"], linewidth=2, label="GPU" if place == 0 else None)
        axes.set_yticks(at, [bar.name for bar in bars])
        axes.tick_params(axis="y", labelcolor=style["ink"])
        axes.invert_yaxis()
        axes.set_xlabel("GiB of one GPU")
        axes.set_xlim(0, max(*(bar.gpu_gib for bar in bars), *start) * 1.03)
        _legend_wide(figure, axes, style)
        return figure

    rows = tuple((bar.name, *(f"{size:.1f}" for size in bar.parts), f"{bar.gpu_gib:.1f}") for bar in bars)
    return Picture("memory", title, says, ("GiB", *MEMORY_PARTS, "GPU"), rows, draw)


def _legend_wide(figure: Figure, axes: Axes, style: Style) -> None:
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower left", ncols=3, handlelength=1.2, columnspacing=1.4)
    for text in legend.get_texts():
        text.set_color(style["ink"])
