"""What a layout with prefillers needs: memory, PD buffer, link, and the ratio to start from."""

import math
from dataclasses import dataclass
from typing import Final

from dpd.environment.endpoint import Endpoint
from dpd.planning.calibration import NONE, Calibration
from dpd.planning.candidate import Band, Candidate, Case, Outcome
from dpd.planning.closed_form import candidate_link, kv_room_tokens, worker
from dpd.sizing.buffer import Buffer
from dpd.sizing.memory import ACTIVATION_GIB, GIB, RUNTIME_GIB
from dpd.sizing.ratio import decode_workers, prefill_workers, start_ratio
from dpd.sizing.transfer import kv_bytes_moved

_BUSY: Final = 0.7
"""Busy share of a link from which it is called the bottleneck."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Where the memory of one GPU of a worker goes, in GiB."""

    who: str
    gpu_gib: float
    weights_gib: float
    activation_gib: float
    kv_gib: float
    buffer_gib: float
    runtime_gib: float

    @property
    def free_gib(self) -> float:
        """What is left; negative where the parts do not fit."""
        return self.gpu_gib - self.weights_gib - self.activation_gib - self.kv_gib - self.buffer_gib - self.runtime_gib


@dataclass(frozen=True, slots=True)
class Handover:
    """How the KV of one prompt crosses: its size, the wire, and how full the link is."""

    prompt_tokens: int
    gib: float
    efa_devices: int
    gb_per_second: float
    wire_ms: float
    total_ms: Band
    """With the overhead of a hand-over, as a range."""
    utilisation: float
    bottleneck: bool
    """Whether the link takes less than the prefillers give. 70 % busy counts, since bursts queue."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """What the layout with prefillers needs."""

    candidate: Candidate
    kv_room_tokens: int
    """Tokens of KV that one decoder holds."""
    kv_needed_tokens: int
    """Tokens of KV of the sequences that one decoder writes at once, in the mean."""
    sequences: float
    buffer_floor_gib: int
    """Least PD buffer of a rank."""
    buffer_gib: int | None
    """What the file has; ``None`` where KV is received into the decoder's own KV memory and there is no such buffer."""
    work_ratio: float
    """Prefillers that the traffic keeps busy, for each decoder that it keeps busy."""
    start: tuple[int, int]
    """All workers in that ratio: prefillers and decoders to start from where nothing was tried."""
    handover: Handover
    memory: tuple[Memory, ...]


def size(endpoint: Endpoint, case: Case, outcome: Outcome, calibration: Calibration = NONE) -> Sizing:
    """What a layout with prefillers needs of memory, buffer and link."""
    candidate = outcome.candidate
    remote = [request for request in case.requests if request.input_tokens >= candidate.threshold_tokens]
    longest = max((request.input_tokens for request in remote), default=case.max_model_len)
    share = len(remote) / len(case.requests)
    mean = sum(request.input_tokens for request in remote) / len(remote) if remote else float(longest)
    link = candidate_link(candidate, case, calibration)
    moved = kv_bytes_moved(case.model, mean, candidate.tensor_parallel, case.kv_dtype)
    seconds = link.handover_seconds(moved)
    rate = case.rate_per_second * share
    in_flight = max(2 * candidate.prefillers / candidate.decoders, rate / candidate.decoders * (seconds + outcome.itl_mean_ms / 1e3))
    reader = worker(case, candidate.prefill_tensor_parallel, candidate.chunk_tokens, calibration)
    room = kv_room_tokens(case, candidate.tensor_parallel)
    most = max(1.0, min(case.most_sequences, room / (case.mean_input_tokens + case.mean_output_tokens)))
    served = min(case.rate_per_second, outcome.capacity_per_second)
    sequences = min(most, served / candidate.decoders * case.mean_output_tokens * outcome.itl_mean_ms / 1e3)
    prefill = prefill_workers(rate, reader.prompt_seconds(max(1, round(mean))))
    decode = decode_workers(case.rate_per_second, case.mean_output_tokens, outcome.itl_mean_ms / 1e3, most)
    buffer = Buffer(case.model, candidate.tensor_parallel, case.kv_dtype).floor_gib(case.max_model_len, in_flight)
    wire = 1e3 * link.wire_seconds(moved)
    plus = calibration.bands.handover_ms
    return Sizing(
        candidate=candidate,
        kv_room_tokens=math.floor(room),
        kv_needed_tokens=math.ceil(sequences * (case.mean_input_tokens + case.mean_output_tokens)),
        sequences=sequences,
        buffer_floor_gib=buffer,
        buffer_gib=endpoint.kv.buffer_gib,
        work_ratio=prefill / decode if decode else math.inf,
        start=start_ratio(candidate.prefillers + candidate.decoders, prefill, decode),
        handover=Handover(
            prompt_tokens=round(mean),
            gib=moved / GIB,
            efa_devices=min(case.efa_devices.get(ranks, 0) for ranks in (candidate.prefill_tensor_parallel, candidate.tensor_parallel)),
            gb_per_second=link.gb_per_second,
            wire_ms=wire,
            total_ms=Band(wire + plus.low, wire + calibration.handover_overhead_ms + plus.high),
            utilisation=outcome.link_utilisation,
            bottleneck=outcome.link_utilisation > _BUSY,
        ),
        memory=tuple(
            _memory(name, case, ranks, buffer if name == "decode" and endpoint.kv.buffer_gib is not None else 0)
            for name, ranks in _roles(candidate)
        ),
    )


def _roles(candidate: Candidate) -> tuple[tuple[str, int], ...]:
    return ("prefill", candidate.prefill_tensor_parallel), ("decode", candidate.tensor_parallel)


def _memory(who: str, case: Case, ranks: int, buffer_gib: float) -> Memory:
    gpu = case.instance.gpu_memory_gib
    weights = case.model.weight_bytes / ranks / GIB
    kv = max(0.0, case.gpu_memory_utilization * gpu - weights - ACTIVATION_GIB)
    return Memory(f"{who} TP{ranks}", gpu, weights, ACTIVATION_GIB, kv, buffer_gib, RUNTIME_GIB)
