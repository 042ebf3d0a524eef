"""Manifests of an endpoint that llm-d serves."""

from typing import Any

from charts.site import Site
from dpd.backends.llmd.build import build
from dpd.environment.endpoint import Endpoint


def objects(endpoint: Endpoint, site: Site) -> tuple[dict[str, Any], ...]:
    """Workers, router and what belongs to them, object by object."""
    return build(endpoint, site)
