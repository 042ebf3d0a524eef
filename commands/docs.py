"""``python -m commands.docs``: write the parts of the docs that are made from the code."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from commands import readme
from commands.rules import families
from commands.schema import schema_text
from dpd.environment.descriptions import json_schema
from dpd.observe.runbook import runbook
from dpd.planning.traffic import Traffic
from dpd.promotion.settings import ReleaseSettings

FOLDER: Final = Path(__file__).parent.parent / "docs"
_MADE: Final = "<!-- Made by `make docs`; do not edit. -->"
_TOP: Final = "Environment"
_UNBOUNDED: Final = 1024
"""Longest text of a field without a limit of its own; not worth a word in the tables."""


def generated() -> dict[str, str]:
    """Name and content of every generated file of the docs."""
    return {
        "environment.schema.json": schema_text(),
        "configuration.md": "\n".join(_configuration()) + "\n",
        "checks.md": "\n".join(_checks()) + "\n",
        "runbook.md": "\n".join(("# Runbook", "", _MADE, "", *runbook())) + "\n",
        "traffic.schema.json": json.dumps(traffic_schema(), indent=2, ensure_ascii=False) + "\n",
        "traffic.md": "\n".join(_traffic()) + "\n",
        "pipeline.schema.json": json.dumps(release_schema(), indent=2, ensure_ascii=False) + "\n",
        "pipeline.md": "\n".join(_release()) + "\n",
    }


def traffic_schema() -> dict[str, Any]:
    """The JSON Schema of a traffic file."""
    return json_schema(Traffic, "Traffic file of HyperPod DPD", (Path(str(inspect.getsourcefile(Traffic))),))


def release_schema() -> dict[str, Any]:
    """The JSON Schema of a release file."""
    return json_schema(ReleaseSettings, "Release file of HyperPod DPD", (Path(str(inspect.getsourcefile(ReleaseSettings))),))


def _release() -> Iterator[str]:
    yield from (
        "# The release file",
        "",
        _MADE,
        "",
        "`pipeline.yaml` at the top of the project says through which environments a release goes, and who carries it;",
        "[promotion.md](promotion.md) says what then happens. [pipeline.yaml](pipeline.yaml) here is an example. Only `pipeline.py` reads",
        "it:",
        "`cdk synth --app '.venv/bin/python pipeline.py'`. Editors complete and validate a file that begins with this line:",
        "",
        "```yaml",
        "# yaml-language-server: $schema=docs/pipeline.schema.json",
        "```",
    )
    yield from _reference(release_schema(), ReleaseSettings.__name__)


def _traffic() -> Iterator[str]:
    yield from (
        "# The traffic file",
        "",
        _MADE,
        "",
        "What an endpoint has to serve, for [`dpd plan`](planning.md). [traffic.yaml](traffic.yaml) is an example. Editors complete and",
        "validate a file that begins with this line:",
        "",
        "```yaml",
        "# yaml-language-server: $schema=../docs/traffic.schema.json",
        "```",
    )
    yield from _reference(traffic_schema(), Traffic.__name__)


def _configuration() -> Iterator[str]:
    yield from (
        "# The environment file",
        "",
        _MADE,
        "",
        "One file in `environments/` is one environment; the file's name is its name. Unknown keys are refused and values are never",
        "converted. Units stand in the names. Nothing that costs money has a default.",
        "",
        "Editors complete and validate a file that begins with this line:",
        "",
        "```yaml",
        "# yaml-language-server: $schema=../docs/environment.schema.json",
        "```",
        "",
        "`dpd init` writes a first file, `dpd check` says all that is wrong with one, and the [table of checks](checks.md) tells why.",
    )
    yield from _reference(json_schema(), _TOP)


def _reference(schema: dict[str, Any], top: str) -> Iterator[str]:
    """A section for each part of a file."""
    parts = {top: schema, **schema["$defs"]}
    for name, places in _places(parts, top).items():
        yield from _part(name, places, parts[name])


def _places(parts: dict[str, Any], top: str) -> dict[str, list[str]]:
    """Where each part stands in the file, in the order of a reader: the path of every use."""
    found: dict[str, list[str]] = {}

    def visit(name: str, place: str) -> None:
        found.setdefault(name, []).append(place)
        for key, field in parts[name].get("properties", {}).items():
            for inner, mark in _references(field):
                visit(inner, f"{place}.{key}{mark}" if place else f"{key}{mark}")

    visit(top, "")
    return found


def _references(field: dict[str, Any], mark: str = "") -> Iterator[tuple[str, str]]:
    """The parts that a field may hold, with ``[]`` for a list and ``.<name>`` for a mapping."""
    if "$ref" in field:
        yield field["$ref"].rpartition("/")[2], mark
    for branch in (*field.get("anyOf", ()), *field.get("oneOf", ())):
        yield from _references(branch, mark)
    if "items" in field:
        yield from _references(field["items"], mark + "[]")
    for inner in _values(field):
        yield from _references(inner, mark + ".<name>")


def _values(field: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas of a mapping's values."""
    found = [*field.get("patternProperties", {}).values(), field.get("additionalProperties")]
    return [inner for inner in found if isinstance(inner, dict)]


