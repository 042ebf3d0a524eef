"""How a rule is declared, and how all of them are run."""

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from dpd.environment.environment import Environment
from dpd.environment.faults import UNUSED_ACKNOWLEDGEMENT
from dpd.finding import Finding, Level, safe, shown

if TYPE_CHECKING:
    from dpd.preflight.store import Reading

FAMILIES: Final = (
    "instances", "placement", "addresses", "capacity", "packing", "memory", "handover", "parallelism", "expert_parallel", "tiers",
    "backends", "llmd", "operator", "scaling", "runtime", "engines",
    "names", "secrets", "kubernetes", "lustre", "buckets", "security_groups", "network", "cluster", "groups", "add_ons",
    "sources", "gate", "observe", "raw", "manifests", "llmd_pods", "llmd_routing",
    "preflight", "preflight_account", "preflight_capacity", "preflight_storage", "preflight_cluster",
)  # fmt: skip
"""Modules of this package that hold rules over an environment, in the order of the table of checks."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a rule may know besides the environment. The clock is injected so that the same input gives the same output."""

    today: date
    preflight: "Reading | None" = None
    """What the account said, when somebody asked it. ``None``: the rules look at the file alone, without a folder around it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a rule yields: one place that breaks it. ``level`` overrides the rule's own."""

    path: str
    message: str
    fix: str
    value: Any = None
    limit: str = ""
    level: Level | None = None


Rule = Callable[[Environment, Context], Iterable[Problem]]


@dataclass(frozen=True, slots=True)
class Check:
    """A rule with what ``dpd explain`` says about it.

    ``why`` says what happens on a real cluster when the rule is broken; ``link`` is the document that states the
    rule; ``seen_in`` are public reports of people who met the failure. A ``binding`` rule cannot be acknowledged: of a
    file that breaks it nothing can be built.
    """

    id: str
    title: str
    level: Level
    why: str
    link: str
    family: str
    rule: Rule
    seen_in: tuple[str, ...] = ()
    binding: bool = False

    def findings(self, environment: Environment, context: Context) -> Iterator[Finding]:
        """Run the rule."""
        yield from map(self.finding, self.rule(environment, context))

    def finding(self, problem: Problem) -> Finding:
        """What the user reads of a problem."""
        return Finding(
            id=self.id,
            level=problem.level or self.level,
            path=safe(problem.path),
            message=safe(problem.message),
            value=shown(problem.value, key=problem.path.rsplit(".", 1)[-1]),
            limit=safe(problem.limit),
            fix=safe(problem.fix),
            link=self.link,
        )


_CHECKS: Final[dict[str, Check]] = {}


def check(
    id: str, title: str, *, why: str, link: str, level: Level = Level.ERROR, seen_in: tuple[str, ...] = (), binding: bool = False
) -> Callable[[Rule], Rule]:
    """Register a rule. Raises ``ValueError`` when the id is taken."""

    def register(rule: Rule) -> Rule:
        if id in _CHECKS:
            raise ValueError(f"two checks are called {id}")
        family = rule.__module__.rsplit(".", 1)[-1]
        _CHECKS[id] = Check(id, title, level, why, link, family, rule, seen_in, binding)
        return rule

    return register


@functools.cache
def _load() -> None:
    for family in FAMILIES:
        importlib.import_module(f"dpd.checks.{family}")


def checks() -> tuple[Check, ...]:
    """All rules over an environment, by family and id."""
    _load()
    return tuple(sorted(_CHECKS.values(), key=lambda check: (FAMILIES.index(check.family), check.id)))


def run(environment: Environment, context: Context) -> list[Finding]:
    """Every finding about one environment, with the user's acknowledgements applied."""
    findings = [finding for check in checks() for finding in check.findings(environment, context)]
    return acknowledged(environment, findings)


def acknowledged(environment: Environment, findings: list[Finding]) -> list[Finding]:
    """Mark the findings that the file accepts, and report acknowledgements that accept nothing."""
    _load()
    binding = {known.id for known in _CHECKS.values() if known.binding} & {finding.id for finding in findings}
    used: set[int] = set()
    result = []
    for finding in findings:
        accepting = [
            index
            for index, entry in enumerate(environment.acknowledge)
            if entry.id == finding.id and entry.id not in binding and entry.path in (None, finding.path)
        ]
        used.update(accepting)
        result.append(replace(finding, acknowledged=environment.acknowledge[accepting[0]].reason) if accepting else finding)
    for index, entry in enumerate(environment.acknowledge):
        if index not in used:
            occurs = entry.id in binding
            result.append(
                UNUSED_ACKNOWLEDGEMENT.finding(
                    f"acknowledge[{index}]",
                    "accepts a finding with which nothing can be built" if occurs else "accepts a finding that does not occur",
                    "correct the file and remove the entry" if occurs else "remove the entry, or correct its id or path",
                    value=entry.id,
                )
            )
    return result
