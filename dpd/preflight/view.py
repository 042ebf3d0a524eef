"""The answers as a rule looks at them: only those about the very environment, each with the question that asked for it."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from dpd.environment.environment import Environment
from dpd.preflight.questions import Kind, Question, questions
from dpd.preflight.store import Reading

if TYPE_CHECKING:
    from dpd.preflight.facts import Answers, Facts

Answer = TypeVar("Answer")


class _NobodyAsked:
    """Answers where there are none. The real type costs a tenth of a check, which must not be paid where nobody asked."""

    def __getattr__(self, kind: str) -> dict[str, Any]:
        return {}


_NONE: Final = cast("Answers", _NobodyAsked())


def facts_about(environment: Environment, reading: Reading | None) -> "Facts | None":
    """The facts, if they are of the environment's account and Region. Those of another place say nothing here."""
    facts = reading.facts if reading else None
    return facts if facts and about(facts) == (environment.account, environment.region) else None


def about(facts: "Facts") -> tuple[str, str]:
    """Account and Region that were asked."""
    return facts.account, facts.region


def answers_about(environment: Environment, reading: Reading | None) -> "Answers":
    """The answers, none where nobody asked."""
    facts = facts_about(environment, reading)
    return facts.answers if facts else _NONE


def each(environment: Environment, answers: Mapping[str, Answer | None], kind: Kind) -> Iterator[tuple[Question, Answer | None]]:
    """Every answered question of a kind with its answer; ``None`` is AWS's word that there is no such thing."""
    if not answers:
        return
    for question in questions(environment):
        if question.kind == kind and question.subject in answers:
            yield question, answers[question.subject]


def found(environment: Environment, answers: Mapping[str, Answer | None], kind: Kind) -> Iterator[tuple[Question, Answer]]:
    """The same, without what is not there."""
    for question, answer in each(environment, answers, kind):
        if answer is not None:
            yield question, answer


def open_questions(environment: Environment, facts: "Facts") -> Iterator[Question]:
    """The questions without an answer: AWS refused it, or the file has changed since."""
    for question in questions(environment):
        if question.subject not in getattr(facts.answers, question.kind):
            yield question
