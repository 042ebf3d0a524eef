"""vLLM arguments are read as vLLM reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.backends.arguments import Argument, parse
from dpd.catalog import vllm_flags


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


def test_every_named_flag_is_a_flag_of_the_default_image() -> None:
    known = vllm_flags.flags_of("0.19.0")
    assert known is not None
    tables = [*vllm_flags.reasons("managed"), *vllm_flags.reasons("refused"), *vllm_flags.named("multiply_gpus")]
    assert set(tables) | vllm_flags.named("same_in_both_roles") | set(known.short.values()) <= known.flags


def test_unknown_version() -> None:
    assert vllm_flags.flags_of("0.0.1") is None
