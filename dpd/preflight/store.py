"""Where the answers of a preflight lie, and how they are read."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dpd.preflight.facts import Facts

FOLDER: Final = "preflight"
_MOST_BYTES: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a file. Without ``facts`` and ``fault`` there is no file."""

    file: str
    facts: "Facts | None" = None
    fault: str = ""


def path_for(environment_file: Path) -> Path:
    """Where the answers about an environment file lie: in ``preflight/`` beside ``environments/``, else beside the file."""
    folder = environment_file.parent
    return (folder.parent if folder.name == "environments" else folder) / FOLDER / f"{environment_file.stem}.json"


def read(path: Path) -> Reading:
    """Read the answers. Never raises for what a file may hold."""
    name = f"{FOLDER}/{path.name}"
    try:
        if path.stat().st_size > _MOST_BYTES:
            return Reading(name, fault="is too large to be what dpd preflight wrote")
        content = path.read_bytes()
    except FileNotFoundError:
        return Reading(name)
    except OSError as error:
        return Reading(name, fault=f"cannot be read: {error.strerror}")
    # Only a file that is there makes the checks pay for its types.
    from pydantic import ValidationError  # noqa: PLC0415

    from dpd.preflight.facts import VERSION, Facts  # noqa: PLC0415

    try:
        return Reading(name, Facts.model_validate_json(content))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        if place == "version":
            return Reading(name, fault=f"is not of version {VERSION}, which this dpd writes")
        said = (
            "is not JSON" if first["type"] == "json_invalid" else f"is not what dpd preflight wrote: {place or 'the top'}: {first['msg']}"
        )
        return Reading(name, fault=said)
