"""KV and GPU arithmetic against published numbers, and its properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.catalog import models
from dpd.catalog.models import ModelShape
from dpd.catalog.serving import lmcache_chunk_tokens
from dpd.sizing.buffer import Buffer
from dpd.sizing.fleet import roles_on_gpus
from dpd.sizing.memory import (
    GIB,
    gpu_budget,
    kv_bytes_per_rank,
    kv_bytes_per_token,
    kv_bytes_per_token_per_rank,
)
from tests.support import environment

LLAMA = models.find("llama-3.3-70b-instruct")
assert LLAMA is not None
SHAPES = tuple(shape for name in models.names() if (shape := models.find(name)))


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [("llama-3.3-70b-instruct", 327_680), ("qwen3-8b", 147_456), ("gpt-oss-120b", 73_728), ("qwen3-32b", 262_144), ("deepseek-v3", 70_272)],
)
def test_kv_bytes_of_a_token(name: str, bytes_per_token: int) -> None:
    shape = models.find(name)
    assert shape is not None
    assert kv_bytes_per_token(shape) == bytes_per_token
    assert kv_bytes_per_token(shape, "fp8") == bytes_per_token / 2


def test_the_numbers_of_the_aws_guide() -> None:
    assert LLAMA is not None
    assert kv_bytes_per_token_per_rank(LLAMA, 8) == 40_960
    assert round(kv_bytes_per_rank(LLAMA, 6000, 8) / GIB, 2) == 0.23
    assert Buffer(LLAMA, 8).prompt_bytes(16_384) / GIB == 0.625
    assert Buffer(LLAMA, 8).prompts(8, 16_384) == 12
    # AWS says about 35 transfers of 6,000 tokens in 8 GiB: 34 in whole chunks of 256 tokens.
    assert Buffer(LLAMA, 8).prompts(8, 6000) == 34


def test_a_gpu_of_the_shipped_environment() -> None:
    prefill, decode = (gpu_budget(it.placed.endpoint, it.placed.name, it.placed.role, it.instance) for it in roles_on_gpus(environment()))
    assert (decode.share_gib, decode.buffer_gib, decode.used_gib) == (60.0, 8.0, 69.0)
    assert (prefill.buffer_gib, prefill.used_gib) == (0.0, 61.0)
    assert decode.weights_gib == pytest.approx(141.107412992e9 / 8 / GIB)
    assert decode.kv_tokens == math.floor((60 - decode.weights_gib - 4) * GIB / 40_960)


shapes = st.sampled_from(SHAPES)
tokens = st.integers(1, 200_000)
ranks = st.sampled_from((1, 2, 4, 8, 16))


@given(shapes, tokens, tokens, ranks)
def test_longer_sequences_never_take_less(shape: ModelShape, one: int, other: int, size: int) -> None:
    short, long = sorted((one, other))
    assert kv_bytes_per_rank(shape, short, size) <= kv_bytes_per_rank(shape, long, size)
    assert Buffer(shape, size).prompt_bytes(short) <= Buffer(shape, size).prompt_bytes(long)


@given(shapes, tokens, ranks)
def test_ranks_hold_all_of_the_kv_between_them(shape: ModelShape, length: int, size: int) -> None:
    whole = kv_bytes_per_rank(shape, length, 1)
    assert size * kv_bytes_per_rank(shape, length, size) >= whole * (1 - 1e-9)
    if shape.attention == "mla":
        assert kv_bytes_per_rank(shape, length, size) == whole


@given(shapes, tokens, ranks)
def test_a_buffer_takes_whole_chunks_of_every_layer(shape: ModelShape, length: int, size: int) -> None:
    chunk = lmcache_chunk_tokens() * kv_bytes_per_token_per_rank(shape, size)
    taken = Buffer(shape, size).prompt_bytes(length)
    assert taken == pytest.approx(math.ceil(length / lmcache_chunk_tokens()) * chunk)
    assert taken >= kv_bytes_per_rank(shape, length, size) * (1 - 1e-9)


@given(shapes, st.integers(1, 64), tokens, ranks)
def test_what_is_in_flight_fits_the_buffer(shape: ModelShape, buffer_gib: int, length: int, size: int) -> None:
    count, one = Buffer(shape, size).prompts(buffer_gib, length), Buffer(shape, size).prompt_bytes(length)
    assert count * one <= buffer_gib * GIB * (1 + 1e-9) < (count + 1) * one * (1 + 2e-9)


def test_window_layers_stop_growing() -> None:
    shape = models.find("gpt-oss-120b")
    assert shape is not None
    per_layer = 2 * 8 * 64 * 2
    assert kv_bytes_per_rank(shape, 10_000, 1) == pytest.approx(per_layer * (18 * 10_000 + 18 * 128))
    assert kv_bytes_per_rank(shape, 100, 1) == pytest.approx(per_layer * 36 * 100)
