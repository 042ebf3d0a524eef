"""The tables of limits and of Lustre."""

from collections.abc import Iterator
from typing import Any

import pytest

from dpd.catalog import instances, limits, lustre, sources
from dpd.catalog.tables import yaml_table


def _sources(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value.get("sources", ())
        for item in value.values():
            yield from _sources(item)


@pytest.mark.parametrize("table", ["limits", "lustre", "kubernetes", "add_ons"])
def test_every_source_is_declared(table: str) -> None:
    named = set(_sources(yaml_table(table)))
    assert named
    assert named <= set(sources.source_keys())


@pytest.mark.parametrize(
    ("instance_type", "connections"),
    [
        ("ml.p5.48xlarge", 8),
        ("ml.p5en.48xlarge", 8),
        ("ml.p6-b200.48xlarge", 8),
        ("ml.p6-b300.48xlarge", 16),
        ("ml.g6e.48xlarge", 2),
        ("ml.g6.48xlarge", 1),
        ("ml.p4d.24xlarge", 0),  # Nitro 3
        ("ml.g6.xlarge", 0),  # no EFA
        ("ml.c5.4xlarge", 0),
    ],
)
def test_efa_connections(instance_type: str, connections: int) -> None:
    instance = instances.find(instance_type)
    assert instance
    assert lustre.efa_connections(instance) == connections
    assert lustre.mounts_over_efa(instance) == bool(connections)


@pytest.mark.parametrize("iops", [1500, 3000, 6000, 12000, 24000, 192000])
def test_metadata_operations_that_exist(iops: int) -> None:
    assert lustre.metadata_iops_allowed(iops)


@pytest.mark.parametrize("iops", [0, 1, 4500, 9000, 13000, 204000])
def test_metadata_operations_that_do_not(iops: int) -> None:
    assert not lustre.metadata_iops_allowed(iops)


@pytest.mark.parametrize(
    ("namespace", "owned"),
    [("kube-system", True), ("kube-x", True), ("kubernetes", False), ("aws-hyperpod", True), ("inference", False), ("default", False)],
)
def test_namespace_owner(namespace: str, owned: bool) -> None:
    assert (limits.namespace_owner(namespace) is not None) is owned


def test_an_unknown_kind_of_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        limits.longest("nothing")
