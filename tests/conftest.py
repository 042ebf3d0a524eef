"""Options of the test run."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import ROOT

# A busy machine is no fault of the code, and the same commit must give the same result.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crds", default=None, help="folder with CRD files; default: DPD_CRDS, else ../shared/crds beside the repository")


@pytest.fixture(scope="session")
def crds(request: pytest.FixtureRequest) -> Path:
    """The folder of CRD files. They belong to their publishers, so none is part of this repository."""
    given = request.config.getoption("--crds") or os.environ.get("DPD_CRDS")
    folder = Path(given) if given else ROOT.parent / "shared" / "crds"
    if not folder.is_dir():
        if given:
            pytest.fail(f"--crds or DPD_CRDS names {folder}, which is not a folder")
        pytest.skip(f"no CRD files in {folder}: name their folder with --crds or DPD_CRDS. The typed model was still checked")
    return folder
