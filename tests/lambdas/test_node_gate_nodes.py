"""The node gate counts: what makes a node schedulable, and what is said of those that are not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_gate import nodes

from dpd.environment.names import INSTANCE_GROUP_LABEL
from tests.lambdas.fake_cluster import READY, node

HEALTH = {"key": "sagemaker.amazonaws.com/node-health-status", "value": "Unschedulable", "effect": "NoSchedule"}


def test_the_label_is_the_projects() -> None:
    assert nodes.INSTANCE_GROUP_LABEL == INSTANCE_GROUP_LABEL


@pytest.mark.parametrize(
    ("changes", "obstacle"),
    [
        ({}, ""),
        ({"spec": {"taints": [{**HEALTH, "effect": "PreferNoSchedule"}]}}, ""),
        ({"spec": {"taints": None}}, ""),
        ({"spec": {"taints": [{"key": "dpd", "value": "prefill", "effect": "NoSchedule"}]}}, ""),
        ({"spec": {"taints": [{"key": "dpd", "value": "decode", "effect": "NoSchedule"}]}}, "tainted dpd=decode:NoSchedule"),
        ({"spec": {"taints": [{"key": "dpd", "value": "prefill", "effect": "NoExecute"}]}}, "tainted dpd=prefill:NoExecute"),
        ({"spec": {"taints": [{"key": "gpu", "effect": "NoExecute"}]}}, "tainted gpu:NoExecute"),
        ({"spec": {"taints": [HEALTH]}}, "tainted sagemaker.amazonaws.com/node-health-status=Unschedulable:NoSchedule"),
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"spec": {"unschedulable": False}}, ""),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "not Ready"),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "not Ready"),
        ({"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}}, "not Ready"),
        ({"status": {"conditions": [{"type": "DiskPressure", "status": "False"}, READY]}}, ""),
        ({"status": {"conditions": None}}, "not Ready"),
        ({"status": None}, "not Ready"),
        ({"spec": None}, ""),
        ({"metadata": {"deletionTimestamp": "2026-11-29T00:00:00Z"}}, "being deleted"),
    ],
)
def test_obstacle(changes: dict[str, Any], obstacle: str) -> None:
    assert nodes.obstacle(node(**changes), frozenset({"dpd=prefill:NoSchedule"})) == obstacle


def test_groups_are_counted_apart_and_strangers_not_at_all() -> None:
    found = [node("system"), node("system"), node("system", spec={"unschedulable": True}), node("other"), {"metadata": None}, {}]
    system, prefill = nodes.count(found, {"system": 2, "prefill": 1})
    assert (system.schedulable, dict(system.obstacles), system.complete) == (2, {"cordoned": 1}, True)
    assert (prefill.schedulable, prefill.complete) == (0, False)


def test_a_minimum_of_zero_is_complete_without_nodes() -> None:
    assert nodes.missing(nodes.count([], {"prefill": 0})) == ""


def test_the_message_names_group_numbers_and_causes() -> None:
    cordoned, unready = node(spec={"unschedulable": True}), node(status={})
    groups = nodes.count([node(), unready, cordoned, cordoned], {"system": 4, "prefill": 1})
    assert nodes.missing(groups) == (
        "group system: 1 of 4 nodes schedulable (2 cordoned, 1 not Ready); group prefill: 0 of 1 nodes schedulable (no node has joined)"
    )


def test_a_group_that_is_only_too_small_says_so() -> None:
    assert "no other node has joined" in nodes.missing(nodes.count([node()], {"system": 2}))


def test_the_message_stays_short_for_many_groups_with_long_names_and_taints() -> None:
    taints = [{"key": "k" * 300, "value": "v" * 63, "effect": "NoSchedule"}]
    minimums = {f"{number:03}" + "g" * 60: 1 for number in range(100)}
    found = [node(name, spec={"taints": taints}) for name in minimums]
    message = nodes.missing(nodes.count(found, minimums))
    assert "and 95 more groups" in message
    assert len(message.encode()) < 3000


_NODES = st.lists(
    st.builds(lambda group, cordoned: node(group, spec={"unschedulable": cordoned}), st.sampled_from("abc"), st.booleans()), max_size=20
)


@given(_NODES, st.dictionaries(st.sampled_from("abc"), st.integers(0, 5), min_size=1))
def test_every_node_of_a_wanted_group_is_counted_once_and_order_does_not_matter(
    found: list[dict[str, Any]], minimums: dict[str, int]
) -> None:
    groups = nodes.count(found, minimums)
    assert groups == nodes.count(reversed(found), minimums)
    wanted = [item for item in found if item["metadata"]["labels"][INSTANCE_GROUP_LABEL] in minimums]
    assert sum(group.schedulable + group.obstacles.total() for group in groups) == len(wanted)
    assert (nodes.missing(groups) == "") == all(group.complete for group in groups)
