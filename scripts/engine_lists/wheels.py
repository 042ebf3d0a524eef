"""Published wheels: fetched with pip, kept in a cache outside the project, read without being installed."""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rehearsal.install import cache

PLATFORM: Final = ("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_27_x86_64", "--python-version", "3.12")
"""One build for every machine, so that the file and its digest are the same everywhere."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel in the cache. ``sources`` are its Python modules by dotted name."""

    path: Path

    @property
    def sha256(self) -> str:
        """Digest of the file, in hexadecimal."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def sources(self) -> dict[str, str]:
        """The text of every module."""
        with zipfile.ZipFile(self.path) as archive:
            return {
                name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): archive.read(name).decode()
                for name in archive.namelist()
                if name.endswith(".py")
            }


def find(package: str, version: str) -> Wheel | None:
    """The wheel in the cache, if it is there."""
    found = sorted((cache() / "wheels").glob(f"{package.replace('-', '_')}-{version}-*.whl"))
    return Wheel(found[0]) if found else None


def fetch(package: str, version: str) -> Wheel | None:
    """The wheel from the cache or, once, from the index that pip is set up with; ``None`` when it cannot be had."""
    known = find(package, version)
    if known is None:
        folder = cache() / "wheels"
        folder.mkdir(parents=True, exist_ok=True)
        options = [
            "--quiet",
            "--disable-pip-version-check",
            "--retries=1",
            "--timeout=20",
            "--no-deps",
            "--only-binary=:all:",
            *PLATFORM,
            "--dest",
            str(folder),
        ]
        command = [sys.executable, "-m", "pip", "download", *options, f"{package}=={version}"]
        subprocess.run(command, capture_output=True, check=False)  # noqa: S603 (names and versions of our own files)
        known = find(package, version)
    return known
