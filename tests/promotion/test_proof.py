"""What a report of the health gate is worth."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dpd.promotion.alarms import raised
from dpd.promotion.compare import Release, release
from dpd.promotion.proof import against, as_report
from dpd.review.assembly import read
from tests.promotion.made import assembly, report, typed

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOUR_AGO = (NOW - timedelta(hours=1)).timestamp()


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return release(read(assembly(tmp_path_factory.mktemp("proof") / "out", typed("dev"))), "dev")


def said(dev: Release, given: Any) -> list[str]:
    return [each.id for each in against(given, dev, now=NOW, hours=24, place="there")]


def test_a_young_report_of_this_release_that_passed_is_a_proof(dev: Release) -> None:
    assert said(dev, report(typed("dev"), started=HOUR_AGO)) == []


@pytest.mark.parametrize(
    ("changes", "id_"),
    [
        ({"outcome": "FAIL", "counts": {"PASS": 36, "FAIL": 1, "UNKNOWN": 0}, "causes": ["kv.moved inference/llama-70b"]}, "PRM002"),
        ({"outcome": "UNKNOWN", "counts": {"PASS": 36, "FAIL": 0, "UNKNOWN": 1}}, "PRM002"),
        ({"counts": {"PASS": 36, "FAIL": 0, "UNKNOWN": 1}}, "PRM002"),
        ({"counts": {"PASS": 0, "FAIL": 0, "UNKNOWN": 0}}, "PRM002"),
        ({"counts": None}, "PRM002"),
        ({"outcome": "pass"}, "PRM002"),
        ({"started": (NOW - timedelta(hours=25)).timestamp()}, "PRM003"),
        ({"started": (NOW + timedelta(hours=1)).timestamp()}, "PRM003"),
        ({"started": 1e300}, "PRM003"),
        ({"digest": "0" * 64}, "PRM004"),
        ({"digest": ""}, "PRM004"),
        ({"digest": None}, "PRM004"),
        ({"environment": "llama-dpd-prod"}, "PRM004"),
        ({"started": "yesterday"}, "PRM001"),
        ({"started": True}, "PRM001"),
        ({"outcome": None}, "PRM001"),
    ],
)
def test_everything_else_is_none(dev: Release, changes: dict[str, Any], id_: str) -> None:
    assert said(dev, {**report(typed("dev"), started=HOUR_AGO), **changes}) == [id_]


@pytest.mark.parametrize("given", [None, {}, as_report(b"PASS"), as_report(b"[]"), as_report(b"[" * 100_000)])
def test_absent_and_unreadable_reports_refuse(dev: Release, given: Any) -> None:
    assert said(dev, given) == ["PRM001"]


def test_a_release_without_a_gate_cannot_be_proven(tmp_path: Path) -> None:
    ungated = typed("dev", {"gate.deploy": False})
    of = release(read(assembly(tmp_path / "out", ungated)), "dev")
    assert said(of, report(ungated, started=HOUR_AGO, digest="")) == ["PRM004"]


@pytest.mark.parametrize(
    ("states", "last", "found"),
    [
        ({"a": "OK"}, True, 0),
        ({"a": "OK", "b": "ALARM"}, False, 1),
        ({"a": "INSUFFICIENT_DATA"}, False, 0),
        ({"a": "INSUFFICIENT_DATA"}, True, 1),
        ({}, False, 1),
    ],
)
def test_alarms_must_be_there_and_quiet(states: dict[str, str], last: bool, found: int) -> None:
    assert len(raised(states, "llama-dpd-dev-", last=last)) == found
