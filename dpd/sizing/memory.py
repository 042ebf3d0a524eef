"""GPU memory: weights, KV cache, PD buffer. All sizes in bytes unless a name says GiB."""

import math
from dataclasses import dataclass
from typing import Final

from dpd.catalog.instances import Instance
from dpd.catalog.models import ModelShape
from dpd.environment.endpoint import Endpoint, Role
from dpd.sizing.expert_parallel import weight_bytes_per_gpu

GIB: Final = 1 << 30
ACTIVATION_GIB: Final = 4.0
"""GPU memory per rank for activations, CUDA graphs and NCCL inside vLLM's share (the planner's fit: 4 GiB)."""
RUNTIME_GIB: Final = 1.0
"""GPU memory per rank outside vLLM's share: the CUDA context and driver (our estimate)."""

_KV_BYTES: Final = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0}


def kv_dtype_bytes(model: ModelShape, kv_dtype: str) -> float:
    """Bytes of one KV element: 1 for the fp8 types, else the model's own."""
    return _KV_BYTES.get(kv_dtype, max(model.dtype_bytes, 1.0))


def kv_bytes_per_token(model: ModelShape, kv_dtype: str = "auto") -> float:
    """KV cache bytes of one token over all ranks, counting every layer that has a KV cache (linear attention has none).

    ``2 x layers x KV heads x head dimension x bytes`` (keys and values); with multi-head latent attention one
    compressed vector for each layer: ``layers x kv_rank x bytes``. Llama 3.3 70B in bf16: 327,680.
    """
    size, layers = kv_dtype_bytes(model, kv_dtype), model.layers - model.linear_layers
    if model.attention == "mla":
        return layers * model.kv_rank * size
    return 2 * layers * model.kv_heads * model.head_dim * size


def kv_bytes_per_token_per_rank(model: ModelShape, tensor_parallel: int, kv_dtype: str = "auto") -> float:
    """KV cache bytes of one token on one rank.

    Grouped-query attention splits KV heads over the ranks, and copies them where there are more ranks than heads.
    Latent attention cannot be split: each rank holds all of it.
    """
    total = kv_bytes_per_token(model, kv_dtype)
    if model.attention == "mla":
        return total
    return total / min(tensor_parallel, model.kv_heads)


def kv_bytes_per_rank(model: ModelShape, tokens: float, tensor_parallel: int, kv_dtype: str = "auto") -> float:
    """KV cache bytes of a sequence on one rank; sliding-window layers keep at most their window."""
    per_token = kv_bytes_per_token_per_rank(model, tensor_parallel, kv_dtype)
    layers = model.layers - model.linear_layers
    if not layers:
        return 0.0
    windowed = min(tokens, model.window_tokens) if model.window_layers else 0
    return per_token / layers * ((layers - model.window_layers) * tokens + model.window_layers * windowed)


@dataclass(frozen=True, slots=True)
class GpuBudget:
    """Where the memory of one GPU goes, in GiB."""

    gpu_gib: float
    share_gib: float
    weights_gib: float
    activation_gib: float
    kv_gib: float
    buffer_gib: float
    runtime_gib: float
    kv_tokens: int
    """Tokens that the KV cache holds on this rank (the same on every rank)."""
    kv_bytes_per_token: float

    @property
    def used_gib(self) -> float:
        """vLLM's share, the PD buffer and the runtime."""
        return self.share_gib + self.buffer_gib + self.runtime_gib


def gpu_budget(endpoint: Endpoint, role_name: str, role: Role, instance: Instance) -> GpuBudget:
    """Split one GPU of a role into weights, KV cache and PD buffer.

    vLLM takes ``gpu_memory_utilization`` of the GPU for weights, activations and KV. The PD buffer lies outside of
    that share, on decoders only (AWS, disaggregated prefill and decode guide).
    """
    model, gpu = endpoint.model.shape, instance.gpu_memory_gib
    share = role.gpu_memory_utilization * gpu
    weights = weight_bytes_per_gpu(model, role, instance) / GIB
    kv = max(0.0, share - weights - ACTIVATION_GIB)
    per_token = kv_bytes_per_token_per_rank(model, role.tensor_parallel, endpoint.kv.dtype)
    return GpuBudget(
        gpu_gib=gpu,
        share_gib=share,
        weights_gib=weights,
        activation_gib=ACTIVATION_GIB,
        kv_gib=kv,
        buffer_gib=float(endpoint.kv.buffer_gib or 0) if role_name == "decode" else 0.0,
        runtime_gib=RUNTIME_GIB,
        kv_tokens=math.floor(kv * GIB / per_token),
        kv_bytes_per_token=per_token,
    )
