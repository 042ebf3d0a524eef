"""Fit a calibration to measurements: the factors under which the closed form says what was measured, and the bands that are left."""

import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from pydantic import ValidationError

from dpd.planning.calibration import NONE, Calibration, Range
from dpd.planning.candidate import Candidate, Case, Request
from dpd.planning.closed_form import estimate
from dpd.planning.results import Result, Transfer
from dpd.sizing.transfer import line_rate_gb_per_second

_REQUESTS: Final = 80
_ROUNDS: Final = 6
_HALVINGS: Final = 16
_LOW, _HIGH, _EDGE = 0.1, 5.0, 1.05
_APART: Final = 1.5
"""Prompt lengths that differ by this factor tell prefill from hand-over."""
_MARGIN_FEW, _MARGIN_MANY, _MANY = 0.25, 0.15, 3
_GOLDEN: Final = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class Fit:
    """A calibration, and what its owner should know about it."""

    calibration: Calibration
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """A result and the same traffic as a case."""

    result: Result
    case: Case


class FitError(ValueError):
    """Measurements that cannot be of this endpoint, in words for their owner."""


def fit(candidate: Candidate, case: Case, results: Sequence[Result], transfers: Sequence[Transfer] = (), start: Calibration = NONE) -> Fit:
    """Fit to runs against the layout ``candidate``. ``case`` gives model and machines; its requests are replaced.

    What the measurements say nothing of stays as in ``start``. Raises ``FitError`` for speeds that no tuning explains.

    Decode speed is fitted to the mean gaps between tokens, then prefill speed and hand-over overhead to the medians of TTFT, by turns. The
    overhead is told from prefill by prompts of different lengths; with one length only, what is too slow counts as hand-over.
    """
    notes: list[str] = []
    found = start
    if transfers:
        found = found.model_copy(update={"link_efficiency": _link_efficiency(candidate, case, transfers)})
    runs = [_Run(result, _as_case(case, result)) for result in results]
    if runs:
        lengths = [run.result.input_tokens for run in runs]
        several = max(lengths) >= _APART * min(lengths)
        if candidate.prefillers and not several:
            notes.append(
                "One prompt length only: what is slower than predicted counts as hand-over. Measure a second length to tell them apart."
            )
        for _ in range(_ROUNDS):
            before = found
            found = _with_decode(candidate, runs, found)
            found = _with_prefill(candidate, runs, found, several=several)
            if _same(before, found):
                break
        for what, speed in (("prefill", found.prefill_speed), ("decode", found.decode_speed)):
            if not _LOW * _EDGE < speed < _HIGH / _EDGE:
                raise FitError(
                    f"{what} would be {speed:.2g} times as fast as predicted for {candidate.name} of {case.model.name} on "
                    f"{case.instance.type}: the results are not of this endpoint, or its layout was another one"
                )
        try:
            found = Calibration.model_validate(found.model_dump() | _bands(candidate, runs, found))
        except ValidationError:
            raise FitError("measurements and estimates are too far apart to be of the same endpoint") from None
        if any(estimate(candidate, run.case, found).saturated for run in runs):
            notes.append("A run is at or over the capacity that is estimated: its TTFT is mostly waiting. Measure at a lower rate as well.")
    return Fit(found, tuple(notes))


def _as_case(case: Case, result: Result) -> Case:
    """The same machines under the run's traffic, every request of its mean length.

    Load generators draw Poisson arrivals. With a fixed number of users a request comes when another ends: evenly, as seen from here.
    """
    chance = random.Random(0)  # noqa: S311 (arrivals, no secret)
    lengths = max(1, round(result.input_tokens)), max(1, round(result.output_tokens))
    gaps = [1.0 if result.concurrency else chance.expovariate(1.0) for _ in range(_REQUESTS)]
    scale = 1e3 / result.rate_per_second * _REQUESTS / sum(gaps)
    requests = tuple(Request(at * scale, *lengths) for at in itertools.accumulate(gaps))
    return replace(case, requests=requests, rate_per_second=result.rate_per_second)


def _link_efficiency(candidate: Candidate, case: Case, transfers: Sequence[Transfer]) -> float:
    devices = min(case.efa_devices.get(ranks, 0) for ranks in (candidate.prefill_tensor_parallel, candidate.tensor_parallel))
    line = line_rate_gb_per_second(case.instance, devices)
    if not line:
        raise FitError(f"{case.instance.type} has no EFA whose efficiency could be fitted")
    rate = statistics.median(transfer.gb_per_second for transfer in transfers) * candidate.tensor_parallel
    return min(1.0, round(rate / line, 4))


