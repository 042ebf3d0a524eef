"""The model table: shapes that their own config.json would give."""

import pytest

from dpd.catalog import models
from dpd.catalog.models import ModelShape

ALL = tuple(it for name in models.names() if (it := models.find(name)))


@pytest.mark.parametrize("it", ALL, ids=lambda it: it.name)
def test_every_shape_agrees_with_itself(it: ModelShape) -> None:
    assert it.heads % it.kv_heads == 0
    assert it.window_layers <= it.layers
    assert (it.attention == "mla") == (it.kv_rank > 0)
    assert bool(it.window_layers) == bool(it.window_tokens)
    assert it.hub_id.count("/") == 1
    # weight_bytes is the checkpoint: between its nominal bytes a parameter, and some layers kept in 16 bits
    assert 0.95 <= it.weight_bytes / (it.parameters * it.weight_dtype_bytes) <= 1.25


@pytest.mark.parametrize(
    ("name", "inner", "bias"),
    [
        ("llama-3.3-70b-instruct", 28_672, False),
        ("llama-3.1-70b-instruct", 28_672, False),
        ("llama-3.1-405b-instruct", 53_248, False),
        ("llama-3.1-8b-instruct", 14_336, False),
        ("qwen2.5-72b-instruct", 29_568, True),
    ],
)
def test_a_dense_model_is_counted_from_its_shape(name: str, inner: int, bias: bool) -> None:
    it = models.find(name)
    assert it is not None
    queries_and_kv = it.head_dim * (it.heads + 2 * it.kv_heads)
    attention = it.hidden_size * (queries_and_kv + it.head_dim * it.heads) + (queries_and_kv if bias else 0)
    layer = attention + 3 * it.hidden_size * inner + 2 * it.hidden_size
    assert it.parameters == it.layers * layer + 2 * it.vocab_size * it.hidden_size + it.hidden_size
    assert it.weight_bytes == pytest.approx(2 * it.parameters, rel=1e-6)


def test_an_unknown_model_is_none() -> None:
    assert models.find("llama-9") is None


def test_another_parameter_count_scales_the_weights() -> None:
    it = models.find("qwen3-8b")
    assert it is not None
    assert it.with_parameters(2 * it.parameters).weight_bytes == 2 * it.weight_bytes
