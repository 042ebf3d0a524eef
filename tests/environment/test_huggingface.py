"""Model shapes from config.json: the published models, and every kind of file that is none."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.catalog import models
from dpd.environment.huggingface import shape_of, shape_of_config

LLAMA: dict[str, Any] = {
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 8192, "intermediate_size": 28672,
    "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_8B: dict[str, Any] = {
    "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 4096,
    "intermediate_size": 12288, "vocab_size": 151936, "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
}  # fmt: skip
GPT_OSS: dict[str, Any] = {
    "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "hidden_size": 2880,
    "intermediate_size": 2880, "vocab_size": 201088, "max_position_embeddings": 131072, "num_local_experts": 128, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18, "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "first_k_dense_replace": 3, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280,
    "max_position_embeddings": 163840, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "name"),
    [(LLAMA, "llama-3.3-70b-instruct"), (QWEN3_8B, "qwen3-8b"), (GPT_OSS, "gpt-oss-120b"), (DEEPSEEK, "deepseek-v3")],
)
def test_a_published_config_agrees_with_the_catalog(config: dict[str, Any], name: str) -> None:
    shape, known = shape_of_config(config, name=name), models.find(name)
    assert known is not None
    for field in ("layers", "heads", "kv_heads", "hidden_size", "vocab_size", "max_positions", "attention", "kv_rank", "experts"):
        assert getattr(shape, field) == getattr(known, field), field
    assert (shape.window_layers, shape.window_tokens, shape.weight_dtype_bytes) == (
        known.window_layers,
        known.window_tokens,
        known.weight_dtype_bytes,
    )
    assert shape.parameters == pytest.approx(known.parameters, rel=0.01)


@pytest.mark.parametrize(
    ("quantization", "size"),
    [
        ({}, 2.0),
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_method": "gptq", "bits": 4}, 0.5),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, 1.0),
        ({"quant_method": "unheard-of"}, 2.0),
        ({"bits": True}, 2.0),
        ({"bits": -4, "config_groups": [1]}, 2.0),
        ("fp8", 2.0),
    ],
)
def test_bytes_of_quantized_weights(quantization: Any, size: float) -> None:
    assert shape_of_config({**LLAMA, "quantization_config": quantization}, name="m").weight_dtype_bytes == size


def test_the_language_part_of_a_multimodal_config_is_read() -> None:
    shape = shape_of_config({"vision_config": {}, "text_config": LLAMA, "hidden_size": 1}, name="m")
    assert (shape.layers, shape.hidden_size) == (80, 8192)


NUMBERS = (
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "vocab_size", "kv_lora_rank", "head_dim",
    "intermediate_size", "num_local_experts", "n_shared_experts", "q_lora_rank", "qk_rope_head_dim", "first_k_dense_replace",
    "max_position_embeddings",
)  # fmt: skip
WRONG: tuple[Any, ...] = (0, -1, True, 1.5, "64", [], {}, float("inf"), float("nan"), 10**400)


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_number_that_is_none_is_refused(key: str, value: Any) -> None:
    may_be_zero = {"kv_lora_rank", "num_local_experts", "n_shared_experts", "q_lora_rank", "qk_rope_head_dim", "first_k_dense_replace"}
    if value == 0 and value is not False and key in may_be_zero:
        assert shape_of_config({**DEEPSEEK, "num_local_experts": 8, key: value}, name="m").parameters > 0
        return
    config = {**DEEPSEEK, key: value}
    if key == "num_local_experts":
        del config["n_routed_experts"]
    if key == "head_dim":
        config = {**LLAMA, key: value}
    with pytest.raises(ValueError, match=rf"{key} = .*a whole number from [01] to 1,000,000,000 is needed"):
        shape_of_config(config, name="m")


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size"])
def test_a_key_that_the_arithmetic_needs_may_not_be_missing(key: str) -> None:
    with pytest.raises(ValueError, match=f"has no {key}"):
        shape_of_config({name: value for name, value in LLAMA.items() if name != key}, name="m")


@pytest.mark.parametrize("dtype", ["int8", ["bfloat16"], 16, {"a": 1}, "x" * 10_000])
def test_a_dtype_that_is_unknown_is_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match="known are float32, bfloat16") as caught:
        shape_of_config({**LLAMA, "torch_dtype": dtype}, name="m")
    assert len(str(caught.value)) < 300


def test_more_parameters_than_any_model_has_are_refused() -> None:
    with pytest.raises(ValueError, match="no model has more than"):
        shape_of_config({**LLAMA, "hidden_size": 10**9, "num_hidden_layers": 10**9}, name="m")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[1]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"hidden_size": NaN}', "is not JSON"),
        (b'{"hidden_size": Infinity}', "is not JSON"),
        (b'{"hidden_size": ' + b"9" * 5_000 + b"}", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b" " * 4_000_001, "that is no config.json"),
        (b"{}", "has no num_hidden_layers"),
    ],
)
def test_a_file_that_is_no_config(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        shape_of(file)


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    for path, says in (
        (tmp_path / "none.json", "is missing"),
        (tmp_path, "is not a file"),
        (Path("/dev/zero"), "is not a file"),
        (Path("a\0b"), "is missing"),
    ):
        with pytest.raises(ValueError, match=says):
            shape_of(path)


def test_a_good_file_is_named_after_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert shape_of(folder / "config.json").name == "My-Model"
    (folder / "mine.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert shape_of(folder / "mine.json").name == "mine"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)
_keys = sorted({*LLAMA, *GPT_OSS, *DEEPSEEK, "dtype", "text_config"})


@given(st.dictionaries(st.sampled_from(_keys), _json, max_size=6))
def test_any_config_is_read_or_refused(changes: dict[str, Any]) -> None:
    try:
        shape = shape_of_config({**DEEPSEEK, **changes}, name="m")
    except ValueError as error:
        said = str(error)
    else:
        said = shape.name
        assert shape.weight_bytes > 0
    assert len(said) < 400
