"""Read the shape of a model from a Hugging Face ``config.json``.

The keys are those of the ``transformers`` configuration classes (LlamaConfig, Qwen3MoeConfig, DeepseekV3Config,
GptOssConfig, Gemma3TextConfig). Nothing is downloaded: the file is one that the user has.
"""

import json
from pathlib import Path
from typing import Any, Final

from dpd.catalog.models import ModelShape
from dpd.finding import safe

_DTYPE_BYTES: Final = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "float8_e4m3fn": 1.0, "float8_e5m2": 1.0}
_QUANT_BYTES: Final = {"fp8": 1.0, "fbgemm_fp8": 1.0, "mxfp4": 0.53125, "awq": 0.5625, "gptq": 0.5625}
_QUANT_BITS_KEYS: Final = ("bits", "num_bits", "w_bit")
_MOST_BITS: Final = 32
_MOST_BYTES: Final = 4_000_000
_LARGEST: Final = 1_000_000_000
_MOST_PARAMETERS: Final = 1e14
"""A hundred times the largest published model: a file beyond it describes no model."""


def shape_of(path: Path) -> ModelShape:
    """Return the shape that a ``config.json`` describes.

    Raises ``ValueError`` with a message for the user when the file is missing, is not JSON, or lacks a key that
    the arithmetic needs.
    """
    where = f"the model's config {safe(str(path), most=200)}"
    try:
        if not path.is_file():
            raise ValueError(f"{where} is {'not a file' if path.exists() else 'missing'}")
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ValueError(f"{where} is {size:,} bytes; that is no config.json")
        raw = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{where} cannot be read: {error.strerror}") from None
    try:
        config = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError(f"{where} is not JSON") from None
    if not isinstance(config, dict):
        raise ValueError(f"{where} must be a JSON object")
    return shape_of_config(config, name=_name(path))


