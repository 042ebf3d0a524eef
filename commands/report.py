"""How findings are shown: plain lines, the same lines in colour on a terminal, or JSON."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import IO, Any, Final

from dpd.finding import Finding, Level

JSON_VERSION: Final = 1
"""Version of the machine-readable report; docs/check-report.schema.json describes it."""

_INDENT: Final = "      "
_STYLES: Final = {Level.ERROR: "bold red", Level.WARNING: "bold yellow", Level.INFO: "bold blue"}

Line = tuple[tuple[str, str], ...]
"""Pieces of one line, each with its style."""


def write(findings: Sequence[Finding], *, files: int, stream: IO[str]) -> None:
    """Show findings, grouped by file, and a summary."""
    show([*_lines(findings), ((summary(findings, files=files), "bold"),)], stream)


def details(findings: Sequence[Finding], stream: IO[str]) -> None:
    """Show findings without a summary: what they are about is no file."""
    show([*_lines(findings)], stream)


def summary(findings: Iterable[Finding], *, files: int) -> str:
    """One line: how many files, and how many findings of each level."""
    findings = list(findings)
    accepted = sum(1 for finding in findings if finding.acknowledged)
    counts = [sum(1 for finding in findings if finding.level is level and not finding.acknowledged) for level in Level]
    nouns = [plural(count, noun) for count, noun in zip(counts, ("error", "warning", "note"), strict=True) if count]
    accepted_noun = [f"{accepted} accepted"] if accepted else []
    return f"{plural(files, 'file')} checked: {', '.join([*nouns, *accepted_noun]) or 'nothing to report'}."


def as_json(findings: Sequence[Finding], *, environments: Sequence[tuple[str, str]], today: str, ok: bool) -> str:
    """The machine-readable report. ``environments`` pairs each file with its environment's name, or an empty text."""
    report: dict[str, Any] = {
        "version": JSON_VERSION,
        "today": today,
        "ok": ok,
        "files": [{"file": file, "environment": name or None} for file, name in environments],
        "summary": {
            **{f"{level.value}s": sum(1 for found in findings if found.level is level and not found.acknowledged) for level in Level},
            "acknowledged": sum(1 for found in findings if found.acknowledged),
        },
        "findings": [finding.as_dict() for finding in findings],
    }
    return json.dumps(report, indent=2)


def plural(count: int, noun: str) -> str:
    """A number of things: 1 file, 2 files."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _lines(findings: Iterable[Finding]) -> Iterator[Line]:
    for file, group in groupby(findings, key=lambda finding: finding.file):
        yield ((file, "bold underline"),)
        for finding in group:
            yield from _finding(finding)
            yield ()


def _finding(finding: Finding) -> Iterator[Line]:
    dim = "dim" if finding.acknowledged else ""
    where = f"{finding.file}:{finding.line}" if finding.line else finding.file
    style = dim or _STYLES[finding.level]
    yield ("  ", ""), (finding.level.value, style), (f" {finding.id} ", dim), (where, dim), (f" {finding.path}".rstrip(), dim or "cyan")
    yield (_INDENT, ""), (finding.message, dim)
    said = [("value", finding.value), ("limit", finding.limit), ("fix", finding.fix), ("see", finding.link)]
    for name, text in [*said, ("accepted", finding.acknowledged)]:
        if text:
            yield (_INDENT, ""), (f"{name}: ", "dim"), (text, "dim" if name == "see" else dim)


def show(lines: Sequence[Line], stream: IO[str]) -> None:
    """Print lines, in colour on a terminal."""
    if not _in_colour(stream):
        stream.writelines("".join(text for text, _ in line) + "\n" for line in lines)
        return
    from rich.console import Console  # noqa: PLC0415 - costs as much as the rest of the command together
    from rich.padding import Padding  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=stream, highlight=False)
    for line in lines:
        indent = len(line[0][0]) if line and line[0][0].isspace() else 0
        text = Text.assemble(*(piece for piece in line if not piece[0].isspace()), overflow="fold")
        console.print(Padding(text, (0, 0, 0, indent), expand=False) if line else "")


def _in_colour(stream: IO[str]) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
