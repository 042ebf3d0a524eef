"""All objects of one llm-d endpoint, in the order in which they are applied."""

from importlib import import_module
from typing import Any, Final

from dpd.backends.site import Site
from dpd.environment.endpoint import Endpoint

_PARTS: Final = ("workers", "picker", "gateway")


def build(endpoint: Endpoint, site: Site) -> tuple[dict[str, Any], ...]:
    """What an endpoint consists of: workers, router, and a Gateway where it asks for one.

    Raises ``ValueError`` for what the checks refuse.
    """
    parts = [import_module(f"dpd.backends.llmd.{name}") for name in _PARTS]
    return tuple(body for part in parts for body in part.objects(endpoint, site))
