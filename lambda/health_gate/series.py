"""Prometheus text, and how counters rose between two readings."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

Samples = dict[str, list[tuple[dict[str, str], float]]]

_LINE: Final = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+([^\s]+)(?:\s+-?\d+)?$")
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


def parse(text: str, wanted: Iterable[str]) -> Samples:
    """Samples by series name, of the wanted series only (names, or names with labels)."""
    names = {name.partition("{")[0] for name in wanted}
    found: Samples = {}
    for line in text.splitlines():
        # An engine exports thousands of lines; only a handful is parsed.
        if line.partition("{")[0].partition(" ")[0] not in names:
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        found.setdefault(match[1], []).append((dict(_LABEL.findall(match[2] or "")), value))
    return found


def merged(each: Iterable[Samples | None]) -> Samples | None:
    """Samples of all servers of a pod; ``None`` when one of them could not be read: a rise could be hidden there."""
    known: Samples = {}
    for samples in each:
        if samples is None:
            return None
        for name, values in samples.items():
            known.setdefault(name, []).extend(values)
    return known


def total(samples: Samples, series: str) -> float | None:
    """Sum over all samples of a series that have its labels; ``None`` when there is no such series."""
    name, _, labels = series.partition("{")
    if name not in samples:
        return None
    wanted = dict(_LABEL.findall(labels))
    matching = [value for have, value in samples[name] if wanted.items() <= have.items()]
    # Labelled children appear with their first increment: the series is there, and this child is zero.
    return sum(matching)


def rise(before: Samples | None, after: Samples | None, alternatives: Iterable[str]) -> float | None:
    """How much the first series that both readings have rose. ``None``: not readable, or reset in between."""
    if before is None or after is None:
        return None
    for series in alternatives:
        old, new = total(before, series), total(after, series)
        if new is None:
            continue
        change = new - (old or 0)
        return change if change >= 0 else None
    return None


def together(changes: Mapping[str, float | None]) -> tuple[float, list[str]]:
    """Sum over pods of what is known, and the pods of which nothing is known."""
    return sum(change for change in changes.values() if change is not None), [pod for pod, change in changes.items() if change is None]
