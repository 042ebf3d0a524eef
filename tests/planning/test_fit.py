"""Fits find the factors with which measurements were made."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dpd.planning.calibration import NONE, Calibration
from dpd.planning.candidate import Candidate, Case
from dpd.planning.closed_form import estimate
from dpd.planning.fit import FitError, _as_case, fit
from dpd.planning.results import Result, Transfer
from tests.planning.simulated import case

SPLIT, BOTH = Candidate.disaggregated(1, 1, 8), Candidate.colocated(2, 8)
ASKED = case(count=20)
SHORT_AND_LONG = ((8000, 256, 0.6), (1000, 128, 1.0))
speeds = some.floats(0.4, 2.0)


def measured(candidate: Candidate, asked: Case, truth: Calibration, *loads: tuple[int, int, float]) -> list[Result]:
    """What a load generator would see if the closed form with these factors were the truth."""
    results = []
    for tokens, answer, rate in loads:
        run = Result("made up", "2026-11-20", 100, rate, tokens, answer, 1.0, None, 1.0)
        seen = estimate(candidate, _as_case(asked, run), truth)
        results.append(dataclasses.replace(run, ttft_p50_ms=seen.ttft_ms.p50, request_gap_ms=seen.itl_mean_ms, gap_p99_ms=seen.itl_ms.p99))
    return results


@settings(max_examples=6, deadline=None)
@given(prefill=speeds, decode=speeds, overhead=some.floats(0, 300))
def test_two_lengths_tell_prefill_decode_and_hand_over(prefill: float, decode: float, overhead: float) -> None:
    truth = Calibration(prefill_speed=prefill, decode_speed=decode, handover_overhead_ms=overhead)
    found = fit(SPLIT, ASKED, measured(SPLIT, ASKED, truth, *SHORT_AND_LONG)).calibration
    assert found.prefill_speed == pytest.approx(prefill, rel=0.05)
    assert found.decode_speed == pytest.approx(decode, rel=0.02)
    assert found.handover_overhead_ms == pytest.approx(overhead, abs=12)


@settings(max_examples=6, deadline=None)
@given(prefill=speeds, decode=speeds)
def test_colocated_workers_have_no_hand_over(prefill: float, decode: float) -> None:
    truth = Calibration(prefill_speed=prefill, decode_speed=decode)
    found = fit(BOTH, ASKED, measured(BOTH, ASKED, truth, SHORT_AND_LONG[0])).calibration
    assert found.prefill_speed == pytest.approx(prefill, rel=0.05)
    assert found.decode_speed == pytest.approx(decode, rel=0.05)
    assert found.handover_overhead_ms == 0
    assert found.handover_ms is None


def test_with_one_length_the_rest_counts_as_hand_over() -> None:
    truth = Calibration(handover_overhead_ms=180.0)
    found = fit(SPLIT, ASKED, measured(SPLIT, ASKED, truth, SHORT_AND_LONG[0]))
    assert found.calibration.prefill_speed == 1.0
    assert found.calibration.handover_overhead_ms == pytest.approx(180, abs=2)
    assert "One prompt length only" in found.notes[0]


def test_with_one_length_what_is_faster_is_prefill() -> None:
    found = fit(SPLIT, ASKED, measured(SPLIT, ASKED, Calibration(prefill_speed=1.4), SHORT_AND_LONG[0])).calibration
    assert found.prefill_speed == pytest.approx(1.4, rel=0.02)
    assert found.handover_overhead_ms == 0


def test_bands_get_narrower_and_hold_what_was_measured() -> None:
    runs = measured(SPLIT, ASKED, Calibration(prefill_speed=0.8, decode_speed=0.7), *SHORT_AND_LONG)
    tail = dataclasses.replace(runs[0], ttft_p99_ms=3 * runs[0].ttft_p50_ms)
    found = fit(SPLIT, ASKED, [tail, runs[1]]).calibration
    wide, narrow = NONE.bands, found.bands
    assert narrow.itl.high - narrow.itl.low < wide.itl.high - wide.itl.low
    assert narrow.handover_ms.high == 0
    seen = estimate(SPLIT, _as_case(ASKED, tail), found)
    assert tail.ttft_p99_ms is not None
    assert narrow.ttft.low * seen.ttft_ms.p99 <= tail.ttft_p99_ms <= narrow.ttft.high * seen.ttft_ms.p99


def test_three_runs_leave_less_than_two() -> None:
    loads = (*SHORT_AND_LONG, (4000, 256, 0.6))
    two, three = (fit(SPLIT, ASKED, measured(SPLIT, ASKED, NONE, *loads[:count])).calibration.bands.ttft for count in (2, 3))
    assert three.high < two.high


@settings(max_examples=20, deadline=None)
@given(rate=some.floats(1.0, 49.0))
def test_the_gate_tells_the_links_efficiency(rate: float) -> None:
    # A rank of eight on p5.48xlarge has four devices of 100 Gbit/s: 50 GB/s.
    found = fit(SPLIT, ASKED, [], [Transfer("", "", rate)]).calibration
    assert found.link_efficiency == pytest.approx(rate / 50, abs=1e-3)
    assert found.prefill_speed == 1.0


def test_a_gates_report_leaves_the_speeds_that_were_known() -> None:
    known = Calibration(date="2026-11-01", prefill_speed=0.8, handover_overhead_ms=90.0)
    found = fit(SPLIT, ASKED, [], [Transfer("", "", 25.0)], start=known).calibration
    assert (found.prefill_speed, found.handover_overhead_ms, found.link_efficiency) == (0.8, 90.0, 0.5)


@pytest.mark.parametrize(("field", "factor", "said"), [("request_gap_ms", 30, "decode"), ("ttft_p50_ms", 1 / 40, "prefill")])
def test_speeds_that_nothing_explains_are_refused(field: str, factor: float, said: str) -> None:
    runs = [dataclasses.replace(run, **{field: getattr(run, field) * factor}) for run in measured(BOTH, ASKED, NONE, SHORT_AND_LONG[0])]
    with pytest.raises(FitError, match=f"{said} would be .* not of this endpoint"):
        fit(BOTH, ASKED, runs)


def test_a_run_over_the_capacity_is_noted() -> None:
    runs = measured(SPLIT, ASKED, NONE, (8000, 256, 5.0))
    assert any("over the capacity" in note for note in fit(SPLIT, ASKED, runs).notes)


def test_without_a_link_there_is_nothing_to_fit() -> None:
    with pytest.raises(FitError, match="has no EFA"):
        fit(SPLIT, dataclasses.replace(ASKED, efa_devices={}), [], [Transfer("", "", 1.0)])
