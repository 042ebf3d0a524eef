"""Read a YAML file strictly: one document, one mapping, no key twice, and remember where everything stands."""

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

from dpd.finding import safe

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_BYTES: Final = 4_000_000
_MOST_NODES: Final = 200_000
_DEEPEST: Final = 64
_LONGEST_KEY: Final = 80

_TAG: Final = "tag:yaml.org,2002:"
# A date is kept as the text that the user wrote: no field holds a date, and labels often do.
_TEXT_TAGS: Final = frozenset(_TAG + kind for kind in ("str", "timestamp", "value"))
_VALUE_TAGS: Final = frozenset(_TAG + kind for kind in ("null", "bool", "int", "float"))
_MERGE: Final = _TAG + "merge"
# YAML 1.1 reads 010 as 8 and 1:30 as 90; whoever writes that means something else.
_SURPRISING_NUMBER: Final = re.compile(r"[-+]?(?:0[0-7_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)")
_LARGEST: Final = 1 << 63

Place = tuple[str | int, ...]
"""Where a field stands: keys and indexes from the top of the file."""


class YamlError(Exception):
    """A file that cannot be read as an environment. ``line`` is 1-based, 0 when no line is to blame."""

    def __init__(self, message: str, *, line: int = 0, fix: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.fix = safe(message), line, fix


@dataclass(frozen=True, slots=True)
class Mistake:
    """One place where the file is legal YAML but does not say what the user means."""

    place: Place
    line: int
    message: str
    fix: str
    value: str = ""


@dataclass
class Document:
    """The content of a file, the line of every field, and what is wrong with it as YAML."""

    content: dict[str, Any]
    lines: dict[Place, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def line(self, place: Place) -> int:
        """The line of a field, or of the nearest parent that stands in the file."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def line_of(self, path: str) -> int:
        """The same for a dotted path. Keys may hold dots (``labels.example.com/team``)."""
        while path and path not in self._dotted:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._dotted.get(path, 1)

    @cached_property
    def _dotted(self) -> dict[str, int]:
        return {dotted(place): line for place, line in self.lines.items()}


def dotted(place: Place) -> str:
    """Write a place as users read it: ``endpoints[0].kv.buffer_gib``. Long, unprintable or secret keys are cut."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{safe(part, most=_LONGEST_KEY)}" if text else safe(part, most=_LONGEST_KEY)
    return text


def place_of(path: str) -> Place:
    """The inverse of ``dotted``, for paths whose keys hold no dots."""
    pieces = path.replace("]", "").replace("[", ".").split(".")
    return tuple(int(piece) if piece.isdecimal() else piece for piece in pieces if piece)


Pairs = dict[str, tuple[yaml.ScalarNode, yaml.Node]]


class _Reader:
    def __init__(self) -> None:
        self.lines: dict[Place, int] = {}
        self.mistakes: list[Mistake] = []
        self.nodes = 0
        self.pairs: dict[int, Pairs] = {}
        self.constructor = yaml.SafeLoader("")

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise YamlError("the file expands to too many values (aliases inside aliases?)", line=_line(node))
        if len(place) > _DEEPEST:
            raise YamlError(f"the file is nested deeper than {_DEEPEST} levels", line=_line(node))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        if node.tag not in (_TAG + "map", _TAG + "seq"):
            return self._wrong_tag(node, place)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        items = []
        for index, item in enumerate(node.value):
            self.lines[(*place, index)] = _line(item)
            items.append(self.value(item, (*place, index)))
        return items

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        if node.tag in _TEXT_TAGS:
            return node.value
        if node.tag not in _VALUE_TAGS:
            return self._wrong_tag(node, place)
        try:
            value = self.constructor.construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError, OverflowError):
            self._mistake(node, place, f"is no {node.tag.removeprefix(_TAG)}", "correct it, or put it in quotes")
            return None
        return self._number(node, place, value) if type(value) in (int, float) else value

    def _number(self, node: yaml.ScalarNode, place: Place, value: float) -> float | None:
        if not -_LARGEST < value < _LARGEST:
            self._mistake(node, place, "is not a number that this file can hold", "write a smaller, finite number")
            return None
        if _SURPRISING_NUMBER.fullmatch(node.value):
            fix = f"write {value} if that is meant, or put the text in quotes"
            self._mistake(node, place, f"looks like text, but YAML reads it as the number {value}", fix)
            return None
        return value

    def _wrong_tag(self, node: yaml.Node, place: Place) -> None:
        self._mistake(node, place, f"has the tag {node.tag.replace(_TAG, '!!')}, which has no meaning here", "remove the tag")

    def _mistake(self, node: yaml.Node, place: Place, message: str, fix: str) -> None:
        value = node.value if isinstance(node, yaml.ScalarNode) else ""
        self.mistakes.append(Mistake(place, _line(node), message, fix, value))

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key, (key_node, child) in self._pairs(node, place).items():
            here = (*place, key)
            self.lines[here] = _line(key_node)
            mapping[key] = self.value(child, here)
        return mapping

    def _pairs(self, node: yaml.MappingNode, place: Place) -> Pairs:
        """The pairs of a mapping after its merge keys (``<<``). Each node is looked at once, however many aliases lead to it."""
        if id(node) in self.pairs:
            return self.pairs[id(node)]
        own = self.pairs[id(node)] = {}
        merged: list[yaml.Node] = []
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._mistake(key, place, "has a key that is no plain text", "write keys as plain text")
            elif key.tag == _MERGE:
                merged += child.value if isinstance(child, yaml.SequenceNode) else [child]
            elif key.value in own:
                first = _line(own[key.value][0])
                self._mistake(key, (*place, key.value), f"stands twice, first on line {first}", "keep one of the two")
            else:
                # `1.34:` or `yes:` as a key is a number or a truth value in YAML; the text is what was meant.
                own[key.value] = (key, child)
        for parent in merged:
            if not isinstance(parent, yaml.MappingNode):
                self._mistake(parent, place, "merges (<<) something that is no mapping", "merge an alias of a mapping")
                continue
            for name, pair in self._pairs(parent, place).items():
                own.setdefault(name, pair)
        return own


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def read(path: Path) -> Document:
    """Read one environment file.

    Raises ``YamlError`` for a file that is missing, empty, not text, not YAML, more than one document or not a
    mapping. What is wrong in single places is in the document's ``mistakes``.
    """
    try:
        if not path.exists():
            raise YamlError("no such file", fix="check the path, or write one with: dpd init")
        if not path.is_file():
            raise YamlError("is a folder, not a file" if path.is_dir() else "is not a regular file")
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise YamlError(f"is {size:,} bytes; an environment file has at most {_MOST_BYTES:,}")
        raw = path.read_bytes()
    except OSError as error:
        raise YamlError(f"cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise YamlError("is not the name of a file") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlError(f"is not UTF-8 text (byte {error.start:,})", line=line, fix="save the file as UTF-8") from None
    return parse(text)


def parse(text: str) -> Document:
    """The same for a text. Raises ``YamlError``."""
    nodes = _compose(text)
    if not nodes:
        raise YamlError("is empty", fix="write one with: dpd init")
    if len(nodes) > 1:
        raise YamlError("holds more than one YAML document", line=_line(nodes[1]), fix="keep one environment in a file")
    if not isinstance(nodes[0], yaml.MappingNode):
        raise YamlError("must be a mapping of keys to values", line=_line(nodes[0]), fix="write one with: dpd init")
    reader = _Reader()
    content = reader.value(nodes[0], ())
    return Document(content=content or {}, lines=reader.lines, mistakes=reader.mistakes)


def _compose(text: str) -> list[yaml.Node]:
    if (strange := yaml.reader.Reader.NON_PRINTABLE.search(text)) is not None:
        line = text.count("\n", 0, strange.start()) + 1
        raise YamlError(f"holds the control character U+{ord(strange.group()):04X}", line=line, fix="remove the character")
    try:
        nodes = list(yaml.compose_all(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(f"is not valid YAML: {said}", line=mark.line + 1 if mark else 0) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlError(f"is not valid YAML: {error}") from None
    return [node for node in nodes if node is not None and not _is_nothing(node)]


def _is_nothing(node: yaml.Node) -> bool:
    """Whether a document holds only comments or ``---``."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "null" and node.value == ""
