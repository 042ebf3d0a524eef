"""What the checks, the charts and the gate may ask of a backend, whichever it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dpd.backends.site import Site
from dpd.catalog.add_ons import INFERENCE
from dpd.catalog.operator import operator
from dpd.environment.endpoint import Endpoint
from dpd.environment.names import OPERATOR_NAMESPACE, Names

if TYPE_CHECKING:
    from dpd.backends.signs import RoleSigns, Signs


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
    """A backend's fixed traits.

    ``logs`` and ``metrics`` map what is meant to a regular expression or the name of a series. ``objects`` makes the
    objects of an endpoint, ``signs`` says by what it is known when it runs; both raise ``ValueError`` for what the checks
    refuse. ``add_on`` is the EKS add-on that runs it, in ``namespace``; ``roles`` are the IAM roles it uses.
    """

    name: str
    capabilities: Capabilities
    ports: dict[str, int]
    logs: dict[str, str]
    metrics: dict[str, str]
    add_on: str
    namespace: str
    objects: Callable[[Endpoint, Site], tuple[dict[str, Any], ...]]
    signs: Callable[[Endpoint, Site], "Signs"]
    roles: Callable[[Names], "tuple[RoleSigns, ...]"]


# The checks ask for traits alone, and the models of a backend's own resource take longer to import than all rules to run.


def _objects(endpoint: Endpoint, site: Site) -> tuple[dict[str, Any], ...]:
    from dpd.backends.operator.build import build  # noqa: PLC0415

    return (build(endpoint, site),)


def _signs(endpoint: Endpoint, site: Site) -> "Signs":
    from dpd.backends.operator.signs import signs  # noqa: PLC0415

    return signs(endpoint, site)


def _roles(names: Names) -> "tuple[RoleSigns, ...]":
    from dpd.backends.operator.signs import roles  # noqa: PLC0415

    return roles(names)


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
        add_on=INFERENCE,
        namespace=OPERATOR_NAMESPACE,
        objects=_objects,
        signs=_signs,
        roles=_roles,
    )


_BACKENDS: Final = {"operator": _operator}


def backend(name: str) -> Backend:
    """The traits of a backend. Raises ``KeyError`` for a name that the environment file does not allow."""
    return _BACKENDS[name]()
