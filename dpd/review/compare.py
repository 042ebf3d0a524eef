"""The whole comparison of two assemblies, and its verdict."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dpd.review.assembly import Assembly
from dpd.review.dangers import Danger, dangers
from dpd.review.library import Library
from dpd.review.objects import ObjectChange, compare_objects
from dpd.review.templates import Effect, ResourceChange, TemplateChanges, compare_templates

HEALTH_GATE: Final = "Custom::DpdHealthGate"
"""Type of the resource behind which the health gate runs."""


class Verdict(StrEnum):
    """What a reviewer, or a pipeline, has to decide about."""

    NOTHING = "nothing"
    CHANGES = "changes"
    DANGEROUS = "dangerous"


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding of the checks that is new, or gone."""

    environment: str
    new: bool
    finding: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CostLine:
    """A line of the cost at rest, before and after. ``None`` where there is no such line or no price."""

    what: str
    before: float | None
    after: float | None
    priced: bool
    price: str


@dataclass(frozen=True, slots=True)
class CostChange:
    """Cost at rest of an environment in USD for each hour, of what has a price; ``unknown`` are the lines without one."""

    environment: str
    before: float
    after: float
    lines: tuple[CostLine, ...]
    unknown: tuple[str, ...]

    @property
    def delta(self) -> float:
        """USD for each hour more (or less)."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Review:
    """Everything that a review says."""

    before: Assembly
    after: Assembly
    added: tuple[str, ...]
    removed: tuple[str, ...]
    templates: TemplateChanges
    objects: tuple[ObjectChange, ...]
    findings: tuple[FindingChange, ...]
    costs: tuple[CostChange, ...]
    proven_again: tuple[str, ...]
    """Environments whose endpoints the health gate proves again after the deployment."""
    dangers: tuple[Danger, ...]

    @property
    def verdict(self) -> Verdict:
        """Dangerous, changes, or nothing."""
        if self.dangers:
            return Verdict.DANGEROUS
        return Verdict.CHANGES if self.added or self.removed or self.templates.resources or self.objects else Verdict.NOTHING


def compare(before: Assembly, after: Assembly, library: Library) -> Review:
    """Compare two assemblies. Raises ``LibraryError`` when AWS's library cannot be used."""
    templates = compare_templates(before, after, library)
    return Review(
        before=before,
        after=after,
        added=tuple(name for name in after.environments if name not in before.environments),
        removed=tuple(name for name in before.environments if name not in after.environments),
        templates=templates,
        objects=compare_objects(before, after),
        findings=tuple(_findings(before, after)),
        costs=tuple(_costs(before, after)),
        proven_again=tuple(dict.fromkeys(change.environment for change in templates.resources if _proves(change))),
        dangers=dangers(templates, existing=frozenset(before.stacks)),
    )


def _summary(assembly: Assembly, environment: str) -> dict[str, Any]:
    return assembly.summaries.get(environment, {})


def _proves(change: ResourceChange) -> bool:
    return change.type == HEALTH_GATE and change.effect not in (Effect.REMOVED, Effect.KEPT_BEHIND)


def _findings(before: Assembly, after: Assembly) -> Iterable[FindingChange]:
    """A finding is the same when its rule and its place are; a file without findings of before tells nothing of what is new."""
    for name in dict.fromkeys([*after.environments, *before.environments]):
        old, new = ({(found["id"], found["path"]): found for found in _summary(side, name).get("findings", ())} for side in (before, after))
        if name in before.environments and name not in before.summaries:
            continue
        yield from (FindingChange(name, new=True, finding=found) for key, found in new.items() if key not in old)
        yield from (FindingChange(name, new=False, finding=found) for key, found in old.items() if key not in new)


def _costs(before: Assembly, after: Assembly) -> Iterable[CostChange]:
    for name in dict.fromkeys([*after.environments, *before.environments]):
        if name in before.environments and name not in before.summaries:
            continue
        old, new = ({line["what"]: line for line in _summary(side, name).get("cost", ())} for side in (before, after))
        if old != new:
            whats = dict.fromkeys([*new, *old])
            lines = tuple(_line(what, old.get(what), new.get(what)) for what in whats if old.get(what) != new.get(what))
            unknown = tuple(what for what in whats if any(line and line["usd_per_hour"] is None for line in (old.get(what), new.get(what))))
            yield CostChange(name, _total(old), _total(new), lines, unknown)


def _total(lines: dict[str, Any]) -> float:
    return sum(line["usd_per_hour"] or 0.0 for line in lines.values())


def _line(what: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> CostLine:
    known = new or old or {}
    return CostLine(
        what=f"{what} ({known.get('unit', '')})",
        before=old["usd_per_hour"] if old else 0.0,
        after=new["usd_per_hour"] if new else 0.0,
        priced=all(line is None or line["usd_per_hour"] is not None for line in (old, new)),
        price=str(known.get("price") or "price unknown"),
    )
