"""The JSON Schema of the environment file, with the description that stands under every field in the source.

Python drops the text under an attribute, so it is read from the source, and only when somebody asks: a check needs none.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from dpd.environment.environment import Environment

SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_HERE: Final = Path(__file__).parent


@cache
def descriptions(files: tuple[Path, ...] = ()) -> dict[str, dict[str, str]]:
    """The description of every field: class name -> field -> text. ``files`` are modules beside those of the environment file."""
    found: dict[str, dict[str, str]] = {}
    for path in (*sorted(_HERE.glob("*.py")), *files):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = _of_class(node)
    return found


def _of_class(node: ast.ClassDef) -> dict[str, str]:
    texts = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            match after.value:
                case ast.Constant(value=str(text)):
                    texts[field.target.id] = " ".join(text.split())
    return texts


@cache
def json_schema(
    top: type[BaseModel] = Environment, title: str = "Environment file of HyperPod DPD", files: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of an environment file, or of another file that ``files`` hold the types of."""
    schema = top.model_json_schema()
    parts = {top.__name__: schema, **schema["$defs"]}
    for name, part in parts.items():
        described = descriptions(files)[name]
        for key, field in part.get("properties", {}).items():
            # The type's own description would hide what the field is for.
            field["description"] = described[key]
    schema["$defs"] = {name: parts[name] for name in sorted(schema["$defs"])}
    cleaned = _tidied(schema)
    assert isinstance(cleaned, dict)
    return {
        "$schema": SCHEMA_DIALECT,
        "title": title,
        **{key: cleaned[key] for key in sorted(cleaned, key=lambda key: key == "$defs")},
    }


def _tidied(value: Any, *, names: bool = False) -> Any:
    """Drop the titles that pydantic makes of names, and refuse keys that match no pattern. ``names`` says that keys here are names."""
    if isinstance(value, list):
        return [_tidied(item) for item in value]
    if not isinstance(value, dict):
        return value
    closed = {"additionalProperties": False} if "patternProperties" in value and not names else {}
    return closed | {
        key: _tidied(item, names=key in ("properties", "$defs", "patternProperties") and not names)
        for key, item in value.items()
        if names or key != "title" or not isinstance(item, str)
    }