def _with_decode(candidate: Candidate, runs: Sequence[_Run], found: Calibration) -> Calibration:
    def too_slow(speed: float) -> float:
        trial = found.model_copy(update={"decode_speed": speed})
        return sum(math.log(estimate(candidate, run.case, trial).itl_mean_ms / run.result.request_gap_ms) for run in runs)

    return found.model_copy(update={"decode_speed": round(_root(too_slow), 4)})


def _with_prefill(candidate: Candidate, runs: Sequence[_Run], found: Calibration, *, several: bool) -> Calibration:
    @cache
    def medians(speed: float) -> list[tuple[float, float]]:
        """Predicted without overhead, and measured."""
        trial = found.model_copy(update={"prefill_speed": speed, "handover_overhead_ms": 0.0})
        return [(estimate(candidate, run.case, trial).ttft_ms.p50, run.result.ttft_p50_ms) for run in runs]

    def missing_ms(speed: float) -> float:
        return max(0.0, statistics.fmean(seen - predicted for predicted, seen in medians(speed))) if candidate.prefillers else 0.0

    def error(speed: float) -> float:
        return sum(math.log((predicted + missing_ms(speed)) / seen) ** 2 for predicted, seen in medians(speed))

    def too_slow(speed: float) -> float:
        return sum(math.log(predicted / seen) for predicted, seen in medians(speed))

    if candidate.prefillers and not several and too_slow(1.0) < 0:
        speed = 1.0
    elif candidate.prefillers and several:
        speed = _least(error)
    else:
        speed = _root(too_slow)
    return found.model_copy(update={"prefill_speed": round(speed, 4), "handover_overhead_ms": round(missing_ms(speed), 2)})


def _root(falling: Callable[[float], float]) -> float:
    """Where a falling function of a speed is 0; the nearer end where it is not. Bisection over the logarithm."""
    low, high = math.log(_LOW), math.log(_HIGH)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(math.exp(middle)) > 0 else (low, middle)
    return math.exp((low + high) / 2)


def _least(function: Callable[[float], float]) -> float:
    """Where a function of a speed with one valley is least: a coarse look first, then golden sections."""
    points = [math.log(_LOW) + step * (math.log(_HIGH) - math.log(_LOW)) / 16 for step in range(17)]
    best = min(range(17), key=lambda number: function(math.exp(points[number])))
    low, high = points[max(0, best - 1)], points[min(16, best + 1)]
    for _ in range(_HALVINGS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if function(math.exp(left)) < function(math.exp(right)) else (left, high)
    return math.exp((low + high) / 2)


def _same(one: Calibration, other: Calibration) -> bool:
    pairs = ((one.prefill_speed, other.prefill_speed), (one.decode_speed, other.decode_speed))
    close = all(math.isclose(left, right, rel_tol=1e-3) for left, right in pairs)
    return close and math.isclose(one.handover_overhead_ms, other.handover_overhead_ms, rel_tol=1e-3, abs_tol=0.5)


def _bands(candidate: Candidate, runs: Sequence[_Run], found: Calibration) -> dict[str, Range]:
    """What is left between measurement and estimate, tails included, and a margin that shrinks with the number of runs."""
    first, gap = [1.0], [1.0]
    for run in runs:
        outcome = estimate(candidate, run.case, found)
        first.append(run.result.ttft_p50_ms / outcome.ttft_ms.p50)
        if run.result.ttft_p99_ms and not run.result.concurrency:
            first.append(run.result.ttft_p99_ms / outcome.ttft_ms.p99)
        gap.append(run.result.request_gap_ms / outcome.itl_mean_ms)
        if run.result.gap_p99_ms:
            gap.append(run.result.gap_p99_ms / outcome.itl_ms.p99)
    margin = _MARGIN_MANY if len(runs) >= _MANY else _MARGIN_FEW
    bands = {"ttft": _range(first, margin), "itl": _range(gap, margin)}
    return bands | ({"handover_ms": Range(low=0.0, high=0.0)} if candidate.prefillers else {})


def _range(ratios: list[float], margin: float) -> Range:
    return Range(low=round(min(ratios) * (1 - margin), 3), high=round(max(ratios) * (1 + margin), 3))
