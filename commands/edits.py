"""What a change of an environment file would break."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpd.finding import Finding


def new_errors(path: Path, before: str, after: str, *, today: date) -> "list[Finding]":
    """The errors that the changed text has and the present one has not. Raises ``YamlError`` for a text that is not YAML."""
    from dpd.checks.registry import Context, run  # noqa: PLC0415
    from dpd.environment.load import load_text  # noqa: PLC0415

    def stopping(text: str) -> "list[Finding]":
        found = load_text(text, path)
        if found.environment is None:
            return found.findings
        return [found.placed(finding) for finding in run(found.environment, Context(today=today)) if finding.stops]

    known = {(finding.id, finding.path) for finding in stopping(before)}
    return [finding for finding in stopping(after) if (finding.id, finding.path) not in known]
