"""Gaps between tokens, from when requests were served: the simulator tells a request's first and last token, not those between.

On one worker a step that reads a prompt holds up every request that is being written. Each such step is one long gap in each of them;
what is left of their time is spread evenly over their other gaps.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from dpd.planning.candidate import Percentiles


@dataclass(frozen=True, slots=True)
class Written:
    """One request on a worker. ``steps`` is in how many steps its prompt was read there; 0 when its KV came from a prefiller."""

    worker: int
    admitted_ms: float
    first_token_ms: float
    last_token_ms: float
    output_tokens: int
    steps: int


@dataclass(frozen=True, slots=True)
class Pace:
    """Gaps over all requests in milliseconds, their mean, and for each request its mean gap and what its end is too late.

    The simulator reads a handed-over prompt's last block again, in a step of its own, which no engine does: that is what is too late.
    """

    gap_ms: Percentiles
    gap_mean_ms: float
    request_gap_ms: tuple[float, ...]
    late_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    end_ms: float
    length_ms: float
    real: bool


def pace(requests: Sequence[Written]) -> Pace:
    """The gaps of all requests of a pool."""
    weighted: list[tuple[float, int]] = []
    means, late = [0.0] * len(requests), [0.0] * len(requests)
    by_worker = sorted(range(len(requests)), key=lambda number: (requests[number].worker, number))
    for _, numbers in groupby(by_worker, key=lambda number: requests[number].worker):
        _one_worker(requests, list(numbers), weighted, means, late)
    count = sum(weight for _, weight in weighted)
    mean = sum(gap * weight for gap, weight in weighted) / count if count else 0.0
    return Pace(_percentiles(weighted, count), mean, tuple(means), tuple(late))


def _one_worker(
    requests: Sequence[Written], numbers: list[int], weighted: list[tuple[float, int]], means: list[float], late: list[float]
) -> None:
    steps = sorted(_steps(requests[number] for number in numbers), key=lambda step: step.end_ms)
    ends = [step.end_ms for step in steps]
    spent = [0.0, *accumulate(step.length_ms for step in steps)]
    false_spent = [0.0, *accumulate(0.0 if step.real else step.length_ms for step in steps)]
    false_count = [0, *accumulate(0 if step.real else 1 for step in steps)]
    for number in numbers:
        request = requests[number]
        gaps = request.output_tokens - 1
        if gaps < 1:
            continue
        low, high = bisect_right(ends, request.first_token_ms), bisect_right(ends, request.last_token_ms)
        false_steps = false_count[high] - false_count[low]
        plain = gaps - (high - low)
        taken = request.last_token_ms - request.first_token_ms
        base = (taken - (spent[high] - spent[low])) / plain if plain > 0 else 0.0
        if base <= 0:  # more steps than gaps: some of them were one step
            base, false_steps, plain = taken / gaps, 0, gaps
        late[number] = max(0.0, false_spent[high] - false_spent[low] - base * false_steps) if false_steps else 0.0
        means[number] = (taken - late[number]) / gaps
        weighted.append((base, plain + false_steps))
    firsts = sorted(requests[number].first_token_ms for number in numbers if requests[number].output_tokens > 1)
    lasts = sorted(requests[number].last_token_ms for number in numbers if requests[number].output_tokens > 1)
    real = ((step.length_ms, bisect_left(firsts, step.end_ms) - bisect_left(lasts, step.end_ms)) for step in steps if step.real)
    weighted.extend((length, running) for length, running in real if running > 0)


def _steps(requests: Iterable[Written]) -> Iterable[_Step]:
    """The steps that read prompts. Prompts whose first tokens come together were read together."""
    ordered = sorted(requests, key=lambda request: request.first_token_ms)
    for first_token, group in groupby(ordered, key=lambda request: request.first_token_ms):
        together = list(group)
        count = max(request.steps for request in together)
        begin = min(request.admitted_ms for request in together if request.steps == count)
        length = (first_token - begin) / max(1, count)
        for step in range(max(1, count)):
            yield _Step(begin + (step + 1) * length if step + 1 < count else first_token, length, count > 0)


def _percentiles(weighted: list[tuple[float, int]], count: int) -> Percentiles:
    if not count:
        return Percentiles(0.0, 0.0, 0.0, 0.0)
    weighted.sort()
    sums = list(accumulate(weight for _, weight in weighted))
    return Percentiles(*(weighted[bisect_left(sums, math.ceil(share * count))][0] for share in (0.5, 0.9, 0.95, 0.99)))
