"""A first layout of a model over an instance type: one prefill node, one decode node, everything else from the arithmetic."""

import math
from dataclasses import dataclass
from typing import Final

from dpd.catalog.instances import Instance
from dpd.catalog.models import ModelShape
from dpd.sizing.buffer import FEWEST_IN_FLIGHT, Buffer
from dpd.sizing.memory import ACTIVATION_GIB, GIB, RUNTIME_GIB, kv_bytes_per_rank
from dpd.sizing.pod import efa_share

_SPARE_GIB: Final = 1.0
"""GPU memory left free: the estimates are no better than this."""
_KV_SHARE: Final = 0.9
"""Share of the KV cache that one sequence may take at most."""
_UTILIZATIONS: Final = (0.75, 0.8, 0.85, 0.9)
"""Shares of a GPU for vLLM, AWS's default first."""
_LONGEST_TOKENS: Final = 16384
_SHORTEST_TOKENS: Final = 1024
_PROMPTS_IN_BUFFER: Final = 16
_THRESHOLD_TOKENS: Final = 4096
_CHARACTERS_PER_ESTIMATED_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """Numbers of a first environment. Prefill and decode are alike, as LMCache demands."""

    tensor_parallel: int
    gpu_memory_utilization: float
    max_model_len: int
    buffer_gib: int
    threshold_tokens: int
    weights_gib: float
    kv_gib: float
    kv_gib_per_sequence: float
    buffer_gib_per_prompt: float


def first_layout(model: ModelShape, instance: Instance) -> Layout:
    """Lay a model out over one node for each role. Raises ``ValueError``, with the sum, when it does not fit."""
    ranks = _tensor_parallel(model, instance)
    if ranks is None:
        raise ValueError(
            f"no number of GPUs of {instance.type} divides the {model.heads} attention heads of {model.name} and gets an EFA device"
        )
    weights = model.weight_bytes / ranks / GIB
    tokens = min(_LONGEST_TOKENS, model.max_positions)
    while tokens >= min(_SHORTEST_TOKENS, model.max_positions):
        for utilization in _UTILIZATIONS:
            if (layout := _layout(model, instance, ranks, tokens, utilization)) is not None:
                return layout
        tokens //= 2
    share = _UTILIZATIONS[-1] * instance.gpu_memory_gib
    raise ValueError(
        f"{model.name} has {model.weight_bytes / GIB:.1f} GiB of weights, {weights:.1f} GiB on each of {ranks} GPUs; with "
        f"{ACTIVATION_GIB:g} GiB for activations, a KV cache and a PD buffer for {_SHORTEST_TOKENS:,} tokens that is more than one "
        f"{instance.gpu} of {instance.type} holds ({instance.gpu_memory_gib:.1f} GiB, of which vLLM gets {share:.1f} GiB)"
    )


def _tensor_parallel(model: ModelShape, instance: Instance) -> int | None:
    """The most GPUs of a node that divide them, the heads and the KV heads (or are divided by them), with an EFA device each."""
    for ranks in range(instance.gpus, 0, -1):
        fits_heads = model.heads % ranks == 0 and (model.kv_heads % ranks == 0 or ranks % model.kv_heads == 0)
        if instance.gpus % ranks == 0 and fits_heads and efa_share(instance, ranks):
            return ranks
    return None


def _layout(model: ModelShape, instance: Instance, ranks: int, tokens: int, utilization: float) -> Layout | None:
    gpu = instance.gpu_memory_gib
    weights = model.weight_bytes / ranks / GIB
    kv = utilization * gpu - weights - ACTIVATION_GIB
    sequence = kv_bytes_per_rank(model, tokens, ranks) / GIB
    prompt = Buffer(model, ranks).prompt_bytes(tokens) / GIB
    room = math.floor(gpu * (1 - utilization) - RUNTIME_GIB - _SPARE_GIB)
    least = math.ceil(FEWEST_IN_FLIGHT * prompt)
    if sequence > _KV_SHARE * kv or room < least:
        return None
    return Layout(
        tensor_parallel=ranks,
        gpu_memory_utilization=utilization,
        max_model_len=tokens,
        buffer_gib=min(room, math.ceil(_PROMPTS_IN_BUFFER * prompt)),
        threshold_tokens=min(_THRESHOLD_TOKENS, tokens // _CHARACTERS_PER_ESTIMATED_TOKEN),
        weights_gib=weights,
        kv_gib=kv,
        kv_gib_per_sequence=sequence,
        buffer_gib_per_prompt=prompt,
    )
