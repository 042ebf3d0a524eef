"""Every example passes as ``dpd check`` and ``dpd render`` read it: the name of the file is part of names that have limits."""

from pathlib import Path

import pytest

from charts.render import render_examined
from dpd.checks.registry import Context, run
from dpd.environment.load import load
from tests.support import ROOT, TODAY


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("example*.yaml")), ids=lambda path: path.stem)
def test_an_example_stops_for_nothing_under_its_own_name(path: Path) -> None:
    report = load(path)
    assert report.environment is not None
    assert report.environment.name == path.stem
    assert not [one for one in run(report.environment, Context(today=TODAY)) if one.stops]


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("example*.yaml")), ids=lambda path: path.stem)
def test_what_an_example_renders_to_stops_for_nothing(path: Path) -> None:
    environment = load(path).environment
    assert environment is not None
    assert render_examined([environment])[1] == []