def _part(name: str, places: list[str], part: dict[str, Any]) -> Iterator[str]:
    title = ", ".join(f"`{place}`" for place in places) if places != [""] else "The top of the file"
    yield from ("", f'<a id="{name.lower()}"></a>', "", f"## {title}", "", part["description"], "")
    if "oneOf" in part:
        *most, last = (f"`{branch['required'][0]}`" for branch in part["oneOf"])
        yield from (f"Exactly one of {', '.join(most)} and {last} must be given.", "")
    yield from ("| Key | Type | Default | Meaning |", "|---|---|---|---|")
    for key, field in part.get("properties", {}).items():
        default = "**required**" if key in part.get("required", ()) else _default(field)
        yield f"| `{key}` | {_type(field)} | {default} | {_cell(field['description'])} |"


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    if default in (None, [], {}):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _type(field: dict[str, Any]) -> str:
    """A field's type and limits in words."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if branches := [branch for branch in (*field.get("anyOf", ()), *field.get("oneOf", ())) if branch.get("type") != "null"]:
        return " or ".join(_type(branch) for branch in branches)
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    return _WORDS[field["type"]](field) if "type" in field else "anything"


def _text(field: dict[str, Any]) -> str:
    longest = field.get("maxLength", _UNBOUNDED)
    said = "text" + (f" of at most {longest:,} characters" if longest != _UNBOUNDED else "")
    if "examples" in field:
        return f"{said}, such as `{_cell(field['examples'][0])}`"
    return f"{said} matching `{_cell(field['pattern'])}`" if "pattern" in field else said


def _number(field: dict[str, Any]) -> str:
    words = [
        word.format(f"{field[key]:,}")
        for key, word in (
            ("minimum", "from {}"),
            ("exclusiveMinimum", "more than {}"),
            ("maximum", "to {}"),
            ("exclusiveMaximum", "less than {}"),
        )
        if key in field
    ]
    return " ".join(["whole number" if field["type"] == "integer" else "number", *words])


def _array(field: dict[str, Any]) -> str:
    return f"list{_size(field, 'Items')} of {_type(field['items'])}"


def _mapping(field: dict[str, Any]) -> str:
    values = _values(field)
    of = f" of names to {_type(values[0])}" if values else ""
    keys = next(iter(field.get("patternProperties", ())), "") or field.get("propertyNames", {}).get("pattern", "")
    return f"mapping{_size(field, 'Properties')}{of}" + (f"; names match `{_cell(keys)}`" if keys else "")


def _size(field: dict[str, Any], of: str) -> str:
    least, most = field.get(f"min{of}"), field.get(f"max{of}")
    if least and most:
        return f" ({least} to {most} entries)"
    return f" (at least {least})" if least else f" (at most {most})" if most else ""


_WORDS: Final = {
    "string": _text,
    "integer": _number,
    "number": _number,
    "boolean": lambda _: "`true` or `false`",
    "array": _array,
    "object": _mapping,
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _checks() -> Iterator[str]:
    yield from (
        "# Checks",
        "",
        _MADE,
        "",
        "`dpd check` runs all of them, and so does every synth before it builds a stack. An **error** stops a synth and makes `dpd check`",
        "exit with 1; a **warning** does with `--strict`; a note (**info**) never does. `dpd explain <id>` prints one row of these tables.",
        "",
        "A finding that was read and accepted is named in the file, with the reason. It is then still shown, and stops nothing:",
        "",
        "```yaml",
        "acknowledge:",
        "  - {id: MEM001, path: endpoints[0].decode, reason: measured on our own nodes in June}",
        "```",
        "",
        "`dpd check --json` prints all findings for machines, as [check-report.schema.json](check-report.schema.json) describes.",
        "Fields are only ever added to version 1.",
        "",
        "| Exit code | Meaning |",
        "|---|---|",
        "| 0 | fine |",
        "| 1 | findings that stop, or another mistake in what the user wrote |",
        "| 2 | wrong call of the command |",
        "| 3 | fault of the machine, the network or dpd itself |",
        "| 130, 141 | stopped with Ctrl-C; the reader of the output went away |",
    )
    for family, rules in families().items():
        yield from ("", f"## {family}", "", "| Id | Level | What is checked | Why | Rule |", "|---|---|---|---|---|")
        for rule in rules:
            seen = "".join(f" [report]({url})" for url in rule.seen_in if url.startswith("http"))
            link = f"[rule]({rule.link.removeprefix('docs/')})"
            yield f"| {rule.id} | {rule.level.value} | {_cell(rule.title)} | {_cell(rule.why)} | {link}{seen} |"


def main() -> None:
    """Write every generated file."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in generated().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    readme.README.write_text(readme.rewritten(readme.README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
