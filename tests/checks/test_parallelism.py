"""Parallelism: sizes that split a model, sizes that go together, and models that are worth two roles."""

from pathlib import Path
from typing import Any

import pytest

from dpd.finding import Level
from tests.support import findings

PREFILL, DECODE = "endpoints[0].prefill", "endpoints[0].decode"


def both(size: int, catalog: str = "llama-3.3-70b-instruct") -> dict[str, Any]:
    return {f"{PREFILL}.tensor_parallel": size, f"{DECODE}.tensor_parallel": size, "endpoints[0].model.catalog": catalog}


def extra(*arguments: str) -> dict[str, Any]:
    return {f"{PREFILL}.extra_args": list(arguments), f"{DECODE}.extra_args": list(arguments)}


@pytest.mark.parametrize(
    ("id", "path", "wrong", "right"),
    [
        ("PAR001", f"{DECODE}.tensor_parallel", both(3), both(4)),
        ("PAR001", f"{DECODE}.tensor_parallel", both(6), both(8)),
        ("PAR001", f"{DECODE}.tensor_parallel", both(64, "llama-3.1-8b-instruct"), both(32, "llama-3.1-8b-instruct")),
        ("PAR002", f"{DECODE}.tensor_parallel", both(16), both(8)),
        ("PAR003", f"{DECODE}.tensor_parallel", {f"{PREFILL}.tensor_parallel": 4}, both(4)),
        ("PAR003", f"{DECODE}.tensor_parallel", {f"{DECODE}.tensor_parallel": 4}, both(8)),
        ("PAR004", f"{DECODE}.extra_args[0]", extra("--all2all-backend=deepep_low_latency"),
         extra("--all2all-backend=allgather_reducescatter")),
        ("PAR004", f"{PREFILL}.extra_args[1]", extra("--enable-expert-parallel", "--all2all_backend", "deepep_high_throughput"),
         extra("--enable-expert-parallel")),
        ("PAR004", "endpoints[0].environment.VLLM_ALL2ALL_BACKEND",
         {"endpoints[0].environment": {"VLLM_ALL2ALL_BACKEND": "deepep_high_throughput"}},
         {"endpoints[0].environment": {"VLLM_ALL2ALL_BACKEND": "allgather_reducescatter"}}),
        ("PAR005", "endpoints[0].model", both(8, "gpt-oss-120b"), both(8)),
        ("PAR005", "endpoints[0].model", both(8, "deepseek-v3"), both(8)),
        ("PAR005", "endpoints[0].model", both(8, "qwen3-8b"), both(8)),
        ("PAR005", "endpoints[0].model", both(8, "qwen3-32b"), both(8)),
        ("PAR005", "endpoints[0].model.max_model_len", {"endpoints[0].model.max_model_len": 4255},
         {"endpoints[0].model.max_model_len": 4256}),
    ],
)  # fmt: skip
def test_a_wrong_split_and_its_nearest_right_one(id: str, path: str, wrong: dict[str, Any], right: dict[str, Any]) -> None:
    assert path in {finding.path for finding in findings(wrong, id=id)}
    assert not findings(right, id=id)


def test_the_division_is_printed_with_the_sizes_that_work() -> None:
    finding = findings(both(6), id="PAR001")[0]
    assert finding.message == "llama-3.3-70b-instruct has 64 attention heads; 64 % 6 = 4"
    assert finding.fix == "use one of 1, 2, 4, 8"


def test_copied_kv_heads_are_worth_knowing_and_uneven_ones_are_an_error(tmp_path: Path) -> None:
    assert {finding.level for finding in findings(both(16), id="PAR002")} == {Level.INFO}
    config = tmp_path / "config.json"
    config.write_text(
        '{"num_hidden_layers": 80, "num_attention_heads": 48, "num_key_value_heads": 12, "hidden_size": 8192, "vocab_size": 32000,'
        ' "intermediate_size": 28672, "max_position_embeddings": 131072}'
    )
    model = {"config": str(config), "source": {"s3": {"prefix": "weights/"}}, "max_model_len": 16384}
    uneven = {"endpoints[0].model": model, f"{PREFILL}.tensor_parallel": 8, f"{DECODE}.tensor_parallel": 8}
    said = [finding.message.split(" has ")[1] for finding in findings(uneven, id="PAR002")]
    assert said == ["12 KV heads; 12 % 8 = 4 and 8 % 12 = 8"] * 2
    assert not findings({**uneven, f"{PREFILL}.tensor_parallel": 6, f"{DECODE}.tensor_parallel": 6}, id="PAR002")


def test_latent_attention_has_no_kv_heads_to_split() -> None:
    assert not findings(both(16, "deepseek-v3"), id="PAR002")


@pytest.mark.parametrize(
    ("catalog", "level"),
    [("gpt-oss-120b", Level.WARNING), ("qwen3-8b", Level.WARNING), ("qwen3-32b", Level.INFO)],
)
def test_how_strongly_aws_advises_against_a_model(catalog: str, level: Level) -> None:
    assert [finding.level for finding in findings(both(8, catalog), id="PAR005")] == [level]


def test_a_shared_variable_is_reported_once() -> None:
    changes = {"endpoints[0].environment": {"VLLM_ALL2ALL_BACKEND": "deepep_low_latency"}}
    assert len(findings(changes, id="PAR004")) == 1
