"""Shared by all tests: the smallest edit of a good environment, and what the checks say of it."""

import copy
from datetime import date
from pathlib import Path
from typing import Any, Final

import yaml

from dpd.checks.registry import Context, run
from dpd.environment.environment import Environment
from dpd.environment.yaml_file import place_of
from dpd.finding import Finding

ROOT: Final = Path(__file__).parent.parent
EXAMPLE: Final = ROOT / "docs" / "example.yaml"
"""A copy of the dev environment as it is shipped: ``environments/`` belongs to the user, whose changes must break no test."""
LLMD_EXAMPLE: Final = ROOT / "docs" / "example-llm-d.yaml"
"""The same model with the llm-d backend."""
TODAY: Final = date(2026, 11, 29)


class _Remove:
    def __repr__(self) -> str:
        return "REMOVE"


REMOVE: Final = _Remove()
"""As a new value: take the field away. Its words are part of a test's name, so they are the same in every process."""


def base(example: Path = EXAMPLE) -> dict[str, Any]:
    """The content of the shipped dev environment, or of another example, free to edit."""
    content = yaml.safe_load(example.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def edited(changes: dict[str, Any], content: dict[str, Any] | None = None) -> dict[str, Any]:
    """Copy a file's content with some fields changed: ``{"endpoints[0].decode.replicas": 2}``. Missing parents are made."""
    result = copy.deepcopy(base() if content is None else content)
    for dotted, value in changes.items():
        *parents, last = place_of(dotted)
        place: Any = result
        for part in parents:
            if isinstance(part, str) and isinstance(place, dict) and place.get(part) is None:
                place[part] = {}
            place = place[part]
        if value is REMOVE:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(copy.deepcopy(value))
        else:
            place[last] = copy.deepcopy(value)
    return result


def environment(changes: dict[str, Any] | None = None, *, name: str = "dev", example: Path = EXAMPLE) -> Environment:
    """The dev environment, or another example, typed, with some fields changed. Raises when the result is not a legal file."""
    return Environment.model_validate(edited(changes or {}, base(example)), context={"folder": EXAMPLE.parent}).named(name)


def findings(changes: dict[str, Any] | None = None, *, id: str = "", today: date = TODAY, example: Path = EXAMPLE) -> list[Finding]:
    """What the checks say of an edited dev environment or other example; only findings with ``id`` when one is given."""
    found = run(environment(changes, example=example), Context(today=today))
    return [finding for finding in found if not id or finding.id == id]
