"""Read the shape of a model from a Hugging Face ``config.json``.

The keys are those of the ``transformers`` configuration classes (LlamaConfig, Qwen3MoeConfig, DeepseekV3Config,
GptOssConfig, Gemma3TextConfig). Nothing is downloaded: the file is one that the user has.
"""

import json
from pathlib import Path
from typing import Any, Final

from dpd.catalog.models import ModelShape

_DTYPE_BYTES: Final = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "float8_e4m3fn": 1.0, "float8_e5m2": 1.0}
_QUANT_BYTES: Final = {"fp8": 1.0, "fbgemm_fp8": 1.0, "mxfp4": 0.53125, "awq": 0.5625, "gptq": 0.5625}
_QUANT_BITS_KEYS: Final = ("bits", "num_bits", "w_bit")
_MOST_BYTES: Final = 4_000_000


def shape_of(path: Path) -> ModelShape:
    """Return the shape that a ``config.json`` describes.

    Raises ``ValueError`` with a message for the user when the file is missing, is not JSON, or lacks a key that
    the arithmetic needs.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the model's config {str(path)[:200]!r}: {error.strerror}") from None
    if len(raw) > _MOST_BYTES:
        raise ValueError(f"the model's config {path.name!r} is {len(raw):,} bytes; that is no config.json")
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError(f"the model's config {path.name!r} is not JSON") from None
    if not isinstance(config, dict):
        raise ValueError(f"the model's config {path.name!r} must be a JSON object")
    return shape_of_config(config, name=path.parent.name or path.stem)


def shape_of_config(config: dict[str, Any], *, name: str) -> ModelShape:
    """Return the shape of a parsed ``config.json``. Raises ``ValueError`` as ``shape_of`` does."""
    nested = config.get("text_config")
    text = {**config, **nested} if isinstance(nested, dict) else config
    layers, heads, hidden = (_positive(text, key) for key in ("num_hidden_layers", "num_attention_heads", "hidden_size"))
    kv_heads = _positive(text, "num_key_value_heads", default=heads)
    head_dim = _positive(text, "head_dim", default=max(1, hidden // heads))
    dtype = text.get("torch_dtype") or text.get("dtype") or "bfloat16"
    if dtype not in _DTYPE_BYTES:
        raise ValueError(f"the model's config has the dtype {str(dtype)[:40]!r}; known are {', '.join(_DTYPE_BYTES)}")
    dtype_bytes = _DTYPE_BYTES[dtype]
    mla = isinstance(text.get("kv_lora_rank"), int) and text["kv_lora_rank"] > 0
    weight_dtype_bytes = _weight_dtype_bytes(text, dtype_bytes)
    parameters = _parameters(text, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim, hidden=hidden, mla=mla)
    window_layers, window_tokens = _windows(text, layers)
    return ModelShape(
        name=name,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden_size=hidden,
        vocab_size=_positive(text, "vocab_size"),
        max_positions=_positive(text, "max_position_embeddings", default=1 << 30),
        dtype=dtype,
        dtype_bytes=dtype_bytes,
        weight_dtype_bytes=weight_dtype_bytes,
        parameters=parameters,
        weight_bytes=parameters * weight_dtype_bytes,
        attention="mla" if mla else "gqa",
        kv_rank=text["kv_lora_rank"] + _positive(text, "qk_rope_head_dim", default=0) if mla else 0,
        window_layers=window_layers,
        window_tokens=window_tokens,
        experts=_experts(text),
        sources=("hf-config",),
    )


def _positive(config: dict[str, Any], key: str, *, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        if default is None:
            raise ValueError(f"the model's config has no {key}")
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"the model's config has {key} = {str(value)[:40]}; a positive whole number is needed")
    return value


def _experts(config: dict[str, Any]) -> int:
    return next((value for key in ("n_routed_experts", "num_local_experts", "num_experts") if isinstance(value := config.get(key), int)), 0)


def _weight_dtype_bytes(config: dict[str, Any], dtype_bytes: float) -> float:
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict):
        return dtype_bytes
    for key in _QUANT_BITS_KEYS:
        if isinstance(bits := quantization.get(key), int) and 0 < bits <= 32:
            return bits / 8
    return _QUANT_BYTES.get(str(quantization.get("quant_method", "")).lower(), dtype_bytes)


def _windows(config: dict[str, Any], layers: int) -> tuple[int, int]:
    """Layers with sliding-window attention, and the window in tokens."""
    window, kinds = config.get("sliding_window"), config.get("layer_types")
    if not isinstance(window, int) or window < 1 or not isinstance(kinds, list):
        return 0, 0
    return min(layers, sum(kind == "sliding_attention" for kind in kinds)), window


def _parameters(config: dict[str, Any], *, layers: int, heads: int, kv_heads: int, head_dim: int, hidden: int, mla: bool) -> float:
    """Count parameters of attention, feed-forward (dense or expert) and embeddings; norms and biases are left out (< 0.1 %)."""
    if mla:
        nope, rope = _positive(config, "qk_nope_head_dim", default=128), _positive(config, "qk_rope_head_dim", default=64)
        value_dim, kv_rank = _positive(config, "v_head_dim", default=128), config["kv_lora_rank"]
        query_rank = config.get("q_lora_rank") or 0
        queries = (hidden + heads * (nope + rope)) * query_rank if query_rank else hidden * heads * (nope + rope)
        attention = queries + hidden * (kv_rank + rope) + kv_rank * heads * (nope + value_dim) + heads * value_dim * hidden
    else:
        attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    inner = _positive(config, "intermediate_size", default=4 * hidden)
    dense = 3 * hidden * inner
    experts = _experts(config)
    if experts:
        expert_inner = _positive(config, "moe_intermediate_size", default=inner)
        shared = config.get("n_shared_experts") or 0
        moe = 3 * hidden * expert_inner * (experts + shared) + hidden * experts
        dense_layers = min(layers, config.get("first_k_dense_replace") or 0)
        feed_forward = dense_layers * dense + (layers - dense_layers) * moe
    else:
        feed_forward = layers * dense
    embeddings = _positive(config, "vocab_size") * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return float(layers * attention + feed_forward + embeddings)
