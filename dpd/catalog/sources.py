"""Where facts come from."""

from dataclasses import dataclass
from datetime import date

from dpd.catalog.tables import yaml_table


@dataclass(frozen=True, slots=True)
class Source:
    """A document or data set, with the day its copy was read or published."""

    key: str
    title: str
    url: str
    as_of: date


def source(key: str) -> Source:
    """Return the source named ``key``. Raises ``KeyError`` for a key that no file declares."""
    row = yaml_table("sources")[key]
    return Source(key=key, title=row["title"], url=row["url"], as_of=row["as_of"])


def source_keys() -> tuple[str, ...]:
    """All declared source keys, in file order."""
    return tuple(yaml_table("sources"))
