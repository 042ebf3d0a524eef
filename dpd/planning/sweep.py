"""Which layouts exist on so many GPUs, and what an engine says of each."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dpd.planning.calibration import NONE, Calibration
from dpd.planning.candidate import Candidate, Case, Outcome
from dpd.planning.case import default_chunk
from dpd.planning.closed_form import NoEstimateError, estimate, worker
from dpd.sizing.parallel import usable_tensor_parallel

CHUNKS: Final = (512, 1024, 2048, 8192)
THRESHOLDS: Final = (0, 512, 1024, 2048, 4096, 8192)
_SPLITS_WITH_THRESHOLDS: Final = 2
"""The splits, best first, for which thresholds are tried."""

Answers = tuple[list[Outcome], dict[Candidate, str]]
Ask = Callable[[Sequence[Candidate], Case, Callable[[], None]], Answers]
"""An engine: the outcomes of candidates in their order, and why the others have none. It calls back after each."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A layout, or a size, of which nothing can be said, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was asked and answered. ``threshold_curve`` is the best split over all thresholds, in their order."""

    colocated: tuple[Outcome, ...]
    disaggregated: tuple[Outcome, ...]
    threshold_curve: tuple[Outcome, ...]
    left_out: tuple[LeftOut, ...]


def tensor_parallels(case: Case) -> tuple[list[int], list[LeftOut]]:
    """The sizes that split the model evenly, divide a node and leave room for KV, largest first; and those that do not."""
    sizes: list[int] = []
    left_out = []
    for ranks in reversed(usable_tensor_parallel(case.model, case.instance.gpus)):
        if case.instance.gpus % ranks:
            continue
        try:
            worker(case, ranks, CHUNKS[-1])
        except NoEstimateError as error:
            left_out.append(LeftOut(f"TP{ranks}", str(error)))
        else:
            sizes.append(ranks)
    return sizes, left_out


def colocated(case: Case, sizes: list[int]) -> Iterator[Candidate]:
    """The baseline: every tensor parallel size with every chunk size, on all GPUs."""
    for ranks in sizes:
        for chunk in CHUNKS:
            yield Candidate.colocated(case.gpus // ranks, ranks, chunk)


def splits(case: Case, sizes: list[int]) -> Iterator[Candidate]:
    """All ways to give the GPUs to prefillers and decoders of equal tensor parallel size, every prompt handed over."""
    for ranks in sizes:
        if not case.efa_devices.get(ranks):
            continue
        workers = case.gpus // ranks
        for prefillers in range(1, workers):
            yield Candidate.disaggregated(prefillers, workers - prefillers, ranks, chunk_tokens=default_chunk(case))


def rank(outcome: Outcome, case: Case) -> tuple[bool, float, float, float]:
    """Smaller is better: holds the objectives; then by how far it misses them; then goodput; then the time of a whole answer."""
    goal = case.goal
    over = max(outcome.ttft_ms.at(goal.percentile) / goal.ttft_ms, outcome.itl_ms.at(goal.percentile) / goal.itl_ms, 1.0)
    return not holds(outcome, case), round(over, 3), -round(outcome.goodput_per_second, 3), outcome.e2e_ms.p50


def holds(outcome: Outcome, case: Case) -> bool:
    """Whether an outcome, taken at its word, holds the objectives."""
    goal = case.goal
    return (
        not outcome.saturated
        and outcome.ttft_ms.at(goal.percentile) <= goal.ttft_ms
        and outcome.itl_ms.at(goal.percentile) <= goal.itl_ms
        and outcome.goodput_share >= goal.goodput_share
    )


def closed_form(calibration: Calibration = NONE) -> Ask:
    """The engine that is always there."""

    def ask(candidates: Sequence[Candidate], case: Case, done: Callable[[], None]) -> Answers:
        outcomes, refused = [], {}
        for candidate in candidates:
            try:
                outcomes.append(estimate(candidate, case, calibration))
            except NoEstimateError as error:
                refused[candidate] = str(error)
            done()
        return outcomes, refused

    return ask


def sweep(case: Case, ask: Ask, *, also: tuple[Candidate, ...] = (), progress: Progress = lambda _done, _of: None) -> Sweep:
    """Ask the engine of every layout. ``also`` are layouts to look at besides, such as the one of the file."""
    sizes, left_out = tensor_parallels(case)
    first = list(dict.fromkeys([*colocated(case, sizes), *splits(case, sizes), *also]))
    longest = max(request.input_tokens for request in case.requests)
    thresholds = [threshold for threshold in THRESHOLDS if 0 < threshold < longest]
    total = len(first) + _SPLITS_WITH_THRESHOLDS * len(thresholds)
    finished = itertools.count(1)
    outcomes: dict[Candidate, Outcome] = {}

    def answer(candidates: list[Candidate]) -> None:
        found, refused = ask(candidates, case, lambda: progress(min(next(finished), total), total))
        outcomes.update((outcome.candidate, outcome) for outcome in found)
        left_out.extend(LeftOut(candidate.name, why) for candidate, why in refused.items())

    answer(first)
    handing_over = [outcome for candidate, outcome in outcomes.items() if candidate.prefillers and not candidate.threshold_tokens]
    best = sorted(handing_over, key=lambda outcome: rank(outcome, case))[:_SPLITS_WITH_THRESHOLDS]
    curves = [[replace(outcome.candidate, threshold_tokens=threshold) for threshold in (0, *thresholds)] for outcome in best]
    answer([candidate for curve in curves for candidate in curve if candidate not in outcomes])
    progress(total, total)
    answered = [tuple(outcomes[candidate] for candidate in curve if candidate in outcomes) for curve in curves]
    return Sweep(
        colocated=tuple(outcome for candidate, outcome in outcomes.items() if not candidate.prefillers),
        disaggregated=tuple(outcome for candidate, outcome in outcomes.items() if candidate.prefillers),
        threshold_curve=min(answered, key=lambda curve: min(rank(outcome, case) for outcome in curve), default=()),
        left_out=tuple(left_out),
    )
