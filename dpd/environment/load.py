"""From a file to an ``Environment``, or to everything that is wrong with it as a file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from dpd.environment.environment import Environment
from dpd.environment.faults import SURPRISING, UNREADABLE, WRONG_NAME
from dpd.environment.types import DNS_LABEL_LENGTH, Part, dns_label
from dpd.environment.yaml_file import Document, Place, YamlError, dotted, parse, read
from dpd.finding import Finding, safe

Typed = TypeVar("Typed", bound=Part)

_MOST_FINDINGS: Final = 200
"""Mistakes of one file that are listed. A file with more is not an environment file with typing errors."""


@dataclass(slots=True)
class Loaded:
    """A file that was read: the environment, or the findings that say why there is none."""

    file: str
    environment: Environment | None = None
    findings: list[Finding] = field(default_factory=list)
    document: Document | None = None

    def placed(self, finding: Finding) -> Finding:
        """A finding with this file's name and the line of its field."""
        return finding.at(self.file, self.document.line_of(finding.path) if self.document else 0)


def load(path: Path) -> Loaded:
    """Read an environment file. Never raises for what a user may have written."""
    loaded = Loaded(file=safe(str(path)))
    try:
        return _validated(loaded, read(path), path)
    except YamlError as error:
        loaded.findings.append(UNREADABLE.finding("", error.message, error.fix or "correct the file").at(loaded.file, error.line))
        return loaded


def load_text(text: str, path: Path) -> Loaded:
    """The same for a text that is to be stored under ``path``. Raises ``YamlError`` when it is not YAML."""
    return _validated(Loaded(file=safe(str(path))), parse(text), path)


def _validated(loaded: Loaded, document: Document, path: Path) -> Loaded:
    loaded.document = document
    found: dict[Finding, None] = {}
    if (name := _name_finding(path)) is not None:
        found[name.at(loaded.file, 0)] = None
    environment, mistakes = typed(document, Environment, file=loaded.file, folder=path.parent)
    found |= dict.fromkeys(mistakes)
    if environment is not None and not found:
        loaded.environment = environment.named(path.stem)
    loaded.findings += found
    return loaded


def typed(document: Document, type_: type[Typed], *, file: str, folder: Path) -> tuple[Typed | None, list[Finding]]:
    """A document as a value of a type, or all that is wrong with it, each with its line. Paths in it start from ``folder``."""
    found: dict[Finding, None] = {}
    unclear: set[Place] = set()
    for mistake in document.mistakes:
        unclear.add(mistake.place)
        key = str(mistake.place[-1]) if mistake.place else ""
        finding = SURPRISING.finding(dotted(mistake.place), mistake.message, mistake.fix, value=mistake.value or None, key=key)
        found[finding.at(file, mistake.line)] = None
    try:
        value = type_.model_validate(document.content, context={"folder": folder})
    except ValidationError as error:
        # Importing what turns errors into words costs time that a good file need not pay.
        from dpd.environment.mistakes import findings_of_errors  # noqa: PLC0415

        errors = error.errors(include_url=False)
        for place, finding in findings_of_errors(errors[:_MOST_FINDINGS], type_):
            if place not in unclear:
                found[finding.at(file, document.line(place))] = None
        if (more := len(errors) - _MOST_FINDINGS) > 0:
            rest = UNREADABLE.finding("", f"has {more:,} more mistakes, which are not listed", "correct the ones above first")
            found[rest.at(file, 0)] = None
        return None, list(found)
    return (None if found else value), list(found)


def _name_finding(path: Path) -> Finding | None:
    try:
        dns_label(path.stem)
    except ValueError as error:
        return WRONG_NAME.finding(
            "",
            f"the file's name is the environment's name and {error}",
            "rename the file, for example to dev.yaml",
            value=path.name,
            limit=f"at most {DNS_LABEL_LENGTH} of a-z, 0-9 and '-'",
        )
    return None
