"""An endpoint's plan as a rehearsal sees it."""

from pathlib import Path
from typing import Any

from dpd.backends.backend import backend
from dpd.backends.site import Site
from dpd.environment.environment import Environment
from rehearsal.manifests import Worker, workers
from rehearsal.run import script
from rehearsal.stage import Script
from rehearsal.substitutions import Substitution
from tests.support import EXAMPLE, LLMD_EXAMPLE, environment

BACKENDS = {"llm-d": LLMD_EXAMPLE, "operator": EXAMPLE}


def made(example: Path = LLMD_EXAMPLE, changes: dict[str, Any] | None = None) -> Environment:
    return environment(changes, example=example)


def plan(example: Path = LLMD_EXAMPLE, changes: dict[str, Any] | None = None) -> tuple[Script, list[Substitution]]:
    found = made(example, changes)
    endpoint = found.endpoints[0]
    return script(found, endpoint, backend(endpoint.backend).objects(endpoint, Site.of(found)))


def workers_of(example: Path = LLMD_EXAMPLE, changes: dict[str, Any] | None = None) -> dict[str, Worker]:
    found, _ = plan(example, changes)
    return workers(found.objects, found.spec.endpoints[0])
