"""The workers of llm-d as whole files, and what their objects show of all rules about manifests."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from syrupy.assertion import SnapshotAssertion

from charts.manifest import Manifest, chart_of
from charts.render import to_yaml
from dpd.backends.llmd.workers import objects
from dpd.backends.site import Site
from tests.schemas import check, is_core
from tests.support import LLMD_EXAMPLE, environment

SET = {"endpoints[0].workload": "disaggregated_set"}


def workers(changes: dict[str, Any] | None = None) -> tuple[Manifest, ...]:
    known = environment(changes, example=LLMD_EXAMPLE)
    return chart_of(objects(known.endpoints[0], Site.of(known)))


def test_workers_of_the_example(snapshot: SnapshotAssertion) -> None:
    assert {manifest.path: to_yaml(manifest) for manifest in workers()} == snapshot


@pytest.mark.parametrize("changes", [{}, SET], ids=["deployments", "set"])
def test_what_cdk8s_makes_of_them_is_what_was_given(changes: dict[str, Any]) -> None:
    known = environment(changes, example=LLMD_EXAMPLE)
    assert [manifest.body for manifest in workers(changes)] == list(objects(known.endpoints[0], Site.of(known)))


@pytest.mark.parametrize("changes", [{}, SET], ids=["deployments", "set"])
def test_core_objects_are_legal(changes: dict[str, Any]) -> None:
    for manifest in workers(changes):
        if is_core(manifest.body):
            kubernetes_validate.validate(manifest.body, "1.34", strict=True)


def test_the_set_is_legal(crds: Path) -> None:
    check(workers(SET)[-1].body, crds)
