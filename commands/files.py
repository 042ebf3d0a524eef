"""Which environment files a command means."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

FOLDER: Final = "environments"


def chosen(paths: Sequence[Path]) -> list[Path]:
    """The given files, or every file in ``environments/``. Raises ``ClickException`` when there is none."""
    found = list(paths) or sorted(Path(FOLDER).glob("*.yaml"))
    if not found:
        raise click.ClickException(f"No environment files: {FOLDER}/*.yaml matches nothing here. Name a file, or write one with: dpd init")
    return found
