"""A review in words, the same for Markdown and for HTML."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from dpd.review.compare import CostChange, Review, Verdict
from dpd.review.objects import ObjectChange
from dpd.review.templates import Effect, ResourceChange

HEADLINES: Final = {
    Verdict.NOTHING: "Nothing changes",
    Verdict.CHANGES: "Changes, none of them dangerous",
    Verdict.DANGEROUS: "Dangerous changes",
}
_ORDER: Final = list(Effect)


def counted(number: int, noun: str) -> str:
    """``1 object``, ``2 objects``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def lead(review: Review) -> str:
    """What the verdict is about, in one sentence."""
    if review.verdict is Verdict.NOTHING:
        return "Templates and manifests are the same."
    counts = Counter(change.effect for change in review.templates.resources)
    parts = [f"{counts[effect]:,} {effect.value}" for effect in _ORDER if counts[effect]]
    said = [f"AWS resources: {', '.join(parts) or 'none'}", f"Kubernetes objects: {len(review.objects):,}"]
    if review.dangers:
        said.insert(0, counted(len(review.dangers), "danger"))
    said += [f"new environments: {', '.join(review.added)}"] if review.added else []
    said += [f"environments gone: {', '.join(review.removed)}"] if review.removed else []
    return "; ".join(said) + "."


def worst_first(changes: Iterable[ResourceChange]) -> list[ResourceChange]:
    """Resources in the order in which a reviewer wants them."""
    return sorted(changes, key=lambda change: (_ORDER.index(change.effect), change.stack, change.id))


def details(change: ResourceChange | ObjectChange, most: int = 6) -> list[str]:
    """The fields that differ, cut when there are many."""
    said = [str(leaf) for leaf in change.leaves[:most]]
    if len(change.leaves) > most:
        said.append(f"and {counted(len(change.leaves) - most, 'field')} more")
    if isinstance(change, ResourceChange) and change.because:
        said.append(change.because)
    return said


def gate(review: Review) -> str:
    """What the health gate will do."""
    if not review.proven_again:
        return "The health gate has nothing to prove again: its question stays the same."
    endpoints = [
        f"{name}: {', '.join(endpoint['name'] for endpoint in review.after.summaries[name]['topology']['endpoints']) or 'no endpoint'}"
        for name in review.proven_again
    ]
    return f"The health gate proves again, and fails the deployment if it cannot: {'; '.join(endpoints)}."


def cost(change: CostChange) -> str:
    """The difference in money, with what it does not contain."""
    sign = "+" if change.delta >= 0 else "-"
    said = (
        f"{change.environment}: {sign}{abs(change.delta):,.2f} USD/h of what has a price (from {change.before:,.2f} to {change.after:,.2f})"
    )
    return f"{said}; without {', '.join(change.unknown)}" if change.unknown else said
