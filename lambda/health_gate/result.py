"""What a check says, and the list of all checks."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, Final

Evidence = str | int | float | bool | None


class Outcome(StrEnum):
    """UNKNOWN is no kind of success: what could not be examined is not proven."""

    PASS = "PASS"  # noqa: S105 (no password)
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"


class Patience(IntEnum):
    """How long a deployment may wait for another result."""

    NEVER = 0
    """Time cannot change it."""
    GRACE = 1
    """It may be a permission that has not spread yet."""
    DEADLINE = 2
    """It is what one sees while nodes start and models load."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check. ``id``, ``endpoint`` and ``seconds`` are filled in by the run."""

    outcome: Outcome
    summary: str
    remedy: str = ""
    link: str = ""
    evidence: dict[str, Evidence] = field(default_factory=dict)
    patience: Patience = Patience.NEVER
    id: str = ""
    endpoint: str = ""
    seconds: float = 0.0
    skipped: bool = False

    @property
    def passed(self) -> bool:
        """Whether the check passed."""
        return self.outcome is Outcome.PASS

    def with_evidence(self, **evidence: Evidence) -> "Result":
        """Copy with more evidence."""
        return replace(self, evidence={**self.evidence, **evidence})


def passed(summary: str, **evidence: Evidence) -> Result:
    """The check holds."""
    return Result(Outcome.PASS, summary, evidence=evidence)


def failed(summary: str, remedy: str, *, link: str = "", patience: Patience = Patience.NEVER, **evidence: Evidence) -> Result:
    """The check does not hold."""
    return Result(Outcome.FAIL, summary, remedy, link, evidence, patience)


def unknown(summary: str, remedy: str, *, link: str = "", patience: Patience = Patience.DEADLINE, **evidence: Evidence) -> Result:
    """Could not be examined."""
    return Result(Outcome.UNKNOWN, summary, remedy, link, evidence, patience)


LAYERS: Final = ("aws", "cluster", "workload", "traffic", "kv", "answers")
"""In the order in which a fault shows: what is above cannot work when what is below does not."""
ENDPOINT_LAYERS: Final = LAYERS[2:]


@dataclass(frozen=True, slots=True)
class Check:
    """A check: what it proves and what it cannot, how long it may take, and what it needs besides the layers before its own."""

    id: str
    proves: str
    cannot: str
    seconds: float
    needs: tuple[str, ...]
    function: Callable[[Any], Result | None]

    @property
    def layer(self) -> str:
        """The part of the id before the dot."""
        return self.id.partition(".")[0]

    @property
    def per_endpoint(self) -> bool:
        """Whether it runs once for every endpoint."""
        return self.layer in ENDPOINT_LAYERS


CHECKS: Final[dict[str, Check]] = {}
"""Every check by its id."""


def check(
    id: str, *, proves: str, cannot: str, seconds: float = 20, needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Any], Result | None]], Callable[[Any], Result | None]]:
    """Register a check. A check returns ``None`` when the spec gives it nothing to examine."""

    def register(function: Callable[[Any], Result | None]) -> Callable[[Any], Result | None]:
        if id in CHECKS:
            raise ValueError(f"two checks are called {id}")
        CHECKS[id] = Check(id, proves, cannot, seconds, needs, function)
        return function

    return register
