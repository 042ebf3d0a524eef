"""A command line whose day is fixed."""

import pytest

from tests.commands.support import Dpd
from tests.support import ROOT, TODAY


@pytest.fixture
def dpd(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Dpd:
    """The command line, called in the project's folder on the day of the tests."""
    monkeypatch.setenv("DPD_TODAY", TODAY.isoformat())
    monkeypatch.chdir(ROOT)
    return Dpd(capsys)
