"""Nothing that a rehearsal starts outlives it, and what is in its way is said in words."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rehearsal.processes import Processes, memory_free, ports_free
from rehearsal.say import Broken, Unable
from tests.support import ROOT

PARENT = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); {then}"
SLEEP = "import time; time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


def quiet(_: str) -> None:
    """No progress."""


def alive(marker: str) -> list[int]:
    """Processes whose environment has the marker, those that have ended but were not waited for left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"MARK={marker}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if mine and (folder / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(int(folder.name))
        except (OSError, IndexError):
            continue
    return found


def until(good: Callable[[], bool], seconds: float = 40) -> bool:
    end = time.monotonic() + seconds
    while not good():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize("child", [SLEEP, STUBBORN], ids=["polite", "stubborn"])
def test_a_failure_inside_leaves_nothing(tmp_path: Path, child: str) -> None:
    marker = f"{tmp_path}-{child[:9]}"

    def interrupted() -> None:
        with Processes(tmp_path, quiet) as processes:
            code = PARENT.format(child=child, then=SLEEP)
            processes.start("family", [sys.executable, "-c", code], {"MARK": marker, "PATH": os.environ["PATH"]}, "")
            assert until(lambda: len(alive(marker)) >= 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert alive(marker) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads Linux's /proc")
def test_a_killed_rehearsal_leaves_nothing(tmp_path: Path) -> None:
    marker = str(tmp_path)
    code = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "lambda")!r}]
from rehearsal.processes import Processes
with Processes(Path({str(tmp_path)!r}), print) as processes:
    processes.start("one", [sys.executable, "-c", {PARENT.format(child=SLEEP, then=SLEEP)!r}], {{"MARK": {marker!r}}}, "")
    {SLEEP}
"""
    rehearsal = subprocess.Popen([sys.executable, "-c", code])
    assert until(lambda: len(alive(marker)) >= 2)
    rehearsal.send_signal(signal.SIGKILL)
    rehearsal.wait()
    assert until(lambda: not alive(marker))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ImportError(\"No module named 'vllm'\")", r"(?s)engine ended.*No module named 'vllm'"),
        (SLEEP, r"did not answer within 2 s"),
    ],
)
def test_what_does_not_come_up_is_told(tmp_path: Path, code: str, said: str) -> None:
    with Processes(tmp_path, quiet) as processes:
        processes.start("engine", [sys.executable, "-c", code], {}, "http://127.0.0.1:1")
        with pytest.raises(Broken, match=said):
            processes.wait(["engine"], "/health", 2 if code == SLEEP else 60)


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, port = server.getsockname()
        with pytest.raises(Unable, match=f"Port {port} at {address} is busy"):
            ports_free([(address, port)])
    ports_free([(address, port)])


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(Unable, match=r"192\.0\.2\.1 is no address of this machine"):
        ports_free([("192.0.2.1", 8000)])


@pytest.mark.parametrize(("kib", "enough"), [(6 * 1024 * 1024 - 1, False), (6 * 1024 * 1024, True)])
def test_too_little_memory_is_told(tmp_path: Path, kib: int, enough: bool) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 99 kB\nMemAvailable:   {kib} kB\n")
    if enough:
        memory_free(6.0, meminfo)
    else:
        with pytest.raises(Unable, match=r"6\.0 GiB of memory are needed"):
            memory_free(6.0, meminfo)
