"""Ask the real parsers about every example: ``python -m scripts.engine_parser [--every-version]``.

Installs some 3 GB outside of the project, once.

vLLM's Python sources of other versions than the installed one run from their unpacked wheels on the same dependencies, so that
each argument list is read by the parser of the version that its image carries.
"""

import argparse
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from dpd.backends.backend import backend
from dpd.backends.emitted import containers, program
from dpd.backends.site import Site
from dpd.catalog.engines import Flag, Lists, engine, lists, opposite
from dpd.checks.engines import versions
from dpd.environment.environment import Environment
from rehearsal import parsers
from rehearsal.install import VLLM, cache, engines
from rehearsal.say import Broken
from scripts.engine_lists.__main__ import wheel

ROOT: Final = Path(__file__).parents[2]
Job = dict[str, Any]


def jobs() -> Iterator[tuple[str, str, Job]]:
    """For every container of every example: the software, its version, and what is said to it."""
    for path in sorted([*ROOT.glob("docs/example*.yaml"), *ROOT.glob("environments/*.yaml")]):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        environment = Environment.model_validate(content, context={"folder": path.parent}).named(path.stem)
        site = Site.of(environment)
        for endpoint in environment.endpoints:
            for body in backend(endpoint.backend).objects(endpoint, site):
                for container in containers(body):
                    software, arguments = program(container)
                    if software == "vllm":
                        carried, place = versions(endpoint), f"{path.stem}: {container.path}"
                        yield "vllm", carried.vllm or VLLM, {"kind": "serve", "path": place, "arguments": arguments}
                        variables = {name: value for name, value in container.variables.items() if name.startswith("LMCACHE_")}
                        if variables and carried.lmcache:
                            yield "lmcache", carried.lmcache, {"kind": "lmcache", "path": place, "variables": variables}


def unpacked(software: str, version: str) -> Path | None:
    """The sources of a version, from its wheel; ``None`` when there is none to be had."""
    folder = cache() / "unpacked" / f"{software}-{version}"
    if not folder.exists():
        found = wheel(software, version)
        if found is None:
            return None
        with zipfile.ZipFile(found.path) as archive:
            # Compiled parts are for another torch, and parsers need none.
            archive.extractall(folder, [name for name in archive.namelist() if not name.endswith(".so")])
    return folder


def ask(software: str, version: str, asked: list[Job]) -> list[Any]:
    """The answers of one version. Raises ``Broken`` when it does not run."""
    variables = {}
    if (software, version) != ("vllm", VLLM):
        folder = unpacked(software, version)
        if folder is None:
            raise Broken("no wheel to be had")
        variables["PYTHONPATH"] = str(folder)
    return parsers.ask(engines(print).python, asked, variables, cache())


def different(real: dict[str, Any], known: Lists) -> list[str]:
    """Where the list of a version is not what its parser says."""
    names = known.names("flags")
    found = [f"{name}: only the parser has it" for name in sorted(real.keys() - names)]
    found += [f"{name}: only the list has it" for name in sorted(names - real.keys())]
    for name in sorted(names & real.keys()):
        flag, said = known.flag(name), real[name]
        assert flag
        pairs = {
            "names": (sorted({name, *flag.short, *_opposites(flag)}), said["names"]),
            "choices": (sorted(map(str, flag.choices)), said["choices"] if flag.choices else []),
            "many values": (flag.values == "many", said["values"] in ("+", "*")),
        }
        found += [f"{name}: {what} {mine} in the list, {its} in the parser" for what, (mine, its) in pairs.items() if mine != its]
    return found


def _opposites(flag: Flag) -> list[str]:
    if flag.kind != "switch":
        return []
    return [opposite(flag.name) if flag.paired else f"--no-{flag.name[2:]}"]


def main() -> int:
    """Ask each version about what goes to it, and about its flags; say what was refused."""
    options = argparse.ArgumentParser(prog="python -m scripts.engine_parser", description=__doc__)
    options.add_argument("--every-version", action="store_true", help="compare the flags of every version that the catalog knows")
    every = options.parse_args().every_version
    started = time.monotonic()
    by_version: dict[tuple[str, str], list[Job]] = {}
    for software, version, job in jobs():
        by_version.setdefault((software, version), []).append(job)
    for version in engine("vllm").stamps if every else (VLLM,):
        by_version.setdefault(("vllm", version), [])
    wrong = 0
    for (software, version), asked in sorted(by_version.items()):
        more: list[Job] = [{"kind": "flags"}] if software == "vllm" else []
        try:
            answers = ask(software, version, [*asked, *more])
        except Broken as error:
            print(f"{software} {version}: does not run here: {error}")
            wrong += 1
            continue
        refused = [f"{job['path']}: {text}" for job, answer in zip(asked, answers, strict=False) for text in answer]
        refused += different(answers[-1], lists(software, version)) if more else []
        what = "argument lists" if more else "sets of variables"
        print(f"{software} {version}: {len(asked)} {what}, {len(refused)} refused or different")
        print("".join(f"  {text}\n" for text in refused), end="")
        wrong += len(refused)
    print(f"{time.monotonic() - started:.0f} s")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
