"""A review for machines."""

import json
from dataclasses import asdict
from typing import Any, Final

from dpd.review.compare import Review

VERSION: Final = 1


def as_json(review: Review) -> str:
    """Everything that a review says, as JSON. Words of ``verdict``, ``kind`` and ``effect`` are stable."""
    content: dict[str, Any] = {
        "version": VERSION,
        "verdict": review.verdict.value,
        "environments": {"added": review.added, "removed": review.removed},
        "dangers": [asdict(danger) for danger in review.dangers],
        "resources": [{**asdict(change), "effect": change.effect.value} for change in review.templates.resources],
        "objects": [asdict(change) for change in review.objects],
        "findings": [asdict(change) for change in review.findings],
        "cost": [{**asdict(change), "delta": change.delta} for change in review.costs],
        "proven_again": review.proven_again,
    }
    return json.dumps(content, indent=2) + "\n"
