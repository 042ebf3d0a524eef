"""Which environment files a command means."""

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
