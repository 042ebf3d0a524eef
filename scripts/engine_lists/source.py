"""Python sources, read without running them: what a name stands for, what a constant is, what an annotation allows."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

Place = tuple[str, ast.AST]
"""A module and a node in it. Names in the node mean what they mean in that module."""


class UnknownValueError(Exception):
    """A value that only running the code would tell."""


@dataclass(frozen=True, slots=True)
class Hint:
    """One alternative of an annotation. ``inner`` are the arguments of a list, tuple, set or ``Literal``."""

    kind: str
    inner: tuple[Any, ...] = ()
    place: Place | None = None


_PLAIN: Final = {"int": "int", "float": "float", "str": "str", "bool": "bool", "Any": "other", "None": "none", "dict": "dict"}
_CONTAINERS: Final = {
    "list": "list", "List": "list", "Sequence": "other", "tuple": "tuple", "Tuple": "tuple", "set": "set", "Set": "set",
    "dict": "dict", "Dict": "dict", "Mapping": "dict",
}  # fmt: skip
_TRANSPARENT: Final = {"Annotated", "SkipValidation", "InitVar", "Required", "NotRequired"}


@dataclass(slots=True)
class Sources:
    """All modules of one package. Modules are parsed when they are first asked for."""

    texts: dict[str, str]
    _trees: dict[str, ast.Module] = field(default_factory=dict)
    _names: dict[str, dict[str, ast.AST]] = field(default_factory=dict)

    def tree(self, module: str) -> ast.Module:
        """The syntax tree of a module. Raises ``KeyError`` for a module that is not in the package."""
        if module not in self._trees:
            self._trees[module] = ast.parse(self.texts[module])
        return self._trees[module]

    def modules(self, *beginnings: str) -> Iterator[str]:
        """Modules at or below the given ones, in order."""
        yield from (name for name in sorted(self.texts) if any(f"{name}.".startswith(f"{begin}.") for begin in beginnings))

    def define(self, module: str, name: str) -> Place | None:
        """Where a name of a module is defined, through imports; ``None`` when that is outside of the package."""
        if module not in self.texts:
            return None
        node = self._top(module).get(name)
        if isinstance(node, ast.ImportFrom):
            alias = next(alias for alias in node.names if (alias.asname or alias.name) == name)
            origin = self._origin(module, node)
            return self.define(origin, alias.name) if origin in self.texts else None
        return (module, node) if node is not None else None

    def _origin(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = any(name.startswith(f"{module}.") for name in self.texts)
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def _top(self, module: str) -> dict[str, ast.AST]:
        if module not in self._names:
            names: dict[str, ast.AST] = {}
            for node in _statements(self.tree(module).body):
                for name in _bound(node):
                    names.setdefault(name, node)
            self._names[module] = names
        return self._names[module]

    def value(self, place: Place) -> Any:  # noqa: PLR0911 (one answer for each kind of node)
        """What a constant expression is. Raises ``UnknownValueError`` for anything that has to be run."""
        module, node = place
        match node:
            case ast.Constant():
                return node.value
            case ast.Name(id=name):
                return self._named(module, name)
            case ast.List() | ast.Tuple() | ast.Set():
                return [self.value((module, item)) for item in node.elts]
            case ast.Dict():
                return {
                    self.value((module, key)): self.value((module, item)) for key, item in zip(node.keys, node.values, strict=True) if key
                }
            case ast.UnaryOp(op=ast.USub()):
                return -self.value((module, node.operand))
            case ast.BinOp():
                return self._computed(module, node)
            case ast.Call(func=ast.Name(id="get_args")):
                return [item for hint in self.hints((module, node.args[0])) for item in hint.inner]
            case ast.Call(func=ast.Name(id="list" | "sorted" | "tuple"), args=[argument]):
                return self.value((module, argument))
        raise UnknownValueError

    def _named(self, module: str, name: str) -> Any:
        found = self.define(module, name)
        if found and isinstance(found[1], ast.Assign | ast.AnnAssign) and found[1].value is not None:
            return self.value((found[0], found[1].value))
        raise UnknownValueError

    def _computed(self, module: str, node: ast.BinOp) -> Any:
        left, right = self.value((module, node.left)), self.value((module, node.right))
        try:
            match node.op:
                case ast.Add():
                    return left + right
                case ast.Mult():
                    return left * right
                case ast.Pow():
                    return left**right
                case ast.LShift():
                    return left << right
        except TypeError:
            pass
        raise UnknownValueError

    def hints(self, place: Place) -> list[Hint]:  # noqa: PLR0911 (as above)
        """The alternatives of an annotation, with aliases followed and unions opened."""
        module, node = place
        match node:
            case ast.Constant(value=None):
                return [Hint("none")]
            case ast.Constant(value=str() as text):
                return self.hints((module, ast.parse(text, mode="eval").body))
            case ast.BinOp(op=ast.BitOr()):
                return [*self.hints((module, node.left)), *self.hints((module, node.right))]
            case ast.Subscript():
                return self._subscript(module, node)
            case ast.Name(id=name) if name in _PLAIN:
                return [Hint(_PLAIN[name])]
            case ast.Name(id=name) if name in _CONTAINERS:
                return [Hint(_CONTAINERS[name])]
            case ast.Name(id=name):
                return self._alias(module, name)
        return [Hint("other")]

    def _alias(self, module: str, name: str) -> list[Hint]:
        found = self.define(module, name)
        match found:
            case (_, ast.ClassDef() as node):
                if any(_last(decorator) in {"config", "dataclass"} for decorator in node.decorator_list):
                    return [Hint("config", (node.name,), found)]
                return [Hint("dict" if any(_last(base) == "dict" for base in node.bases) else "other")]
            case (origin, ast.Assign(value=value)) | (origin, ast.AnnAssign(value=ast.AST() as value)):
                return self.hints((origin, value))
        return [Hint("other")]

    def _subscript(self, module: str, node: ast.Subscript) -> list[Hint]:
        name = _last(node.value)
        items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Literal":
            return [Hint("literal", tuple(item for part in items for item in self._literal(module, part)))]
        if name == "Optional":
            return [*self.hints((module, items[0])), Hint("none")]
        if name == "Union":
            return [hint for item in items for hint in self.hints((module, item))]
        if name in _TRANSPARENT:
            return self.hints((module, items[0]))
        if name in _CONTAINERS:
            return [Hint(_CONTAINERS[name], tuple(tuple(self.hints((module, item))) for item in items if not _is_ellipsis(item)))]
        return [Hint("other")]

    def _literal(self, module: str, node: ast.AST) -> list[Any]:
        if isinstance(node, ast.Constant):
            return [node.value]
        return [item for hint in self.hints((module, node)) for item in hint.inner]

    def fields(self, place: Place) -> dict[str, tuple[str, ast.AnnAssign]]:
        """Annotated fields of a class with those of its bases, each with the module in which its annotation is read."""
        module, node = place
        assert isinstance(node, ast.ClassDef)
        found: dict[str, tuple[str, ast.AnnAssign]] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and (parent := self.define(module, base.id)) and isinstance(parent[1], ast.ClassDef):
                found.update(self.fields(parent))
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and "ClassVar" not in ast.unparse(item.annotation):
                found[item.target.id] = (module, item)
        return found


def _last(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return _last(function)
    return ""


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at the top of a module, and inside its conditions."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _statements([*node.body, *(item for handler in node.handlers for item in handler.body), *node.orelse])


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name for alias in names)
