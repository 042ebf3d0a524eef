"""How sure an advice is: bands, more requests than asked for, and what the other engine says."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from commands.plan_words import trust
from dpd.planning.calibration import Calibration
from dpd.planning.candidate import Candidate, Case
from dpd.planning.case import case_of, endpoint_of
from dpd.planning.plan import Plan, make
from dpd.planning.sweep import Answers, Ask, closed_form
from dpd.planning.traffic import Traffic
from dpd.planning.verdict import Decision
from tests.support import environment


def planned(rate: float, tokens: int = 8000, ask: Ask | None = None, calibration: dict[str, Any] | None = None, **goal: float) -> Plan:
    here = environment()
    traffic = Traffic.model_validate(
        {
            "version": 1, "arrival": {"rate_per_second": rate}, "input_tokens": {"fixed": tokens}, "output_tokens": {"fixed": 250},
            "objectives": goal,
        }
    )  # fmt: skip
    index, endpoint = endpoint_of(here, None)
    case, source = case_of(here, endpoint, traffic)
    return make(here, index, case, source=source, ask=ask, calibration=Calibration.model_validate(calibration or {}))


def slower(factor: float) -> Ask:
    """An engine whose gaps between tokens are longer than those of the closed form."""

    def ask(candidates: Sequence[Candidate], case: Case, done: Callable[[], None]) -> Answers:
        found, refused = closed_form()(candidates, case, done)
        return [replace(one, itl_ms=one.itl_ms.scaled(factor)) for one in found], refused

    return ask


def test_far_from_every_limit_an_advice_is_settled() -> None:
    found = planned(0.1, 4000, ttft_ms=5000, itl_ms=200)
    assert found.verdict.decision is Decision.DO_NOT
    assert found.certain
    assert found.settled
    assert found.verdict.holds_to == 2.0
    assert not any("good end" in note or "simulation may" in note for note in trust(found))


def test_near_the_cliff_nothing_is_certain_though_every_band_holds() -> None:
    """At 2 requests/s the tail is one decode step; at a little more it is a whole prompt. A factor alone does not know that."""
    found = planned(2.0, 4000, ttft_ms=5000)
    goal, seen = found.case.goal, found.banded(found.verdict.chosen)
    assert found.verdict.decision is Decision.DO_NOT
    assert seen.ttft_tail.high <= goal.ttft_ms
    assert seen.itl_tail.high <= goal.itl_ms
    assert not found.certain
    assert not found.settled
    assert found.verdict.holds_to is not None
    assert found.verdict.holds_to < 1.5
    assert any("more requests" in note for note in trust(found))
    assert any("a simulation may give another advice" in note for note in trust(found))


def test_a_measurement_can_settle_it() -> None:
    exact = {"low": 0.95, "high": 1.05}
    measured = {"date": "2026-11-20", "ttft": exact, "itl": exact, "handover_ms": {"low": 0, "high": 0}}
    assert not planned(1.0).settled
    assert planned(1.0, calibration=measured).settled


def test_what_was_rejected_may_be_right_at_the_good_end() -> None:
    found = planned(2.0, itl_ms=300, ttft_ms=9000)
    assert found.verdict.decision is not Decision.DO_NOT
    first, *_ = found.rejected
    assert found.perhaps(first)
    assert not found.settled
    assert any(note.startswith(f"{first.candidate.name} would hold the objectives") for note in trust(found))


def test_engines_that_disagree_are_told_on() -> None:
    found = planned(0.5, ask=slower(10.0), ttft_ms=9000)
    assert found.verdict.decision is Decision.NONE
    assert found.second is Decision.DO_NOT
    assert not found.settled
    assert any("the two engines disagree" in note and "do not disaggregate" in note for note in trust(found))


def test_engines_that_agree_say_so() -> None:
    found = planned(0.1, 4000, ask=slower(1.0), ttft_ms=5000, itl_ms=200)
    assert found.second is found.verdict.decision
    assert found.settled
    assert "the closed form gives the same advice" in list(trust(found))
