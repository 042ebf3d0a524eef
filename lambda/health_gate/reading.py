"""From JSON to frozen dataclasses: every mistake with its place, unknown keys refused."""

import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Made = TypeVar("Made")


class BadSpec(ValueError):  # noqa: N818 - read as a sentence by whoever wrote the spec
    """The spec is not what the gate can read."""


def build(wanted: type[Made], value: Any, place: str = "spec") -> Made:
    """Make a dataclass of parsed JSON. Raises ``BadSpec`` with the place of the first mistake; no value is shown."""
    if not isinstance(value, dict):
        raise BadSpec(f"{place} must be an object")
    hints = get_type_hints(wanted)
    known = {field.name: field for field in fields(wanted)}  # type: ignore[arg-type]
    for key in value:
        if key not in known:
            raise BadSpec(f"{place}.{str(key)[:60]} is not a field of the gate's spec")
    made = {}
    for name, field in known.items():
        if name in value:
            made[name] = _read(hints[name], value[name], f"{place}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise BadSpec(f"{place}.{name} is missing")
    return wanted(**made)


def _read(wanted: Any, value: Any, place: str) -> Any:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in {Union, types.UnionType}:
        (inner,) = (each for each in arguments if each is not type(None))
        return None if value is None else _read(inner, value, place)
    if origin is tuple:
        if not isinstance(value, list):
            raise BadSpec(f"{place} must be a list")
        return tuple(_read(arguments[0], each, f"{place}[{index}]") for index, each in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise BadSpec(f"{place} must be an object")
        return {key: _read(arguments[1], each, f"{place}.{key}") for key, each in value.items()}
    if is_dataclass(wanted):
        return build(wanted, value, place)  # type: ignore[arg-type]
    return _scalar(wanted, value, place)


def _scalar(wanted: type, value: Any, place: str) -> Any:
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise BadSpec(f"{place} must be of type {wanted.__name__}")
    return value
