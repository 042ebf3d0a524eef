"""Change single values of a YAML text and leave everything else as it stands: comments, order, quotes, line ends."""

import copy
from collections.abc import Iterable
from typing import Any, Final

import yaml

from dpd.environment.yaml_file import Place, YamlError, dotted, parse

Change = tuple[Place, Any]
"""A place of the file, and the number, truth value or text that shall stand there."""
_MOST_COLUMNS: Final = 4096


class EditError(ValueError):
    """A text in which a change cannot be made without changing something else. The message says where."""


def edited(text: str, changes: Iterable[Change]) -> str:
    """The text with every change made.

    The result is read again and compared with what was meant: a value that other places share (an anchor), or a text that no
    edit fits, raises ``EditError``. Raises ``YamlError`` for a text that is not YAML.
    """
    listed = list(changes)
    wanted = parse(text).content
    result = text
    for place, value in listed:
        result = _changed(result, place, value)
        wanted = _set(wanted, place, value)
    try:
        found = parse(result).content
    except YamlError:
        found = None
    if found != wanted:
        raise EditError(f"{', '.join(dotted(place) for place, _ in listed)} cannot be changed here without changing more; edit by hand")
    return result


def _set(content: Any, place: Place, value: Any) -> Any:
    result = copy.deepcopy(content)
    inner = result
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    return result


def _changed(text: str, place: Place, value: Any) -> str:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for part in place[:-1]:
        node = _child(node, part)
        if node is None:
            raise EditError(f"{dotted(place)} has no place in this file; edit by hand")
    here = _child(node, place[-1])
    if here is None:
        return _inserted(text, node, place, value)
    if not isinstance(here, yaml.ScalarNode):
        raise EditError(f"{dotted(place)} is not a single value; edit by hand")
    start, end = here.start_mark.index, here.end_mark.index
    return f"{text[:start]}{_scalar(value)}{text[end:]}"


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        return node.value[part] if part < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((child for key, child in node.value if key.value == part), None)
    return None


def _inserted(text: str, node: yaml.Node | None, place: Place, value: Any) -> str:
    if not isinstance(node, yaml.MappingNode) or not isinstance(place[-1], str):
        raise EditError(f"{dotted(place)} has no place in this file; edit by hand")
    pair = f"{place[-1]}: {_scalar(value)}"
    if node.flow_style:
        end = node.end_mark.index - 1
        before = text[:end].rstrip()
        comma = ", " if node.value and not before.endswith(",") else " " if node.value else ""
        return f"{before}{comma}{pair}{text[len(before) :]}"
    first = node.value[0][0].start_mark
    flat = [child for _key, child in node.value if isinstance(child, yaml.ScalarNode) or child.flow_style]
    indent = " " * first.column
    if not flat:
        return f"{text[: first.index]}{pair}\n{indent}{text[first.index :]}"
    after = text.find("\n", flat[-1].end_mark.index)
    if after < 0:
        return f"{text}\n{indent}{pair}\n"
    end = "\r\n" if text[:after].endswith("\r") else "\n"
    return f"{text[: after + 1]}{indent}{pair}{end}{text[after + 1 :]}"


def _scalar(value: Any) -> str:
    dumped = yaml.safe_dump(value, width=_MOST_COLUMNS, default_flow_style=True)
    return dumped.removesuffix("\n").removesuffix("...").strip()
