"""Runs a program and everything it starts on a leash: ``python leash.py PROGRAM …``.

When the end of standard input comes, which it does however the rehearsal ends, or when this process is told to stop, the whole
group is told to stop, and killed if it does not. Children whose parents are gone come to this process, so none is left a zombie.
Stands alone: standard library, and nothing of this project.
"""

import contextlib
import ctypes
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 4.0
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux."""


def main() -> int:
    """Run the program; its exit code."""
    # Elsewhere orphans go to the system's own init.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda given, _: told.append(given))
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)  # noqa: S603 (what it is for)
    while child.poll() is None and not told:
        with contextlib.suppress(InterruptedError):
            readable, _, _ = select.select([sys.stdin], [], [], 0.2)
            if readable and not os.read(sys.stdin.fileno(), 1):
                break
    _stop(child)
    return child.returncode or 0


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """End the group, politely first. This process is one of the group and lives on."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    end = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < end and (child.poll() is None or _others()):
        time.sleep(0.1)
    while others := _others():
        for other in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(other, signal.SIGKILL)
        time.sleep(0.1)
    child.wait()


def _others() -> list[int]:
    """Processes of this group that are not this one, without what has ended."""
    with contextlib.suppress(ChildProcessError):
        # A child that has ended and that nobody else waits for is let go.
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError, IndexError, ValueError):
                state, _parent, group = folder.joinpath("stat").read_text().rpartition(")")[2].split()[:3]
                if int(group) == os.getpgrp() and state not in "ZX":
                    found.append(int(folder.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
