"""Lists of many versions in one file: for each name the version in which its entry began to be what it is."""

import json
from collections.abc import Mapping
from typing import Any

Tables = Mapping[str, Mapping[str, Any]]
"""The lists of one version: table, name, entry."""


def merged(versions: Mapping[str, Tables]) -> dict[str, dict[str, dict[str, Any]]]:
    """One history for each name of each table. ``versions`` are from old to new; ``None`` marks a name that is gone."""
    result: dict[str, dict[str, dict[str, Any]]] = {}
    for table in sorted({table for tables in versions.values() for table in tables}):
        names = sorted({name for tables in versions.values() for name in tables.get(table, {})})
        result[table] = {name: _history(versions, table, name) for name in names}
    return result


def _history(versions: Mapping[str, Tables], table: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    last = None
    for version, tables in versions.items():
        entry = tables.get(table, {}).get(name)
        if entry != last:
            found[version] = entry
        last = entry
    return found


def text(header: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The file: one name a line, so that a difference reads like a list."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    parts = [f"  {line(key)}: {line(value)}" for key, value in header.items() if not isinstance(value, dict)]
    blocks = {key: value for key, value in header.items() if isinstance(value, dict)} | dict(tables)
    parts += [
        f"  {line(table)}: {{\n" + ",\n".join(f"    {line(name)}: {line(entry)}" for name, entry in names.items()) + "\n  }"
        for table, names in blocks.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"
