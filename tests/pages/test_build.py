"""The page of a real plan says what the plan says."""

from datetime import date

import pytest

pytest.importorskip("matplotlib", reason="the extra pages is not installed (make planner)")

from dpd.planning.calibration import Calibration
from dpd.planning.case import case_of, endpoint_of
from dpd.planning.plan import Plan, make
from dpd.planning.traffic import load_traffic
from pages.build import page_of
from pages.plan import PlanPage
from tests.support import ROOT, environment


def planned(**changes: object) -> Plan:
    here = environment()
    index, endpoint = endpoint_of(here, None)
    traffic, findings = load_traffic(ROOT / "docs" / "traffic.yaml")
    assert traffic is not None, findings
    case, source = case_of(here, endpoint, traffic, folder=ROOT / "docs")
    return make(here, index, case, source=source, calibration=Calibration.model_validate(changes))


def paged(plan: Plan) -> PlanPage:
    facts, needs, costs = (("traffic", "as drawn"),), (("PD buffer", "at least 2 GiB"),), (("nodes", "unknown"),)
    return page_of(plan, facts=facts, needs=needs, costs=costs, trust=("measure first",), diff="", today=date(2026, 11, 29))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned()


@pytest.fixture(scope="module")
def page(plan: Plan) -> PlanPage:
    return paged(plan)


def test_the_verdict_stands_first(plan: Plan, page: PlanPage) -> None:
    assert page.headline.lower() == f"{plan.verdict.decision} (depends on calibration)"
    assert not plan.settled
    assert page.layout == plan.verdict.chosen.candidate.name
    assert page.reason.lower() == plan.verdict.reason.lower()
    assert "Closed form; not calibrated" in page.lead


def test_numbers_are_ranges_against_the_objectives(plan: Plan, page: PlanPage) -> None:
    goal, seen = plan.case.goal, plan.banded(plan.verdict.chosen)
    first, gap = page.numbers[:2]
    assert " to " in first.value
    assert first.note == "objective 2 s"
    assert (first.state == "good") == (seen.ttft_tail.high <= goal.ttft_ms)
    assert (gap.state == "bad") == (seen.itl_tail.low > goal.itl_ms)


def test_every_layout_is_in_the_table_once(plan: Plan, page: PlanPage) -> None:
    names = [row[0] for row in page.candidates.rows]
    assert len(names) == len(set(names)) == len(plan.sweep.colocated) + len(plan.sweep.disaggregated)
    assert page.candidates.chosen is not None
    assert names[page.candidates.chosen] == plan.verdict.chosen.candidate.name


def test_all_pictures_are_drawn(page: PlanPage) -> None:
    assert [picture.name for picture in page.pictures] == ["ttft", "itl", "goodput", "threshold", "link", "memory"]
    marked = [row for row in page.pictures[3].rows if row[-1] == "chosen"]
    assert len(marked) <= 1
    assert page.html().count("<svg") == len(page.pictures)


def test_sources_of_the_bands_leave_when_something_was_measured(page: PlanPage) -> None:
    assert page.sources
    measured = paged(planned(date="2026-11-20", source="results.json", requests=200))
    assert not measured.sources
    assert "calibrated on 2026-11-20" in measured.lead
