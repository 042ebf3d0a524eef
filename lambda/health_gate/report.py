"""What a run found: whole as JSON and as a table, and short enough for a response to CloudFormation."""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final

from health_gate.result import Outcome, Patience, Result

GRACE_SECONDS: Final = 300
"""How long a refusal may be one of a permission that has not spread yet."""
_COLUMN: Final = 30
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Report:
    """Results in the order of the checks; ``started`` in seconds of the epoch.

    ``digest`` is the deployment's own word for what was proven; a run that no deployment asked for has none.
    """

    environment: str
    results: tuple[Result, ...]
    started: float
    seconds: float
    digest: str = ""

    @property
    def outcome(self) -> Outcome:
        """PASS only when every check passed."""
        outcomes = {result.outcome for result in self.results}
        if outcomes == {Outcome.PASS}:
            return Outcome.PASS
        return Outcome.FAIL if Outcome.FAIL in outcomes else Outcome.UNKNOWN

    @property
    def open(self) -> list[Result]:
        """What did not pass, without what was skipped for it."""
        return [result for result in self.results if not result.passed and not result.skipped]

    def settled(self, waited: float) -> list[Result]:
        """What did not pass and will not, however long one waits."""
        return [
            result
            for result in self.open
            if result.patience is Patience.NEVER or (result.patience is Patience.GRACE and waited >= GRACE_SECONDS)
        ]

    def causes(self, waited: float = 0) -> list[Result]:
        """What did not pass, the first cause first: of what time cannot change, else of all, the first in the order of the checks."""
        settled = self.settled(waited)
        return settled + [result for result in self.open if result not in settled]

    def as_dict(self) -> dict[str, Any]:
        """The whole report as plain values."""
        counts = Counter(result.outcome.value for result in self.results)
        return {
            "environment": self.environment,
            "digest": self.digest,
            "outcome": self.outcome.value,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "counts": {outcome.value: counts[outcome.value] for outcome in Outcome},
            "causes": [f"{result.id} {result.endpoint}".rstrip() for result in self.causes()],
            "results": [{**asdict(result), "outcome": result.outcome.value, "patience": result.patience.name} for result in self.results],
        }

    def as_json(self) -> str:
        """The whole report as JSON."""
        return json.dumps(self.as_dict(), indent=2)

    def table(self) -> str:
        """The whole report for a terminal."""
        lines = [f"{self.outcome}  {self.environment}, {len(self.results)} checks in {self.seconds:.1f} s", ""]
        for result in self.results:
            lines.append(f"{result.outcome:<8}{f'{result.id} {result.endpoint}'.rstrip():<{_COLUMN}}  {result.summary}")
            if not result.passed and not result.skipped:
                lines += [f"{'':<8}-> {line}" for line in (result.remedy, result.link) if line]
        return "\n".join(lines) + "\n"

    def summary(self, limit: int, waited: float = 0) -> str:
        """The causes, first one first, in at most ``limit`` bytes of UTF-8."""
        causes = self.causes(waited)
        if not causes:
            return f"All {len(self.results)} checks passed."
        texts = [
            f"{result.outcome} {f'{result.id} {result.endpoint}'.rstrip()}: {result.summary} {result.remedy} {result.link}".rstrip()
            for result in causes[:_SHOWN]
        ]
        if len(causes) > _SHOWN:
            texts.append(f"And {len(causes) - _SHOWN} more.")
        return shortened(" | ".join(texts), limit)


def shortened(text: str, limit: int) -> str:
    """Cut to at most ``limit`` bytes of UTF-8, between characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= limit else encoded[: limit - 3].decode("utf-8", "ignore") + "..."
