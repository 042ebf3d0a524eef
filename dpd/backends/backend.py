"""What the checks, the charts and the gate may ask of a backend, whichever it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dpd.backends.site import Site
from dpd.catalog.add_ons import INFERENCE
from dpd.catalog.llmd import llmd
from dpd.catalog.operator import operator
from dpd.environment.endpoint import Endpoint
from dpd.environment.names import OPERATOR_NAMESPACE, Names

if TYPE_CHECKING:
    from dpd.backends.signs import RoleSigns, Signs


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do with the words of the environment file. A word that it cannot honour is a finding."""

    equal_tensor_parallel: bool
    """Prefill and decode must have the same tensor parallel size; else decode's may be larger."""
    decode_replicas: int | None
    """Decode replicas that its maker states to be supported; ``None`` for any number."""
    tolerations: bool
    """Whether pods can tolerate taints."""
    per_role_environment: bool
    """Whether the roles can have different environment variables or images."""
    per_role_autoscaling: bool
    """Whether the roles scale apart."""
    kv_buffer: bool
    """Whether incoming KV waits in a buffer of its own (`kv.buffer_gib`); else it goes straight into the decoder's cache."""
    strategies: frozenset[str]
    """Values of `routing.strategy`."""
    threshold_counts: frozenset[str]
    """Values of `routing.threshold_counts`."""
    no_prefiller: frozenset[str]
    """Values of `routing.no_prefiller`."""
    load_failure: frozenset[str]
    """Values of `kv.load_failure`."""
    tier_engines: frozenset[str]
    """Values of `kv.tier_engine` that may be written."""
    shared_tiers: frozenset[str]
    """Kinds of `kv.shared_tier`: a word, or the scheme of its address."""
    workloads: frozenset[str]
    """Values of `workload`."""
    gateway: bool
    """Whether `routing.gateway` can stand in front."""
    disk_tier: bool
    """Whether KV can be kept on disk."""
    eviction: frozenset[str]
    """Values of `kv.eviction`."""
    expert_parallel: bool
    """Whether a replica can span nodes."""
    rolling_update: bool
    """Whether `max_surge` reaches the pods."""
    priority: bool
    """Whether `objectives.priority` reaches the router."""
    pod_security: bool
    """Whether `privileged` and `hugepages_mib` reach the pods."""
    exposure: bool
    """Whether it makes a SageMaker endpoint and a load balancer with a certificate."""
    raw: bool
    """Whether it has one resource that `raw.spec` is merged into."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend's fixed traits.

    ``logs`` and ``metrics`` map what is meant to a regular expression or the name of a series. ``objects`` makes the
    objects of an endpoint in the order in which they are applied, ``signs`` says by what it is known when it runs; both
    raise ``ValueError`` for what the checks refuse. ``add_on`` is the EKS add-on that runs it, in ``namespace``, where it
    has one; ``roles`` are the IAM roles it uses.
    """

    name: str
    capabilities: Capabilities
    ports: dict[str, int]
    logs: dict[str, str]
    metrics: dict[str, str]
    objects: Callable[[Endpoint, Site], tuple[dict[str, Any], ...]]
    signs: Callable[[Endpoint, Site], "Signs"]
    roles: Callable[[Names], "tuple[RoleSigns, ...]"]
    add_on: str = ""
    namespace: str = ""


# The checks ask for traits alone, and the models of a backend's own resource take longer to import than all rules to run.


def _operator_objects(endpoint: Endpoint, site: Site) -> tuple[dict[str, Any], ...]:
    from dpd.backends.operator.build import build  # noqa: PLC0415

    return (build(endpoint, site),)


def _operator_signs(endpoint: Endpoint, site: Site) -> "Signs":
    from dpd.backends.operator.signs import signs  # noqa: PLC0415

    return signs(endpoint, site)


def _operator_roles(names: Names) -> "tuple[RoleSigns, ...]":
    from dpd.backends.operator.signs import roles  # noqa: PLC0415

    return roles(names)


def _operator() -> Backend:
    facts = operator()
    return Backend(
        name="operator",
        capabilities=Capabilities(
            equal_tensor_parallel=True,
            decode_replicas=1,
            tolerations=False,
            per_role_environment=False,
            per_role_autoscaling=True,
            kv_buffer=True,
            strategies=frozenset(facts.routing_strategies),
            threshold_counts=frozenset({"prompt"}),
            no_prefiller=frozenset({"fail"}),
            load_failure=frozenset({"recompute"}),
            tier_engines=frozenset({"lmcache"}),
            shared_tiers=frozenset({"none", "tiered_storage", "redis", "rediss"}),
            workloads=frozenset({"deployments"}),
            gateway=False,
            disk_tier=False,
            eviction=frozenset(),
            expert_parallel=False,
            rolling_update=False,
            priority=False,
            pod_security=False,
            exposure=True,
            raw=True,
        ),
        ports=facts.ports,
        logs=facts.log_signatures,
        metrics=facts.metrics,
        add_on=INFERENCE,
        namespace=OPERATOR_NAMESPACE,
        objects=_operator_objects,
        signs=_operator_signs,
        roles=_operator_roles,
    )


def _llmd_objects(endpoint: Endpoint, site: Site) -> tuple[dict[str, Any], ...]:
    from dpd.backends.llmd.build import build  # noqa: PLC0415

    return build(endpoint, site)


def _llmd_signs(endpoint: Endpoint, site: Site) -> "Signs":
    from dpd.backends.llmd.signs import signs  # noqa: PLC0415

    return signs(endpoint, site)


def _llmd() -> Backend:
    facts = llmd()
    return Backend(
        name="llm-d",
        capabilities=Capabilities(
            equal_tensor_parallel=False,
            decode_replicas=None,
            tolerations=True,
            per_role_environment=True,
            per_role_autoscaling=True,
            kv_buffer=False,
            strategies=frozenset({"prefix_aware", "kv_aware", "session", "round_robin", "load"}),
            threshold_counts=frozenset({"prompt", "non_cached"}),
            no_prefiller=frozenset({"fail", "fallback"}),
            load_failure=frozenset({"fail", "recompute"}),
            tier_engines=frozenset({"native", "lmcache"}),
            shared_tiers=frozenset({"none", "mooncake"}),
            workloads=frozenset({"deployments", "disaggregated_set"}),
            gateway=True,
            disk_tier=True,
            eviction=frozenset({"lru", "arc", "lfu", "fifo", "mru"}),
            expert_parallel=True,
            rolling_update=True,
            priority=True,
            pod_security=True,
            exposure=False,
            raw=False,
        ),
        ports=facts.ports,
        logs=facts.more.get("log_signatures", {}),
        metrics=facts.more.get("metrics", {}),
        objects=_llmd_objects,
        signs=_llmd_signs,
        roles=lambda _: (),
    )


_BACKENDS: Final = {"operator": _operator, "llm-d": _llmd}


def backend(name: str) -> Backend:
    """The traits of a backend. Raises ``KeyError`` for a name that the environment file does not allow."""
    return _BACKENDS[name]()
