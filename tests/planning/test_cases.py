"""Published measurements, replayed: comparisons hold within a factor of two and with the right sign, capacity and transfers within 15 %.

Nothing in the planner was fitted to them; where a test fails, the planner is wrong there, and the bands must say so.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd.catalog import models
from dpd.planning.calibration import NONE
from dpd.planning.candidate import Candidate, Case, Outcome, Request
from dpd.planning.closed_form import estimate
from dpd.planning.simulation import simulate_all
from dpd.planning.simulator import Pool, Simulator
from dpd.sizing.memory import kv_bytes_per_token
from dpd.sizing.roofline import Engine
from dpd.sizing.transfer import Link
from tests.planning.simulated import case, needs_simulator

CASES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8"))
LLM_D, MOONCAKE, DYNAMO = CASES["gpt-oss-120b-on-h200"], CASES["qwen3-8b-transfers"], CASES["llama-70b-fp8-on-one-node"]


def layouts(published: dict[str, Any], chunk: int = 8192) -> tuple[Candidate, Candidate]:
    one, two = published["colocated"], published["disaggregated"]
    return Candidate.colocated(one["workers"], one["tensor_parallel"], chunk), Candidate.disaggregated(
        two["prefillers"], two["decoders"], two["tensor_parallel"],
        prefill_tensor_parallel=two["prefill_tensor_parallel"], chunk_tokens=chunk,
    )  # fmt: skip


def llm_d() -> Case:
    load = LLM_D["load"]
    return case(
        load["rate_per_second"], model="gpt-oss-120b", instance="ml.p5en.48xlarge", count=1200,
        lengths=(load["input_tokens"],), output_tokens=load["output_tokens"],
    )  # fmt: skip


def one_node(rate: float) -> Case:
    """Weights of one byte on eight H100; the prefillers of one GPU need 95 % of its memory, as the published configuration gave them."""
    shape = models.find("llama-3.1-70b-instruct")
    assert shape is not None
    fp8 = replace(shape, name="llama-3.1-70b-fp8", hub_id="", weight_dtype_bytes=1.0, weight_bytes=shape.parameters)
    load = DYNAMO["load"]
    asked = case(
        rate, gpus=8, count=300, lengths=(load["input_tokens"],), output_tokens=load["output_tokens"],
        gpu_memory_utilization=0.95, max_model_len=3500,
    )  # fmt: skip
    return replace(asked, model=fp8)


def simulated(asked: Case, *candidates: Candidate) -> list[Outcome]:
    outcomes, refused = simulate_all(candidates, asked, NONE)
    assert not refused
    return outcomes


@needs_simulator
def test_whole_answers_get_faster_by_about_what_was_measured() -> None:
    colocated, split = simulated(llm_d(), *layouts(LLM_D))
    measured = LLM_D["disaggregated"]["e2e_mean_ms"] / LLM_D["colocated"]["e2e_mean_ms"]
    predicted = split.e2e_ms.p50 / colocated.e2e_ms.p50
    assert measured < 1
    assert predicted < 1
    assert measured / 2 <= predicted <= measured * 2


@needs_simulator
def test_the_tail_of_gaps_shrinks() -> None:
    colocated, split = simulated(llm_d(), *layouts(LLM_D))
    assert split.itl_ms.p99 < colocated.itl_ms.p99 / 2
    assert split.itl_mean_ms == pytest.approx(LLM_D["disaggregated"]["tpot_mean_ms"], rel=0.5)


@needs_simulator
def test_prefill_capacity() -> None:
    asked = llm_d()
    with Simulator(asked, NONE) as simulator:
        length = LLM_D["load"]["input_tokens"]
        served = simulator.run(Pool(1, 1, 8192, 256), [Request(second * 1e3, length, 1) for second in range(4)])
    assert length / (served[-1].first_token_ms - 3e3) * 1e3 == pytest.approx(LLM_D["prefill_tokens_per_second"], rel=0.15)


def test_prefill_capacity_in_closed_form() -> None:
    shape, length = models.find("gpt-oss-120b"), LLM_D["load"]["input_tokens"]
    assert shape is not None
    engine = Engine.of(shape, "H200", 1)
    assert engine is not None
    assert length / engine.prefill_seconds(length) == pytest.approx(LLM_D["prefill_tokens_per_second"], rel=0.15)


def test_whole_answers_in_closed_form() -> None:
    colocated, split = (estimate(candidate, llm_d(), NONE) for candidate in layouts(LLM_D))
    measured = LLM_D["disaggregated"]["e2e_mean_ms"] / LLM_D["colocated"]["e2e_mean_ms"]
    assert measured / 2 <= split.e2e_ms.p50 / colocated.e2e_ms.p50 <= min(1.0, measured * 2)


@pytest.mark.parametrize(("tokens", "measured"), MOONCAKE["transfer_ms"].items())
def test_transfers(tokens: int, measured: float) -> None:
    shape = models.find("qwen3-8b")
    assert shape is not None
    from dpd.catalog import serving

    link = Link(MOONCAKE["line_rate_gb_per_second"] * serving.kv_link_efficiency(), serving.kv_link_fixed_seconds())
    assert link.wire_seconds(tokens * kv_bytes_per_token(shape)) * 1e3 == pytest.approx(measured, rel=0.15)


@needs_simulator
def test_more_tokens_from_one_node_at_a_like_pace() -> None:
    """Most requests a second of each layout while tokens follow each other within 26 ms in the mean."""
    most: dict[str, float] = {}
    for rate in (4.0, 6.0, 8.0, 10.0):
        for outcome in simulated(one_node(rate), *layouts(DYNAMO, DYNAMO["chunk_tokens"])):
            if outcome.itl_mean_ms <= 26 and not outcome.saturated:
                most[outcome.candidate.kind] = rate
    gain = most["disaggregated"] / most["colocated"]
    assert gain > 1
    assert DYNAMO["throughput_gain"] / 2 <= gain <= DYNAMO["throughput_gain"] * 2
