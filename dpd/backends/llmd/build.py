"""All objects of one llm-d endpoint, in the order in which they are applied."""

from collections.abc import Iterable, Mapping
from typing import Any

from dpd.backends.llmd import gateway, picker, scaling, workers
from dpd.backends.site import Site
from dpd.catalog.llmd import RouterImageName, llmd
from dpd.environment.endpoint import Endpoint


def build(endpoint: Endpoint, site: Site) -> tuple[dict[str, Any], ...]:
    """What an endpoint consists of: workers and what scales them, the router, and a Gateway where it asks for one.

    Raises ``ValueError`` for what the checks refuse.
    """
    bodies = [body for part in (workers, scaling, picker, gateway) for body in part.objects(endpoint, site)]
    mirrors = {public: site.router_repositories[name] for name, public in _repositories() if name in site.router_repositories}
    return tuple(_mirrored(body, mirrors) if mirrors else body for body in bodies)


def _repositories() -> Iterable[tuple[RouterImageName, str]]:
    return llmd().router_repositories().items()


def _mirrored(value: Any, mirrors: Mapping[str, str], key: str = "") -> Any:
    """The same with images from mirrors. A digest stays: it is of the content, wherever that lies."""
    if isinstance(value, dict):
        return {name: _mirrored(item, mirrors, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_mirrored(item, mirrors) for item in value]
    if key == "image":
        public = next((public for public in mirrors if value.startswith((f"{public}:", f"{public}@"))), None)
        return mirrors[public] + value.removeprefix(public) if public else value
    return value
