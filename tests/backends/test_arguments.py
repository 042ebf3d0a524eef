"""vLLM arguments are read as vLLM reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.backends.arguments import Argument, parse
from dpd.catalog import vllm_flags
from dpd.catalog.engines import any_version, lists
from dpd.catalog.images import ServingImage, default_image


@pytest.mark.parametrize(
    ("texts", "flag", "value"),
    [
        (["--tensor-parallel-size", "4"], "--tensor-parallel-size", "4"),
        (["--tensor-parallel-size=4"], "--tensor-parallel-size", "4"),
        (["--tensor_parallel_size=4"], "--tensor-parallel-size", "4"),
        (["-tp", "4"], "--tensor-parallel-size", "4"),
        (["-tp=4"], "--tensor-parallel-size", "4"),
        (["--seed", "1", "--seed", "2"], "--seed", "2"),
        (["--seed", "-1"], "--seed", "-1"),
        (["--enforce-eager"], "--enforce-eager", ""),
        (["--hf-overrides", '{"a": "--b"}'], "--hf-overrides", '{"a": "--b"}'),
        (["--lora-modules", "a=1", "b=2"], "--lora-modules", "a=1 b=2"),
        (["--seed", "1"], "--model", None),
    ],
)
def test_values(texts: list[str], flag: str, value: str | None) -> None:
    parsed = parse(texts)
    assert parsed.value(flag) == value
    assert parsed.strays == ()


@pytest.mark.parametrize(
    ("flag", "base"),
    [
        ("--no-enforce-eager", "--enforce-eager"),
        ("--disable-lora", "--enable-lora"),
        ("--disable-sliding-window", "--disable-sliding-window"),
        ("--kv-transfer-config.kv_role", "--kv-transfer-config"),
        ("--seed", "--seed"),
    ],
)
def test_base(flag: str, base: str) -> None:
    assert Argument(flag, (), 0).base == base


@pytest.mark.parametrize(("texts", "strays"), [(["7"], (0,)), (["--seed 7"], (0,)), (["-tp 8"], (0,)), (["--seed", "7 8"], ()), ([], ())])
def test_strays(texts: list[str], strays: tuple[int, ...]) -> None:
    assert parse(texts).strays == strays


@given(st.lists(st.text(max_size=20), max_size=20))
def test_never_raises_and_loses_nothing(texts: list[str]) -> None:
    parsed = parse(texts)
    places = {item.index for item in parsed.known} | set(parsed.strays)
    assert places <= set(range(len(texts)))
    if texts:
        assert 0 in places


@pytest.mark.parametrize("image", [default_image(), default_image("llm-d")], ids=lambda image: image.vllm)
def test_every_named_flag_is_a_flag_of_the_default_images(image: ServingImage) -> None:
    known = lists("vllm", image.vllm)
    assert known.exact
    tables = [*vllm_flags.reasons("managed"), *vllm_flags.reasons("refused"), *vllm_flags.named("multiply_gpus")]
    assert set(tables) | vllm_flags.named("same_in_both_roles") <= known.names("flags") | LATER
    assert set(vllm_flags.short_forms().values()) <= any_version("vllm").names("flags")


LATER: set[str] = set()
"""Flags that one of the default images does not have yet, or no longer has."""
