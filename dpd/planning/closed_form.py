"""What a layout does under a traffic, without a simulator: queues over the requests that were drawn, means for everything else.

Prompts wait in a queue for each worker (Lindley's recursion over the drawn arrivals). How many sequences a worker writes at once
follows from Little's law; a gap between two tokens is a decode step, or a step that reads a stretch of prompt besides. A hand-over takes
the whole link of its prefiller and of its decoder, so as many are on their way at once as the smaller side has workers. It is
optimistic where an engine is: nothing is preempted, and no step is late.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from dpd.planning.calibration import NONE, Calibration
from dpd.planning.candidate import TRACE_BLOCK_TOKENS, Candidate, Case, Outcome, Percentiles, Request
from dpd.sizing import cliff
from dpd.sizing.memory import ACTIVATION_GIB, GIB, kv_bytes_per_rank
from dpd.sizing.roofline import Engine
from dpd.sizing.transfer import Link, kv_bytes_moved, kv_link

_GRAIN_TOKENS: Final = 64
"""Prompt lengths are rounded up to this many tokens, so that lengths drawn from a distribution share their times."""
_ROUNDS: Final = 40
_SETTLED: Final = 1e-4
_HALVINGS: Final = 12
_NORMAL: Final = ((0.5, -0.32), (0.3, 0.71), (0.15, 1.38), (0.05, 2.06))
"""Weights and standard deviations by which the sequences at work vary: the means of four slices of a normal distribution."""
_FULL: Final = 0.999


class NoEstimateError(Exception):
    """A candidate that cannot be estimated: its weights do not fit, or nobody measured its GPU. The text says which."""


@dataclass(frozen=True)
class Worker:
    """One pod of a candidate, and how long its work takes under a calibration."""

    engine: Engine
    chunk_tokens: int
    prefill_speed: float
    decode_speed: float

    @cached_property
    def _prompts(self) -> dict[tuple[int, int], float]:
        return {}

    def prompt_seconds(self, tokens: int, cached_tokens: int = 0) -> float:
        """A whole prompt, in chunks."""
        length, found = -(-tokens // _GRAIN_TOKENS) * _GRAIN_TOKENS, min(cached_tokens, tokens - 1) // _GRAIN_TOKENS * _GRAIN_TOKENS
        known = self._prompts.get((length, found))
        if known is None:
            known = self._prompts[length, found] = self.engine.prompt_seconds(length, self.chunk_tokens, found) / self.prefill_speed
        return known

    def chunks(self, tokens: int, cached_tokens: int = 0) -> int:
        """Steps that a prompt takes."""
        return max(1, math.ceil((tokens - cached_tokens) / self.chunk_tokens))

    def decode_seconds(self, sequences: float, context_tokens: float) -> float:
        """One step that writes a token of every sequence."""
        return self.engine.decode_seconds(max(1.0, sequences), context_tokens) / self.decode_speed

    def beside_seconds(self, sequences: float, context_tokens: float) -> float:
        """What the sequences add to a step that reads a prompt."""
        return self.engine.attention_seconds(sequences, context_tokens) / self.decode_speed


def kv_room_tokens(case: Case, tensor_parallel: int) -> float:
    """Tokens of KV that a worker holds. Negative where the weights do not fit."""
    share = case.gpu_memory_utilization * case.instance.gpu_memory_gib - ACTIVATION_GIB
    room = (share - case.model.weight_bytes / tensor_parallel / GIB) * GIB
    return room / (kv_bytes_per_rank(case.model, case.max_model_len, tensor_parallel, case.kv_dtype) / case.max_model_len)


def candidate_link(candidate: Candidate, case: Case, calibration: Calibration = NONE) -> Link:
    """The link of one prefiller: over the EFA devices that the smaller of the two pods asks for."""
    devices = min(case.efa_devices.get(ranks, 0) for ranks in (candidate.prefill_tensor_parallel, candidate.tensor_parallel))
    overhead = calibration.handover_overhead_ms / 1e3
    return kv_link(case.instance, devices, efficiency=calibration.link_efficiency, overhead_seconds=overhead)


def worker(case: Case, tensor_parallel: int, chunk_tokens: int, calibration: Calibration = NONE) -> Worker:
    """A worker of a case. Raises ``NoEstimateError``."""
    room = kv_room_tokens(case, tensor_parallel)
    if room <= 0:
        raise NoEstimateError(f"the weights do not fit {tensor_parallel} x {case.instance.gpu}")
    if room < case.max_model_len:
        raise NoEstimateError(f"TP{tensor_parallel} leaves room for {room:,.0f} tokens of KV; max_model_len is {case.max_model_len:,}")
    engine = Engine.of(case.model, case.instance.gpu, tensor_parallel, case.kv_dtype)
    if engine is None:
        raise NoEstimateError(f"no speeds are known of TP{tensor_parallel} on {case.instance.gpu} for such a model")
    return Worker(engine, chunk_tokens, calibration.prefill_speed, calibration.decode_speed)


@dataclass(frozen=True, slots=True)
class _Load:
    """What one writing worker has to do in the mean: ``local`` prompts a second that it reads itself, ``all`` answers a second."""

    local_per_second: float
    answers_per_second: float
    prompt_seconds: float
    chunks: float
    output_tokens: float
    context_tokens: float
    most: float

    def times(self, factor: float) -> "_Load":
        """So many times the requests."""
        return replace(self, local_per_second=self.local_per_second * factor, answers_per_second=self.answers_per_second * factor)


@dataclass(frozen=True, slots=True)
class _Pace:
    """How a writing worker goes: sequences at once, mean gap, share of the gaps that hold a prompt, and whether it keeps up."""

    sequences: float
    itl_seconds: float
    interrupted: float
    keeps_up: bool


def _pace(writer: Worker, load: _Load) -> _Pace:
    """Solve ``sequences = answers/s x answer x gap`` and ``gap = 1 / steps a second`` by turns."""
    sequences, gap, interrupted, read = 1.0, 0.0, 0.0, 0.0
    for _ in range(_ROUNDS):
        step = writer.decode_seconds(sequences, load.context_tokens)
        beside = writer.beside_seconds(sequences, load.context_tokens)
        read = load.local_per_second * (load.prompt_seconds + load.chunks * beside)
        reading_steps = load.local_per_second * load.chunks
        steps = reading_steps + max(0.0, 1 - min(read, _FULL)) / step
        gap, interrupted = 1 / steps, reading_steps / steps
        wanted = min(load.most, max(1.0, load.answers_per_second * load.output_tokens * gap))
        if abs(wanted - sequences) < _SETTLED * sequences:
            break
        sequences = (sequences + wanted) / 2
    needed = load.answers_per_second * load.output_tokens * gap
    return _Pace(sequences, gap, interrupted, read < _FULL and needed <= load.most * (1 + 1e-6))


def _cached(requests: Sequence[Request]) -> list[int]:
    """Tokens at the start of each prompt whose blocks came before, in this or another prompt."""
    seen: set[int] = set()
    found = []
    for request in requests:
        known = next((at for at, block in enumerate(request.prompt_blocks) if block not in seen), len(request.prompt_blocks))
        found.append(min(known * TRACE_BLOCK_TOKENS, request.input_tokens - 1))
        seen.update(request.prompt_blocks)
    return found


def _queue(workers: int, jobs: Iterable[tuple[float, float]]) -> list[float]:
    """When each job ends, of jobs with their arrival and length, each given to the worker that is free first."""
    free = [0.0] * workers
    ends = []
    for arrival, length in jobs:
        end = max(arrival, free[0]) + length
        heapq.heapreplace(free, end)
        ends.append(end)
    return ends


@dataclass(frozen=True, slots=True)
class _Side:
    """The drawn requests as one candidate treats them: index, tokens found in a cache, whether the prompt crosses the link."""

    cached: list[int]
    remote: list[bool]


def estimate(candidate: Candidate, case: Case, calibration: Calibration = NONE) -> Outcome:
    """Latencies, goodput and link use of a layout. Raises ``NoEstimateError`` where none can be given."""
    requests = case.requests
    writer = worker(case, candidate.tensor_parallel, candidate.chunk_tokens, calibration)
    reader = worker(case, candidate.prefill_tensor_parallel, candidate.chunk_tokens, calibration) if candidate.prefillers else writer
    remote = [bool(candidate.prefillers) and request.input_tokens >= candidate.threshold_tokens for request in requests]
    side = _Side(_cached(requests), remote)
    arrivals = [request.arrival_ms / 1e3 for request in requests]
    link = candidate_link(candidate, case, calibration)

    load = _load(candidate, case, writer, side)
    pace = _pace(writer, load)
    beside = writer.beside_seconds(pace.sequences, load.context_tokens)
    step = writer.decode_seconds(pace.sequences, load.context_tokens)

    ready, busy, moved = _read(candidate, case, reader, link, side, arrivals)
    first = _write_prompts(candidate, case, writer, side, arrivals, ready, beside, step)
    ttft, ends = _answers(candidate, case, load, pace, first)

    ttfts = [1e3 * (at - arrival) for at, arrival in zip(ttft, arrivals, strict=True)]
    e2es = [1e3 * (at - arrival) for at, arrival in zip(ends, arrivals, strict=True)]
    per_request = 1e3 * pace.itl_seconds
    good = sum(each <= case.goal.ttft_ms for each in ttfts) / len(requests) if per_request <= case.goal.itl_ms else 0.0
    used = link.utilisation(moved / _links(candidate)) if moved else 0.0
    capacity = min(_capacity(candidate, case, writer, reader, side), case.rate_per_second / used if used else math.inf)
    served = min(case.rate_per_second, capacity)
    return Outcome(
        candidate=candidate,
        ttft_ms=Percentiles.of(ttfts),
        itl_ms=_gaps(writer, case, side, load, pace, beside),
        itl_mean_ms=per_request,
        e2e_ms=Percentiles.of(e2es),
        goodput_share=good,
        goodput_per_second=good * served,
        output_tokens_per_second=served * load.output_tokens,
        saturated=not pace.keeps_up or busy >= 1 or capacity < case.rate_per_second,
        link_utilisation=used,
        capacity_per_second=capacity,
    )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0


def _load(candidate: Candidate, case: Case, writer: Worker, side: _Side) -> _Load:
    mine = [(request, cached) for request, cached, away in zip(case.requests, side.cached, side.remote, strict=True) if not away]
    rate = case.rate_per_second / candidate.decoders
    held = max(case.mean_input_tokens + case.mean_output_tokens, 1)
    return _Load(
        local_per_second=rate * len(mine) / len(case.requests),
        answers_per_second=rate,
        prompt_seconds=_mean(writer.prompt_seconds(request.input_tokens, cached) for request, cached in mine),
        chunks=_mean(writer.chunks(request.input_tokens, cached) for request, cached in mine),
        output_tokens=case.mean_output_tokens,
        context_tokens=case.mean_input_tokens + case.mean_output_tokens / 2,
        most=max(1.0, min(case.most_sequences, kv_room_tokens(case, candidate.tensor_parallel) / held)),
    )


def _links(candidate: Candidate) -> int:
    """Hand-overs that can be on their way at once."""
    return min(candidate.prefillers, candidate.decoders)


def _read(
    candidate: Candidate, case: Case, reader: Worker, link: Link, side: _Side, arrivals: list[float]
) -> tuple[dict[int, float], float, float]:
    """When each remote prompt is at its decoder; how busy prefillers are; bytes a second over all links."""
    chosen = [index for index, away in enumerate(side.remote) if away]
    if not chosen:
        return {}, 0.0, 0.0
    lengths = [reader.prompt_seconds(case.requests[index].input_tokens, side.cached[index]) for index in chosen]
    ends = _queue(candidate.prefillers, zip((arrivals[index] for index in chosen), lengths, strict=True))
    sizes = [kv_bytes_moved(case.model, case.requests[index].input_tokens, candidate.tensor_parallel, case.kv_dtype) for index in chosen]
    in_order = sorted(range(len(chosen)), key=lambda at: (ends[at], at))
    there = _queue(_links(candidate), ((ends[at], link.wire_seconds(sizes[at])) for at in in_order))
    ready = {chosen[at]: end + link.overhead_seconds for at, end in zip(in_order, there, strict=True)}
    rate = case.rate_per_second * len(chosen) / len(case.requests)
    return ready, rate * _mean(lengths) / candidate.prefillers, rate * _mean(sizes)


def _write_prompts(
    candidate: Candidate,
    case: Case,
    writer: Worker,
    side: _Side,
    arrivals: list[float],
    ready: dict[int, float],
    beside: float,
    step: float,
) -> list[float]:
    """When each request's first token could be out, were there a free place in the batch."""
    local = [index for index, away in enumerate(side.remote) if not away]
    jobs = []
    for index in local:
        tokens, cached = case.requests[index].input_tokens, side.cached[index]
        jobs.append((arrivals[index] + step / 2, writer.prompt_seconds(tokens, cached) + writer.chunks(tokens, cached) * beside))
    first = dict(zip(local, _queue(candidate.decoders, jobs), strict=True))
    first |= {index: at + 1.5 * step for index, at in ready.items()}
    return [first[index] for index in range(len(arrivals))]


