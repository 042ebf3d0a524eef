"""What the manifests say, read by the software's own parsers, in the environment with the engines."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dpd.backends.emitted import Versions, unknown_variable
from rehearsal.install import LMCACHE, VLLM, Engines
from rehearsal.manifests import Worker
from rehearsal.say import Broken

INSIDE: Final = Path(__file__).with_name("inside.py")
Job = Mapping[str, Any]
_END: Final = 500


@dataclass(frozen=True, slots=True)
class Parsed:
    """What was read, by which parser, and what it complains of."""

    what: str
    parser: str
    complaints: tuple[str, ...]


def ask(python: Path, jobs: Iterable[Job], variables: Mapping[str, str], folder: Path) -> list[Any]:
    """The answers to jobs of ``inside.py``. Raises ``Broken`` with the end of what was printed when it does not run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "LMCACHE_", "PYTHONPATH"))}
    environment |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", **variables}
    command = [str(python), str(INSIDE)]
    done = subprocess.run(command, input=json.dumps(list(jobs)), capture_output=True, text=True, env=environment, cwd=folder, check=False)  # noqa: S603
    if done.returncode:
        raise Broken(done.stderr.strip()[-_END:])
    answers: list[Any] = json.loads(done.stdout)
    return answers


def read(engines: Engines, workers: Iterable[Worker], folder: Path) -> list[Parsed]:
    """Argument lists by vLLM's parser, and LMCache's variables by its loader and by its list of keys, which alone knows all of them."""
    jobs: list[Job] = []
    for worker in workers:
        jobs.append({"kind": "serve", "what": f"{worker.role}: argument list", "arguments": worker.arguments})
        variables = {name: value for name, value in worker.variables.items() if name.startswith("LMCACHE_")}
        if variables:
            jobs.append({"kind": "lmcache", "what": f"{worker.role}: {len(variables)} settings of LMCache", "variables": variables})
    found = []
    for job, complaints in zip(jobs, ask(engines.python, jobs, {}, folder), strict=True):
        if job["kind"] == "serve":
            found.append(Parsed(job["what"], f"the parser of vLLM {VLLM}", tuple(complaints)))
        else:
            found.append(Parsed(job["what"], f"the loader of LMCache {LMCACHE}", tuple(complaints)))
            unlisted = [each.message for name in job["variables"] for each in unknown_variable(name, name, Versions(lmcache=LMCACHE))]
            found.append(Parsed(job["what"], f"the list of keys of LMCache {LMCACHE}", tuple(unlisted)))
    return found
