"""All objects of one llm-d endpoint, in the order in which they are applied."""

from typing import Any

from dpd.backends.llmd import gateway, picker, scaling, workers
from dpd.backends.site import Site
from dpd.environment.endpoint import Endpoint


def build(endpoint: Endpoint, site: Site) -> tuple[dict[str, Any], ...]:
    """What an endpoint consists of: workers and what scales them, the router, and a Gateway where it asks for one.

    Raises ``ValueError`` for what the checks refuse.
    """
    return tuple(body for part in (workers, scaling, picker, gateway) for body in part.objects(endpoint, site))
