"""By what an endpoint of a backend is known on a live cluster. The health gate looks for nothing else.

Names of fields are those of the gate's spec (``lambda/health_gate/spec.py``), so that a sign is written down as it stands.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PodSigns:
    """The pods of a role. ``containers`` is how many a ready pod has; ``port`` is the engine's own, of the router its pods'."""

    namespace: str
    name_prefix: str
    container: str
    replicas: int
    containers: int
    port: int
    labels: dict[str, str] = field(default_factory=dict)
    service: str = ""
    gpus: int = 0
    efa: int = 0
    hugepages_mib: int = 0


@dataclass(frozen=True, slots=True)
class ObjectSigns:
    """The backend's own object, and the places in it that say how it fares."""

    group: str
    version: str
    plural: str
    name: str
    state: str
    ready: str
    failed: tuple[str, ...]
    message: str
    must_have: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DefinitionSigns:
    """A custom resource definition, and the fields that the manifests set."""

    name: str
    version: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogSigns:
    """Regular expressions of log lines, as the gate's spec describes them."""

    decision: str
    retrieved: str
    prefill_role: str
    decode_role: str


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
    """An endpoint. ``pods`` are by role: prefill, decode, router."""

    path: str
    pods: dict[str, PodSigns]
    resource: ObjectSigns
    definition: DefinitionSigns
    logs: LogSigns
    patterns: tuple[KnownText, ...]
    characters_per_token: int
    chunk_tokens: int
