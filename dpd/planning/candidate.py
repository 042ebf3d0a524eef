"""What the planner compares: a layout of workers over GPUs; and what it learns of each: latencies, goodput and link use."""

import math
from dataclasses import dataclass, field
from typing import Final, Literal

from dpd.catalog.instances import Instance
from dpd.catalog.models import ModelShape

Kind = Literal["colocated", "disaggregated"]
DEFAULT_CHUNK_TOKENS: Final = 8192
"""vLLM's ``max_num_batched_tokens`` on an H100 or newer; for a case ask ``case.default_chunk``."""

TRACE_BLOCK_TOKENS: Final = 512
"""Tokens of one id in a request's ``prompt_blocks``: those of the Mooncake traces."""


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A layout. A colocated one has ``decoders`` equal workers that do both, and no prefillers.

    ``chunk_tokens`` is vLLM's ``max_num_batched_tokens``: the longest stretch of prompt in one step of any worker. Prompts
    shorter than ``threshold_tokens`` skip the prefillers and are read by the decoder; 0 hands over every prompt.
    """

    kind: Kind
    tensor_parallel: int
    prefill_tensor_parallel: int
    prefillers: int
    decoders: int
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    threshold_tokens: int = 0

    @classmethod
    def colocated(cls, workers: int, tensor_parallel: int, chunk_tokens: int = DEFAULT_CHUNK_TOKENS) -> "Candidate":
        """``workers`` workers that read and write."""
        return cls("colocated", tensor_parallel, tensor_parallel, 0, workers, chunk_tokens)

    @classmethod
    def disaggregated(
        cls, prefillers: int, decoders: int, tensor_parallel: int, *, prefill_tensor_parallel: int | None = None,
        chunk_tokens: int = DEFAULT_CHUNK_TOKENS, threshold_tokens: int = 0,
    ) -> "Candidate":  # fmt: skip
        """Prefillers and decoders, of the same tensor parallel size unless one is given for the prefillers."""
        prefill = prefill_tensor_parallel or tensor_parallel
        return cls("disaggregated", tensor_parallel, prefill, prefillers, decoders, chunk_tokens, threshold_tokens)

    @property
    def gpus(self) -> int:
        """GPUs that the layout takes."""
        return self.prefillers * self.prefill_tensor_parallel + self.decoders * self.tensor_parallel

    @property
    def name(self) -> str:
        """The layout as a person writes it: ``2 x TP8, chunk 8192`` or ``3P:1D TP4, threshold 2048``."""
        if self.kind == "colocated":
            return f"{self.decoders} x TP{self.tensor_parallel}, chunk {self.chunk_tokens}"
        if self.prefill_tensor_parallel == self.tensor_parallel:
            ranks = f"TP{self.tensor_parallel}"
        else:
            ranks = f"TP{self.prefill_tensor_parallel}/TP{self.tensor_parallel}"
        return f"{self.prefillers}P:{self.decoders}D {ranks}, threshold {self.threshold_tokens}"


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A distribution by its percentiles, in the unit of the field that holds it."""

    p50: float
    p90: float
    p95: float
    p99: float

    def at(self, percentile: int) -> float:
        """The value at 50, 90, 95 or 99. Raises ``AttributeError`` for others."""
        return float(getattr(self, f"p{percentile}"))

    @classmethod
    def of(cls, values: list[float]) -> "Percentiles":
        """The nearest-rank percentiles of values; infinite when there are none."""
        ordered = sorted(values) or [math.inf]
        return cls(*(ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.9, 0.95, 0.99)))

    def scaled(self, factor: float, plus: float = 0.0) -> "Percentiles":
        """Every percentile times ``factor``, plus ``plus``."""
        return Percentiles(*(value * factor + plus for value in (self.p50, self.p90, self.p95, self.p99)))


@dataclass(frozen=True, slots=True)
class Band:
    """A range, of a value or of a factor. What the planner prints of a latency is always one."""

    low: float
    high: float

    def times(self, value: float, *, plus: "Band | None" = None) -> "Band":
        """The range of a value whose factor lies in this band, with another band added."""
        more = plus or Band(0.0, 0.0)
        return Band(self.low * value + more.low, self.high * value + more.high)


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``prompt_blocks`` are the ids of its prompt's blocks of 512 tokens: equal ids are equal text (Mooncake's format)."""

    arrival_ms: float
    input_tokens: int
    output_tokens: int
    prompt_blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Goal:
    """What is promised: ``goodput_share`` of the requests within both limits, and both limits held at ``percentile``."""

    ttft_ms: float
    itl_ms: float
    percentile: int = 99
    goodput_share: float = 0.99


@dataclass(frozen=True, slots=True)
class Case:
    """The question: this model on these GPUs under these requests. ``efa_devices`` maps a tensor parallel size to a pod's EFA devices.

    ``requests`` are drawn once, by seed, so that every candidate and both engines answer for the same ones.
    """

    model: ModelShape
    instance: Instance
    gpus: int
    requests: tuple[Request, ...]
    rate_per_second: float
    goal: Goal
    efa_devices: dict[int, int] = field(hash=False)
    max_model_len: int = 16384
    kv_dtype: str = "auto"
    gpu_memory_utilization: float = 0.9
    most_sequences: int = 256
    """vLLM ``max_num_seqs`` of decoders and colocated workers."""
    seed: int = 0

    @property
    def mean_input_tokens(self) -> float:
        """Mean prompt length."""
        return sum(request.input_tokens for request in self.requests) / len(self.requests)

    @property
    def mean_output_tokens(self) -> float:
        """Mean answer length."""
        return sum(request.output_tokens for request in self.requests) / len(self.requests)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an engine says of a candidate, before any band. ``itl_ms`` is over single gaps between tokens of all requests.

    ``saturated`` says that the queue grows for as long as the traffic lasts. ``link_utilisation`` is the busy share of the
    busiest end of the KV links, 0 without hand-overs. ``engine`` is ``closed form`` or ``simulation``.
    """

    candidate: Candidate
    ttft_ms: Percentiles
    itl_ms: Percentiles
    itl_mean_ms: float
    e2e_ms: Percentiles
    goodput_share: float
    goodput_per_second: float
    output_tokens_per_second: float
    saturated: bool
    link_utilisation: float
    engine: str = "closed form"
    capacity_per_second: float = math.inf
    """Requests a second that the layout can take, where the engine knows it."""
    notes: tuple[str, ...] = ()
