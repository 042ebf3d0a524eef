"""The page of a review: dangers first, then a picture of each environment that changes, then everything that changes."""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

from dpd.review.compare import Review, Verdict
from dpd.review.dangers import Danger
from pages import review_words as words
from pages.html import document, folded, table
from pages.topology import Mark, Marks, topology

_STYLES: Final = (Path(__file__).with_name("page.css"), Path(__file__).with_name("review.css"))
_TONES: Final = {Verdict.NOTHING: "yes", Verdict.CHANGES: "no", Verdict.DANGEROUS: "none"}


def review_page(review: Review, *, before: str, after: str) -> str:
    """The page. ``before`` and ``after`` say what was compared."""
    title = f"Review: {words.HEADLINES[review.verdict].lower()}"
    return document(title, styles=_STYLES, body=_body(review, before, after))


def _body(review: Review, before: str, after: str) -> Iterator[str]:
    yield f'<header><h1>Review</h1><p class="lead">From {escape(before)} to {escape(after)}</p></header><main>'
    yield f'<section class="verdict {_TONES[review.verdict]}"><h2>{words.HEADLINES[review.verdict]}</h2>'
    yield f"<p>{escape(words.lead(review))}</p></section>"
    if review.dangers:
        yield f'<h2>Look at these first</h2><div class="card">{"".join(map(_danger, review.dangers))}</div>'
    for name in review.after.environments:
        if name in review.after.summaries and _touched(review, name):
            yield f"<h2>{escape(name)}</h2><figure>{_picture(review, name)}</figure>"
    if review.verdict is not Verdict.NOTHING:
        yield f'<h2>Health gate</h2><div class="card"><p>{escape(words.gate(review))}</p></div>'
    yield from _objects(review)
    yield from _resources(review)
    yield from _findings(review)
    yield from _cost(review)
    yield "</main><footer>Compared offline: templates with AWS's own library, manifests and findings object by object.</footer>"


def _danger(danger: Danger) -> str:
    where = f"{danger.stack}{f' · {danger.resource}' if danger.resource else ''}"
    return (
        f'<div class="danger"><p><b>{escape(danger.kind)}</b> <code>{escape(where)}</code></p>'
        f"<p>{escape(danger.what)}</p><p>{escape(danger.why[:1].upper() + danger.why[1:])}.</p></div>"
    )


def _touched(review: Review, environment: str) -> bool:
    stacks = any(change.environment == environment for change in review.templates.resources)
    return stacks or any(change.environment == environment for change in review.objects)


def _picture(review: Review, environment: str) -> str:
    old = review.before.summaries.get(environment, {}).get("topology", {"groups": [], "endpoints": []})
    new = review.after.summaries[environment]["topology"]
    changed = {change.folder for change in review.objects if change.environment == environment}
    marks = Marks(
        groups=_marks(old["groups"], new["groups"], set()) if environment in review.before.summaries else {},
        endpoints=_marks(old["endpoints"], new["endpoints"], changed) if environment in review.before.summaries else {},
    )
    return topology(review.after.summaries[environment], marks)


def _marks(old: list[dict[str, Any]], new: list[dict[str, Any]], changed: set[str]) -> dict[str, Mark]:
    before = {item["name"]: item for item in old}
    result: dict[str, Mark] = {}
    for item in new:
        name = item["name"]
        if name not in before:
            result[name] = "new"
        elif item != before[name] or name in changed:
            result[name] = "changed"
    return result | {name: "gone" for name in before if name not in {item["name"] for item in new}}


def _objects(review: Review) -> Iterator[str]:
    if review.objects:
        rows = [
            (
                escape(f"{change.environment}/{change.folder}"),
                escape(str(change)),
                change.effect,
                escape(", ".join(change.consequences)),
                _listed(words.details(change)),
            )
            for change in review.objects
        ]
        columns = ("Endpoint", "Object", "", "What it does", "Fields")
        yield f'<h2>Kubernetes objects</h2><div class="card changes">{table(columns, rows, label="Kubernetes objects")}</div>'


def _resources(review: Review) -> Iterator[str]:
    if changes := words.worst_first(review.templates.resources):
        rows = [
            (
                escape(change.stack),
                f"<code>{escape(change.id)}</code>",
                escape(change.type),
                change.effect.value,
                _listed(words.details(change)),
            )
            for change in changes
        ]
        columns = ("Stack", "Resource", "Type", "", "Properties")
        inside = table(columns, rows, label="AWS resources")
        yield f'<h2>AWS resources</h2><div class="card changes">{inside}</div>'


def _findings(review: Review) -> Iterator[str]:
    if review.findings:
        rows = [
            (
                "new" if change.new else "gone",
                escape(str(change.finding["level"])),
                escape(f"{change.finding['id']} {change.environment}: {change.finding['path']}"),
                escape(str(change.finding["message"])),
            )
            for change in sorted(review.findings, key=lambda change: not change.new)
        ]
        inside = table(("", "Level", "Finding", "Says"), rows, label="Findings")
        yield f'<h2>Findings of the checks</h2><div class="card changes">{inside}</div>'


def _cost(review: Review) -> Iterator[str]:
    if review.costs:
        yield '<h2>Cost at rest</h2><div class="card">'
        for change in review.costs:
            rows = [(escape(line.what), _usd(line.before), _usd(line.after), escape(line.price)) for line in change.lines]
            lines = table(("What", "Before", "After", "Price"), rows, label=f"Cost of {change.environment}")
            yield f"<p>{escape(words.cost(change))}</p>{folded('Lines', f'<div class=changes>{lines}</div>')}"
        yield "</div>"


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f} USD/h"


def _listed(lines: list[str]) -> str:
    return "<br>".join(escape(line) for line in lines)
