"""``dpd replay``: what it prints and writes, and how it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands.support import Dpd
from tests.support import LLMD_EXAMPLE, base, edited

DAY = ("--ceilings", "8:4")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path, changes: dict[str, Any] | None = None) -> Path:
    path = folder / "prod.yaml"
    path.write_text(yaml.safe_dump(edited(changes or {}, base(LLMD_EXAMPLE)), sort_keys=False), encoding="utf-8")
    return path


def test_the_arms_side_by_side_the_matched_rates_and_the_policy_to_paste(dpd: Dpd, file: Path) -> None:
    said = dpd("replay", file, *DAY)
    assert said.code == 0, said.err
    for arm in ("token policy", "KEDA defaults", "fixed, as many GPU-hours", "fixed, all pods"):
        assert re.search(rf"^{arm} +\d+:\d+ +\d+\.\d% +[\d,]+ +[\d,]+ ", said.out, re.MULTILINE), arm
    assert re.search(r"shared prefixes .*80% cached +\d\.\d\d : \d\.\d\d", said.out)
    (pasted,) = re.findall(r"prefill: \{…, (autoscaling: .*)\}$", said.out, re.MULTILINE)
    policy = yaml.safe_load(pasted.replace("<address>", "http://p:9090"))["autoscaling"]
    assert (policy["min_replicas"], policy["max_replicas"]) == (1, 8)
    assert 5_000 < policy["tokens"]["tokens_per_second"] < 50_000


def test_what_is_pasted_is_a_legal_file(dpd: Dpd, tmp_path: Path, file: Path) -> None:
    found = json.loads(dpd("replay", file, *DAY, "--format", "json").out)["velocities"]
    changes = {
        f"endpoints[0].{role}.autoscaling": {
            "min_replicas": 1, "max_replicas": 2, "tokens": {"prometheus": "http://p:9090", "tokens_per_second": speed}
        }
        for role, speed in found.items()
    }  # fmt: skip
    said = dpd("check", written(tmp_path, {**changes, "cluster.groups.decode.max_count": 2, "observe": {"metrics": "in_cluster"}})).out
    assert "SCL" not in said


def test_the_same_call_says_the_same_and_another_seed_does_not(dpd: Dpd, file: Path) -> None:
    first, second, other = (dpd("replay", file, *DAY, "--format", "json", "--seed", seed).out for seed in ("1", "1", "2"))
    assert first == second != other
    assert json.loads(first)["version"] == 1


def test_the_report_needs_nothing_else_and_has_every_picture(dpd: Dpd, tmp_path: Path, file: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra pages is not installed (make planner)")
    page, folder = tmp_path / "replay.html", tmp_path / "png"
    assert dpd("replay", file, *DAY, "--html", page, "--png", folder).code == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 4
    assert not re.search(r'(?:src|href)="(?:https?:|//)', text)
    assert "<script" not in text
    assert "mathdefault" not in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert sorted(path.name for path in folder.iterdir()) == [f"replay-{name}.png" for name in ("latency", "pods", "queue", "traffic")]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())
    before = text
    dpd("replay", file, *DAY, "--html", page)
    assert page.read_text(encoding="utf-8") == before


def test_a_name_that_is_markup_is_refused_before_anything_is_written(dpd: Dpd, tmp_path: Path) -> None:
    path = written(tmp_path).rename(tmp_path / "<b>x.yaml")
    assert dpd("replay", path, *DAY, "--html", tmp_path / "replay.html").code == 1
    assert not (tmp_path / "replay.html").exists()


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({}, ("--input-tokens", "20000"), "do not fit 16,384"),
        ({}, ("--endpoint", "other"), "has llama-70b"),
        ({"cluster.groups.prefill.instance_type": "ml.g5.48xlarge"}, (), "no speed is known of TP4"),
        ({"endpoints[0].decode.efa_devices": 0}, (), "KV would never arrive"),
        ({"endpoints[0].prefill.replicas": 0}, (), "replicas"),
    ],
)
def test_what_has_no_answer_is_a_finding(dpd: Dpd, tmp_path: Path, changes: dict[str, Any], arguments: tuple[str, ...], words: str) -> None:
    said = dpd("replay", written(tmp_path, changes), *DAY, *arguments)
    assert said.code == 1
    assert words in said.err


@pytest.mark.parametrize("arguments", [("--ceilings", "8"), ("--ceilings", "0:1"), ("--peak-rate", "0"), ("--start-seconds", "-1")])
def test_wrong_calls(dpd: Dpd, file: Path, arguments: tuple[str, ...]) -> None:
    assert dpd("replay", file, *arguments).code == 2


def test_a_calibration_that_is_not_there(dpd: Dpd, file: Path) -> None:
    said = dpd("replay", file, "--calibration", "nowhere.yaml")
    assert said.code == 1
    assert "There is no calibration nowhere.yaml" in said.err


def test_faster_pods_need_fewer_of_them(dpd: Dpd, tmp_path: Path, file: Path) -> None:
    calibration = tmp_path / "calibration.yaml"
    calibration.write_text('date: "2026-11-29"\nprefill_speed: 2.0\n', encoding="utf-8")
    plain, fast = (
        json.loads(dpd("replay", file, *DAY, "--peak-rate", "15", "--format", "json", *more).out)
        for more in ((), ("--calibration", str(calibration)))
    )
    assert fast["phases"][2]["prefillers"] == pytest.approx(plain["phases"][2]["prefillers"] / 2, rel=0.01)
    assert fast["velocities"]["prefill"] == pytest.approx(2 * plain["velocities"]["prefill"], rel=0.01)
    assert fast["velocities"]["decode"] == plain["velocities"]["decode"]
