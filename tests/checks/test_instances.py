"""Instance types: the smallest wrong input gives the finding, the nearest right one gives none."""

from typing import Any

import pytest

from dpd.catalog import instances
from dpd.finding import Level
from tests.support import findings

PREFILL, DECODE = "cluster.groups.prefill.instance_type", "cluster.groups.decode.instance_type"


def both(instance_type: str) -> dict[str, Any]:
    return {PREFILL: instance_type, DECODE: instance_type}


def said(changes: dict[str, Any], id: str) -> set[str]:
    return {finding.path for finding in findings(changes, id=id)}


@pytest.mark.parametrize(
    ("id", "wrong", "right"),
    [
        ("INS001", "ml.p5.48xlarg", "ml.p5.48xlarge"),
        ("INS001", "p5.49xlarge", "ml.p5.48xlarge"),
        ("INS001", "ml.P5.48xlarge", "ml.p5.48xlarge"),
        ("INS001", "x" * 1000, "ml.p5.48xlarge"),
        ("INS002", "p5.48xlarge", "ml.p5.48xlarge"),
        ("INS002", "p5e.48xlarge", "ml.p5e.48xlarge"),
        ("INS003", "ml.g6e.4xlarge", "ml.g6e.8xlarge"),
        ("INS003", "ml.g5.xlarge", "ml.g5.8xlarge"),
        ("INS003", "ml.g7e.4xlarge", "ml.g7e.8xlarge"),
        ("INS004", "ml.p4d.24xlarge", "ml.p5.48xlarge"),
        ("INS004", "ml.p4de.24xlarge", "ml.p5en.48xlarge"),
        ("INS004", "ml.g5.48xlarge", "ml.g6e.48xlarge"),
        ("INS004", "ml.g7.48xlarge", "ml.g7e.48xlarge"),
        ("INS005", "ml.p6e-gb200.36xlarge", "ml.p6-b200.48xlarge"),
        ("INS006", "ml.g6e.48xlarge", "ml.p5e.48xlarge"),
        ("INS006", "ml.p5.4xlarge", "ml.p6-b300.48xlarge"),
        ("INS007", "ml.g6e.48xlarge", "ml.p6-b200.48xlarge"),
    ],
)
def test_a_type_that_cannot_serve_and_its_nearest_that_can(id: str, wrong: str, right: str) -> None:
    assert said(both(wrong), id)
    assert not said(both(right), id)


@pytest.mark.parametrize("instance_type", instances.types())
def test_a_gpu_type_serves_only_when_aws_names_it(instance_type: str) -> None:
    instance = instances.find(instance_type)
    assert instance is not None
    refused = {it.id for it in findings(both(instance_type)) if it.stops and it.path == DECODE and it.id.startswith("INS")}
    if not instance.gpus:
        assert not refused  # that a role sits on it is a matter of place
    elif instance.operator_dpd:
        assert not refused
    else:
        assert len(refused) == 1, "one reason, the deepest"


def test_an_unknown_type_is_never_counted_as_nothing() -> None:
    [finding] = findings({PREFILL: "ml.p5.48xlarg"}, id="INS001")
    assert finding.level is Level.ERROR
    assert "ml.p5.48xlarge" in finding.fix
    assert finding.value == "ml.p5.48xlarg"


def test_the_reason_names_what_is_missing() -> None:
    [no_efa] = {finding.message for finding in findings(both("ml.g6e.4xlarge"), id="INS003")}
    assert no_efa == "has 0 EFA devices; ml.g6e.8xlarge is the smallest of the family that has one"
    [p4] = {finding.message for finding in findings(both("ml.p4d.24xlarge"), id="INS004")}
    assert p4 == "its 4 EFA devices: RDMA read yes, RDMA write no"
    [unknown] = {finding.message for finding in findings(both("ml.g7.48xlarge"), id="INS004")}
    assert "not stated" in unknown


def test_a_group_that_serves_no_role_may_be_of_any_type() -> None:
    extra = {"cluster.groups.lab": {"instance_type": "ml.g5.xlarge", "count": 1, "capacity": "on_demand"}}
    assert not said(extra, "INS003")
    assert not said(extra, "INS006")


def test_gb200_is_refused_even_where_no_role_runs() -> None:
    assert said({"cluster.groups.lab": {"instance_type": "ml.p6e-gb200.36xlarge", "count": 0, "capacity": "on_demand"}}, "INS005")


@pytest.mark.parametrize(
    ("prefill", "decode", "level"),
    [
        ("ml.p5.48xlarge", "ml.p5.48xlarge", None),
        ("ml.p5.48xlarge", "ml.p5en.48xlarge", Level.WARNING),
        ("ml.p5.48xlarge", "ml.p6-b200.48xlarge", Level.WARNING),
        ("ml.p4d.24xlarge", "ml.p5.48xlarge", Level.ERROR),
        ("ml.p4d.24xlarge", "ml.p4de.24xlarge", Level.WARNING),
    ],
)
def test_roles_on_different_types(prefill: str, decode: str, level: Level | None) -> None:
    found = findings({PREFILL: prefill, DECODE: decode}, id="INS008")
    assert [finding.level for finding in found] == ([level] if level else [])


def test_the_quota_counts_every_node_up_to_the_ceiling() -> None:
    [finding] = findings({"cluster.groups.prefill.max_count": 3}, id="INS009")
    assert finding.level is Level.INFO
    assert finding.message == "needs 3 (prefill) + 1 (decode) = 4 nodes of ml.p5.48xlarge"
    assert not findings({"cluster.groups.prefill.count": 0, "cluster.groups.decode.count": 0}, id="INS009")
