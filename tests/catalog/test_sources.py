"""Every fact says where it comes from, and every source is one that is declared."""

import re
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from dpd.catalog.sources import source, source_keys
from dpd.catalog.tables import DATA, csv_table, yaml_table

YAML = sorted(path.stem for path in DATA.glob("*.yaml") if path.stem != "sources")
CSV = sorted(path.stem for path in DATA.glob("*.csv"))
NAMES = {"source", "sources"}


def keys_of(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name in NAMES and isinstance(value, str | list):
                yield from [value] if isinstance(value, str) else map(str, value)
            else:
                yield from keys_of(value)
    elif isinstance(node, list):
        for value in node:
            yield from keys_of(value)


@pytest.mark.parametrize("table", CSV)
def test_every_row_of_a_table_has_declared_sources(table: str) -> None:
    for row in csv_table(table):
        keys = row["sources"].split()
        assert keys, row
        assert not set(keys) - set(source_keys()), row


def words_of(table: str) -> set[str]:
    """Words of a file, its comments too: a source that covers a whole file is named at its head."""
    return set(re.findall(r"[a-z0-9]+(?:[-.][a-z0-9]+)*", (DATA / table).read_text(encoding="utf-8")))


@pytest.mark.parametrize("table", YAML)
def test_every_table_has_declared_sources(table: str) -> None:
    assert not set(keys_of(yaml_table(table))) - set(source_keys())
    assert words_of(f"{table}.yaml") & set(source_keys()), f"{table}.yaml names no source"


def test_a_source_is_a_public_page_with_the_day_it_was_read() -> None:
    for key in source_keys():
        found = source(key)
        assert found.url.startswith("https://"), key
        assert found.title.strip() == found.title != "", key
        assert date(2020, 1, 1) < found.as_of <= date(2026, 11, 29), key


def test_every_declared_source_is_used() -> None:
    engines = [f"engines/{path.name}" for path in (DATA / "engines").iterdir()]
    tables = [f"{table}.yaml" for table in YAML] + [f"{table}.csv" for table in CSV] + engines
    assert not set(source_keys()) - set().union(*map(words_of, tables))
