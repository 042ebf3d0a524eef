"""From a candidate to its outcome, by simulation."""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dpd.planning import two_stage
from dpd.planning.calibration import Calibration
from dpd.planning.candidate import Candidate, Case, Outcome, Percentiles
from dpd.planning.gaps import Written, pace
from dpd.planning.simulator import Pool, Served, Simulator, SimulatorError
from dpd.planning.sweep import Answers, Ask, closed_form, rank

THREADS: Final = 2
"""The simulator holds no lock of Python's while it runs."""
MOST: Final = 40
"""Layouts of one sweep that are simulated before the closed form sorts them. Two nodes have fewer."""
ENGINE: Final = "simulation"
_MS: Final = 1e3
_GROWS: Final = 0.05
"""A queue grows when waiting lengthens by this share of the time that passes."""
_FEWEST: Final = 16


def simulate(simulator: Simulator, candidate: Candidate, calibration: Calibration) -> Outcome:
    """Simulate one candidate. Raises ``SimulatorError``, with the reason, where it cannot be."""
    case = simulator.case
    if candidate.kind == "colocated":
        pool = Pool(candidate.decoders, candidate.tensor_parallel, candidate.chunk_tokens, case.most_sequences)
        return _outcome(candidate, case, simulator.run(pool, case.requests), frozenset(), 0.0)
    stages = two_stage.run(simulator, candidate, case, calibration)
    return _outcome(candidate, case, stages.served, stages.handed_over, stages.link_utilisation)


def simulate_all(candidates: Iterable[Candidate], case: Case, calibration: Calibration, done: Callable[[], None] = lambda: None) -> Answers:
    """Simulate candidates, two at a time: the outcomes in their order, and why the others have none. ``done`` is called after each."""
    listed = list(candidates)
    outcomes: dict[Candidate, Outcome] = {}
    refused: dict[Candidate, str] = {}

    def one(candidate: Candidate) -> None:
        try:
            outcomes[candidate] = simulate(simulator, candidate, calibration)
        except SimulatorError as error:
            refused[candidate] = str(error)
        done()

    with Simulator(case, calibration) as simulator, ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(one, listed))
    return [outcomes[candidate] for candidate in listed if candidate in outcomes], refused


def simulated(calibration: Calibration, *, most: int = MOST) -> Ask:
    """The simulator as the engine of a sweep. It answers the same question once.

    Of more than ``most`` layouts those are simulated that the closed form ranks first, and whatever is first after that. The others keep
    the answer of the closed form, which says so: none of them is the best one.
    """
    known: dict[tuple[Candidate, Case], Outcome | str] = {}
    screen = closed_form(calibration)

    def answer(candidates: list[Candidate], case: Case, done: Callable[[], None]) -> None:
        if candidates:
            outcomes, refused = simulate_all(candidates, case, calibration, done)
            known.update({(outcome.candidate, case): outcome for outcome in outcomes})
            known.update({(candidate, case): why for candidate, why in refused.items()})

    def screened(candidates: list[Candidate], case: Case, done: Callable[[], None]) -> None:
        outcomes, refused = screen(candidates, case, lambda: None)
        known.update({(outcome.candidate, case): outcome for outcome in outcomes})
        known.update({(candidate, case): why for candidate, why in refused.items()})
        order = sorted(outcomes, key=lambda outcome: (rank(outcome, case), outcome.candidate))
        answer([outcome.candidate for outcome in order[:most]], case, done)
        while first := _first_without(known, candidates, case):
            answer([first], case, done)

    def ask(candidates: Sequence[Candidate], case: Case, done: Callable[[], None]) -> Answers:
        calls = itertools.count(1)

        def called() -> None:
            next(calls)
            done()

        new = [candidate for candidate in dict.fromkeys(candidates) if (candidate, case) not in known]
        (screened if len(new) > most else answer)(new, case, called)
        for _ in range(len(candidates) - next(calls) + 1):
            done()
        answers = [(candidate, known[candidate, case]) for candidate in candidates]
        found = [answer for _, answer in answers if isinstance(answer, Outcome)]
        return found, {candidate: answer for candidate, answer in answers if isinstance(answer, str)}

    return ask


def _first_without(known: dict[tuple[Candidate, Case], Outcome | str], candidates: Sequence[Candidate], case: Case) -> Candidate | None:
    """The best layout of each kind, when it was not simulated."""
    for kind in ("colocated", "disaggregated"):
        found = [answer for candidate in candidates if candidate.kind == kind and isinstance(answer := known[candidate, case], Outcome)]
        best = min(found, key=lambda outcome: (rank(outcome, case), outcome.candidate), default=None)
        if best is not None and best.engine != ENGINE:
            return best.candidate
    return None


def _outcome(candidate: Candidate, case: Case, served: Sequence[Served], remote: frozenset[int], link: float) -> Outcome:
    requests, goal = case.requests, case.goal
    written = [
        Written(
            one.worker, one.admitted_ms, one.first_token_ms, one.last_token_ms, request.output_tokens,
            0 if number in remote else math.ceil(request.input_tokens / candidate.chunk_tokens),
        )
        for number, (request, one) in enumerate(zip(requests, served, strict=True))
    ]  # fmt: skip
    gaps = pace(written)
    ttft = [one.first_token_ms - request.arrival_ms for request, one in zip(requests, served, strict=True)]
    e2e = [one.last_token_ms - late - request.arrival_ms for request, one, late in zip(requests, served, gaps.late_ms, strict=True)]
    good = sum(first <= goal.ttft_ms and gap <= goal.itl_ms for first, gap in zip(ttft, gaps.request_gap_ms, strict=True)) / len(requests)
    span_ms = max(requests[-1].arrival_ms - requests[0].arrival_ms, 1.0)
    saturated = _grows(ttft, span_ms)
    first_tokens_ms = max(one.first_token_ms for one in served) - requests[0].arrival_ms
    makespan_ms = max(one.last_token_ms for one in served) - requests[0].arrival_ms
    return Outcome(
        candidate=candidate,
        ttft_ms=Percentiles.of(ttft),
        itl_ms=gaps.gap_ms,
        itl_mean_ms=gaps.gap_mean_ms,
        e2e_ms=Percentiles.of(e2e),
        goodput_share=good,
        goodput_per_second=good * case.rate_per_second,
        output_tokens_per_second=sum(request.output_tokens for request in requests) / max(makespan_ms, 1.0) * _MS,
        saturated=saturated,
        link_utilisation=link,
        engine=ENGINE,
        capacity_per_second=len(requests) / first_tokens_ms * _MS if saturated else math.inf,
    )


def _grows(ttft: list[float], span_ms: float) -> bool:
    """Whether requests wait longer and longer: the last quarter against the first, by a share of the time between them."""
    quarter = len(ttft) // 4
    if quarter < _FEWEST // 4:
        return False
    return statistics.median(ttft[-quarter:]) - statistics.median(ttft[:quarter]) > _GROWS * span_ms
