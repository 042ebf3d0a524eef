"""The whole assembly of every shipped environment, synthesized once in a process."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stage

from charts.render import render_all
from dpd.environment.environment import Environment
from dpd.environment.load import load
from stacks.assembly import finish
from stacks.stage import EnvironmentStage
from tests.stacks.support import Assembly, Template, synthesized
from tests.support import ROOT

ENVIRONMENTS = sorted((ROOT / "environments").glob("*.yaml"))


def context() -> dict[str, Any]:
    """The context of cdk.json."""
    found: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return found


def environments() -> list[Environment]:
    """Every shipped environment."""
    loaded = [load(path) for path in ENVIRONMENTS]
    return [file.environment for file in loaded if file.environment is not None]


@dataclass(frozen=True)
class Whole:
    """The assembly on disk, its environments by name, and their templates by part."""

    folder: Path
    environments: Mapping[str, Environment]
    templates: Mapping[str, Mapping[str, Template]]

    def all(self) -> list[tuple[str, Template]]:
        """Every template with its environment and part."""
        return [(f"{name}/{part}", template) for name, parts in self.templates.items() for part, template in parts.items()]


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("assembly")
    # The command line sets these two by itself.
    metadata = {"aws:cdk:enable-path-metadata": True, "aws:cdk:enable-asset-metadata": True}
    app = App(outdir=str(folder), context=context() | metadata, analytics_reporting=False)
    known = environments()
    stages = [EnvironmentStage(app, environment, render_all(environment)) for environment in known]
    assert finish(app, stages) == 0
    return Whole(folder, {environment.name: environment for environment in known}, {stage.node.id: _templates(stage) for stage in stages})


def _templates(stage: EnvironmentStage) -> dict[str, Template]:
    manifest = json.loads((Path(stage.outdir) / "manifest.json").read_text(encoding="utf-8"))
    stacks = {id_: one for id_, one in manifest["artifacts"].items() if one["type"] == "aws:cloudformation:stack"}
    return {
        one["displayName"].split(" ")[0].split("/")[-1]: Template(
            (Path(stage.outdir) / one["properties"]["templateFile"]).read_text(encoding="utf-8")
        )
        for one in stacks.values()
    }


def build(stage: Stage, environment: Environment) -> None:
    """Make the stacks of an environment for ``synthesized``."""
    EnvironmentStage(stage, environment, render_all(environment))


def changed(changes: Mapping[str, Any] | None = None, *, name: str = "dev") -> Assembly:
    """The assembly of the dev environment with some fields changed."""
    return synthesized(build, changes, name=name)
