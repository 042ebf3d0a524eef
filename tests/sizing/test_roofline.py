"""The closed form beside the tables that it was fitted to, and its behaviour where there are none."""

import csv

import pytest

from dpd.catalog import gpus, models
from dpd.sizing.roofline import Engine, family
from tests.support import ROOT

TABLES = list(csv.DictReader((ROOT / "tests" / "planning" / "data" / "tables.csv").open(encoding="utf-8")))
"""Times that aiconfigurator-core 0.12.0 states for vLLM 0.24 (A100: 0.14), one step each."""


def engine(row: dict[str, str]) -> Engine:
    model = models.find(row["model"])
    assert model is not None
    found = Engine.of(model, row["gpu"], int(row["tensor_parallel"]))
    assert found is not None, row
    return found


@pytest.mark.parametrize("gpu", ["H100", "H200", "B200", "A100"])
def test_prompts_of_one_to_sixteen_thousand_tokens_are_within_a_quarter_of_the_tables(gpu: str) -> None:
    rows = [row for row in TABLES if row["phase"] == "prefill" and row["gpu"] == gpu and not missing(row)]
    assert len(rows) > 50
    for row in rows:
        measured = float(row["milliseconds"])
        assert engine(row).prefill_seconds(int(row["tokens"])) * 1e3 == pytest.approx(measured, rel=0.25), row


@pytest.mark.parametrize("gpu", ["H100", "H200", "B200", "A100"])
def test_decode_steps_are_within_three_tenths_of_the_tables(gpu: str) -> None:
    rows = [row for row in TABLES if row["phase"] == "decode" and row["gpu"] == gpu and not missing(row)]
    assert len(rows) > 50
    for row in rows:
        said = engine(row).decode_seconds(int(row["sequences"]), int(row["tokens"])) * 1e3
        assert said == pytest.approx(float(row["milliseconds"]), rel=0.3), row


def missing(row: dict[str, str]) -> bool:
    return row["model"] == "gpt-oss-120b" and row["gpu"] == "A100"


@pytest.mark.parametrize(
    ("name", "kind"), [("llama-3.3-70b-instruct", "dense"), ("gpt-oss-120b", "experts_4bit"), ("deepseek-v3", "latent")]
)
def test_families(name: str, kind: str) -> None:
    model = models.find(name)
    assert model is not None
    assert family(model) == kind


def test_what_nobody_measured_has_no_estimate() -> None:
    model = models.find("llama-3.3-70b-instruct")
    assert model is not None
    assert Engine.of(model, "T4", 8) is None
    assert Engine.of(model, "H100", 16) is None
    assert Engine.of(model, "H100", 3) is None


def test_a_prompt_in_chunks_costs_at_least_as_much_as_at_once() -> None:
    model = models.find("llama-3.3-70b-instruct")
    assert model is not None
    worker = Engine.of(model, "H100", 8)
    assert worker is not None
    at_once = worker.prompt_seconds(8192, 8192)
    assert at_once == worker.prefill_seconds(8192)
    times = [worker.prompt_seconds(8192, chunk) for chunk in (8192, 4096, 2048, 1024, 512)]
    assert times == sorted(times)
    assert worker.prompt_seconds(8192, 2048, cached_tokens=4096) < at_once
    assert worker.prefill_seconds(0) == 0.0


def test_every_gpu_and_row_has_positive_rates() -> None:
    for name in gpus.names():
        found = gpus.find(name)
        assert found is not None
        assert 0 < found.bf16_tflops <= found.fp8_tflops
        assert gpus.speed(name, "dense", 8) is not None


def test_a_mixture_reads_more_experts_the_more_tokens_there_are() -> None:
    model = models.find("gpt-oss-120b")
    assert model is not None
    sizes = [model.weight_bytes_read(tokens) for tokens in (1, 2, 8, 64, 4096)]
    assert sizes == sorted(sizes)
    assert sizes[0] == pytest.approx(model.weight_bytes * model.active_parameters / model.parameters, rel=1e-3)
    assert sizes[-1] == pytest.approx(model.weight_bytes, rel=1e-3)
