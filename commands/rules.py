"""Every rule in one shape, for ``dpd explain`` and the docs: faults of a file, checks of an environment, rules of manifests."""

from typing import Protocol

from dpd.checks.registry import checks
from dpd.environment.faults import FAULTS
from dpd.finding import Level


class Rule(Protocol):
    """What a user may want to know about a rule."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def level(self) -> Level: ...  # noqa: D102
    @property
    def why(self) -> str: ...  # noqa: D102
    @property
    def link(self) -> str: ...  # noqa: D102
    @property
    def seen_in(self) -> tuple[str, ...]: ...  # noqa: D102


def families() -> dict[str, tuple[Rule, ...]]:
    """All rules, by what they look at."""
    found: dict[str, tuple[Rule, ...]] = {"The file": FAULTS}
    for check in checks():
        title = check.family.replace("_", " ").capitalize()
        found[title] = (*found.get(title, ()), check)
    return found


def rules() -> dict[str, Rule]:
    """All rules by id."""
    return {rule.id: rule for family in families().values() for rule in family}
