"""Parts that every page is made of. A page is one file: no script, no request to anywhere, the same bytes for the same content."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, *, styles: Iterable[Path], body: Iterable[str]) -> str:
    """A whole page."""
    css = "\n".join(path.read_text(encoding="utf-8").strip() for path in styles)
    head = (
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{css}\n</style>",
        "</head>",
    )
    return "\n".join((*head, "<body>", *(part for part in body if part), "</body>", "</html>")) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, label: str, chosen: int | None = None) -> str:
    """A table in a box that scrolls, with the keyboard too, where the page is narrow. Cells are HTML; row ``chosen`` stands out."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f"<tr{' class=chosen' if number == chosen else ''}>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
        for number, row in enumerate(rows)
    )
    inside = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">{inside}</div>'


def folded(summary: str, inside: str) -> str:
    """Something that opens when it is asked for."""
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"