def _name(path: Path) -> str:
    """A model is called after the folder of its ``config.json``, or after a file with a name of its own."""
    return path.stem if path.name != "config.json" else path.absolute().parent.name or path.stem


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def shape_of_config(config: dict[str, Any], *, name: str) -> ModelShape:
    """Return the shape of a parsed ``config.json``. Raises ``ValueError`` as ``shape_of`` does."""
    nested = config.get("text_config")
    text = {**config, **nested} if isinstance(nested, dict) else config
    layers, heads, hidden = (_whole(text, key) for key in ("num_hidden_layers", "num_attention_heads", "hidden_size"))
    kv_heads = _whole(text, "num_key_value_heads", default=heads)
    head_dim = _whole(text, "head_dim", default=max(1, hidden // heads))
    dtype, dtype_bytes = _dtype(text)
    kv_rank = _whole(text, "kv_lora_rank", default=0, least=0)
    weight_dtype_bytes = _weight_dtype_bytes(text, dtype_bytes)
    parameters, active = _parameters(text, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim, hidden=hidden, kv_rank=kv_rank)
    window_layers, window_tokens = _windows(text, layers)
    experts = _experts(text)
    return ModelShape(
        name=name,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden_size=hidden,
        vocab_size=_whole(text, "vocab_size"),
        max_positions=_whole(text, "max_position_embeddings", default=_LARGEST),
        dtype=dtype,
        dtype_bytes=dtype_bytes,
        weight_dtype_bytes=weight_dtype_bytes,
        parameters=parameters,
        weight_bytes=parameters * weight_dtype_bytes,
        attention="mla" if kv_rank else "gqa",
        kv_rank=kv_rank + _rope_dim(text) if kv_rank else 0,
        window_layers=window_layers,
        window_tokens=window_tokens,
        linear_layers=_linear_layers(text, layers),
        experts=experts,
        experts_per_token=_experts_per_token(text) if experts else 0,
        active_parameters=active if experts else 0.0,
        sources=("hf-config",),
    )


def _whole(config: dict[str, Any], key: str, *, default: int | None = None, least: int = 1) -> int:
    value = config.get(key)
    if value is None:
        if default is None:
            raise ValueError(f"the model's config has no {key}")
        return default
    if type(value) is not int or not least <= value <= _LARGEST:
        said = f"a number of {value.bit_length():,} bits" if type(value) is int and abs(value) > _LARGEST else safe(str(value), most=40)
        raise ValueError(f"the model's config has {key} = {said}; a whole number from {least} to {_LARGEST:,} is needed")
    return value


def _rope_dim(config: dict[str, Any]) -> int:
    return _whole(config, "qk_rope_head_dim", default=64, least=0)


def _dtype(config: dict[str, Any]) -> tuple[str, float]:
    name = config.get("torch_dtype") or config.get("dtype") or "bfloat16"
    if not isinstance(name, str) or name not in _DTYPE_BYTES:
        raise ValueError(f"the model's config has the dtype {safe(str(name), most=40)}; known are {', '.join(_DTYPE_BYTES)}")
    return name, _DTYPE_BYTES[name]


def _experts(config: dict[str, Any]) -> int:
    keys = ("n_routed_experts", "num_local_experts", "num_experts")
    return next((found for key in keys if (found := _whole(config, key, default=0, least=0))), 0)


def _experts_per_token(config: dict[str, Any]) -> int:
    keys = ("num_experts_per_tok", "experts_per_token", "moe_topk", "top_k_experts")
    return next((found for key in keys if (found := _whole(config, key, default=0, least=0))), 1)


def _weight_dtype_bytes(config: dict[str, Any], dtype_bytes: float) -> float:
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict):
        return dtype_bytes
    for holder in (quantization, *_group_weights(quantization)):
        for key in _QUANT_BITS_KEYS:
            if type(bits := holder.get(key)) is int and 0 < bits <= _MOST_BITS:
                return bits / 8
    return _QUANT_BYTES.get(str(quantization.get("quant_method", "")).lower(), dtype_bytes)


def _group_weights(quantization: dict[str, Any]) -> list[dict[str, Any]]:
    """Where the compressed-tensors format says how wide weights are."""
    groups = quantization.get("config_groups")
    found = [group.get("weights") for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []
    return [weights for weights in found if isinstance(weights, dict)]


def _windows(config: dict[str, Any], layers: int) -> tuple[int, int]:
    """Layers with sliding-window attention, and the window in tokens."""
    window, kinds = config.get("sliding_window"), config.get("layer_types")
    if type(window) is not int or not 1 <= window <= _LARGEST or not isinstance(kinds, list):
        return 0, 0
    return min(layers, sum(kind == "sliding_attention" for kind in kinds)), window


def _linear_layers(config: dict[str, Any], layers: int) -> int:
    """Layers of linear attention, named one by one or as all but every n-th (Qwen3-Next)."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return min(layers, int(sum(kind == "linear_attention" for kind in kinds)))
    every = _whole(config, "full_attention_interval", default=0, least=0)
    return layers - layers // every if every > 1 else 0


def _parameters(
    config: dict[str, Any], *, layers: int, heads: int, kv_heads: int, head_dim: int, hidden: int, kv_rank: int
) -> tuple[float, float]:
    """Count parameters of attention, feed-forward (dense or expert) and embeddings: all, and those that one token meets.

    Norms and biases are left out (< 0.1 %); linear attention is counted as if it were full.
    """
    if kv_rank:
        nope, rope = _whole(config, "qk_nope_head_dim", default=128), _rope_dim(config)
        value_dim, query_rank = _whole(config, "v_head_dim", default=128), _whole(config, "q_lora_rank", default=0, least=0)
        queries = (hidden + heads * (nope + rope)) * query_rank if query_rank else hidden * heads * (nope + rope)
        attention = queries + hidden * (kv_rank + rope) + kv_rank * heads * (nope + value_dim) + heads * value_dim * hidden
    else:
        attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    inner = _whole(config, "intermediate_size", default=4 * hidden)
    dense = 3 * hidden * inner
    feed_forward = active = layers * dense
    if experts := _experts(config):
        expert_inner = _whole(config, "moe_intermediate_size", default=inner)
        shared = _whole(config, "n_shared_experts", default=0, least=0)
        dense_layers = min(layers, _whole(config, "first_k_dense_replace", default=0, least=0))
        feed_forward, active = (
            dense_layers * dense + (layers - dense_layers) * (3 * hidden * expert_inner * (each + shared) + hidden * experts)
            for each in (experts, min(experts, _experts_per_token(config)))
        )
    embeddings = _whole(config, "vocab_size") * hidden * (1 if config.get("tie_word_embeddings") is True else 2)
    beside = layers * attention + embeddings
    total = float(beside + feed_forward)
    if total > _MOST_PARAMETERS:
        raise ValueError(f"the model's config describes {total:.1e} parameters; no model has more than {_MOST_PARAMETERS:.0e}")
    return total, float(beside + active)
