"""From what pydantic says about a file to what a user reads."""

import difflib
import functools
import re
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from dpd.environment.environment import Environment
from dpd.environment.faults import MISSING, UNKNOWN, WRONG_TYPE, WRONG_VALUE
from dpd.environment.types import MAPPING, WORD
from dpd.environment.yaml_file import Place, dotted
from dpd.finding import Finding

_KEY_ITSELF: Final = "[key]"
_LONGEST_COMPARED: Final = 80

_KINDS: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}
_LIMITS: Final = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "string_too_long": ("max_length", "at most {} character"),
    "string_too_short": ("min_length", "at least {} character"),
    "too_long": ("max_length", "at most {} entry"),
    "too_short": ("min_length", "at least {} entry"),
}


def findings_of_errors(errors: Iterable[ErrorDetails], top: type[BaseModel] = Environment) -> Iterator[tuple[Place, Finding]]:
    """The findings for what pydantic says of a file of type ``top``, each with its place.

    A list that is only too short because its items are wrong is left out.
    """
    placed = [(_place(error["loc"]), error) for error in errors]
    for place, error in placed:
        if error["type"] == "too_short" and any(inside != place and inside[: len(place)] == place for inside, _ in placed):
            continue
        yield place, _finding(place, error, top)


def _place(location: tuple[int | str, ...]) -> Place:
    """Where in the file an error is: pydantic's location without the branch of a union and the mark of a key."""
    place = tuple(part for part in location if part not in (WORD, MAPPING))
    return place[:-1] if place and place[-1] == _KEY_ITSELF else place


def _finding(place: Place, error: ErrorDetails, top: type[BaseModel]) -> Finding:
    kind, location, value = error["type"], tuple(error["loc"]), error.get("input")
    key = next((part for part in reversed(place) if isinstance(part, str)), "")
    path = dotted(place)
    if kind == "missing":
        return MISSING.finding(path, "is required and missing", f"add {key}")
    if kind == "extra_forbidden":
        return UNKNOWN.finding(path, "is not a key of this part of the file", _nearest(place, key, top))
    if isinstance(value, dict | list | tuple | BaseModel):
        value = None
    if location[-1:] == (_KEY_ITSELF,):
        key = ""
    if kind in _KINDS:
        return WRONG_TYPE.finding(path, _type_message(kind, error), _type_fix(kind, error), value=_described(error), key=key)
    message, limit, fix = _value_words(error, is_word=WORD in location)
    return WRONG_VALUE.finding(path, message, fix, value=value, key=key, limit=limit)


def _type_message(kind: str, error: ErrorDetails) -> str:
    return f"must be {_KINDS[kind]}, not {_name_of(error.get('input'))}"


def _type_fix(kind: str, error: ErrorDetails) -> str:
    value = error.get("input")
    if kind == "string_type" and isinstance(value, bool):
        return "put it in quotes: YAML reads yes, no, on, off, true and false as truth values"
    if kind == "string_type" and isinstance(value, int | float):
        return "put it in quotes"
    if isinstance(value, str) and kind in ("int_type", "float_type", "bool_type"):
        return f"write {_KINDS[kind]}, without quotes"
    return "remove the key, or give it a value" if value is None else f"write {_KINDS[kind]}"


def _described(error: ErrorDetails) -> Any:
    value = error.get("input")
    return None if isinstance(value, dict | list | tuple | BaseModel) else value


def _name_of(value: Any) -> str:
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "a truth value"
    names = {int: "a number", float: "a number", str: "text", list: "a list", tuple: "a list", dict: "a mapping"}
    return names.get(type(value), type(value).__name__)


def _value_words(error: ErrorDetails, *, is_word: bool) -> tuple[str, str, str]:
    """Message, limit and fix for a value of the right type."""
    kind, context = error["type"], error.get("ctx") or {}
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        limit = words.format(f"{context[name]:,}")
        if context[name] != 1:
            limit = limit.replace("character", "characters").replace("entry", "entries")
        return f"must {'have' if 'length' in name else 'be'} {limit}", limit, "choose a value inside the limit"
    if kind == "literal_error":
        expected = str(context["expected"]) + (", or a mapping" if is_word else "")
        return f"must be {expected}", expected, f"write {expected}"
    if kind == "string_pattern_mismatch":
        return "does not have the form that is needed", str(context["pattern"]), "write it so that it matches the pattern"
    if kind == "finite_number":
        return "must be a finite number", "", "write a finite number"
    # What this project's own types say ends with what to do, after a semicolon.
    message, _, fix = error["msg"].removeprefix("Value error, ").removeprefix("Input should ").partition("; ")
    return message, "", fix or "correct the value"


def _nearest(place: Place, key: str, top: type[BaseModel]) -> str:
    """What an unknown key was probably meant to be: a key of the same mapping, or one that lives elsewhere."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key[:_LONGEST_COMPARED]).replace("-", "_").lower()
    here = keys_at(place[:-1], top)
    if near := difflib.get_close_matches(words, here, n=1):
        return f"did you mean {near[0]}?"
    if homes := [home for home in _homes(top) if home.rpartition(".")[2] == words]:
        return f"{words} belongs to {' or '.join(home.rpartition('.')[0] or 'the top of the file' for home in homes[:3])}"
    return f"remove it; the keys here are {', '.join(here)}" if here else "remove it"


def keys_at(place: Place, top: type[BaseModel] = Environment) -> list[str]:
    """The keys that may stand in the mapping at a place of the file."""
    types: list[Any] = [top]
    for part in place:
        types = [branch for type_ in types for branch in _branches(_inside(type_, part))]
    return [key for type_ in types if _is_part(type_) for key in type_.model_fields]


@functools.cache
def _homes(top: type[BaseModel] = Environment) -> tuple[str, ...]:
    return tuple(_paths(top, ""))


def _paths(type_: Any, path: str) -> Iterator[str]:
    if _is_part(type_):
        for key, field in type_.model_fields.items():
            here = f"{path}.{key}" if path else key
            yield here
            for branch in _branches(field.annotation):
                yield from _paths(branch, here)
        return
    origin, arguments = get_origin(type_), get_args(type_)
    if origin in (dict, tuple):
        inner, mark = (arguments[1], ".<name>") if origin is dict else (arguments[0], "[]")
        for branch in _branches(inner):
            yield from _paths(branch, path + mark)


def _is_part(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, BaseModel)


def _inside(type_: Any, part: str | int) -> Any:
    """The type of what stands under a key or an index."""
    if _is_part(type_):
        return type_.model_fields[part].annotation if part in type_.model_fields else None
    arguments = get_args(type_)
    if get_origin(type_) is dict and isinstance(part, str):
        return arguments[1]
    return arguments[0] if get_origin(type_) is tuple and isinstance(part, int) else None


def _branches(annotation: Any) -> list[Any]:
    """The types that an annotation allows, one by one."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _branches(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [branch for argument in get_args(annotation) for branch in _branches(argument)]
    return [annotation]
