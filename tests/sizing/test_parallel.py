"""Splits of a model, and pairs of splits that can hand KV to each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.catalog import models
from dpd.sizing.parallel import Connector, heads_split, kv_heads_split, pair_problem, usable_tensor_parallel

sizes = st.integers(1, 64)


@pytest.mark.parametrize(
    ("name", "usable"),
    [("llama-3.3-70b-instruct", (1, 2, 4, 8)), ("qwen3-8b", (1, 2, 4, 8)), ("deepseek-v3", (1, 2, 4, 8)), ("gpt-oss-120b", (1, 2, 4, 8))],
)
def test_sizes_of_known_models(name: str, usable: tuple[int, ...]) -> None:
    shape = models.find(name)
    assert shape is not None
    assert usable_tensor_parallel(shape, 8) == usable


@given(sizes)
def test_a_usable_size_splits_heads_and_kv_heads(size: int) -> None:
    shape = models.find("llama-3.3-70b-instruct")
    assert shape is not None
    assert (size in usable_tensor_parallel(shape, 64)) == (heads_split(shape, size) and kv_heads_split(shape, size))


@given(sizes, sizes, st.booleans())
def test_equal_sizes_always_go_together(one: int, other: int, latent: bool) -> None:
    for connector in Connector:
        assert not pair_problem(connector, one, one, latent=latent)
    assert bool(pair_problem(Connector.LMCACHE, one, other, latent=latent)) == (one != other)


@pytest.mark.parametrize(
    ("prefill", "decode", "latent", "works"),
    [(2, 8, False, True), (4, 8, False, True), (8, 4, False, False), (3, 8, False, False), (8, 4, True, True)],
)
def test_nixl_reads_a_part_of_a_prefill_rank(prefill: int, decode: int, latent: bool, works: bool) -> None:
    assert bool(pair_problem(Connector.NIXL, prefill, decode, latent=latent)) is not works