def _answers(candidate: Candidate, case: Case, load: _Load, pace: _Pace, first: list[float]) -> tuple[list[float], list[float]]:
    """When first and last tokens are out: answers wait for a place in a batch of ``most`` sequences on each writer."""
    places = [0.0] * max(1, int(candidate.decoders * load.most))
    ttft, ends = [0.0] * len(first), [0.0] * len(first)
    for index in sorted(range(len(first)), key=lambda at: (first[at], at)):
        wait = max(0.0, places[0] - first[index])
        ttft[index] = first[index] + wait
        ends[index] = ttft[index] + (case.requests[index].output_tokens - 1) * pace.itl_seconds
        heapq.heapreplace(places, ends[index])
    return ttft, ends


def _gaps(writer: Worker, case: Case, side: _Side, load: _Load, pace: _Pace, beside: float) -> Percentiles:
    """The distribution of single gaps between tokens: decode steps, and steps with a stretch of each local prompt."""
    spread = math.sqrt(pace.sequences)
    gaps = [
        (writer.decode_seconds(min(load.most, pace.sequences + sigmas * spread), load.context_tokens), (1 - pace.interrupted) * weight)
        for weight, sigmas in _NORMAL
    ]
    mine = [index for index, away in enumerate(side.remote) if not away]
    total = sum(writer.chunks(case.requests[index].input_tokens, side.cached[index]) for index in mine)
    for index in mine:
        tokens, cached = case.requests[index].input_tokens, side.cached[index]
        chunks = writer.chunks(tokens, cached)
        gaps.append((writer.prompt_seconds(tokens, cached) / chunks + beside, pace.interrupted * chunks / total))
    gaps.sort()
    return Percentiles(*(1e3 * _weighted(gaps, share) for share in (0.5, 0.9, 0.95, 0.99)))


