"""The review as a comment of a pull request: short, with the details folded away."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dpd.review.compare import Review, Verdict
from pages import review_words as words

_SIGNS: Final = {Verdict.NOTHING: "🟢", Verdict.CHANGES: "🔵", Verdict.DANGEROUS: "🔴"}
_MOST_DANGERS: Final = 20
_MOST_ROWS: Final = 200
"""A comment may have 65,536 characters; the page has everything."""


def review_markdown(review: Review, *, before: str, after: str) -> str:
    """The comment. ``before`` and ``after`` say what was compared."""
    return "\n".join(_lines(review, before, after)) + "\n"


def _lines(review: Review, before: str, after: str) -> Iterator[str]:
    yield f"## {_SIGNS[review.verdict]} {words.HEADLINES[review.verdict]}"
    yield ""
    yield f"{words.lead(review)} From {_code(before)} to {_code(after)}."
    if review.verdict is Verdict.NOTHING:
        return
    yield ""
    for danger in review.dangers[:_MOST_DANGERS]:
        where = f"{danger.stack} {danger.resource}".strip()
        yield f"- **{danger.kind}** {_code(where)}: {_plain(danger.what)}. {danger.why[:1].upper()}{danger.why[1:]}."
    if len(review.dangers) > _MOST_DANGERS:
        yield f"- and {words.counted(len(review.dangers) - _MOST_DANGERS, 'danger')} more"
    yield ""
    yield words.gate(review)
    for change in review.costs:
        yield f"Cost at rest, {words.cost(change)}."
    objects = [
        (
            f"{change.environment}/{change.folder}",
            str(change),
            ": ".join(part for part in (change.effect, ", ".join(change.consequences)) if part),
            "; ".join(words.details(change)),
        )
        for change in review.objects
    ]
    yield from _folded("Kubernetes objects", ("Endpoint", "Object", "", "Fields"), objects)
    resources = [
        (change.stack, f"{change.id} ({change.type})", change.effect.value, "; ".join(words.details(change)))
        for change in words.worst_first(review.templates.resources)
    ]
    yield from _folded("AWS resources", ("Stack", "Resource", "", "Properties"), resources)
    findings = [
        ("new" if change.new else "gone", found["level"], f"{found['id']} {change.environment}: {found['path']}", found["message"])
        for change in sorted(review.findings, key=lambda change: not change.new)
        for found in (change.finding,)
    ]
    yield from _folded("Findings of the checks", ("", "Level", "Finding", "Says"), findings)


def _folded(title: str, columns: Iterable[str], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if not rows:
        return
    columns = tuple(columns)
    yield ""
    yield f"<details><summary>{title}: {len(rows):,}</summary>"
    yield ""
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    yield from (f"| {' | '.join(_plain(cell) for cell in row)} |" for row in rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        yield f"| and {len(rows) - _MOST_ROWS:,} more {'| ' * (len(columns) - 1)}|"
    yield ""
    yield "</details>"


def _plain(text: str) -> str:
    """A text that is no markup: neither a new column, nor HTML, nor a mention of somebody."""
    for letter, instead in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("`", "'"), ("@", "@\u200b"), ("*", "\\*"), ("_", "\\_")):
        text = text.replace(letter, instead)
    return " ".join(text.split())


def _code(text: str) -> str:
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"
