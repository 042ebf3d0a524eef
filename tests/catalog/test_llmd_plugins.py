"""Plugins of the endpoint picker by version of the router."""

import pytest

from dpd.catalog.llmd_plugins import ANY, decodes_without_prefiller, flags, pinned, plugins, versions

KINDS = {ANY, "boolean", "integer", "number", "string", "duration"}


def leaves(node: object) -> list[object]:
    if isinstance(node, dict):
        return [leaf for value in node.values() for leaf in leaves(value)]
    return [leaf for value in node for leaf in leaves(value)] if isinstance(node, list) else [node]


def test_the_pinned_version_is_known() -> None:
    assert pinned() in versions()


@pytest.mark.parametrize("version", versions())
def test_every_parameter_has_a_type_that_can_be_checked(version: str) -> None:
    for plugin in plugins(version).values():
        assert set(leaves(plugin.parameters)) <= KINDS, plugin.type


def test_a_version_that_nobody_has_read() -> None:
    with pytest.raises(KeyError):
        plugins("0.8.0")


def test_what_a_version_brought() -> None:
    old, new = plugins("0.9.0"), plugins("0.10.0")
    assert "promptTokens" in new["prefix-based-pd-decider"].parameters
    assert "promptTokens" not in old["prefix-based-pd-decider"].parameters
    assert "stageOrder" not in old["disagg-profile-handler"].parameters
    assert "topology-affinity-filter" in new.keys() - old.keys()
    assert old.keys() <= new.keys()


@pytest.mark.parametrize("program", ["picker", "sidecar"])
def test_flags_are_written_as_they_are_typed(program: str) -> None:
    assert all(flag.startswith("--") and "_" not in flag for flag in flags(program))


def test_the_pinned_router_says_nothing_when_it_finds_no_prefiller() -> None:
    assert decodes_without_prefiller("0.10.0")
