"""From a file to an ``Environment``, or to everything that is wrong with it as a file."""

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from dpd.environment.environment import Environment
from dpd.environment.types import DNS_LABEL_LENGTH, DnsLabel
from dpd.environment.yaml_file import Document, Path_, YamlError, dotted, read
from dpd.finding import HIDDEN, Finding, Level, shown

_REFERENCE: Final = "docs/configuration.md"

UNREADABLE, MISSING, UNKNOWN, WRONG_TYPE, WRONG_VALUE, WRONG_NAME = (
    "CFG001", "CFG002", "CFG003", "CFG004", "CFG005", "CFG006",
)  # fmt: skip


@dataclass(slots=True)
class Loaded:
    """A file that was read: the environment, or the findings that say why there is none."""

    file: str
    environment: Environment | None = None
    findings: list[Finding] = field(default_factory=list)
    document: Document | None = None

    def placed(self, finding: Finding) -> Finding:
        """A finding with this file's name and the line of its field."""
        line = self.document.line(_path(finding.path)) if self.document else 0
        return finding.at(self.file, line)


def load(path: Path) -> Loaded:
    """Read an environment file. Never raises for what a user may have written."""
    loaded = Loaded(file=str(path))
    try:
        document = read(path)
    except YamlError as error:
        loaded.findings.append(
            Finding(
                id=UNREADABLE, level=Level.ERROR, path=error.path, message=error.message, fix=error.fix or "correct the file",
                link=_REFERENCE, file=loaded.file, line=error.line,
            )
        )  # fmt: skip
        return loaded
    loaded.document = document
    loaded.findings += [loaded.placed(finding) for finding in _name_findings(path)]
    try:
        environment = Environment.model_validate(document.content, context={"folder": path.parent})
    except ValidationError as error:
        found = {_finding(detail): None for detail in error.errors(include_url=False)}
        loaded.findings += [loaded.placed(finding) for finding in found]
    else:
        if not loaded.findings:
            loaded.environment = environment.named(path.stem)
    return loaded


def _name_findings(path: Path) -> list[Finding]:
    check = get_args(DnsLabel)[-1].func
    try:
        check(path.stem)
    except ValueError as error:
        return [
            Finding(
                id=WRONG_NAME, level=Level.ERROR, path="", value=shown(path.name), link=_REFERENCE,
                message=f"the file's name is the environment's name and {error}",
                limit=f"at most {DNS_LABEL_LENGTH} of a-z, 0-9 and '-'", fix="rename the file, for example to dev.yaml",
            )
        ]  # fmt: skip
    return []


_UNION_NOISE: Final = frozenset({"function-after", "function-before", "constrained-str", "str", "tuple", "nullable"})


def _clean(location: Path_, content_path: Path_) -> Path_:
    """Drop the parts of a pydantic location that name a branch of a union and not a place in the file."""
    return tuple(part for part in location if isinstance(part, int) or part in content_path or _is_key(part))


def _is_key(part: str) -> bool:
    return "[" not in part and "(" not in part and not part[:1].isupper() and part not in _UNION_NOISE and part != "[key]"


def _finding(detail: Any) -> Finding:
    kind, location = detail["type"], _clean(tuple(detail["loc"]), ())
    key = next((str(part) for part in reversed(location) if isinstance(part, str)), "")
    value = detail.get("input")
    said = shown(value, key=key) if not isinstance(value, dict | list | BaseModel) else ""
    path = dotted(tuple(part[:80] if isinstance(part, str) else part for part in location))
    common = {"level": Level.ERROR, "path": path, "link": _REFERENCE}
    if kind == "missing":
        return Finding(id=MISSING, message="is required and missing", fix=f"add {key}", **common)
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key[:80], _known_keys(location), n=1)
        fix = f"did you mean {near[0]!r}?" if near else "remove it, or look for its name in the reference"
        return Finding(
            id=UNKNOWN, message="is not a key of the environment file", value=HIDDEN if said == HIDDEN else "", fix=fix, **common
        )
    if kind.endswith("_type") or kind in {"model_attributes_type", "int_from_float", "dict_type", "string_type"}:
        expected = str(detail["msg"]).removeprefix("Input should be ").removeprefix("a valid ")
        return Finding(id=WRONG_TYPE, message=f"must be {expected}", value=said or type(value).__name__, fix=f"write {expected}", **common)
    context = detail.get("ctx") or {}
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input should ")
    limit = next(
        (
            f"{name} {context[name]}"
            for name in ("le", "ge", "lt", "gt", "max_length", "min_length", "expected", "pattern")
            if name in context
        ),
        "",
    )
    return Finding(id=WRONG_VALUE, message=message, value=said, limit=limit, fix=_value_fix(kind, context, message), **common)


def _value_fix(kind: str, context: dict[str, Any], message: str) -> str:
    if kind == "literal_error":
        return f"write one of {context['expected']}"
    if "pattern" in context:
        return f"write it so that it matches {context['pattern']}"
    return f"change the value: {message}" if kind == "value_error" else "choose a value inside the limit"


def _known_keys(location: Path_) -> list[str]:
    """The keys that may stand where an unknown one was found."""
    model: Any = Environment
    for part in location[:-1]:
        candidates = (
            _models(model.model_fields[part].annotation)
            if isinstance(part, str) and hasattr(model, "model_fields") and part in model.model_fields
            else _models(model)
        )
        if not candidates:
            return []
        model = candidates[0]
    return list(model.model_fields) if hasattr(model, "model_fields") else []


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]


def _path(text: str) -> Path_:
    """The inverse of ``dotted``."""
    parts: list[str | int] = []
    for piece in text.replace("]", "").replace("[", ".").split("."):
        if piece:
            parts.append(int(piece) if piece.isdigit() else piece)
    return tuple(parts)
