"""``dpd plan`` as a user calls it: words, JSON, exit codes, what is written and what is not."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from tests.commands.support import Dpd, Outcome, in_terminal
from tests.support import EXAMPLE, REMOVE, ROOT, TODAY, edited

SPLIT = {
    "version": 1, "arrival": {"rate_per_second": 3.5}, "input_tokens": {"fixed": 8000}, "output_tokens": {"fixed": 256},
    "objectives": {"ttft_ms": 2500, "itl_ms": 30},
}  # fmt: skip
"""A traffic for which two roles pay."""


class Planner:
    """A folder with an environment and a traffic, and the command in it."""

    def __init__(self, dpd: Dpd, folder: Path) -> None:
        self._dpd, self.folder = dpd, folder
        self.file, self.traffic = folder / "dev.yaml", folder / "traffic.yaml"
        shutil.copy(EXAMPLE, self.file)
        self.ask()

    def ask(self, **changes: Any) -> None:
        """Write a traffic; ``None`` takes a key away."""
        content = {key: value for key, value in {**SPLIT, **changes}.items() if value is not None}
        self.traffic.write_text(yaml.safe_dump(content), encoding="utf-8")

    def change(self, changes: dict[str, Any]) -> None:
        """Write another environment."""
        self.file.write_text(yaml.safe_dump(edited(changes)), encoding="utf-8")

    def __call__(self, *arguments: str | Path, closed_form: bool = True) -> Outcome:
        more = ("--closed-form",) if closed_form else ()
        return self._dpd("plan", self.file, "--traffic", self.traffic, *more, *arguments)

    def json(self, *arguments: str) -> dict[str, Any]:
        """The machine-readable plan, checked against its schema."""
        outcome = self("--format", "json", *arguments)
        found = json.loads(outcome.out)
        schema = json.loads((ROOT / "docs" / "plan.schema.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(found)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def plan(dpd: Dpd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planner:
    monkeypatch.chdir(tmp_path)
    return Planner(dpd, tmp_path)


def test_the_advice_comes_first_with_its_reason(plan: Planner) -> None:
    found = plan()
    assert found.code == 0
    assert found.out.startswith("llama-70b of dev: disaggregate (depends on calibration)\n")
    for part in (
        "3P:1D TP4, threshold 4096, on 16 x H100 (ml.p5.48xlarge)", "runner-up: 2 x TP8, chunk", "objectives: TTFT 2,500 ms",
        "PD buffer: at least", "KV link", "What would change the advice", "closed form only, as you asked", "left out: TP2",
        "by hand: both roles",
    ):  # fmt: skip
        assert part in found.out
    assert found.err == ""
    assert plan().out == found.out


def test_no_latency_is_a_single_number(plan: Planner) -> None:
    for line in plan().out.splitlines():
        if re.search(r"(chosen|runner-up|vLLM's chunk|the file's)", line) and "TP" in line and "  " in line.strip():
            assert len(re.findall(r"[0-9.,]+-[0-9.,]+ (?:ms|s)\b", line)) == 4, line


def test_every_price_has_its_day(plan: Planner) -> None:
    for text in (plan().out, plan("--price", "ml.p5.48xlarge=63.30").out):
        for line in text.splitlines():
            assert "USD/h" not in line or re.search(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}", line), line


def test_a_given_price_counts(plan: Planner) -> None:
    assert "2 x ml.p5.48xlarge = 126.60 USD/h" in plan("--price", "ml.p5.48xlarge=63.30").out
    wrong = plan("--price", "ml.p5.48xlarge")
    assert wrong.code == 1
    assert "write it as ml.p5.48xlarge=63.30" in wrong.err


def test_the_report_for_machines(plan: Planner) -> None:
    found = plan.json("--price", "ml.p5.48xlarge=50")
    assert found["verdict"]["decision"] == "disaggregate"
    assert found["verdict"]["layout"] == "3P:1D TP4, threshold 4096"
    assert found["needs"]["efa_devices"] == 16
    assert not found["needs"]["link_is_bottleneck"]
    assert found["costs"][0]["usd_per_hour"] == 100
    assert found["costs"][0]["price"]["as_of"] == TODAY.isoformat()
    assert {edit["path"] for edit in found["patch"]["edits"]} >= {"endpoints[0].prefill.replicas", "endpoints[0].prefill.tensor_parallel"}
    chosen = next(one for one in found["layouts"] if one["layout"] == found["verdict"]["layout"])
    assert chosen["ttft_ms"]["p99"]["low"] < chosen["ttft_ms"]["p99"]["high"]


def test_golden(dpd: Dpd, snapshot: SnapshotAssertion) -> None:
    """The shipped example and traffic: the same words and numbers until somebody means to change them."""
    found = dpd("plan", "docs/example.yaml", "--traffic", "docs/traffic.yaml", "--closed-form")
    assert found.out == snapshot


def test_the_seed_draws_other_requests(plan: Planner) -> None:
    one, same, other = (plan("--seed", seed).out for seed in ("1", "1", "2"))
    assert one == same
    assert one != other


def test_apply_changes_values_and_keeps_the_rest(plan: Planner) -> None:
    before = plan.file.read_text(encoding="utf-8")
    found = plan("--apply")
    after = plan.file.read_text(encoding="utf-8")
    assert found.code == 0
    assert f"Applied to {plan.file}" in found.err
    assert "prefill: {group: decode, replicas: 3, tensor_parallel: 4}" in after
    assert [line for line in after.splitlines() if "#" in line] == [line for line in before.splitlines() if "#" in line]
    assert len(after.splitlines()) == len(before.splitlines())
    again = plan("--apply")
    assert "Nothing to apply" in again.err
    assert plan.file.read_text(encoding="utf-8") == after
    assert sorted(path.name for path in plan.folder.iterdir()) == ["dev.yaml", "traffic.yaml"]


def test_apply_writes_nothing_against_the_advice(plan: Planner) -> None:
    plan.ask(arrival={"rate_per_second": 0.2})
    before = plan.file.read_bytes()
    found = plan("--apply")
    assert found.code == 1
    assert "Nothing was applied: the advice is: do not disaggregate" in found.err
    assert plan.file.read_bytes() == before
    assert "Should you keep them all the same" in found.out


def test_apply_writes_nothing_that_the_checks_refuse(plan: Planner) -> None:
    plan.change({"endpoints[0].decode.memory_gib": 1500, "endpoints[0].prefill.memory_gib": 1500})
    before = plan.file.read_bytes()
    found = plan("--apply")
    assert found.code == 1
    assert "Nothing was applied: the file would have these errors" in found.err
    assert plan.file.read_bytes() == before


def test_a_value_that_other_places_share_is_left_to_its_owner(plan: Planner) -> None:
    text = plan.file.read_text(encoding="utf-8")
    plan.file.write_text(
        text.replace(
            "prefill: {group: prefill, replicas: 1, tensor_parallel: 8}", "prefill: &role {group: prefill, replicas: 1, tensor_parallel: 8}"
        ).replace("decode: {group: decode, replicas: 1, tensor_parallel: 8}", "decode: {<<: *role, group: decode}")
    )
    found = plan("--apply")
    assert found.code == 1
    assert "by hand" in found.err
    assert "Nothing was applied." in found.err


def test_nothing_holds(plan: Planner) -> None:
    plan.ask(arrival={"rate_per_second": 30.0})
    found = plan()
    assert found.code == 1
    assert found.out.startswith("llama-70b of dev: no layout holds the objectives\n")
    assert "more nodes" in found.out or "More GPUs" in found.out


@pytest.mark.parametrize(
    ("traffic", "environment", "id", "words"),
    [
        ({"arrival": {"rate_per_second": 0}}, {}, "CFG005", "more than 0"),
        ({"objectives": {"ttft_ms": 50}}, {}, "PLN001", "takes about"),
        ({"objectives": {"itl_ms": 1}}, {}, "PLN001", "one decode step"),
        ({"input_tokens": {"fixed": 20_000}}, {}, "PLN001", "400 of 400 requests are longer than 16,384"),
        ({}, {"endpoints[0].prefill.group": "nowhere"}, "PLN001", "group nowhere does not exist"),
        ({}, {"endpoints": []}, "PLN001", "has no endpoints"),
        ({}, {"endpoints[0].model.catalog": "llama-3.1-405b-instruct"}, "PLN001", "weights do not fit"),
        (
            {}, {"cluster.groups.prefill.instance_type": "ml.g4dn.12xlarge", "cluster.groups.decode.instance_type": "ml.g4dn.12xlarge",
                 "endpoints[0].model.catalog": "llama-3.1-8b-instruct"}, "PLN001", "no speeds are known of TP4 on T4",
        ),
        ({}, {"cluster.groups.prefill.instance_type": "ml.p5en.48xlarge"}, "PLN001", "one type of node"),
        ({}, {"cluster.groups.prefill.count": 0, "cluster.groups.decode.count": 0}, "PLN001", "have no nodes"),
        ({"arrival": None, "trace": {"file": "none.jsonl"}, "input_tokens": None, "output_tokens": None}, {}, "PLN002", "cannot be read"),
        ({"arrival": None, "trace": {"file": "dev.yaml"}, "input_tokens": None, "output_tokens": None}, {}, "PLN002", "broken lines of"),
        ({}, {"account": REMOVE}, "CFG002", "account"),
    ],
)  # fmt: skip
def test_questions_without_an_answer(plan: Planner, traffic: dict[str, Any], environment: dict[str, Any], id: str, words: str) -> None:
    plan.ask(**traffic)
    if environment:
        plan.change(environment)
    report, pictures = plan.folder / "plan.html", plan.folder / "pictures"
    before = plan.file.read_bytes()
    found = plan("--html", report, "--png", pictures, "--apply")
    assert found.code == 1
    assert found.out == ""
    assert f"error {id}" in found.err
    assert words in found.err
    assert "fix: " in found.err
    assert not report.exists()
    assert not pictures.exists()
    assert plan.file.read_bytes() == before


def test_an_endpoint_that_is_not_there(plan: Planner) -> None:
    found = plan("--endpoint", "qwen")
    assert found.code == 1
    assert "dev has llama-70b" in found.err
    assert plan("--endpoint", "llama-70b").code == 0


def test_what_is_wrong_in_the_environment_is_shown_there(plan: Planner) -> None:
    plan.ask(input_tokens={"fixed": 20_000})
    line = next(at for at, text in enumerate(plan.file.read_text(encoding="utf-8").splitlines(), 1) if "max_model_len" in text)
    assert f"error PLN001 {plan.file}:{line} endpoints[0].model.max_model_len" in plan().err


def test_a_trace_is_enough(plan: Planner) -> None:
    row = {"timestamp": 0, "input_length": 4000, "output_length": 200, "hash_ids": [1, 2]}
    trace = plan.folder / "trace.jsonl"
    trace.write_text("".join(json.dumps(row | {"timestamp": 400 * at}) + "\r\n" for at in range(60)), encoding="utf-8")
    plan.traffic = trace
    assert "2.5 requests/s (the first 60 requests of trace.jsonl)" in plan().out


@pytest.mark.parametrize("option", ["--html", "--png"])
def test_places_that_cannot_be_written_are_refused_before_the_work(plan: Planner, option: str) -> None:
    pytest.importorskip("matplotlib")
    folder = plan.folder / "folder"
    folder.mkdir()
    wrong = folder if option == "--html" else plan.file
    assert plan(option, wrong).code == 2
    found = plan(option, plan.file / "below" / "plan")
    assert (found.code, found.out) == (1, "")
    assert "it is no folder" in found.err


def test_files_that_are_not_there(plan: Planner, dpd: Dpd) -> None:
    assert dpd("plan", plan.folder / "none.yaml", "--traffic", plan.traffic).code == 1
    assert dpd("plan", plan.file, "--traffic", plan.folder / "none.yaml").code == 1
    assert dpd("plan", plan.file).code == 2
    assert "There is no calibration" in plan("--calibration", "none.yaml").err


def test_a_calibration_is_used_and_said(plan: Planner) -> None:
    folder = plan.folder / "calibration"
    folder.mkdir()
    slow = {"environment": "dev", "date": "2026-11-01", "source": "bench.json", "requests": 100, "decode_speed": 0.5}
    (folder / "dev.yaml").write_text(yaml.safe_dump(slow), encoding="utf-8")
    found = plan()
    assert "calibrated on 2026-11-01 from bench.json (100 requests)" in found.out
    (folder / "dev.yaml").write_text("decode_speed: -1\n", encoding="utf-8")
    assert plan().code == 1


def test_fetched_prices_are_read_from_their_file(plan: Planner) -> None:
    folder = plan.folder / "prices"
    folder.mkdir()
    (folder / "us-east-2.yaml").write_text(
        "as_of: 2026-11-20\nregion: us-east-2\nprices: [{name: ml.p5.48xlarge, purchase: on_demand, usd_per_hour: 60.0}]\n",
        encoding="utf-8",
    )
    assert "60.00 USD/h (HyperPod; us-east-2, 2026-11-20" in plan().out
    (folder / "us-east-2.yaml").write_text("nonsense", encoding="utf-8")
    assert "--refresh-prices" in plan().err


def test_the_report_with_pictures(plan: Planner) -> None:
    pytest.importorskip("matplotlib")
    report, pictures = plan.folder / "plan.html", plan.folder / "pictures"
    found = plan("--html", report, "--png", pictures)
    assert found.code == 0
    page = report.read_text(encoding="utf-8")
    assert "3P:1D TP4" in page
    assert "<script" not in page
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures.iterdir())
    assert len(list(pictures.iterdir())) >= 5
    assert str(report) in found.err


def test_groups_of_expert_parallel_ranks_are_not_planned(plan: Planner, dpd: Dpd) -> None:
    found = dpd("plan", ROOT / "docs" / "example-wide-ep.yaml", "--traffic", plan.traffic, "--closed-form")
    assert found.code == 1
    assert "expert_parallel" in found.err


def test_on_a_terminal() -> None:
    shown = in_terminal(160, "plan", "docs/example.yaml", "--traffic", "docs/traffic.yaml", "--closed-form")
    assert "Trying layouts" in shown
    assert re.search(r"llama-70b of example: \S*tune chunk size first", shown)
