"""Rules about the health gate: the smallest wrong input, and the nearest right one."""

from typing import Any

import pytest

from dpd.finding import Level
from dpd.sizing.startup import longest_gate_wait_seconds
from tests.checks.cases import Case
from tests.support import findings

HUGE = {"endpoints[0].model.parameters_billion": 900.0}
OFF = {"gate.deploy": False}
CASES = [
    Case("GAT001", OFF, "gate.deploy", "nothing proves a deployment", {"gate.deploy": True}, Level.WARNING),
    Case(
        "GAT002", HUGE, "endpoints[0].model", "the gate can wait 2,220 s", {"endpoints[0].model.parameters_billion": 400.0}, Level.WARNING
    ),
    Case("GAT004", {"gate.efa_counters": False}, "gate.efa_counters", "by its rate alone", {"gate.efa_counters": True}, Level.WARNING),
    Case("GAT003", {**OFF, "gate.notify": ["a@example.com"]}, "gate.notify", "nobody is told", {"gate.notify": ["a@example.com"]}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_smallest_wrong_input_is_found_and_the_nearest_right_one_is_not(case: Case) -> None:
    case.verify()


def test_a_gate_that_is_off_need_not_wait() -> None:
    assert findings({**HUGE, **OFF}, id="GAT002") == []


def test_the_bound_is_where_the_wait_ends() -> None:
    # 500 MB/s and ten minutes for the engine: what is left of the wait loads this many parameters of two bytes.
    most = (longest_gate_wait_seconds() - 600) * 500e6 / 2 / 1e9
    assert findings({"endpoints[0].model.parameters_billion": most}, id="GAT002") == []
    assert findings({"endpoints[0].model.parameters_billion": most * 1.001}, id="GAT002")


@pytest.mark.parametrize("changes", [OFF, {"endpoints": []}])
def test_counters_that_nobody_would_read_may_be_off(changes: dict[str, Any]) -> None:
    assert findings({"gate.efa_counters": False, **changes}, id="GAT004") == []
