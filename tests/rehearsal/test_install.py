"""An installation that cannot be had is told in words, with what to do, and made only once."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rehearsal import install
from rehearsal.say import Unable


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPD_ENGINE_CACHE", str(tmp_path))
    return tmp_path / f"engines-{install.VLLM}"


def quiet(_: str) -> None:
    """No progress."""


def test_a_full_disk_is_told_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5 * 2**30))
    with pytest.raises(Unable, match=r"needs 6 GiB of disk, and .* has 5\.0 GiB free"):
        install.engines(quiet)
    assert not place.exists()


def test_an_index_without_the_packages_is_told(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(Unable, match=r"cannot be installed here: .*torch.*PIP_EXTRA_INDEX_URL"):
        install.engines(quiet)
    assert not (place / "base.json").exists()


def test_what_is_there_is_used(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "base.json").write_text(json.dumps({"gib": 3.7, "seconds": 150}))
    said: list[str] = []
    found = install.engines(said.append)
    assert (found.gib, found.seconds) == (3.7, 150)
    assert found.program("vllm-router") == str(place / "bin" / "vllm-router")
    assert said == [f"engines: vLLM {install.VLLM}, 3.7 GiB, installed in 2.5 min, kept in {place}"]


def test_a_step_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_BEAT_SECONDS", 0.1)
    said: list[str] = []
    install._run([sys.executable, "-c", "import time; time.sleep(0.6)"], said.append)
    assert said[0].startswith("still installing")
