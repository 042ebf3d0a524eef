"""Run a command as a user would and account for the whole process, children included."""

import os
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Command:
    """A command to measure: its words, the folder it runs in, and what it adds to the environment."""

    words: tuple[str, ...]
    folder: Path
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run: wall-clock seconds, and the largest single process in MiB."""

    seconds: float
    peak_mib: float


def once(command: Command) -> Run:
    """Run a command once. Raises ``RuntimeError`` with its output when it fails."""
    begin = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603  (our own commands)
        command.words,
        cwd=command.folder,
        env=os.environ | dict(command.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command.words)} exited with {process.returncode}:\n{output[-2000:]}")
    return Run(seconds, usage.ru_maxrss / 1024)


def in_turn(commands: dict[str, Command], *, runs: int = 5) -> dict[str, list[Run]]:
    """Run all commands in turn, after one uncounted round, so that a drift of the machine's speed meets them alike."""
    for command in commands.values():
        once(command)
    rounds = [{name: once(command) for name, command in commands.items()} for _ in range(runs)]
    return {name: [each[name] for each in rounds] for name in commands}


def median_seconds(runs: list[Run]) -> float:
    """Median of the wall-clock seconds."""
    return statistics.median(run.seconds for run in runs)


def peak_mib(runs: list[Run]) -> float:
    """Highest peak memory."""
    return max(run.peak_mib for run in runs)
