"""Which environment files a command means, and how a command writes one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

FOLDER: Final = "environments"


def shipped() -> list[Path]:
    """Every environment file of the folder, by name."""
    return sorted(path for path in Path(FOLDER).glob("*.y*ml") if path.suffix in {".yaml", ".yml"})


def chosen(paths: Sequence[Path]) -> list[Path]:
    """The given files, or every file in ``environments/``. Raises ``ClickException`` when there is none."""
    found = list(paths) or shipped()
    if not found:
        raise click.ClickException(f"No environment files: {FOLDER}/*.yaml matches nothing here. Name a file, or write one with: dpd init")
    return found


def write_whole(path: Path, content: str | bytes) -> None:
    """Write all of a file or nothing of it. Line ends stay as they are in the text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        if path.exists():
            part.chmod(path.stat().st_mode & 0o7777)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
