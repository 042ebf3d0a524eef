"""The closed form: it is deterministic, moves the right way, and lies near what a request-level simulation says."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.planning.calibration import Calibration
from dpd.planning.candidate import Candidate, Case, Outcome, Percentiles, Request
from dpd.planning.case import at_rate
from dpd.planning.closed_form import NoEstimateError, candidate_link, cliff_per_second, estimate, kv_room_tokens
from tests.planning.simulated import case

COLOCATED, SPLIT = Candidate.colocated, Candidate.disaggregated


# What NVIDIA's simulator says of Llama 70B on 16 H100, 8,000 tokens in and 256 out, Poisson arrivals (300 requests): requests/s, layout,
# TTFT p50, mean gap, p99 gap, whole answer p50, in milliseconds; None where nothing was noted.
SIMULATED = [
    (0.25, COLOCATED(2, 8), 346, 10.6, 10.4, 3007),
    (1, COLOCATED(2, 8), 350, 12.0, 10.7, 3289),
    (2, COLOCATED(2, 8), 353, 16.5, 346.9, 4390),
    (3, COLOCATED(2, 8), 357, 24.1, 348.3, 6302),
    (1, SPLIT(1, 1, 8), 414, 10.3, 10.7, 3058),
    (2, SPLIT(1, 1, 8), 698, 10.5, 10.8, 3382),
    (4, COLOCATED(4, 4), 593, 42.2, 581.0, 11710),
    (4, SPLIT(3, 1, 4), 786, 21.1, 23.5, 6152),
    (5, SPLIT(3, 1, 4), 1813, 23.3, 25.8, None),
    (2, COLOCATED(2, 8, 1024), None, None, 58.5, None),
    (2, COLOCATED(2, 8, 2048), None, None, 99.6, None),
    (2, COLOCATED(2, 8, 4096), None, None, 182.5, None),
]


@pytest.mark.parametrize(("rate", "candidate", "ttft", "mean", "gap", "whole"), SIMULATED)
def test_near_a_simulation(
    rate: float, candidate: Candidate, ttft: float | None, mean: float | None, gap: float, whole: float | None
) -> None:
    found = estimate(candidate, case(rate, count=300, gpu_memory_utilization=0.9))
    assert not found.saturated
    assert found.itl_ms.p99 == pytest.approx(gap, rel=0.2)
    assert mean is None or found.itl_mean_ms == pytest.approx(mean, rel=0.2)
    assert whole is None or found.e2e_ms.p50 == pytest.approx(whole, rel=0.25)
    assert ttft is None or ttft / 2.5 < found.ttft_ms.p50 < ttft * 1.5


@pytest.mark.parametrize(("candidate", "most"), [(SPLIT(1, 1, 8), 2.89), (SPLIT(2, 2, 4), 3.36), (SPLIT(1, 3, 4), 1.72)], ids=str)
def test_a_layout_saturates_where_the_simulation_does(candidate: Candidate, most: float) -> None:
    found = estimate(candidate, case(4, gpu_memory_utilization=0.9))
    assert found.saturated
    assert found.capacity_per_second == pytest.approx(most, rel=0.15)


def test_the_cliff_is_where_the_simulation_has_it() -> None:
    """1.5 requests/s for two workers of 8, 2.0 for four of 4; within 25 %."""
    asked = case(2, gpu_memory_utilization=0.9)
    assert cliff_per_second(COLOCATED(2, 8), asked) == pytest.approx(1.5, rel=0.25)
    assert cliff_per_second(COLOCATED(4, 4), asked) == pytest.approx(2.0, rel=0.25)
    assert cliff_per_second(SPLIT(1, 1, 8), asked) == math.inf


@pytest.mark.parametrize("candidate", [COLOCATED(2, 8), COLOCATED(4, 4, 1024), SPLIT(1, 1, 8), SPLIT(3, 1, 4, threshold_tokens=4096)])
def test_more_requests_never_get_faster(candidate: Candidate) -> None:
    asked = case(1, count=150, lengths=(300, 8000), gpu_memory_utilization=0.9)
    found = [estimate(candidate, at_rate(asked, factor)) for factor in (0.5, 1, 2, 4)]
    assert found == [estimate(candidate, at_rate(asked, factor)) for factor in (0.5, 1, 2, 4)]
    for less, more in itertools.pairwise(found):
        assert less.itl_mean_ms <= more.itl_mean_ms * 1.001
        assert less.ttft_ms.p99 <= more.ttft_ms.p99 * 1.02
        assert less.capacity_per_second == pytest.approx(more.capacity_per_second, rel=1e-3)


def test_a_smaller_chunk_trades_ttft_for_gaps() -> None:
    asked = case(2, gpu_memory_utilization=0.9)
    found = [estimate(COLOCATED(2, 8, chunk), asked) for chunk in (1024, 2048, 4096, 8192)]
    assert [one.itl_ms.p99 for one in found] == sorted(one.itl_ms.p99 for one in found)
    assert [one.ttft_ms.p50 for one in found] == sorted((one.ttft_ms.p50 for one in found), reverse=True)


def test_the_link_delays_but_prompts_below_the_threshold_skip_it() -> None:
    asked = case(1, lengths=(300, 8000), gpu_memory_utilization=0.9)
    wide, narrow = (estimate(SPLIT(1, 1, 8), replace(asked, efa_devices={8: devices})) for devices in (32, 1))
    assert narrow.ttft_ms.p99 > wide.ttft_ms.p99 + 100
    assert narrow.itl_ms == wide.itl_ms
    assert narrow.link_utilisation == pytest.approx(32 * wide.link_utilisation)
    skipped = estimate(SPLIT(1, 1, 8, threshold_tokens=9000), replace(asked, efa_devices={8: 1}))
    assert skipped.link_utilisation == 0
    assert skipped.itl_mean_ms > wide.itl_mean_ms


def test_without_a_link_nothing_arrives() -> None:
    asked = replace(case(1, gpu_memory_utilization=0.9), efa_devices={8: 0})
    assert candidate_link(SPLIT(1, 1, 8), asked).gb_per_second == 0
    found = estimate(SPLIT(1, 1, 8), asked)
    assert found.ttft_ms.p50 == math.inf
    assert found.goodput_share == 0
    assert found.link_utilisation == math.inf
    assert found.saturated
    assert found.capacity_per_second == 0


def test_a_thin_link_is_the_bottleneck() -> None:
    """A slow link limits what prefillers can give: 8,000 tokens of KV are 2.6 GB, and 78 % of one device is 9.75 GB/s."""
    asked = replace(case(3, gpu_memory_utilization=0.9), efa_devices={2: 0, 4: 0, 8: 1})
    found = estimate(SPLIT(2, 1, 8), asked)
    assert found.link_utilisation == pytest.approx(3 * 8000 * 327_680 / 9.75e9, rel=0.01)
    assert estimate(SPLIT(1, 2, 8), asked).link_utilisation == found.link_utilisation
    assert estimate(SPLIT(2, 2, 8), asked).link_utilisation == found.link_utilisation / 2
    slower = estimate(SPLIT(2, 1, 8), asked, Calibration(link_efficiency=0.2))
    assert slower.link_utilisation > 1
    assert slower.saturated
    assert slower.capacity_per_second == pytest.approx(2.5e9 / (8000 * 327_680), rel=0.01)


def test_a_calibration_slows_what_it_names() -> None:
    asked = case(1, gpu_memory_utilization=0.9)
    plain = estimate(SPLIT(1, 1, 8), asked)
    prefill = estimate(SPLIT(1, 1, 8), asked, Calibration(prefill_speed=0.5))
    decode = estimate(SPLIT(1, 1, 8), asked, Calibration(decode_speed=0.5))
    handover = estimate(SPLIT(1, 1, 8), asked, Calibration(handover_overhead_ms=200))
    assert prefill.ttft_ms.p50 > 1.8 * plain.ttft_ms.p50
    assert prefill.itl_ms == plain.itl_ms
    assert decode.itl_mean_ms > 1.9 * plain.itl_mean_ms
    assert handover.ttft_ms.p50 == pytest.approx(plain.ttft_ms.p50 + 200, abs=1)


def test_cached_prefixes_are_not_read_again() -> None:
    asked = case(1, gpu_memory_utilization=0.9)
    blocks = tuple(range(15))
    shared = replace(
        asked, requests=tuple(replace(request, prompt_blocks=(*blocks, 100 + at)) for at, request in enumerate(asked.requests))
    )
    assert estimate(COLOCATED(2, 8), shared).ttft_ms.p50 < estimate(COLOCATED(2, 8), asked).ttft_ms.p50 / 3


@pytest.mark.parametrize(
    ("asked", "ranks", "words"),
    [
        (case(), 1, "weights do not fit 1 x H100"),
        (case(), 2, "max_model_len is 16,384"),
        (case(instance="ml.g4dn.12xlarge", efa_devices={1: 1}, model="llama-3.1-8b-instruct"), 4, "no speeds are known of TP4 on T4"),
    ],
)
def test_what_cannot_be_estimated(asked: Case, ranks: int, words: str) -> None:
    with pytest.raises(NoEstimateError, match=words):
        estimate(COLOCATED(1, ranks), asked)


def test_kv_room_of_the_physics() -> None:
    """0.9 of 80 GiB less weights and 4 GiB for eight ranks: about 1.35 million tokens, 461 thousand for four."""
    asked = case(gpu_memory_utilization=0.9)
    assert kv_room_tokens(asked, 8) == pytest.approx(1.35e6, rel=0.02)
    assert kv_room_tokens(asked, 4) == pytest.approx(461e3, rel=0.02)


@given(
    rate=st.floats(0.1, 20), count=st.integers(50, 80), lengths=st.lists(st.integers(1, 12_000), min_size=1, max_size=3),
    answer=st.integers(1, 2000), candidate=st.sampled_from([COLOCATED(2, 8), COLOCATED(4, 4, 1024), SPLIT(2, 2, 4, threshold_tokens=2048)]),
)  # fmt: skip
def test_any_traffic_gives_sane_numbers(rate: float, count: int, lengths: list[int], answer: int, candidate: Candidate) -> None:
    found = estimate(candidate, case(rate, count=count, lengths=lengths, output_tokens=answer))
    for percentiles in (found.ttft_ms, found.itl_ms, found.e2e_ms):
        ordered = [percentiles.p50, percentiles.p90, percentiles.p95, percentiles.p99]
        assert ordered == sorted(ordered)
        assert all(0 < value < math.inf for value in ordered)
    assert 0 <= found.goodput_share <= 1
    assert found.goodput_per_second <= rate * (1 + 1e-9)
    assert found.capacity_per_second > 0
    assert found.e2e_ms.p50 >= found.ttft_ms.p50


def test_percentiles_are_nearest_ranks() -> None:
    assert Percentiles.of([float(value) for value in range(1, 101)]) == Percentiles(50, 90, 95, 99)
    assert Percentiles.of([]).p50 == math.inf
    assert Percentiles(1, 2, 3, 4).at(95) == 3


def test_golden() -> None:
    """The same question has the same answer, to the last figure that is worth anything."""

    def said(found: Outcome) -> tuple[str, ...]:
        return tuple(
            f"{value:.4g}" for value in (found.ttft_ms.p50, found.ttft_ms.p99, found.itl_mean_ms, found.itl_ms.p99, found.e2e_ms.p50)
        )

    requests = tuple(Request(500.0 * at, 4000 + 100 * (at % 7), 200) for at in range(100))
    asked = replace(case(2, gpu_memory_utilization=0.9), requests=requests)
    assert said(estimate(COLOCATED(2, 8), asked)) == GOLDEN[0]
    assert said(estimate(SPLIT(3, 1, 4, threshold_tokens=4096), asked)) == GOLDEN[1]


GOLDEN = (("186.5", "197", "12.08", "173.7", "2591"), ("315.5", "332.8", "17.62", "17.17", "3822"))
