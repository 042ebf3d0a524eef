"""The report of a plan: one HTML file that needs nothing else, and its pictures as PNG."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final, Literal

from pages.figures import Picture
from pages.html import document, folded, table

Tone = Literal["yes", "no", "tune", "none"]
State = Literal["good", "open", "bad", "plain"]
_CSS: Final = Path(__file__).with_name("page.css")


@dataclass(frozen=True, slots=True)
class Number:
    """One of the large numbers: a range, what it is held against, and whether all of it holds, a part of it, or nothing."""

    label: str
    value: str
    note: str = ""
    state: State = "plain"


@dataclass(frozen=True, slots=True)
class Table:
    """A table; ``chosen`` is the row that stands out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    chosen: int | None = None


@dataclass(frozen=True, slots=True)
class PlanPage:
    """Everything that the report says, in the words in which it says it."""

    title: str
    lead: str
    tone: Tone
    headline: str
    layout: str
    reason: str
    numbers: tuple[Number, ...]
    flips: tuple[str, ...]
    question: tuple[tuple[str, str], ...]
    pictures: tuple[Picture, ...]
    candidates: Table
    needs: tuple[tuple[str, str], ...]
    cost: tuple[tuple[str, str], ...]
    patch: str
    notes: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]
    footer: str

    def html(self) -> str:
        """The page. The same content gives the same bytes."""
        return document(self.title, styles=(_CSS,), body=self._body())

    def pngs(self) -> dict[str, bytes]:
        """The pictures by file name."""
        return {f"{picture.name}.png": picture.png() for picture in self.pictures}

    def _body(self) -> tuple[str, ...]:
        return (
            f'<header><h1>{escape(self.title)}</h1><p class="lead">{escape(self.lead)}</p></header>',
            "<main>",
            f'<section class="verdict {self.tone}"><h2>{escape(self.headline)}</h2>',
            f'<p class="layout">{escape(self.layout)}</p><p>{escape(self.reason)}</p></section>',
            f'<dl class="numbers">{"".join(map(_number, self.numbers))}</dl>',
            "<h2>How the layouts compare</h2>",
            f'<div class="figures">{"".join(map(_figure, self.pictures))}</div>',
            f'<h2>Every layout that was looked at</h2><div class="card">{_table(self.candidates, "Every layout")}</div>',
            '<h2>Question and needs</h2><div class="pair">',
            f'<section class="card"><h2>The question</h2>{_facts(self.question)}</section>',
            f'<section class="card"><h2>What two roles need</h2>{_facts(self.needs)}</section></div>',
            f'<h2>Cost</h2><div class="card">{_facts(self.cost)}</div>',
            f'<h2>What would change the advice</h2><div class="card">{_list(self.flips)}</div>' if self.flips else "",
            f'<h2>Change of the environment file</h2><div class="card">{_patch(self.patch)}</div>' if self.patch else "",
            f'<h2>How far to trust this</h2><div class="card">{_list(self.notes)}{_sources(self.sources)}</div>',
            "</main>",
            f"<footer>{escape(self.footer)}</footer>",
        )


def _number(number: Number) -> str:
    mark = {"good": "<b>holds</b> ", "open": "<b>may miss</b> ", "bad": "<b>misses</b> ", "plain": ""}[number.state]
    note = f"<small>{mark}{escape(number.note)}</small>" if number.note or mark else ""
    return f'<div class="{number.state}"><dt>{escape(number.label)}</dt><dd>{escape(number.value)}{note}</dd></div>'


def _figure(picture: Picture) -> str:
    numbers = folded("Numbers", _table(Table(picture.columns, picture.rows), f"Numbers: {picture.title}"))
    return f"<figure>{picture.svg()}<figcaption>{escape(picture.says)}</figcaption>{numbers}</figure>"


def _table(content: Table, label: str) -> str:
    rows = ([escape(cell) for cell in row] for row in content.rows)
    return table(content.columns, rows, label=label, chosen=content.chosen)


def _facts(pairs: Sequence[tuple[str, str]]) -> str:
    return '<dl class="facts">' + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def _list(items: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _sources(pairs: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<li><a href="{escape(url)}" rel="noreferrer">{escape(title)}</a></li>' for title, url in pairs)
    return folded("Sources", f"<ul>{items}</ul>") if pairs else ""


def _patch(text: str) -> str:
    """A unified diff with what is added and what is taken away marked by more than colour."""
    lines = []
    for line in text.splitlines():
        safe = escape(line)
        added, removed = line.startswith("+") and not line.startswith("+++"), line.startswith("-") and not line.startswith("---")
        lines.append(f"<ins>{safe}</ins>" if added else f"<del>{safe}</del>" if removed else safe)
    return "<pre>" + "\n".join(lines) + "</pre>"
