"""Assemblies on disk with real manifests and summaries, and templates as small as a test needs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from charts.render import render_all, write
from dpd.environment.environment import Environment
from dpd.gate.digest import digest
from dpd.review.summary import write_summary
from tests.support import EXAMPLE, environment

DIGEST: Final = f"sha256:{'a' * 64}"
OTHER_DIGEST: Final = f"sha256:{'b' * 64}"
IMAGE: Final[dict[str, Any]] = {
    "repository": "public.ecr.aws/deep-learning-containers/vllm", "tag": "server-hyperpod-cuda-v1.1", "digest": DIGEST,
    "vllm": "0.19.0", "lmcache": "0.4.3", "nixl": "1.0.0",
}  # fmt: skip
PINNED: Final[dict[str, Any]] = {"endpoints[0].image": IMAGE}
STAGING: Final[dict[str, Any]] = {"account": "222233334444"}

Templates = Mapping[str, Mapping[str, Any]]
"""Template by part, in the order in which the stacks wait for each other."""


def typed(name: str, changes: Mapping[str, Any] | None = None, *, example: Path = EXAMPLE) -> Environment:
    """An environment with pinned images, named and changed."""
    return environment({**(PINNED if example == EXAMPLE else {}), **(changes or {})}, name=name, example=example)


def assembly(folder: Path, *environments: Environment, templates: Templates | None = None, protected: tuple[str, ...] = ()) -> Path:
    """Write an assembly with these environments and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    artifacts = {}
    for each in environments:
        nested = folder / f"assembly-{each.name}"
        nested.mkdir()
        artifacts[nested.name] = {"type": "cdk:cloud-assembly", "properties": {"directoryName": nested.name, "displayName": each.name}}
        _stacks(nested, each, templates or {"serving": {}}, protected)
        write(render_all(each), folder / "manifests")
        write_summary(each, [], folder)
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}), encoding="utf-8")
    return folder


def _stacks(folder: Path, of: Environment, templates: Templates, protected: tuple[str, ...]) -> None:
    artifacts: dict[str, Any] = {}
    for part, resources in templates.items():
        (folder / f"{part}.template.json").write_text(json.dumps({"Resources": resources}), encoding="utf-8")
        artifacts[part] = {
            "type": "aws:cloudformation:stack",
            "displayName": f"{of.name}/{part}",
            "dependencies": [*artifacts, f"{part}.assets"],
            "properties": {
                "templateFile": f"{part}.template.json",
                "stackName": f"{of.app}-{of.name}-{part}",
                "terminationProtection": part in protected,
            },
        }
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}), encoding="utf-8")


def report(of: Environment, *, started: float, **changes: Any) -> dict[str, Any]:
    """What the gate stores when everything passed."""
    return {
        "environment": f"{of.app}-{of.name}", "digest": digest(of), "outcome": "PASS", "started": started, "seconds": 60.0,
        "counts": {"PASS": 37, "FAIL": 0, "UNKNOWN": 0}, "causes": [], "results": [], **changes,
    }  # fmt: skip
