"""What a rehearsal found, in words and as data; nothing that is wrong is left out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from health_gate.report import Report as GateReport
from health_gate.result import failed, passed

from rehearsal import report
from rehearsal.drive import Cost, Pass, Sample
from rehearsal.faults import FAULTS, Found
from rehearsal.install import Engines
from rehearsal.parsers import Parsed
from rehearsal.run import Result
from rehearsal.substitutions import Substitution

LONG = Sample(True, 580, 24, 900.0, 20.0, 1.4, 1_310_720, 1_310_720, 580, 0.002, True)
SHORT = Sample(False, 25, 24, 100.0, 20.0, 0.6, 0, 0, 0, 0.0, None)
GOOD = replace(passed("The decoder took KV from prefill."), id="kv.moved", endpoint="inference/llama")
BAD = replace(failed("It did | not.", "Look."), id="kv.complete", endpoint="inference/llama")


def made(**changes: Any) -> Result:
    values: dict[str, Any] = {
        "environment": "dev", "endpoint": "llama", "backend": "llm-d", "engines": Engines(Path("python"), 3.7, 150),
        "threshold_tokens": 512,
        "substitutions": tuple(Substitution(role, "--host", "0.0.0.0", "127.0.1.10", "why") for role in ("prefill", "decode")),
        "started": {"prefill-0": 25.2}, "samples": (LONG, SHORT),
        "cost": Cost(580, 24, Pass("disaggregated", 5, 900.0, 20.0, 1.4, 0.5, 12.0), Pass("colocated", 5, 600.0, 25.0, 1.2, 1.0, 24.0)),
        "gate": GateReport("dev", (GOOD,), 0.0, 12.0), "faults": (Found(FAULTS[0], FAULTS[0].expected, "said so", 3.0),),
        "not_covered": ("the sidecar",), "parsed": (Parsed("prefill: argument list", "the parser", ()),), "events": (("start", 0.0, 30.0),),
        "seconds": 99.0, "excused": {},
    }  # fmt: skip
    return Result(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"gate": GateReport("dev", (GOOD, BAD), 0.0, 12.0)}, "kv.complete: It did | not."),
        ({"gate": GateReport("dev", (GOOD, BAD), 0.0, 12.0), "excused": {"kv.complete": "why"}}, None),
        ({"faults": (Found(FAULTS[0], "", "everything passed", 3.0),)}, "fault threshold: nothing said so, not traffic.long"),
        ({"samples": (replace(LONG, kv_bytes=1),)}, "1 bytes of KV moved, not 1,310,720"),
        ({"samples": (replace(SHORT, kv_bytes=1),)}, "1 bytes of KV moved, not 0"),
        ({"samples": (replace(LONG, equal=False),)}, "an answer differs from the decoder's own"),
        ({"parsed": (Parsed("prefill: argument list", "the parser", ("no such flag",)),)}, "prefill: argument list: no such flag"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], said: str | None) -> None:
    result = made(**changes)
    assert result.wrong == ([] if said is None else [said])
    assert report.summary(result).startswith("PASS" if said is None else "FAIL")
    assert json.loads(report.as_json(result))["wrong"] == result.wrong


def test_the_markdown_has_the_numbers_and_the_limits() -> None:
    text = report.markdown(made(gate=GateReport("dev", (GOOD, BAD), 0.0, 12.0)), pictured=True)
    for part in (
        "| prefill, then decode | 580 + 24 | 900 ms | 20 ms | 1,310,720 | 1,310,720 | 2.00 ms | 580 | equal |",
        "| requests a second | 0.50 | 1.00 | 0.50 |",
        "The hand-over adds 300 ms",
        "| threshold above the prompt | traffic.long | traffic.long | said so |",
        r"| kv.complete | FAIL | It did \| not. |",
        "| prefill, decode | `--host` | `0.0.0.0` | `127.0.1.10` | why |",
        "- the sidecar",
        "- EFA and libfabric",
        "(timeline.png)",
    ):
        assert part in text, part


def test_files_are_the_same_each_time(tmp_path: Path) -> None:
    one = {path.name: path.read_bytes() for path in report.write(made(), tmp_path / "one")}
    other = {path.name: path.read_bytes() for path in report.write(made(), tmp_path / "other")}
    assert one == other
    assert {report.MARKDOWN, report.JSON} <= one.keys()
