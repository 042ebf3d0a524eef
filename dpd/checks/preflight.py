"""Rules about the answers of a preflight themselves: there are some, they are of this account, they are recent, none is missing."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from dpd.catalog import preflight
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.preflight.view import about, facts_about, open_questions

if TYPE_CHECKING:
    from dpd.preflight.facts import Unanswered
    from dpd.preflight.questions import Question

DOCS: Final = "docs/preflight.md"


def run_again(environment: Environment) -> str:
    """What asks the account (again)."""
    return f"run: dpd preflight -e {environment.name}"


@check(
    "PRE001",
    "The account was asked",
    why="Quotas, capacity, weights and permissions are facts of the account, not of the file. Where nobody asked, a deployment finds out, "
    "with nodes that are billed meanwhile.",
    link=DOCS,
    level=Level.INFO,
)
def asked(environment: Environment, context: Context) -> Iterator[Problem]:
    """Say how to ask."""
    if context.preflight and context.preflight.facts is None and not context.preflight.fault:
        yield Problem("account", "quotas, weights and permissions were not looked at", run_again(environment), value=environment.account)


@check(
    "PRE002",
    "The answers can be read",
    why="A file that is damaged or of another version would look like an account without faults.",
    link=DOCS,
)
def readable(environment: Environment, context: Context) -> Iterator[Problem]:
    """Refuse a file that is not what a preflight wrote."""
    if context.preflight and context.preflight.fault:
        yield Problem("account", f"{context.preflight.file} {context.preflight.fault}", f"{run_again(environment)}; or remove the file")


@check(
    "PRE003",
    "The answers are about this environment",
    why="Quotas belong to an account and a Region. Those of another say nothing about where the environment goes.",
    link=DOCS,
    level=Level.WARNING,
)
def same_place(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare account and Region."""
    facts = context.preflight.facts if context.preflight else None
    if facts and about(facts) != (environment.account, environment.region):
        yield Problem(
            "account",
            f"the answers are about account {facts.account} in {facts.region}",
            run_again(environment),
            value=f"{environment.account}, {environment.region}",
        )


@check(
    "PRE004",
    "The answers are recent",
    why="Quotas are raised and lowered, plans end, add-on versions are withdrawn, buckets are emptied.",
    link=DOCS,
    level=Level.WARNING,
)
def recent(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare the day of the answers with today."""
    if facts := facts_about(environment, context.preflight):
        days, most = (context.today - facts.taken_at.date()).days, preflight.oldest_days()
        said = f"the answers are {days} days old" if days > most else f"the answers are of {facts.taken_at:%Y-%m-%d}, which is to come"
        if days > most or days < -1:
            yield Problem("account", said, run_again(environment), value=f"{facts.taken_at:%Y-%m-%d}", limit=f"at most {most} days")


@check(
    "PRE005",
    "Every question has an answer",
    why="What was not answered is not known to be right: a permission was missing, AWS was not reached, or the file asks for more than "
    "it did when the account was asked.",
    link=DOCS,
    level=Level.WARNING,
)
def answered(environment: Environment, context: Context) -> Iterator[Problem]:
    """Name each question without an answer, and the action that would answer it."""
    if facts := facts_about(environment, context.preflight):
        reasons = {(one.kind, one.subject): one for one in facts.unanswered}
        for question in open_questions(environment, facts):
            yield _open(question, reasons.get((question.kind, question.subject)), run_again(environment))


_WORDS: Final = {
    "denied": "the caller may not {action}",
    "throttled": "AWS answered too many calls at {action}",
    "unreachable": "AWS could not be reached for {action}",
    "refused": "AWS refused {action}{said}",
    "no_call": "no AWS call tells{said}",
}


def _open(question: "Question", why: "Unanswered | None", again: str) -> Problem:
    what = f"{question.kind.replace('_', ' ')} {question.subject}".strip()
    if why is None:
        return Problem(question.path, f"UNKNOWN: {what}: nobody asked", again)
    said = f": {why.said}" if why.said else ""
    message = f"UNKNOWN: {what}: {_WORDS[why.reason].format(action=why.action, said=said)}"
    fix = {
        "denied": f"allow {why.action}, then {again}",
        "no_call": "look at it by hand",
    }.get(why.reason, f"later {again}")
    return Problem(question.path, message, fix, level=Level.INFO if why.reason == "no_call" else None)
