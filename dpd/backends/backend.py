"""What the checks, the charts and the gate may ask of a backend, whichever it is."""

from dataclasses import dataclass
from typing import Final

from dpd.catalog.operator import operator


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do."""

    equal_tensor_parallel: bool
    """Prefill and decode must have the same tensor parallel size."""
    decode_replicas: int
    """Decode replicas that its maker states to be supported."""
    tolerations: bool
    """Whether pods can tolerate taints."""
    per_role_environment: bool
    """Whether the roles can have different environment variables or images."""
    per_role_autoscaling: bool
    """Whether the roles scale apart."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend's fixed traits. ``logs`` and ``metrics`` map what is meant to the literal text or series name."""

    name: str
    capabilities: Capabilities
    ports: dict[str, int]
    logs: dict[str, str]
    metrics: dict[str, str]


def _operator() -> Backend:
    facts = operator()
    return Backend(
        name="operator",
        capabilities=Capabilities(
            equal_tensor_parallel=True, decode_replicas=1, tolerations=False, per_role_environment=False, per_role_autoscaling=True
        ),
        ports=facts.ports,
        logs=facts.log_signatures,
        metrics=facts.metrics,
    )


_BACKENDS: Final = {"operator": _operator}


def backend(name: str) -> Backend:
    """The traits of a backend. Raises ``KeyError`` for a name that the environment file does not allow."""
    return _BACKENDS[name]()
