"""``dpd calibrate`` in the hands of a user."""

from pathlib import Path

import pytest

from dpd.planning.calibration import load
from tests.commands.support import Dpd
from tests.planning.results import gate, stored, vllm
from tests.support import EXAMPLE


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dpd: Dpd) -> Path:  # noqa: ARG001 (first the project's folder, then this one)
    """A folder with one environment."""
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "dev.yaml").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_results_are_stored_with_date_and_source(dpd: Dpd, here: Path) -> None:
    said = dpd("calibrate", stored(here, vllm()))
    assert said.code == 0
    found = load(here / "calibration" / "dev.yaml")
    assert (found.environment, found.date, found.requests) == ("dev", "2026-11-20", 200)
    assert found.source == "results.json (vllm bench serve)"
    assert found.decode_speed != 1.0
    assert "Stored in calibration/dev.yaml" in said.err
    assert "One prompt length only" in said.err


def test_the_same_files_give_the_same_bytes(dpd: Dpd, here: Path) -> None:
    results = stored(here, vllm())
    assert dpd("calibrate", results, "--show").out == dpd("calibrate", results, "--show").out
    assert not (here / "calibration").exists()


def test_a_gates_report_refines_what_is_there(dpd: Dpd, here: Path) -> None:
    dpd("calibrate", stored(here, vllm()))
    before = load(here / "calibration" / "dev.yaml")
    assert dpd("calibrate", stored(here, gate(25.0), "gate.json")).code == 0
    after = load(here / "calibration" / "dev.yaml")
    assert after.link_efficiency == 0.5
    assert (after.prefill_speed, after.decode_speed, after.requests) == (before.prefill_speed, before.decode_speed, 200)
    assert after.source == "results.json (vllm bench serve), gate.json (health gate)"
    assert after.endpoint == "llama-70b"


def test_a_gates_report_of_another_endpoint_is_refused(dpd: Dpd, here: Path) -> None:
    said = dpd("calibrate", stored(here, gate(endpoint="inference/other")))
    assert said.code == 1
    assert "say nothing of llama-70b" in said.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nonsense", "is no JSON"),
        ({"a": 1}, "is of no tool that is known"),
        (vllm(median_tpot_ms=2000.0), "not of this endpoint"),
        (vllm(p99_ttft_ms=1e10), "too far apart"),
        (vllm(total_input_tokens=200 * 500_000), "the results are not of it"),
    ],
)
def test_wrong_results_change_nothing(content: object, said: str, dpd: Dpd, here: Path) -> None:
    found = dpd("calibrate", stored(here, content))
    assert found.code == 1
    assert said in found.err
    assert not (here / "calibration").exists()


def test_what_is_no_regular_file_is_not_read(dpd: Dpd, here: Path) -> None:
    for path in ("/dev/zero", here):
        said = dpd("calibrate", path)
        assert said.code == 1
        assert "is no regular file" in said.err


def test_which_environment_must_be_clear(dpd: Dpd, here: Path) -> None:
    (here / "environments" / "prod.yaml").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    said = dpd("calibrate", stored(here, vllm()))
    assert said.code == 1
    assert "environments/dev.yaml, environments/prod.yaml" in said.err
    assert dpd("calibrate", stored(here, vllm()), "--environment", "environments/prod.yaml").code == 0
    assert (here / "calibration" / "prod.yaml").exists()


def test_a_broken_calibration_is_named(dpd: Dpd, here: Path) -> None:
    (here / "calibration").mkdir()
    (here / "calibration" / "dev.yaml").write_text("prefill_speed: -1\n", encoding="utf-8")
    said = dpd("calibrate", stored(here, gate(25.0)))
    assert said.code == 1
    assert "prefill_speed" in said.err
