"""A model of a few megabytes that is made on the spot: configuration, tokenizer, random weights. Nothing is downloaded.

Weights are real random numbers, for with vLLM's dummy ones every token is as likely as any other, and whatever is compared is
equal. Random attention alone would hardly see the few words in which one long prompt differs from another, so the first layer
has two heads that look at digits wherever they stand: an answer depends on the number early in the prompt.
"""

import json
import math
import random
import struct
from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from health_gate import prompts

_SPECIAL: Final = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
_MERGES: Final = 160
_SPREAD: Final = 0.2
"""Standard deviation of the weights: answers of a model with much smaller ones hardly depend on what was read."""
_MARK: Final = 1.0
_GAZE: Final = 2.0
"""How strongly the two heads look at digits: a digit then outweighs some ten thousand other tokens."""
_ROTARY_BASE: Final = 1e6
"""The slowest pair of dimensions turns so little over a prompt that its scores do not depend on the distance."""
_SPACE: Final = "Ġ"
"""How byte-level tokenizers write a space."""
_TEMPLATE: Final = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_BYTES: Final = 2
_CORPUS: Final = (
    prompts.SENTENCE
    + "The number of the harbour is. Repeat the number of the harbour, then count upwards from it in words. Say hello. "
    + "One two three four five six seven eight nine ten eleven twelve. A ship leaves the harbour at dawn and comes back at night. "
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides how many bytes a token's keys and values take."""

    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    hidden: int = 256
    intermediate: int = 512

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of all layers in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * _BYTES

    def kv_bytes(self, tokens: int, block_size: int) -> int:
        """Bytes of the whole blocks that hold so many tokens: vLLM hands over blocks, the last one unfinished."""
        return math.ceil(tokens / block_size) * block_size * self.kv_bytes_per_token


SHAPE: Final = Shape()


def make(folder: Path, *, max_model_len: int, seed: int = 1) -> Path:
    """Write the model below a folder; the same seed gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    merges, vocabulary = _vocabulary()
    _json(folder / "config.json", _config(len(vocabulary), max_model_len))
    _json(folder / "generation_config.json", {"eos_token_id": 0, "bos_token_id": 0})
    _json(folder / "tokenizer.json", _tokenizer(merges, vocabulary))
    special = {"eos_token": _SPECIAL[0], "bos_token": None, "pad_token": _SPECIAL[0]}
    more = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_model_len, "chat_template": _TEMPLATE}
    _json(folder / "tokenizer_config.json", {**special, **more})
    write_weights(folder, seed)
    return folder


def write_weights(folder: Path, seed: int) -> None:
    """Replace the weights of a model by those of another seed. A server that has read the old ones keeps them."""
    _, vocabulary = _vocabulary()
    part = folder / ".model.safetensors.part"
    part.write_bytes(_safetensors(_weights(vocabulary, random.Random(seed))))  # noqa: S311 (weights, no secret)
    part.replace(folder / "model.safetensors")


def _json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _config(vocabulary: int, max_model_len: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": SHAPE.hidden,
        "intermediate_size": SHAPE.intermediate,
        "num_hidden_layers": SHAPE.layers,
        "num_attention_heads": SHAPE.heads,
        "num_key_value_heads": SHAPE.kv_heads,
        "head_dim": SHAPE.head_dim,
        "vocab_size": vocabulary,
        "max_position_embeddings": max_model_len,
        "rope_theta": _ROTARY_BASE,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "bfloat16",
    }


def _vocabulary() -> tuple[list[tuple[str, str]], list[str]]:
    """Merges and tokens of a byte-level BPE that makes the prompts of the gate some four characters a token, as real ones do."""
    words = Counter(_SPACE + word for word in _CORPUS.split())
    split = {word: list(word) for word in words}
    merges: list[tuple[str, str]] = []
    while len(merges) < _MERGES:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            parts = split[word]
            for pair in pairwise(parts):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        split = {word: _merged(parts, best) for word, parts in split.items()}
    # No token but printable ones, or pieces of an answer would be halves of characters.
    alphabet = [chr(code) for code in range(ord("!"), ord("~") + 1)] + [_SPACE, "Ċ"]
    return merges, [*_SPECIAL, *alphabet, *("".join(pair) for pair in merges)]


def _merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    found: list[str] = []
    for part in parts:
        if found and (found[-1], part) == pair:
            found[-1] += part
        else:
            found.append(part)
    return found


def _tokenizer(merges: list[tuple[str, str]], vocabulary: list[str]) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": token, **flags} for number, token in enumerate(_SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(vocabulary)},
            "merges": [list(pair) for pair in merges],
        },
    }


Tensor = tuple[tuple[int, ...], "array[float]"]


def _weights(vocabulary: list[str], chance: random.Random) -> dict[str, Tensor]:
    """Every tensor, row after row."""
    hidden, inner = SHAPE.hidden, SHAPE.intermediate
    queries, keys = SHAPE.heads * SHAPE.head_dim, SHAPE.kv_heads * SHAPE.head_dim

    def matrix(rows: int, columns: int) -> Tensor:
        return (rows, columns), array("f", [chance.gauss(0, _SPREAD) for _ in range(rows * columns)])

    def ones() -> Tensor:
        return (hidden,), array("f", [1.0]) * hidden

    found = {"model.embed_tokens.weight": matrix(len(vocabulary), hidden)}
    for number in range(SHAPE.layers):
        at = f"model.layers.{number}"
        found |= {
            f"{at}.input_layernorm.weight": ones(),
            f"{at}.self_attn.q_proj.weight": matrix(queries, hidden),
            f"{at}.self_attn.k_proj.weight": matrix(keys, hidden),
            f"{at}.self_attn.v_proj.weight": matrix(keys, hidden),
            f"{at}.self_attn.o_proj.weight": matrix(hidden, queries),
            f"{at}.post_attention_layernorm.weight": ones(),
            f"{at}.mlp.gate_proj.weight": matrix(inner, hidden),
            f"{at}.mlp.up_proj.weight": matrix(inner, hidden),
            f"{at}.mlp.down_proj.weight": matrix(hidden, inner),
        }
    found |= {"model.norm.weight": ones(), "lm_head.weight": matrix(len(vocabulary), hidden)}
    _look_at_digits(found, vocabulary)
    # A logit of zero is never the largest: no answer ends before it should.
    _, head = found["lm_head.weight"]
    head[: len(_SPECIAL) * hidden] = array("f", [0.0]) * (len(_SPECIAL) * hidden)
    return found


def _look_at_digits(weights: dict[str, Tensor], vocabulary: list[str]) -> None:
    """Mark every token in dimension 0 and digits in dimension 1; heads that share the first KV head ask with 0 and find by 1."""
    hidden, slowest = SHAPE.hidden, SHAPE.head_dim // 2 - 1
    _, embedding = weights["model.embed_tokens.weight"]
    for number, token in enumerate(vocabulary):
        embedding[number * hidden] = _MARK
        embedding[number * hidden + 1] = _MARK if token.isdigit() else 0.0
    sharing = SHAPE.heads // SHAPE.kv_heads
    for name, heads, dimension in (("q_proj", sharing, 0), ("k_proj", 1, 1)):
        _, values = weights[f"model.layers.0.self_attn.{name}.weight"]
        values[: heads * SHAPE.head_dim * hidden] = array("f", [0.0]) * (heads * SHAPE.head_dim * hidden)
        for head in range(heads):
            values[(head * SHAPE.head_dim + slowest) * hidden + dimension] = _GAZE


def _safetensors(tensors: dict[str, Tensor]) -> bytes:
    """The file format: length of the header, header, data (https://huggingface.co/docs/safetensors)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, (shape, values) in tensors.items():
        begin = len(data)
        data += _bfloat16(values)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def _bfloat16(values: "array[float]") -> bytes:
    """The upper half of each float."""
    whole = struct.pack(f"<{len(values)}f", *values)
    half = bytearray(_BYTES * len(values))
    half[0::2], half[1::2] = whole[2::4], whole[3::4]
    return bytes(half)
