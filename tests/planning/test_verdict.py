"""The decision: each advice for the traffic that deserves it, with a reason and what would turn it."""

from dataclasses import replace
from typing import Any

import pytest

from dpd.planning.calibration import Calibration
from dpd.planning.candidate import Candidate, Case, Goal
from dpd.planning.case import at_rate, default_chunk
from dpd.planning.closed_form import estimate
from dpd.planning.plan import impossible
from dpd.planning.sweep import CHUNKS, THRESHOLDS, Sweep, closed_form, holds, rank, sweep, tensor_parallels
from dpd.planning.verdict import FACTORS, Decision, Verdict, decide, finalists, missed
from tests.planning.simulated import case


def asked(rate: float, tokens: int = 8000, **changes: Any) -> Case:
    return case(rate, lengths=(tokens,), gpu_memory_utilization=0.9, **changes)


def verdict(question: Case) -> Verdict:
    found = sweep(question, closed_form())
    three = [one for one in finalists(question, found) if one]
    elsewhere = {
        (outcome.candidate, factor): outcome
        for factor in FACTORS
        for outcome in closed_form()([one.candidate for one in three], at_rate(question, factor), lambda: None)[0]
    }
    return decide(question, found, elsewhere)


@pytest.mark.parametrize(
    ("question", "decision", "layout"),
    [
        (asked(0.5), Decision.DO_NOT, "2 x TP8, chunk 8192"),
        (asked(10, 500), Decision.DO_NOT, "2 x TP8, chunk 8192"),
        (asked(2), Decision.TUNE_CHUNK, "2 x TP8, chunk 1024"),
        (asked(3, 2000), Decision.TUNE_CHUNK, "2 x TP8, chunk 1024"),
        (replace(asked(4), goal=Goal(2500, 30)), Decision.DISAGGREGATE, "3P:1D TP4, threshold 4096"),
        (asked(8), Decision.NONE, "4 x TP4, chunk 1024"),
    ],
)
def test_every_advice(question: Case, decision: Decision, layout: str) -> None:
    found = verdict(question)
    assert found.decision is decision
    assert found.chosen.candidate.name.rpartition(", ")[0] == layout.rpartition(", ")[0]
    assert holds(found.chosen, question) == (decision is not Decision.NONE)
    assert found.runner_up is not None
    assert bool(found.runner_up.candidate.prefillers) != bool(found.chosen.candidate.prefillers)
    assert found.disaggregated is not None
    assert "p99" in found.reason or decision is Decision.DO_NOT
    assert (found.headroom > 0) == (decision is not Decision.NONE)
    assert found == verdict(question)


def test_what_would_change_is_true() -> None:
    """Half of the rate really gets the advice that is announced for it."""
    found = verdict(asked(2))
    (fewer,) = [flip for flip in found.flips if flip.startswith("fewer")]
    assert "at 1/s (0.5 times as many)" in fewer
    assert fewer.endswith(str(verdict(at_rate(asked(2), 0.5)).decision))
    assert any("1.5 requests/s" in flip for flip in found.flips)
    assert any("inter-token objective above about 330 ms" in flip for flip in found.flips)
    looser = replace(asked(2), goal=Goal(2000, 350))
    assert verdict(looser).decision is Decision.DO_NOT


def test_more_nodes_are_named_where_none_is_enough() -> None:
    (more,) = [flip for flip in verdict(asked(8)).flips if flip.startswith("more nodes")]
    nodes = int(more.split()[3])
    larger = replace(asked(8), gpus=8 * nodes)
    assert nodes > 2
    assert verdict(larger).decision is not Decision.NONE


def test_a_slower_link_turns_what_it_says() -> None:
    question = replace(asked(4), goal=Goal(2500, 30))
    slow = replace(question, efa_devices=dict.fromkeys((1, 2, 4, 8), 0))
    assert verdict(slow).decision is Decision.NONE
    assert all(not outcome.candidate.prefillers for outcome in sweep(slow, closed_form()).disaggregated)


def test_the_sweep_has_every_layout_of_sixteen_gpus() -> None:
    small = asked(4, model="qwen3-32b")
    found = sweep(small, closed_form())
    sizes = [8, 4, 2, 1]
    assert tensor_parallels(small)[0] == sizes
    assert {one.candidate for one in found.colocated} == {
        Candidate.colocated(16 // size, size, chunk) for size in sizes for chunk in CHUNKS
    }
    whole = {(one.candidate.prefillers, one.candidate.decoders, one.candidate.tensor_parallel) for one in found.disaggregated}
    assert whole == {(prefillers, 16 // size - prefillers, size) for size in sizes for prefillers in range(1, 16 // size)}
    assert [one.candidate.threshold_tokens for one in found.threshold_curve] == [one for one in THRESHOLDS if one < 8000]
    assert all(one.candidate.gpus == 16 for one in (*found.colocated, *found.disaggregated))


def test_progress_ends_where_it_said() -> None:
    steps: list[tuple[int, int]] = []
    sweep(asked(1, count=60), closed_form(), progress=lambda done, of: steps.append((done, of)))
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]
    assert len({of for _, of in steps}) == 1


def test_rank_prefers_what_holds_then_what_misses_less() -> None:
    question = asked(4)
    found = sweep(question, closed_form())
    ordered = sorted((*found.colocated, *found.disaggregated), key=lambda outcome: rank(outcome, question))
    held = [holds(outcome, question) for outcome in ordered]
    assert held == sorted(held, reverse=True)


def test_missed_says_what() -> None:
    question = asked(4)
    assert "inter-token latency is 6." in missed(estimate(Candidate.colocated(2, 8), question), question)
    assert "it takes 3 requests/s of 4" in missed(estimate(Candidate.disaggregated(1, 1, 8), question), question)
    assert missed(estimate(Candidate.colocated(2, 8), asked(0.5)), asked(0.5)) == ""


def test_an_empty_sweep_has_no_verdict() -> None:
    with pytest.raises(ValueError, match="no layout"):
        decide(asked(1), Sweep((), (), (), ()), {})


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (Goal(100, 50), "a prompt of 8,000 tokens takes about"),
        (Goal(2000, 5), "one decode step takes about"),
        (Goal(2000, 50), ""),
    ],
)
def test_objectives_below_what_one_request_takes(goal: Goal, words: str) -> None:
    question = replace(asked(1), goal=goal)
    said = impossible(question)
    assert (words in said) if words else said == ""
    assert "H100" in said or not words


def test_a_calibration_can_make_an_objective_impossible() -> None:
    assert impossible(replace(asked(1), goal=Goal(500, 50))) == ""
    assert impossible(replace(asked(1), goal=Goal(500, 50)), Calibration(prefill_speed=0.5))


@pytest.mark.parametrize(("instance", "chunk"), [("ml.p5.48xlarge", 8192), ("ml.p5en.48xlarge", 8192), ("ml.p4de.24xlarge", 2048)])
def test_the_untuned_chunk_is_that_of_the_gpu(instance: str, chunk: int) -> None:
    """A100 are held to smaller steps than newer GPUs of the same memory."""
    question = asked(0.5, model="qwen3-32b", instance=instance)
    assert default_chunk(question) == chunk
    found = verdict(question)
    assert found.decision is Decision.DO_NOT
    assert found.chosen.candidate.chunk_tokens == chunk