def _weighted(gaps: list[tuple[float, float]], share: float) -> float:
    passed = 0.0
    for gap, weight in gaps:
        passed += weight
        if passed >= share - 1e-9:
            return gap
    return gaps[-1][0]


def _capacity(candidate: Candidate, case: Case, writer: Worker, reader: Worker, side: _Side) -> float:
    """Requests a second up to which no queue grows for ever: of the prefillers, and of the writers by bisection."""
    remote = [index for index, away in enumerate(side.remote) if away]
    lengths = _mean(reader.prompt_seconds(case.requests[index].input_tokens, side.cached[index]) for index in remote)
    most = candidate.prefillers / lengths / (len(remote) / len(side.remote)) if remote else math.inf
    return min(most, _capacity_of_writers(case, writer, _load(candidate, case, writer, side), candidate.decoders))


def _capacity_of_writers(case: Case, writer: Worker, base: _Load, writers: int) -> float:
    low, high = 0.0, 2 * writers * base.most / (base.output_tokens * writer.decode_seconds(base.most, base.context_tokens))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        keeps_up = _pace(writer, base.times(middle / case.rate_per_second)).keeps_up
        low, high = (middle, high) if keeps_up else (low, middle)
    return low


def cliff_per_second(candidate: Candidate, case: Case, calibration: Calibration = NONE) -> float:
    """The rate from which the goal's percentile of the gaps between tokens holds a stretch of prompt; infinite where no prompt is local.

    The rule of ``dpd.sizing.cliff`` with the mean inter-token latency at that very rate.
    """
    writer = worker(case, candidate.tensor_parallel, candidate.chunk_tokens, calibration)
    remote = [bool(candidate.prefillers) and request.input_tokens >= candidate.threshold_tokens for request in case.requests]
    base = _load(candidate, case, writer, _Side(_cached(case.requests), remote))
    if not base.local_per_second:
        return math.inf
    low, high = 0.0, _capacity_of_writers(case, writer, base, candidate.decoders)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        factor = middle / case.rate_per_second
        gap = _pace(writer, base.times(factor)).itl_seconds
        prompts = base.local_per_second * factor * candidate.decoders
        passed = prompts > cliff.cliff_per_second(candidate.decoders, gap, percentile=case.goal.percentile, chunks=base.chunks)
        low, high = (low, middle) if passed else (middle, high)
    return low
