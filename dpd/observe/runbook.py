"""The runbook: an entry for every kind of alarm, made from the same data as the rules."""

from collections.abc import Iterator

from dpd.observe.alarms import KINDS, Kind


def runbook() -> Iterator[str]:
    """Lines of the page."""
    yield from (
        "Every alarm of [observability](observe.md): what it means, what to check, what to change. An alarm's annotation `runbook` leads",
        "here. Several at once have one cause more often than several: begin with the first in this order that fires.",
        "",
        "| Alarm | Severity | After | Fires when |",
        "|---|---|---|---|",
        *(f"| [{kind.name}](#{kind.name.lower()}) | {kind.severity} | {kind.after} | {kind.title} |" for kind in KINDS),
    )
    for kind in KINDS:
        yield from _entry(kind)


def _entry(kind: Kind) -> Iterator[str]:
    only = f" Only for {kind.only}." if kind.only else ""
    yield from (
        "",
        f"## {kind.name}",
        "",
        f"*{kind.title}* ({kind.severity}, after {kind.after}).{only}",
        "",
        kind.runbook.means,
        "",
        "Check:",
        "",
    )
    yield from (f"- {item}" for item in kind.runbook.check)
    yield from ("", "Change:", "")
    yield from (f"- {item}" for item in kind.runbook.change)
