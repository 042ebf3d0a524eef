"""``dpd rehearse``: what stands in its way is said in words, before anything is started."""

from pathlib import Path

import pytest

from rehearsal import install
from rehearsal.say import Unable
from tests.commands.support import Dpd
from tests.support import LLMD_EXAMPLE


def test_an_unknown_endpoint_is_told_with_those_there_are(dpd: Dpd) -> None:
    found = dpd("rehearse", LLMD_EXAMPLE, "--endpoint", "llama")
    assert found.code == 1
    assert "There is no endpoint 'llama'. There are: llama-70b." in found.err


def test_a_file_with_mistakes_is_not_rehearsed(dpd: Dpd, tmp_path: Path) -> None:
    file = tmp_path / "dev.yaml"
    file.write_text("app: x\n", encoding="utf-8")
    found = dpd("rehearse", file)
    assert (found.code, "region" in found.err) == (1, True)


def test_engines_that_cannot_be_had_are_a_fault_of_the_machine(dpd: Dpd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unable(*_: object, **__: object) -> None:
        raise Unable("The engines cannot be installed here: no index.")

    monkeypatch.setattr(install, "engines", unable)
    found = dpd("rehearse", LLMD_EXAMPLE, "-o", tmp_path)
    assert found.code == 3
    assert "Error: The engines cannot be installed here: no index." in found.err
    assert not list(tmp_path.iterdir())


def test_more_workers_than_cores_are_refused(dpd: Dpd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "engines", lambda *_, **__: install.Engines(Path("python"), 3.7, 150))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    found = dpd("rehearse", LLMD_EXAMPLE, "-o", tmp_path, "--prefillers", "2")
    assert found.code == 3
    assert "3 workers need as many cores; this machine has 2." in found.err
