"""Prefill and decode in two stages: prefillers, the KV link, then decoders, which read the prompts below the threshold themselves.

Three things that the simulator's own two pools leave out are in here: hand-overs that wait for each other on a link, an overhead
beside the wire, and the routing threshold. Prompts that were handed over reach the decoders as cached ones: all of them share the blocks
of one prompt that each decoder has read beforehand. Shared blocks take no memory of their own, so decoders admit no more requests
than would fit if they did.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dpd.planning.calibration import Calibration
from dpd.planning.candidate import Candidate, Case, Request
from dpd.planning.closed_form import candidate_link
from dpd.planning.simulator import TRACE_BLOCK_TOKENS, Pool, Served, Simulator
from dpd.sizing.transfer import Link, kv_bytes_moved

_WARM_UP_MS: Final = 1e6
"""Time for decoders to read the shared prompt before the first request."""
_SHARED: Final = 1 << 50
"""Ids of the blocks of the shared prompt."""
_MS: Final = 1e3


@dataclass(frozen=True, slots=True)
class Handover:
    """A prompt on its way: when its prefill and when its transfer ended."""

    number: int
    prefilled_ms: float
    arrived_ms: float


@dataclass(frozen=True, slots=True)
class TwoStages:
    """Requests as the decoders served them, in the order of the case; the handed-over ones; busy share of the busiest link."""

    served: tuple[Served, ...]
    handed_over: frozenset[int]
    link_utilisation: float


def run(simulator: Simulator, candidate: Candidate, case: Case, calibration: Calibration) -> TwoStages:
    """Simulate a disaggregated candidate."""
    requests = case.requests
    remote = [number for number, request in enumerate(requests) if request.input_tokens >= candidate.threshold_tokens]
    link = candidate_link(candidate, case, calibration)
    handovers, busy_ms = _prefill(simulator, candidate, case, remote, link)
    served = _decode(simulator, candidate, case, handovers)
    span_ms = max(requests[-1].arrival_ms - requests[0].arrival_ms, busy_ms, 1.0)
    return TwoStages(served, frozenset(remote), busy_ms / span_ms)


def _prefill(
    simulator: Simulator, candidate: Candidate, case: Case, remote: Sequence[int], link: Link
) -> tuple[dict[int, Handover], float]:
    if not remote:
        return {}, 0.0
    pool = Pool(candidate.prefillers, candidate.prefill_tensor_parallel, candidate.chunk_tokens, case.most_sequences)
    read = simulator.run(pool, [replace(case.requests[number], output_tokens=1) for number in remote])
    return handed_over(
        [(number, served.worker, served.first_token_ms) for number, served in zip(remote, read, strict=True)],
        [kv_bytes_moved(case.model, request.input_tokens, candidate.tensor_parallel, case.kv_dtype) for request in case.requests],
        candidate.decoders,
        link,
    )


def handed_over(
    prefilled: list[tuple[int, int, float]], sizes: Sequence[float], decoders: int, link: Link
) -> tuple[dict[int, Handover], float]:
    """Send prompts over the links, in the order in which they are ready.

    A transfer takes the whole link of its prefiller and of its decoder, so it waits until both are free; decoders take turns.
    ``prefilled`` holds number, prefiller and moment in milliseconds. Gives hand-overs by number, and for how many milliseconds the
    busiest end was busy.
    """
    senders: dict[int, float] = {}
    receivers = [(0.0, decoder) for decoder in range(decoders)]
    busy: dict[tuple[str, int], float] = {}
    result: dict[int, Handover] = {}
    for number, prefiller, ready in sorted(prefilled, key=lambda item: (item[2], item[0])):
        free, decoder = heapq.heappop(receivers)
        wire = link.wire_seconds(sizes[number]) * _MS
        done = max(ready, senders.get(prefiller, 0.0), free) + wire
        senders[prefiller] = done
        heapq.heappush(receivers, (done, decoder))
        for end in (("prefiller", prefiller), ("decoder", decoder)):
            busy[end] = busy.get(end, 0.0) + wire
        result[number] = Handover(number, ready, done + link.overhead_seconds * _MS)
    return result, max(busy.values(), default=0.0)


def _decode(simulator: Simulator, candidate: Candidate, case: Case, handovers: dict[int, Handover]) -> tuple[Served, ...]:
    requests = case.requests
    longest = max((requests[number].input_tokens for number in handovers), default=0)
    shared = tuple(range(_SHARED, _SHARED + -(-longest // TRACE_BLOCK_TOKENS)))
    ahead = candidate.decoders if shared else 0
    primers = [Request(number * _WARM_UP_MS / candidate.decoders, len(shared) * TRACE_BLOCK_TOKENS, 2, shared) for number in range(ahead)]
    arrivals = []
    for number, request in enumerate(requests):
        if number in handovers:
            blocks = shared[: -(-request.input_tokens // TRACE_BLOCK_TOKENS)]
            arrivals.append((handovers[number].arrived_ms, number, replace(request, prompt_blocks=blocks)))
        else:
            arrivals.append((request.arrival_ms, number, request))
    arrivals.sort(key=lambda item: item[:2])
    warm = 2 * _WARM_UP_MS
    timed = [replace(request, arrival_ms=warm + at) for at, _, request in arrivals]
    mean_tokens = case.mean_input_tokens + case.mean_output_tokens
    room = int(simulator.kv_tokens(candidate.tensor_parallel, candidate.chunk_tokens) // mean_tokens)
    pool = Pool(candidate.decoders, candidate.tensor_parallel, candidate.chunk_tokens, max(1, min(case.most_sequences, room)))
    read = simulator.run(pool, [*primers, *timed])[len(primers) :]
    back = {number: served.later(-warm) for (_, number, _), served in zip(arrivals, read, strict=True)}
    return tuple(back[number] for number in range(len(requests)))
