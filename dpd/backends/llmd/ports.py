"""Ports on which the router finds workers."""

from dpd.backends.llmd.engine import of_role
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.catalog.llmd_plugins import picker_facts
from dpd.environment.endpoint import Endpoint


def target_ports(endpoint: Endpoint, site: Site) -> tuple[int, ...]:
    """Ports of the pool: one for each data parallel rank of a pod, and with one port only the first rank would get requests."""
    first = llmd().ports["server"]
    return tuple(first + rank for rank in range(max(of_role(endpoint, name, site)[2] for name, _ in endpoint.roles)))


def active_ports(endpoint: Endpoint, role_name: str, site: Site) -> dict[str, str]:
    """Annotation of a role's pods that serve on fewer ports than the pool has, else nothing.

    The pool's ports hold for both roles. Without the annotation three of four requests to a prefiller of one rank went to
    ports that nobody listens on (https://github.com/llm-d/llm-d/pull/2488).
    """
    ports, ranks = target_ports(endpoint, site), of_role(endpoint, role_name, site)[2]
    return {} if ranks == len(ports) else {picker_facts().active_ports: ",".join(map(str, ports[:ranks]))}
