"""How the data files of the catalog are read. Every file is read at most once in a process."""

import csv
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

DATA: Final = Path(__file__).parent / "data"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def yaml_table(name: str) -> Any:
    """Return the content of ``data/<name>.yaml``."""
    return yaml.load((DATA / f"{name}.yaml").read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506  (the C twin of SafeLoader)


@cache
def csv_table(name: str) -> tuple[dict[str, str], ...]:
    """Return the rows of ``data/<name>.csv``, one mapping from column to text per row."""
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))
