"""The model that is made on the spot: a legal file, the same each time, and bytes that can be computed beforehand."""

import json
import math
import struct
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rehearsal import model
from rehearsal.model import SHAPE


def header(folder: Path) -> tuple[dict[str, Any], bytes]:
    content = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def test_one_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    one, other = model.make(tmp_path / "one", max_model_len=512), model.make(tmp_path / "other", max_model_len=512)
    assert {file.name: file.read_bytes() for file in one.iterdir()} == {file.name: file.read_bytes() for file in other.iterdir()}
    model.write_weights(other, 2)
    changed = {file.name for file in one.iterdir() if file.read_bytes() != (other / file.name).read_bytes()}
    assert changed == {"model.safetensors"}


def test_tensors_fill_the_file_and_fit_the_configuration(tmp_path: Path) -> None:
    folder = model.make(tmp_path, max_model_len=512)
    tensors, data = header(folder)
    tensors.pop("__metadata__")
    end = 0
    for tensor in tensors.values():
        begin, after = tensor["data_offsets"]
        assert begin == end
        assert after - begin == 2 * math.prod(tensor["shape"])
        end = after
    assert end == len(data)
    config = json.loads((folder / "config.json").read_text())
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(config["vocab_size"]))
    assert tensors["model.embed_tokens.weight"]["shape"] == [config["vocab_size"], config["hidden_size"]]
    assert tensors["model.layers.3.self_attn.k_proj.weight"]["shape"] == [
        config["num_key_value_heads"] * config["head_dim"],
        config["hidden_size"],
    ]


def test_weights_are_real_ones(tmp_path: Path) -> None:
    _, data = header(model.make(tmp_path, max_model_len=512))
    values = struct.unpack(f"<{len(data) // 2}H", data)
    floats = [struct.unpack("<f", struct.pack("<I", value << 16))[0] for value in values[::997]]
    assert all(math.isfinite(value) for value in floats)
    assert len(set(floats)) > 500


def test_every_merge_is_a_token_that_its_parts_make(tmp_path: Path) -> None:
    tokenizer = json.loads((model.make(tmp_path, max_model_len=512) / "tokenizer.json").read_text())["model"]
    for one, other in tokenizer["merges"]:
        assert {one, other, one + other} <= tokenizer["vocab"].keys()


@given(st.integers(1, 100_000), st.sampled_from((16, 32, 64, 128)))
def test_bytes_are_those_of_whole_blocks(tokens: int, block_size: int) -> None:
    found = SHAPE.kv_bytes(tokens, block_size)
    block = block_size * SHAPE.kv_bytes_per_token
    assert found % block == 0
    assert found - block < tokens * SHAPE.kv_bytes_per_token <= found


def test_the_measured_hand_over_is_the_computed_one() -> None:
    """361 tokens moved 786,432 bytes when vLLM 0.32.0 handed over four layers of two KV heads of 64 in blocks of 128."""
    assert SHAPE.kv_bytes(361, 128) == 786_432
