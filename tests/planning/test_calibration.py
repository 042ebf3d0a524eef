"""A calibration is stored and read as it was, and a wrong one is said to be."""

from pathlib import Path

import pytest

from dpd.planning.bands import UNCALIBRATED, banded
from dpd.planning.calibration import NONE, Calibration, CalibrationError, Range, dumped, load, path_of
from dpd.planning.candidate import Band, Candidate, Outcome, Percentiles

FULL = Calibration(
    environment="dev", endpoint="llama-70b", date="2026-11-20", source="results.json (vllm bench serve)", requests=200,
    prefill_speed=0.8, decode_speed=0.7, handover_overhead_ms=180.0, link_efficiency=0.6, ttft=Range(low=0.8, high=1.6),
    itl=Range(low=0.9, high=1.2), handover_ms=Range(low=0.0, high=0.0),
)  # fmt: skip


def outcome(candidate: Candidate) -> Outcome:
    return Outcome(
        candidate, Percentiles(100, 200, 300, 400), Percentiles(10, 11, 12, 13), 10.0, Percentiles(1100, 1200, 1300, 1400), 1.0, 2.0, 500.0,
        saturated=False, link_utilisation=0.1,
    )  # fmt: skip


def test_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "dev.yaml"
    path.write_text(dumped(FULL), encoding="utf-8")
    assert load(path) == FULL
    assert FULL.words == "calibrated on 2026-11-20 from results.json (vllm bench serve) (200 requests)"


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert load(path_of("dev", tmp_path)) == NONE
    assert not NONE.measured
    assert NONE.bands == UNCALIBRATED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prefill_speed: -1", "prefill_speed"),
        ("prefill_speed: 0.8", "date"),
        ("date: '2026-13-45'", "date"),
        ("date: '2026-11-20'\nspeed: 1", "speed"),
        ("date: '2026-11-20'\nttft: {low: 2.0, high: 1.0}", "ttft"),
        ("date: '2026-11-20'\nlink_efficiency: 1.5", "link_efficiency"),
        ("date: '2026-11-20'\ndecode_speed: 0.0001", "decode_speed: must be at least"),
        ("date: '2026-11-20'\nttft: {low: 1, high: 100000000}", "ttft.high"),
        ("date: [", ":"),
        ("", "is empty"),
    ],
)
def test_a_wrong_file_is_named_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "dev.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CalibrationError, match=said) as raised:
        load(path)
    assert "dev.yaml" in str(raised.value)


def test_bands_around_an_outcome_without_hand_over() -> None:
    found = banded(outcome(Candidate.colocated(2, 8)), UNCALIBRATED)
    assert found.ttft_tail == Band(400.0, 1600.0)
    assert found.itl_tail == Band(0.8 * 13, 1.7 * 13)
    assert found.e2e_p50 == Band(0.8 * 1000 + 100, 1.7 * 1000 + 400)


def test_a_hand_over_adds_to_the_first_token_only() -> None:
    found = banded(outcome(Candidate.disaggregated(1, 1, 8)), UNCALIBRATED, percentile=90)
    assert found.ttft_tail == Band(200.0, 1050.0)
    assert found.itl_p50 == Band(8.0, 17.0)
    assert found.e2e_tail == Band(0.8 * 1000 + 200, 1.7 * 1000 + 1050)


def test_a_measurement_narrows_the_bands() -> None:
    assert banded(outcome(Candidate.disaggregated(1, 1, 8)), FULL.bands).ttft_p50 == Band(80.0, 160.0)


def test_a_measurement_narrows_the_capacity_but_never_widens_it() -> None:
    assert FULL.bands.capacity == Band(1 / 1.2, UNCALIBRATED.capacity.high)
    assert FULL.model_copy(update={"itl": Range(low=0.5, high=3.0)}).bands.capacity == UNCALIBRATED.capacity


@pytest.mark.parametrize(
    ("environment", "endpoint", "said"),
    [("dev", "llama-70b", ""), ("dev", "qwen", "measured on llama-70b:"), ("prod", "qwen", "measured on llama-70b of dev:")],
)
def test_a_calibration_of_something_else_is_said(environment: str, endpoint: str, said: str) -> None:
    found = FULL.strange(environment, endpoint)
    assert said in found
    assert bool(found) == bool(said)
    assert not NONE.strange(environment, endpoint)
