"""Which controllers the endpoints of an environment need on its cluster. Nothing is installed that none of them asks for."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dpd.backends.backend import backend
from dpd.catalog.controllers import all_controllers
from dpd.environment.cluster import AddOn
from dpd.environment.endpoint import Endpoint

GATEWAY_API, INFERENCE_EXTENSION, ISTIO, LOAD_BALANCERS, LWS, KEDA = (
    "gateway-api", "inference-extension", "istio", "aws-load-balancer-controller", "lws", "keda",
)  # fmt: skip
_BROUGHT_BY_THE_OPERATOR: Final = frozenset({LOAD_BALANCERS, KEDA})


def idle_add_ons(endpoints: Iterable[Endpoint]) -> frozenset[str]:
    """EKS add-ons that run a backend which no endpoint has. While there is no endpoint at all none is idle: some backend will come."""
    used = {endpoint.backend for endpoint in endpoints}
    return frozenset(backend(name).add_on for name in ("operator",) if used and name not in used)


def asked_for(endpoints: Iterable[Endpoint]) -> tuple[str, ...]:
    """Names of the controllers that the endpoints need and that no add-on brings, in the order in which they are installed."""
    known = tuple(endpoints)
    wanted = {name for endpoint in known for name in _of(endpoint)}
    if any(endpoint.backend == "operator" for endpoint in known):
        wanted -= _BROUGHT_BY_THE_OPERATOR
    return tuple(name for name in all_controllers() if name in wanted)


def needed(endpoints: Iterable[Endpoint], changes: Mapping[str, AddOn]) -> tuple[str, ...]:
    """``asked_for`` without those of which the file says that the cluster has them."""
    return tuple(name for name in asked_for(endpoints) if changes.get(name, AddOn()).install)


def sets_of_roles(endpoints: Iterable[Endpoint]) -> bool:
    """Whether an endpoint is one DisaggregatedSet, which its controller only handles when told to."""
    return any(endpoint.workload == "disaggregated_set" for endpoint in endpoints)


def _of(endpoint: Endpoint) -> Iterator[str]:
    if endpoint.backend == "operator":
        return
    roles = [role for _name, role in endpoint.roles]
    if endpoint.routing.gateway:
        yield from (GATEWAY_API, INFERENCE_EXTENSION, LOAD_BALANCERS, ISTIO)
    if endpoint.workload == "disaggregated_set" or any(role.expert_parallel for role in roles):
        yield LWS
    if any(role.autoscaling for role in roles):
        yield KEDA
