"""What a check, a schema error or a rendering rule says to the user, in one shape."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

HIDDEN: Final = "(hidden)"
_LONGEST_VALUE: Final = 120
_LONGEST_MESSAGE: Final = 600

# Shapes of credentials that people paste into configuration files by mistake: Hugging Face, AWS access key ids,
# OpenAI-style keys, GitHub, Slack, JSON web tokens, PEM private keys, NVIDIA, GitLab, Google, npm, Docker, PyPI,
# authorization headers and signed URLs.
_SECRET_VALUE: Final = re.compile(
    r"hf_[A-Za-z0-9]{8,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|\bsk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|github_pat_[A-Za-z0-9_]{20,}|xox[abprs]-[A-Za-z0-9-]{8,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|\bnvapi-[A-Za-z0-9_-]{16,}|\bglpat-[A-Za-z0-9_-]{16,}|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\bnpm_[A-Za-z0-9]{30,}|\bdckr_pat_[A-Za-z0-9_-]{16,}|\bpypi-[A-Za-z0-9_-]{30,}"
    r"|\b[Bb]earer\s+[A-Za-z0-9._~+/-]{16,}|[?&](?:sig|X-Amz-Signature)=[A-Za-z0-9%+/]{16,}"
)
# What stands beside a word that announces it. Unlike a shape, it only tells what to hide.
_ANNOUNCED: Final = re.compile(
    r"(?P<before>[a-z][a-z0-9+.-]{0,20}://(?=[^/\s@]*:[^/\s@]*@))[^/\s@]{1,512}(?=@)"
    r"|(?P<flag>--[a-z0-9_-]{0,64}(?:token|secret|password|passwd|api[_-]?key)(?:=|\s+))\S+"
    r"|(?P<name>\b[A-Z0-9_]{0,64}(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY)=)\S+",
)
_SECRET_KEY: Final = re.compile(
    r"(?:^|[_.-])(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|AUTHORIZATION|API_?KEY|ACCESS_?KEY(?:_ID)?|PRIVATE_?KEY|CREDENTIALS?|KEY)$"
    r"|[_.-](?:PASS|PWD)$",
    re.IGNORECASE,
)


class Level(StrEnum):
    """How much a finding weighs. Only errors stop a synth or make a command exit with 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


_ORDER: Final = {Level.ERROR: 0, Level.WARNING: 1, Level.INFO: 2}


def looks_like_secret(text: str) -> bool:
    """Say whether a text has the shape of a well-known credential."""
    return _SECRET_VALUE.search(text) is not None


def names_a_secret(key: str) -> bool:
    """Say whether a key (an environment variable, a YAML key) usually holds a credential."""
    return _SECRET_KEY.search(key) is not None


def safe(text: str, *, most: int = _LONGEST_MESSAGE) -> str:
    """Make a text that quotes a user fit for a terminal: one line, no control characters, shortened, no credential in it."""
    hidden = _ANNOUNCED.sub(lambda match: f"{match['before'] or match['flag'] or match['name']}{HIDDEN}", _SECRET_VALUE.sub(HIDDEN, text))
    line = " ".join(hidden.split())
    if not line.isprintable():
        line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    return line if len(line) <= most else f"{line[: most // 2]}… ({len(line):,} characters)"


def shown(value: Any, *, key: str = "") -> str:
    """Render a user's value for a message: one line, shortened, and never a credential."""
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if looks_like_secret(text) or (key and isinstance(value, str) and names_a_secret(key)):
        return HIDDEN
    return safe(text, most=_LONGEST_VALUE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing, about one place of one file.

    ``path`` is the dotted path of the field in the environment file (``endpoints[0].kv.buffer_gib``),
    ``value`` what stands there, ``limit`` what would be allowed, ``fix`` what to do, ``link`` where it is
    explained. ``acknowledged`` carries the reason when the user accepted the finding in the file.
    """

    id: str
    level: Level
    path: str
    message: str
    value: str = ""
    limit: str = ""
    fix: str = ""
    link: str = ""
    file: str = ""
    line: int = 0
    acknowledged: str = ""

    @property
    def stops(self) -> bool:
        """Whether this finding must stop a synth."""
        return self.level is Level.ERROR and not self.acknowledged

    def at(self, file: str, line: int) -> "Finding":
        """The same finding with the place in the file filled in."""
        return replace(self, file=file, line=line)

    def as_dict(self) -> dict[str, str | int]:
        """The machine-readable form (``dpd check --json``)."""
        return {
            "id": self.id,
            "level": self.level.value,
            "file": self.file,
            "line": self.line,
            "path": self.path,
            "message": self.message,
            "value": self.value,
            "limit": self.limit,
            "fix": self.fix,
            "link": self.link,
            "acknowledged": self.acknowledged,
        }


def in_order(findings: list[Finding]) -> list[Finding]:
    """Sort findings: by file, errors first, then by place and id. The order never depends on the input's."""
    return sorted(findings, key=lambda f: (f.file, _ORDER[f.level], f.line, f.path, f.id, f.message))
