"""Every rule in one shape, for ``dpd explain`` and the docs: faults of a file, checks of an environment and of its manifests."""

from dpd.checks.registry import Check, checks
from dpd.environment.faults import FAULTS, Fault
from dpd.promotion.faults import FAULTS as PROMOTION
from dpd.promotion.settings import FAULTS as RELEASE

Rule = Fault | Check
"""Both have an id, a title, a level, a reason, a link and reports."""


def families() -> dict[str, tuple[Rule, ...]]:
    """All rules, by what they look at."""
    found: dict[str, tuple[Rule, ...]] = {"The file": FAULTS}
    for check in checks():
        title = check.family.replace("_", " ").capitalize()
        found[title] = (*found.get(title, ()), check)
    return found | {"Promotion": PROMOTION, "Release": RELEASE}


def rules() -> dict[str, Rule]:
    """All rules by id."""
    return {rule.id: rule for family in families().values() for rule in family}
