"""Read a YAML file strictly: one document, one mapping, no key twice, and remember where everything stands."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_BYTES: Final = 4_000_000
_MOST_NODES: Final = 200_000
_DEEPEST: Final = 64

Path_ = tuple[str | int, ...]


class YamlError(Exception):
    """A file that cannot be read as an environment. ``line`` is 1-based, 0 when no line is to blame."""

    def __init__(self, message: str, *, line: int = 0, path: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.path, self.fix = message, line, path, fix


@dataclass(slots=True)
class Document:
    """The content of a file, and the line of every field."""

    content: dict[str, Any]
    lines: dict[Path_, int] = field(default_factory=dict)

    def line(self, path: Path_) -> int:
        """The line of a field, or of the nearest parent that stands in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def dotted(path: Path_) -> str:
    """Write a path as users read it: ``endpoints[0].kv.buffer_gib``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


class _Reader:
    def __init__(self) -> None:
        self.lines: dict[Path_, int] = {}
        self.nodes = 0
        self.constructor = yaml.SafeLoader("")

    def value(self, node: yaml.Node, path: Path_) -> Any:
        self.nodes += 1
        line = node.start_mark.line + 1
        if self.nodes > _MOST_NODES:
            raise YamlError("the file expands to too many values (aliases inside aliases?)", line=line)
        if len(path) > _DEEPEST:
            raise YamlError(f"the file is nested deeper than {_DEEPEST} levels", line=line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines[(*path, index)] = item.start_mark.line + 1
                items.append(self.value(item, (*path, index)))
            return items
        return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return self.constructor.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError):
            raise YamlError(f"cannot read this value (tag {node.tag})", line=node.start_mark.line + 1) from None

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        seen: dict[Any, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise YamlError("a key must be plain text", line=key.start_mark.line + 1, path=dotted(path))
            if key.value in seen:
                raise YamlError(
                    f"the key {key.value[:80]!r} stands twice, first on line {seen[key.value]}",
                    line=key.start_mark.line + 1,
                    path=dotted((*path, key.value[:80])),
                    fix="keep one of the two",
                )
            seen[key.value] = key.start_mark.line + 1
        self.constructor.flatten_mapping(node)
        mapping: dict[str, Any] = {}
        for key, child in node.value:
            name = self._scalar(key)
            if not isinstance(name, str):
                # `1.34:` or `yes:` as a key is a number or a truth value in YAML; the text is what was meant.
                name = key.value
            place = (*path, name)
            self.lines[place] = key.start_mark.line + 1
            mapping[name] = self.value(child, place)
        return mapping


def read(path: Path) -> Document:
    """Read one environment file.

    Raises ``YamlError`` for a file that is missing, empty, not text, not YAML, more than one document, not a
    mapping, or that has a key twice.
    """
    try:
        raw = path.read_bytes()
    except IsADirectoryError:
        raise YamlError("is a folder, not a file") from None
    except FileNotFoundError:
        raise YamlError("no such file") from None
    except OSError as error:
        raise YamlError(f"cannot be read: {error.strerror or error}") from None
    if len(raw) > _MOST_BYTES:
        raise YamlError(f"is {len(raw):,} bytes; an environment file has at most {_MOST_BYTES:,}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlError(f"is not UTF-8 text (byte {error.start})", fix="save the file as UTF-8") from None
    return parse(text)


def parse(text: str) -> Document:
    """The same for a text. Raises ``YamlError``."""
    try:
        nodes = list(yaml.compose_all(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(f"is not valid YAML: {said}", line=mark.line + 1 if mark else 0) from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlError(f"is not valid YAML: {' '.join(str(error).split())[:200]}") from None
    except RecursionError:
        raise YamlError(f"the file is nested deeper than {_DEEPEST} levels") from None
    nodes = [node for node in nodes if node is not None]
    if not nodes:
        raise YamlError("is empty", fix="write one with: dpd init")
    if len(nodes) > 1:
        raise YamlError("holds more than one YAML document", line=nodes[1].start_mark.line + 1, fix="keep one environment in a file")
    if not isinstance(nodes[0], yaml.MappingNode):
        raise YamlError("must be a mapping of keys to values", line=nodes[0].start_mark.line + 1, fix="write one with: dpd init")
    reader = _Reader()
    content = reader.value(nodes[0], ())
    return Document(content=content, lines=reader.lines)
