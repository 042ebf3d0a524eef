"""What the simulator says is pinned down, agrees with itself, and is put together rightly."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from dpd.planning.calibration import NONE, Calibration
from dpd.planning.candidate import Candidate, Outcome, Request
from dpd.planning.known_models import config, missing, path
from dpd.planning.simulation import simulate, simulate_all, simulated
from dpd.planning.simulator import Pool, Simulator, SimulatorError
from dpd.planning.sweep import rank
from dpd.planning.two_stage import handed_over
from dpd.sizing.transfer import Link
from tests.planning.simulated import case, needs_simulator, poisson

GOLDEN: dict[str, tuple[Candidate, dict[str, Any]]] = {
    "two workers, default chunk": (Candidate.colocated(2, 8), {}),
    "two workers, small chunk": (Candidate.colocated(2, 8, 1024), {}),
    "one prefiller, one decoder": (Candidate.disaggregated(1, 1, 8), {}),
    "three prefillers, one decoder, over their capacity": (Candidate.disaggregated(3, 1, 4), {"rate": 6.0}),
    "threshold over a mix": (Candidate.disaggregated(1, 1, 8, threshold_tokens=2048), {"rate": 6.0, "lengths": (300, 300, 1500, 8000)}),
    "experts on another GPU": (
        Candidate.disaggregated(2, 1, 4, prefill_tensor_parallel=1),
        {"rate": 8.0, "model": "gpt-oss-120b", "instance": "ml.p5en.48xlarge", "lengths": (5000,)},
    ),
}


def one(candidate: Candidate, calibration: Calibration = NONE, **changes: Any) -> Outcome:
    outcomes, refused = simulate_all([candidate], case(**changes), calibration)
    assert not refused
    return outcomes[0]


@needs_simulator
@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str, snapshot: SnapshotAssertion) -> None:
    candidate, changes = GOLDEN[name]
    found = dataclasses.asdict(one(candidate, **changes))
    del found["candidate"]
    rounded = {
        key: {at: f"{number:.4g}" for at, number in value.items()}
        if isinstance(value, dict)
        else f"{value:.4g}"
        if isinstance(value, float)
        else value
        for key, value in found.items()
    }
    assert rounded == snapshot


@needs_simulator
def test_a_calibration_slows_what_it_names() -> None:
    plain, slow_prefill = (
        one(Candidate.disaggregated(1, 1, 8), rate=0.5),
        one(Candidate.disaggregated(1, 1, 8), Calibration(prefill_speed=0.5), rate=0.5),
    )
    slow_decode = one(Candidate.disaggregated(1, 1, 8), Calibration(decode_speed=0.5), rate=0.5)
    late = one(Candidate.disaggregated(1, 1, 8), Calibration(handover_overhead_ms=150.0), rate=0.5)
    assert slow_prefill.ttft_ms.p50 > 1.7 * plain.ttft_ms.p50
    assert slow_prefill.itl_mean_ms == pytest.approx(plain.itl_mean_ms, rel=0.02)
    assert slow_decode.itl_mean_ms == pytest.approx(2 * plain.itl_mean_ms, rel=0.02)
    assert slow_decode.ttft_ms.p50 < 1.1 * plain.ttft_ms.p50
    assert late.ttft_ms.p50 == pytest.approx(plain.ttft_ms.p50 + 150, abs=10)
    assert late.link_utilisation == plain.link_utilisation


@needs_simulator
def test_two_stages_agree_with_the_simulators_own_pools(tmp_path: Path) -> None:
    from dynamo._core import MockEngineArgs, run_mocker_trace_replay

    from dpd.planning.simulator import _line

    asked = case(2.0)
    ours = one(Candidate.disaggregated(1, 1, 8), rate=2.0)
    link = 312.0  # GB/s: 32 devices of 100 Gbit/s at 78 %
    common = {
        "engine_type": "vllm", "block_size": 64, "num_gpu_blocks": 20000, "max_num_seqs": 256, "max_num_batched_tokens": 8192,
        "aic_backend": "vllm", "aic_system": "h100_sxm", "aic_backend_version": "0.24.0", "aic_tp_size": 8,
        "aic_model_path": path(asked.model), "kv_bytes_per_token": 327_680, "kv_transfer_bandwidth": link,
    }  # fmt: skip
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(_line(number, request, asked.requests[0].arrival_ms) for number, request in enumerate(asked.requests)))
    summary = run_mocker_trace_replay(
        [str(trace)], num_prefill_workers=1, num_decode_workers=1, trace_block_size=512,
        prefill_engine_args=MockEngineArgs(worker_type="prefill", **common),
        decode_engine_args=MockEngineArgs(worker_type="decode", **common),
    ).summary  # fmt: skip
    assert ours.ttft_ms.p50 == pytest.approx(summary["median_ttft_ms"], rel=0.15)
    assert ours.itl_mean_ms == pytest.approx(summary["mean_itl_ms"], rel=0.05)
    assert ours.itl_ms.p99 == pytest.approx(summary["p99_itl_ms"], rel=0.15)
    assert ours.e2e_ms.p50 == pytest.approx(summary["median_e2e_latency_ms"], rel=0.05)


@needs_simulator
@pytest.mark.parametrize(("chunk", "expected"), [(8192, 346.2), (1024, 58.5)])
def test_gaps_of_a_worker_with_both_roles_are_those_of_the_simulator(chunk: int, expected: float) -> None:
    # The simulator's own p99 for this load at 2 requests a second, as it was run for the design.
    assert one(Candidate.colocated(2, 8, chunk), count=300).itl_ms.p99 == pytest.approx(expected, rel=0.15)


@needs_simulator
def test_a_narrow_link_is_a_bottleneck() -> None:
    wide = one(Candidate.disaggregated(1, 1, 8), rate=2.0)
    narrow = one(Candidate.disaggregated(1, 1, 8), rate=2.0, efa_devices={8: 1})
    none = one(Candidate.disaggregated(1, 1, 8), rate=2.0, efa_devices={8: 8})
    assert wide.link_utilisation < 0.05
    assert none.link_utilisation == pytest.approx(4 * wide.link_utilisation, rel=0.2)
    assert narrow.link_utilisation > 0.5
    assert narrow.ttft_ms.p50 > wide.ttft_ms.p50 + 200


@needs_simulator
def test_prompts_that_share_their_start_are_read_once() -> None:
    plain = case(2.0, lengths=(4096,))
    requests = tuple(dataclasses.replace(request, prompt_blocks=tuple(range(7))) for request in plain.requests)
    shared = dataclasses.replace(plain, requests=requests)
    with Simulator(plain, NONE) as simulator:
        alone = simulate(simulator, Candidate.colocated(2, 8), NONE)
    with Simulator(shared, NONE) as simulator:
        together = simulate(simulator, Candidate.colocated(2, 8), NONE)
    assert together.ttft_ms.p50 < alone.ttft_ms.p50 / 2


@needs_simulator
def test_requests_at_the_same_moment_keep_their_order() -> None:
    requests = tuple(Request(0.0, length, 4) for length in (8000, 200, 4000, 600))
    with Simulator(dataclasses.replace(case(), requests=requests), NONE) as simulator:
        served = simulator.run(Pool(4, 8, 8192, 16), requests)
    times = [one.first_token_ms for one in served]
    assert sorted(times) == [times[1], times[3], times[2], times[0]]


@needs_simulator
def test_what_does_not_fit_is_refused_in_words() -> None:
    outcomes, refused = simulate_all([Candidate.colocated(16, 1), Candidate.colocated(2, 8)], case(), NONE)
    assert [outcome.candidate for outcome in outcomes] == [Candidate.colocated(2, 8)]
    assert "llama-3.3-70b-instruct at tensor parallel 1" in refused[Candidate.colocated(16, 1)]


@needs_simulator
def test_the_same_question_is_answered_once() -> None:
    asked, calls = simulated(NONE), []
    candidates = [Candidate.colocated(2, 8), Candidate.colocated(16, 1)]
    first = asked(candidates, case(count=60), lambda: calls.append(1))
    assert asked(candidates, case(count=60), lambda: calls.append(1)) == first
    assert len(calls) == 4


@needs_simulator
def test_of_many_layouts_the_best_of_each_kind_is_always_simulated() -> None:
    asked, calls = case(4.0, count=100), []
    layouts = [
        *(Candidate.colocated(4, 4, chunk) for chunk in (8192, 4096, 1024)),
        *(Candidate.disaggregated(p, 4 - p, 4) for p in (1, 2, 3)),
    ]
    some, refused = simulated(NONE, most=1)(layouts, asked, lambda: calls.append(1))
    everything, _ = simulated(NONE)(layouts, asked, lambda: None)
    assert [outcome.candidate for outcome in some] == layouts
    assert not refused
    assert len(calls) == len(layouts)
    for kind in ("colocated", "disaggregated"):
        best = min((outcome for outcome in some if outcome.candidate.kind == kind), key=lambda outcome: rank(outcome, asked))
        assert best.engine == "simulation"
        assert best in everything
    assert {outcome.engine for outcome in some} == {"simulation", "closed form"}


def test_a_machine_without_measurements_is_named() -> None:
    why = missing(case(instance="ml.g5.48xlarge", efa_devices={}))
    assert "A10G" in why or "not installed" in why


@pytest.mark.parametrize(
    ("instance", "model", "said"),
    [("ml.g5.48xlarge", "llama-3.3-70b-instruct", "A10G"), ("ml.c5.4xlarge", "llama-3.3-70b-instruct", "instances without a GPU")],
)
def test_unknown_to_the_simulator(instance: str, model: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpd.planning.known_models.find_spec", lambda _: object())
    from dpd.catalog import instances

    machine = instances.find(instance)
    assert machine is not None
    asked = dataclasses.replace(case(model=model), instance=machine)
    assert said in missing(asked)
    with pytest.raises(SimulatorError, match=said):
        Simulator(asked, NONE)


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpd.planning.known_models.find_spec", lambda _: None)
    with pytest.raises(SimulatorError, match=r"hyperpod-dpd\[sim\]"):
        Simulator(case(), NONE)


@pytest.mark.parametrize(
    ("model", "width"),
    [
        ("llama-3.3-70b-instruct", 28672), ("llama-3.1-405b-instruct", 53248), ("llama-3.1-8b-instruct", 14336),
        ("qwen2.5-72b-instruct", 29568), ("qwen3-32b", 25600), ("qwen3-8b", 12288),
    ],
)  # fmt: skip
def test_the_width_of_the_mlp_follows_from_the_parameters(model: str, width: int) -> None:
    # Widths as each model's config.json on the hub has them.
    assert config(case(model=model).model)["intermediate_size"] == width


LINK = Link(gb_per_second=1.0, fixed_seconds=0.0, overhead_seconds=0.05)
SECOND = 1e9
"""Bytes of a second on the link."""


def test_transfers_of_one_prefiller_wait_for_each_other() -> None:
    sent, busy = handed_over([(0, 0, 0.0), (1, 0, 100.0)], [SECOND, SECOND], decoders=2, link=LINK)
    assert (sent[0].arrived_ms, sent[1].arrived_ms) == pytest.approx((1050.0, 2050.0))
    assert busy == pytest.approx(2000.0)


def test_transfers_to_one_decoder_wait_for_each_other() -> None:
    sent, _ = handed_over([(0, 0, 0.0), (1, 1, 100.0)], [SECOND, SECOND], decoders=1, link=LINK)
    assert sent[1].arrived_ms == pytest.approx(2050.0)


def test_transfers_between_others_do_not_wait() -> None:
    sent, busy = handed_over([(0, 0, 0.0), (1, 1, 100.0)], [SECOND, SECOND], decoders=2, link=LINK)
    assert sent[1].arrived_ms == pytest.approx(1150.0)
    assert busy == pytest.approx(1000.0)


def test_poisson_is_drawn_the_same_way_twice() -> None:
    assert poisson(2.0, 50) == poisson(2.0, 50)
