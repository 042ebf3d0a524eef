"""The real command line: in this process for its exit code and words, as its own process where the process matters."""

import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from commands.main import _run
from tests.support import ROOT, TODAY


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a user sees."""

    code: int
    out: str
    err: str


class Dpd:
    """Calls the command line in a folder."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Outcome:
        self._capsys.readouterr()
        code = _run([str(argument) for argument in arguments])
        said = self._capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return Outcome(code, said.out, said.err)


def process(*arguments: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command line as its own process."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "DPD_TODAY": TODAY.isoformat(), **environment}
    command = [sys.executable, "-m", "commands.main", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=settings, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


def in_terminal(columns: int, *arguments: str, typed: str = "", **settings: str) -> str:
    """What a terminal of a width shows when somebody types something."""
    leader, follower = pty.openpty()
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "DPD_TODAY": TODAY.isoformat(), "COLUMNS": str(columns), "LINES": "40",
        "TERM": "xterm-256color", **settings,
    }  # fmt: skip
    child = subprocess.Popen(
        [sys.executable, "-m", "commands.main", *arguments], cwd=ROOT, env=environment, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    os.write(leader, typed.encode())
    shown = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    child.wait(timeout=60)
    return shown.decode().replace("\r\n", "\n")
