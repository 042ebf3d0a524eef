"""The tables of add-ons and Kubernetes versions."""

from itertools import pairwise

import pytest

from dpd.catalog import add_ons, kubernetes, sources
from dpd.catalog.add_ons import version_key


@pytest.mark.parametrize("add_on", add_ons.all_add_ons(), ids=lambda one: one.name)
def test_every_version_is_a_version_at_or_above_the_floor(add_on: add_ons.AddOn) -> None:
    versions = [add_on.version] if add_on.version else list(add_on.versions.values())
    assert versions
    assert all(version_key(version) >= version_key(add_on.floor or "v0.0.0-eksbuild.0") for version in versions)
    assert bool(add_on.floor) == bool(add_on.floor_reason)
    assert set(add_on.versions) <= {version.version for version in kubernetes.all_versions()}
    assert set(add_on.sources) <= set(sources.source_keys())
    assert add_ons.find(add_on.name) == add_on


def test_add_ons_that_need_no_nodes_come_first() -> None:
    needs = [add_on.needs_nodes for add_on in add_ons.all_add_ons()]
    assert needs == sorted(needs)
    assert add_ons.all_add_ons()[-1].name == add_ons.INFERENCE


def test_the_newest_version_that_hyperpod_lists_has_every_pin() -> None:
    newest = [version.version for version in kubernetes.all_versions() if version.hyperpod][-1]
    assert all(add_on.version_for(newest) for add_on in add_ons.all_add_ons())


@pytest.mark.parametrize("version", [version.version for version in kubernetes.all_versions()])
def test_kube_proxy_is_of_its_kubernetes_version(version: str) -> None:
    known = add_ons.find("kube-proxy")
    assert known
    pin = known.version_for(version)
    assert pin is None or pin.startswith(f"v{version}.")


@pytest.mark.parametrize("version", ["", "v1", "1.4.0-eksbuild.1", "v1.4.0", "v1.4.0-eksbuild.1 ", "v1.4.0-eksbuild.x", "v" + "9" * 10_000])
def test_other_shapes_are_refused(version: str) -> None:
    with pytest.raises(ValueError, match="not an add-on version"):
        version_key(version)


def test_versions_compare_as_numbers() -> None:
    assert version_key("v1.10.0-eksbuild.1") > version_key("v1.9.0-eksbuild.10") > version_key("v1.9.0-eksbuild.9")


@pytest.mark.parametrize(
    ("add_on", "operator"),
    [
        ("v1.2.9-eksbuild.1", ""),
        ("v1.3.0-eksbuild.1", "3.2"),
        ("v1.4.0-eksbuild.7", "3.3"),
        ("v1.9.0-eksbuild.1", "3.4"),
        ("v2.0.0-eksbuild.2", "3.6"),
    ],
)
def test_operator_version(add_on: str, operator: str) -> None:
    assert add_ons.operator_version(add_on) == operator


def test_unknown_names() -> None:
    assert add_ons.find("nothing") is None
    assert kubernetes.find("1.99") is None


def test_the_calendar_is_in_order() -> None:
    versions = kubernetes.all_versions()
    assert [version.minor for version in versions] == sorted(version.minor for version in versions)
    for earlier, later in pairwise(versions):
        assert earlier.end_of_standard_support < later.end_of_standard_support
    for version in versions:
        assert version.end_of_standard_support < version.end_of_extended_support
        assert set(version.sources) <= set(sources.source_keys())


def test_extended_support_costs_more() -> None:
    assert kubernetes.control_plane_usd_per_hour(extended=True) > kubernetes.control_plane_usd_per_hour(extended=False) > 0
