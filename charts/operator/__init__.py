"""Manifests of an endpoint that the HyperPod inference operator runs."""

from typing import Any

from charts.site import Site
from dpd.backends.operator.build import build
from dpd.environment.endpoint import Endpoint


def objects(endpoint: Endpoint, site: Site) -> tuple[dict[str, Any], ...]:
    """The one object that the operator reads; it makes Deployments, router, Services and Ingress from it."""
    return (build(endpoint, site),)
