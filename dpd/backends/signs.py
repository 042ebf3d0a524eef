"""By what an endpoint of a backend is known on a live cluster. The health gate looks for nothing else.

Names of fields are those of the gate's spec (``lambda/health_gate/spec.py``), so that a sign is written down as it stands.
What a backend does not have is left out: the gate examines what it is told of.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_FIELD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")


@dataclass(frozen=True, slots=True)
class PodSigns:
    """The pods of a role. ``containers`` is how many a ready pod has, native sidecars among them.

    ``port`` is where the gate asks: of a worker the engine's own (behind a proxy or sidecar), of others what their pods
    listen on. A pod has ``servers``, each with counters of its own, at ports counted up from there. Its name has at most
    ``words`` behind ``name_prefix``. ``service`` and ``service_port`` are the Service that clients use, of the router alone.
    ``role_log`` is a regular expression of the log line with which prefill says that it sends KV and decode that it
    receives; ``role_settings`` finds the same in the worker's settings, as the lines ``arg …`` and ``env NAME=value`` of its
    container; ``role_label`` is a label, ``key=value``, that the backend sets together with those settings. One is enough.
    """

    namespace: str
    name_prefix: str
    container: str
    replicas: int
    containers: int
    port: int
    servers: int = 1
    words: int = 2
    labels: dict[str, str] = field(default_factory=dict)
    service: str = ""
    service_port: int = 0
    gpus: int = 0
    efa: int = 0
    hugepages_mib: int = 0
    role_log: str = ""
    role_settings: str = ""
    role_label: str = ""


@dataclass(frozen=True, slots=True)
class ObjectSigns:
    """An object that says how the endpoint fares: the backend's own, or a Deployment or LeaderWorkerSet.

    ``state`` and ``message`` are places in it, as ``status.state``, ``status.conditions.0.message`` or
    ``status.conditions[type=Progressing].reason``; ``ready`` and ``failed`` are states, of which every other one says that the
    backend is at work. ``must_have`` are places that must not be empty. ``namespace`` is the endpoint's unless it is given.
    """

    group: str
    version: str
    plural: str
    name: str
    state: str
    ready: str
    failed: tuple[str, ...] = ()
    message: str = ""
    must_have: tuple[str, ...] = ()
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class DefinitionSigns:
    """A custom resource definition, and the fields that the manifests set."""

    name: str
    version: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogSigns:
    """Regular expressions of log lines, as the gate's spec describes them. Empty: the backend writes no such line."""

    decision: str = ""
    retrieved: str = ""


@dataclass(frozen=True, slots=True)
class DecisionSigns:
    """Counters of whoever decides, prompt by prompt, whether prefill is used: the pods of ``role`` at their port.

    ``split`` and ``whole`` are names of series, ``name{label="value"}``, of which the first that exists counts.
    """

    role: str
    split: tuple[str, ...]
    whole: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownText:
    """A text in events or logs, and what to do about it."""

    text: str
    remedy: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class RoleSigns:
    """An IAM role that the backend uses: how its name must begin, and whom it must trust."""

    name: str
    prefix: str
    service: str
    subject: str


@dataclass(frozen=True, slots=True)
class Signs:
    """An endpoint. ``pods`` are by role: prefill, decode, router, and any other whose pods must be ready as well.

    Whether prefill was used is shown by the prefillers' request counters, and besides by ``logs.decision`` or ``decisions``.
    ``series`` replaces names of time series by what they count, where they are not vLLM's own; ``remedies`` what to do when a
    check fails, by the check's id.
    """

    path: str
    pods: dict[str, PodSigns]
    characters_per_token: int
    chunk_tokens: int
    resources: tuple[ObjectSigns, ...] = ()
    definitions: tuple[DefinitionSigns, ...] = ()
    logs: LogSigns = LogSigns()
    decisions: DecisionSigns | None = None
    series: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    patterns: tuple[KnownText, ...] = ()
    remedies: Mapping[str, str] = field(default_factory=dict)


def set_fields(bodies: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The innermost fields that objects of one kind set, as ``spec.a.b``, with ``[]`` for the items of a list."""
    return tuple(sorted({found for body in bodies for found in _fields(body["spec"], "spec")}))


def _fields(value: Any, path: str) -> Iterator[str]:
    """Fields below a place. A mapping whose keys are not all names of fields (labels, resources) is free, so it is one field."""
    if isinstance(value, list):
        inner = [found for item in value for found in _fields(item, f"{path}[]")]
        yield from inner or [f"{path}[]"]
    elif isinstance(value, dict) and value and all(_FIELD.fullmatch(key) for key in value):
        for key, item in value.items():
            yield from _fields(item, f"{path}.{key}")
    else:
        yield path
