"""How long a step of the engine takes: ideal times of its parts, each times what real kernels need more.

The factors are fitted to measured tables (``dpd/catalog/data/speeds.csv``), one row for each GPU, family of models and tensor parallel
size. A model or GPU without a row has no estimate; there is no default that would look like one.
"""

import operator
from dataclasses import dataclass
from typing import Final

from dpd.catalog import gpus
from dpd.catalog.gpus import Gpu, Speed, Work
from dpd.catalog.models import ModelShape
from dpd.sizing.memory import kv_bytes_per_rank

_TERA, _GIGA, _MEGA, _MICRO = 1e12, 1e9, 1e6, 1e-6
_LATENT_HEAD_DIM: Final = 160
"""Half of what a head multiplies with latent attention: 192 for keys, 128 for values (DeepSeek's shape)."""
_ACTIVATION_BYTES: Final = 2
_EXCHANGES_PER_LAYER: Final = 2

Parts = tuple[float, float, float, float, float]
"""The five parts of a step in the order of ``gpus.WORK``, before their factors: ideal seconds, or what a factor in microseconds counts."""


def family(model: ModelShape) -> str:
    """Which row of speeds a model reads: how its layers compute decides it."""
    if model.attention == "mla":
        return "latent"
    if model.experts:
        return "experts" if model.weight_dtype_bytes >= 1 else "experts_4bit"
    return "fp8" if model.weight_dtype_bytes == 1.0 else "dense"


def prefill_parts(model: ModelShape, gpu: Gpu, tensor_parallel: int, tokens: int, cached_tokens: int = 0) -> Parts:
    """The parts of a step that reads ``tokens`` tokens of one prompt after ``cached_tokens`` that it finds in its cache."""
    full, windowed = model.layers - model.window_layers - model.linear_layers, model.window_layers
    pairs = full * (tokens * cached_tokens + tokens * tokens / 2)
    pairs += windowed * tokens * min(model.window_tokens, cached_tokens + tokens)
    head_dim = _LATENT_HEAD_DIM if model.attention == "mla" else model.head_dim
    attention = 4 * model.heads * head_dim * pairs / tensor_parallel / (gpu.bf16_tflops * _TERA)
    return _parts(model, gpu, tensor_parallel, tokens, attention)


def decode_parts(
    model: ModelShape, gpu: Gpu, tensor_parallel: int, sequences: float, context_tokens: float, kv_dtype: str = "auto"
) -> Parts:
    """The parts of a step that writes one token of each of ``sequences`` sequences of ``context_tokens`` tokens."""
    kv = sequences * kv_bytes_per_rank(model, context_tokens, tensor_parallel, kv_dtype)
    return _parts(model, gpu, tensor_parallel, sequences, kv / (gpu.hbm_gb_per_second * _GIGA))


def _parts(model: ModelShape, gpu: Gpu, tensor_parallel: int, tokens: float, attention: float) -> Parts:
    peak = gpu.fp8_tflops if model.weight_dtype_bytes == 1.0 else gpu.bf16_tflops
    embeddings = 2 * model.vocab_size * model.hidden_size
    compute = 2 * max(0.0, model.parameters_per_token - embeddings) * tokens / tensor_parallel / (peak * _TERA)
    ring = 2 * (tensor_parallel - 1) / tensor_parallel
    exchanged = _EXCHANGES_PER_LAYER * model.layers * tokens * model.hidden_size * _ACTIVATION_BYTES * ring
    weights = model.weight_bytes_read(tokens) / tensor_parallel / (gpu.hbm_gb_per_second * _GIGA)
    return compute, attention, exchanged / _MEGA * _MICRO, model.layers * _MICRO, weights


def _seconds(parts: Parts, work: Work) -> float:
    return float(sum(map(operator.mul, parts, work)))


@dataclass(frozen=True, slots=True)
class Engine:
    """One worker: a model on so many GPUs of a kind. ``of`` makes it where a speed is known."""

    model: ModelShape
    gpu: Gpu
    tensor_parallel: int
    speed: Speed
    kv_dtype: str = "auto"

    @classmethod
    def of(cls, model: ModelShape, gpu: str, tensor_parallel: int, kv_dtype: str = "auto") -> "Engine | None":
        """The worker, or ``None`` for a GPU or a tensor parallel size whose speed nobody measured."""
        found, speed = gpus.find(gpu), gpus.speed(gpu, family(model), tensor_parallel)
        return cls(model, found, tensor_parallel, speed, kv_dtype) if found and speed else None

    def prefill_seconds(self, tokens: int, cached_tokens: int = 0) -> float:
        """One step that reads ``tokens`` tokens of a prompt, and nothing else."""
        if tokens <= 0:
            return 0.0
        return _seconds(prefill_parts(self.model, self.gpu, self.tensor_parallel, tokens, cached_tokens), self.speed.prefill)

    def prompt_seconds(self, tokens: int, chunk_tokens: int, cached_tokens: int = 0) -> float:
        """A whole prompt, in chunks."""
        starts = range(cached_tokens, tokens, chunk_tokens)
        return sum(self.prefill_seconds(min(chunk_tokens, tokens - start), start) for start in starts)

    def decode_seconds(self, sequences: float, context_tokens: float) -> float:
        """One step that writes a token of every sequence."""
        parts = decode_parts(self.model, self.gpu, self.tensor_parallel, sequences, context_tokens, self.kv_dtype)
        return _seconds(parts, self.speed.decode)

    def attention_seconds(self, sequences: float, context_tokens: float) -> float:
        """What the sequences of a decode add to a step whose weights are read anyway, for a prompt."""
        parts = decode_parts(self.model, self.gpu, self.tensor_parallel, sequences, context_tokens, self.kv_dtype)
        return parts[1] * self.speed.decode.attention
