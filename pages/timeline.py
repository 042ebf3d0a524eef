"""A picture of what happened when: bars over seconds, one row for each thing that took time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.figure import Figure

from pages.figures import Picture, Style

_WIDTH: Final = 8.4
_ROW: Final = 0.32
_AROUND: Final = 1.3


@dataclass(frozen=True, slots=True)
class Bar:
    """From when to when, in seconds. ``colour`` is a name of the page's style; bars of one row share its name."""

    row: str
    begin: float
    end: float
    colour: str = "b"


def timeline(title: str, bars: Sequence[Bar], says: str) -> Picture:
    """Rows in the order in which they begin in ``bars``, the first at the top."""
    rows = list(dict.fromkeys(bar.row for bar in bars))

    def draw(style: Style) -> Figure:
        figure = Figure(figsize=(_WIDTH, _AROUND + _ROW * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title, color=style["ink"], pad=10)
        axes.set_facecolor("none")
        for bar in bars:
            axes.barh(rows.index(bar.row), bar.end - bar.begin, left=bar.begin, height=0.62, color=style[bar.colour])
        axes.set_yticks(range(len(rows)), rows)
        axes.invert_yaxis()
        axes.set_xlabel("seconds since the beginning")
        axes.set_xlim(left=0)
        axes.grid(axis="x", color=style["grid"], linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["left", "bottom"]].set_color(style["grid"])
        axes.tick_params(colors=style["soft"])
        axes.tick_params(axis="y", labelcolor=style["ink"])
        axes.xaxis.label.set_color(style["soft"])
        return figure

    table = tuple((bar.row, f"{bar.begin:.1f}", f"{bar.end:.1f}") for bar in bars)
    return Picture("timeline", title, says, ("what", "from, s", "to, s"), table, draw)
