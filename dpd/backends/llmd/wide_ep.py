"""A role whose replicas span nodes."""

from typing import Any

from dpd.backends.site import Site
from dpd.environment.endpoint import Endpoint


def wide_ep(endpoint: Endpoint, role_name: str, site: Site, template: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """The LeaderWorkerSet of a role."""
    raise ValueError("not yet")
