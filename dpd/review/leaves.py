"""Where two values differ, leaf by leaf, as a person would point at it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dpd.finding import shown

_MISSING: Final = object()
_NAMES: Final = ("InstanceGroupName", "PolicyName", "Sid", "Key", "name", "Name", "containerPort", "key", "type")
"""Fields that tell the items of a list apart, whatever their places."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A place with two values. ``before`` or ``after`` is empty when there was or is nothing; credentials are hidden."""

    path: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}: {self.before or '(none)'} -> {self.after or '(none)'}"


def leaves(before: Any, after: Any, path: str = "") -> Iterator[Leaf]:
    """Every leaf that differs, in the order of the new value, then what is gone."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _children(before, after, path, dotted=True)
        return
    if isinstance(before, list) and isinstance(after, list):
        old, new = _by_name(before), _by_name(after)
        if old is not None and new is not None:
            yield from _children(old, new, path, dotted=False)
            return
        if _are_flat(before) and _are_flat(after):
            yield from _sets(before, after, path)
            return
        yield from _children(dict(enumerate(before)), dict(enumerate(after)), path, dotted=False)
        return
    key = path.rsplit(".", 1)[-1]
    yield Leaf(path, _text(before, key), _text(after, key))


def _children(before: dict[Any, Any], after: dict[Any, Any], path: str, *, dotted: bool) -> Iterator[Leaf]:
    for key in [*after, *(key for key in before if key not in after)]:
        child = (f"{path}.{key}" if path else str(key)) if dotted else f"{path}[{key}]"
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if old is _MISSING or new is _MISSING:
            name = child.rsplit(".", 1)[-1]
            yield Leaf(child, _text(old, name), _text(new, name))
        else:
            yield from leaves(old, new, child)


def _sets(before: list[Any], after: list[Any], path: str) -> Iterator[Leaf]:
    """Lists of plain texts: what came and what went, or that only the order changed."""
    gone = [item for item in before if item not in after]
    come = [item for item in after if item not in before]
    if not gone and not come:
        yield Leaf(path, shown(before), shown(after))
    elif len(gone) == len(come):
        yield from (Leaf(path, shown(old), shown(new)) for old, new in zip(gone, come, strict=True))
    else:
        yield from (Leaf(path, shown(item), "") for item in gone)
        yield from (Leaf(path, "", shown(item)) for item in come)


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """The items by what names them, or ``None`` when nothing does. An empty list has names for all its items."""
    if not items:
        return {}
    for name in _NAMES:
        if all(isinstance(item, dict) and isinstance(item.get(name), (str, int)) for item in items):
            result = {str(item[name]): item for item in items}
            return result if len(result) == len(items) else None
    return None


def _are_flat(items: list[Any]) -> bool:
    return all(not isinstance(item, (dict, list)) for item in items)


def _text(value: Any, key: str) -> str:
    return "" if value is _MISSING else shown(value, key=key) or "(empty)"
