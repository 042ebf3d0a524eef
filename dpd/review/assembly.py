"""A cloud assembly as a folder: its templates, its manifests, and the summary that a synthesis wrote of each environment."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

MANIFESTS: Final = "manifests"
SUMMARIES: Final = "summaries"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NotAnAssemblyError(ValueError):
    """A folder that no synthesis of this tool made, or one that was damaged since."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack. ``part`` is its place in an environment (``network``, ``hyperpod``), ``name`` what CloudFormation calls it.

    ``after`` are the parts that it waits for; ``protected`` says that CloudFormation refuses to delete it.
    """

    environment: str
    part: str
    name: str
    template: dict[str, Any]
    after: tuple[str, ...] = ()
    protected: bool = False

    @property
    def key(self) -> str:
        """``<environment>/<part>``, the same in two assemblies."""
        return f"{self.environment}/{self.part}"


@dataclass(frozen=True, slots=True)
class Assembly:
    """What was read: stacks by key, objects by ``<environment>/<file>``, and summaries by environment."""

    folder: Path
    stacks: dict[str, Stack]
    objects: dict[str, dict[str, Any]]
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def environments(self) -> tuple[str, ...]:
        """Names of the environments, in the order of the assembly."""
        return tuple(dict.fromkeys(stack.environment for stack in self.stacks.values()))

    def only(self, environment: str) -> "Assembly":
        """The same with one environment alone, which it need not have."""
        return Assembly(
            self.folder,
            {key: stack for key, stack in self.stacks.items() if stack.environment == environment},
            {path: body for path, body in self.objects.items() if path.split("/")[0] == environment},
            {name: summary for name, summary in self.summaries.items() if name == environment},
        )


def read(folder: Path) -> Assembly:
    """Read an assembly.

    Raises ``NotAnAssemblyError`` with the file that is missing or cannot be read.
    """
    if not (folder / "manifest.json").is_file():
        raise NotAnAssemblyError(f"{folder} is no cloud assembly: it has no manifest.json; make one with: make synth")
    stacks: dict[str, Stack] = {}
    for artifact in _json(folder / "manifest.json").get("artifacts", {}).values():
        if artifact["type"] == "cdk:cloud-assembly":
            nested = folder / artifact["properties"]["directoryName"]
            stacks |= {stack.key: stack for stack in _stacks(nested, artifact["properties"].get("displayName", nested.name))}
    if not stacks:
        raise NotAnAssemblyError(f"{folder} holds no environment: nothing in its manifest.json is a stage")
    return Assembly(folder, stacks, _objects(folder / MANIFESTS), _summaries(folder / SUMMARIES))


def _stacks(folder: Path, environment: str) -> list[Stack]:
    artifacts = _json(folder / "manifest.json").get("artifacts", {})
    stacks = {id_: artifact for id_, artifact in artifacts.items() if artifact["type"] == "aws:cloudformation:stack"}
    parts = {id_: artifact.get("displayName", id_).rsplit("/", 1)[-1] for id_, artifact in stacks.items()}
    return [
        Stack(
            environment=environment,
            part=parts[id_],
            name=artifact["properties"].get("stackName", id_),
            template=_json(folder / artifact["properties"]["templateFile"]),
            after=tuple(parts[other] for other in artifact.get("dependencies", ()) if other in parts),
            protected=bool(artifact["properties"].get("terminationProtection", False)),
        )
        for id_, artifact in stacks.items()
    ]


def _objects(folder: Path) -> dict[str, dict[str, Any]]:
    result = {}
    for file in sorted(folder.rglob("*.yaml")):
        try:
            body = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 (a safe loader, in C where there is one)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise NotAnAssemblyError(f"{file} is no manifest: {str(error).splitlines()[0]}") from error
        if not isinstance(body, dict) or "kind" not in body:
            raise NotAnAssemblyError(f"{file} holds no Kubernetes object")
        result[str(file.relative_to(folder))] = body
    return result


def _summaries(folder: Path) -> dict[str, dict[str, Any]]:
    return {file.stem: _json(file) for file in sorted(folder.glob("*.json"))}


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotAnAssemblyError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict):
        raise NotAnAssemblyError(f"{file} is not what a synthesis writes")
    return content
