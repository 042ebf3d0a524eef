"""The router of llm-d as whole files: with its own proxy, behind a Gateway, and with a tokenizer."""

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from charts.manifest import Manifest, chart_of
from charts.render import to_yaml
from tests.backends.llmd.routers import GATEWAY, ROUTING, E, made

VARIANTS: dict[str, dict[str, Any]] = {
    "standalone": {},
    "gateway": {**GATEWAY, E + "objectives.priority": 10},
    "events": {f"{ROUTING}strategy": "kv_aware"},
}


def files(changes: dict[str, Any]) -> tuple[Manifest, ...]:
    return chart_of(made(changes))


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_the_router_as_files(changes: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    assert {manifest.path: to_yaml(manifest) for manifest in files(changes)} == snapshot


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_what_cdk8s_makes_of_it_is_what_was_given(changes: dict[str, Any]) -> None:
    assert [manifest.body for manifest in files(changes)] == list(made(changes))
