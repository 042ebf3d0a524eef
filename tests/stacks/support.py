"""Templates of stacks, each synthesized at most once in a process.

The first synthesis of a process starts Node and costs seconds, every later one next to nothing: tests share one
process and ask for templates by what they changed in the dev environment.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from aws_cdk import App, Stage
from aws_cdk import Environment as Place

from dpd.environment.environment import Environment
from tests.support import ROOT, environment

Builder = Callable[[Stage, Environment], None]
"""Makes stacks in a stage; their construct ids are the keys of `Assembly.templates`."""


@dataclass(frozen=True)
class Template:
    """One CloudFormation template, as it was written to disk."""

    text: str

    @property
    def content(self) -> dict[str, Any]:
        """The template."""
        loaded: dict[str, Any] = json.loads(self.text)
        return loaded

    @property
    def resources(self) -> dict[str, dict[str, Any]]:
        """All resources by logical id."""
        found: dict[str, dict[str, Any]] = self.content.get("Resources", {})
        return found

    def of(self, type_: str) -> dict[str, dict[str, Any]]:
        """Resources of one type by logical id."""
        return {id_: resource for id_, resource in self.resources.items() if resource["Type"] == type_}

    def properties(self, type_: str) -> list[dict[str, Any]]:
        """Properties of the resources of one type, in template order."""
        return [resource.get("Properties", {}) for resource in self.of(type_).values()]

    def one(self, type_: str) -> dict[str, Any]:
        """Properties of the only resource of a type."""
        (properties,) = self.properties(type_)
        return properties


@dataclass(frozen=True)
class Assembly:
    """What a synthesis leaves behind: templates by construct id, and what CDK had to say."""

    templates: Mapping[str, Template]
    stacks: Mapping[str, dict[str, Any]]
    """Entry of each stack in the assembly's manifest."""
    warnings: tuple[str, ...]
    missing: tuple[Any, ...]
    """Look-ups that CDK would have made."""
    files: tuple[str, ...]
    """Names of all files of the assembly."""
    documents: Mapping[str, str]
    """JSON files that are uploaded, by the name of their object."""


def synthesized(build: Builder, changes: Mapping[str, Any] | None = None, *, name: str = "dev") -> Assembly:
    """Synthesize what ``build`` makes of the dev environment with ``changes``, with the context of cdk.json."""
    return _synthesized(build, json.dumps(changes or {}, sort_keys=True), name)


@cache
def _synthesized(build: Builder, changes: str, name: str) -> Assembly:
    typed = environment(json.loads(changes), name=name)
    with tempfile.TemporaryDirectory() as folder:
        app = App(outdir=folder, context=context(), analytics_reporting=False)
        build(Stage(app, name, env=Place(account=typed.account, region=typed.region)), typed)
        app.synth()
        return _read(Path(folder))


@cache
def context() -> dict[str, Any]:
    """The context of cdk.json, which the CDK command line passes by itself."""
    found: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return found


_STACK: Final = "aws:cloudformation:stack"


def _read(folder: Path) -> Assembly:
    templates, stacks, warnings, missing = {}, {}, [], []
    for file in sorted(folder.rglob("manifest.json")):
        manifest = json.loads(file.read_text(encoding="utf-8"))
        missing += manifest.get("missing", [])
        for artifact in manifest["artifacts"].values():
            if artifact["type"] != _STACK:
                continue
            id_ = artifact["displayName"].split(" ")[0].split("/")[-1]
            stacks[id_] = artifact
            templates[id_] = Template((file.parent / artifact["properties"]["templateFile"]).read_text(encoding="utf-8"))
            metadata = artifact.get("metadata", {})
            if extra := artifact.get("additionalMetadataFile"):
                metadata = {**metadata, **json.loads((file.parent / extra).read_text(encoding="utf-8"))}
            warnings += [entry["data"] for entries in metadata.values() for entry in entries if entry["type"] == "aws:cdk:warning"]
    files = tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))
    documents = {path.name.removeprefix("asset."): path.read_text(encoding="utf-8") for path in folder.rglob("asset.*.json")}
    return Assembly(templates, stacks, tuple(warnings), tuple(missing), files, documents)
