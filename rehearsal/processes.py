"""Processes of a rehearsal: each with a log and on a leash, and none left behind."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rehearsal.say import GIBIBYTE, Broken, Say, Unable

_LEASH: Final = Path(__file__).with_name("leash.py")
MARK: Final = "DPD_REHEARSAL"
"""Variable that every process of a rehearsal has, with the folder of its logs: what is left behind would be known by it."""
_LINES: Final = 6
_WIDTH: Final = 220
_BEAT_SECONDS: Final = 10.0
_END_SECONDS: Final = 40.0
_OK: Final = 200


@dataclass(slots=True)
class Process:
    """A program and everything it started. ``url`` is where it answers when it is ready."""

    name: str
    log: Path
    url: str
    popen: "subprocess.Popen[bytes]" = field(repr=False)
    began: float

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self.popen.poll() is None

    def stop(self) -> None:
        """End it and all that it started. Safe to call twice."""
        if self.popen.stdin and not self.popen.stdin.closed:
            self.popen.stdin.close()
        try:
            self.popen.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            # The leash itself hangs; its group is its own, so nothing else is hit.
            os.killpg(self.popen.pid, 9)
            self.popen.wait()

    def tail(self) -> str:
        """The last lines of its log, those with an error if there are any."""
        lines = [line for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if "rror" in line and "Traceback" not in line]
        return "\n".join(f"    {line[-_WIDTH:]}" for line in (telling or lines)[-_LINES:])


class Processes:
    """What runs. A context: whatever happens inside, nothing runs after it."""

    def __init__(self, folder: Path, say: Say) -> None:
        self.folder, self._say = folder, say
        self.running: dict[str, Process] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            if process.popen.stdin and not process.popen.stdin.closed:
                # All are told before one is waited for.
                process.popen.stdin.close()
        for name in list(self.running):
            self.stop(name)

    def start(self, name: str, argv: Sequence[str], variables: Mapping[str, str], url: str) -> Process:
        """Start a program in a group of its own. Raises ``Broken`` when there is no such program."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            out.write(f"{' '.join(argv)}\n".encode())
            out.flush()
            popen = subprocess.Popen(  # noqa: S603 - argument lists from manifests, no shell
                [sys.executable, str(_LEASH), *argv], stdin=subprocess.PIPE, stdout=out, stderr=out,
                env={**variables, MARK: str(self.folder)}, cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        process = self.running[name] = Process(name, log, url, popen, time.monotonic())
        return process

    def stop(self, name: str) -> None:
        """End one."""
        self.running.pop(name).stop()

    def wait(self, names: Sequence[str], path: str, seconds: float) -> dict[str, float]:
        """Wait until each answers at a path; seconds that each took. Raises ``Broken``."""
        took: dict[str, float] = {}
        end, beat = time.monotonic() + seconds, time.monotonic() + _BEAT_SECONDS
        while missing := [name for name in names if name not in took]:
            for name in missing:
                process = self.running[name]
                if not process.running:
                    raise Broken(f"{name} ended while it started (exit {process.popen.returncode}):\n{process.tail()}")
                if answers(process.url + path):
                    took[name] = time.monotonic() - process.began
                    self._say(f"{name} answers at {process.url} after {took[name]:.0f} s")
            if time.monotonic() > end:
                raise Broken(f"{missing[0]} did not answer within {seconds:.0f} s:\n{self.running[missing[0]].tail()}")
            if time.monotonic() > beat:
                self._say(f"waiting for {', '.join(name for name in names if name not in took)}")
                beat += _BEAT_SECONDS
            time.sleep(0.3)
        return took


def answers(url: str) -> bool:
    """Whether a server answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 - our own address
            return bool(reply.status == _OK)
    except (OSError, urllib.error.URLError, ValueError):
        return False


def ports_free(places: Sequence[tuple[str, int]]) -> None:
    """Raise ``Unable`` when somebody listens at one of them, or when it is no address of this machine."""
    for address, port in places:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno in (99, 49):
                    raise Unable(f"{address} is no address of this machine; Linux has all of 127.0.0.0/8 by itself.") from None
                raise Unable(f"Port {port} at {address} is busy ({error.strerror}): end what listens there, then try again.") from None


def memory_free(wanted_gib: float, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Raise ``Unable`` when less memory is available. Where that cannot be read, nothing is said."""
    available = next(_available(meminfo), None)
    if available is not None and available < wanted_gib * GIBIBYTE:
        text = f"{wanted_gib:.1f} GiB of memory are needed and {available / GIBIBYTE:.1f} GiB available"
        raise Unable(f"{text}: close other programs, or use a larger machine.")


def _available(meminfo: Path) -> Iterator[int]:
    if meminfo.exists():
        for line in meminfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024
