"""Serving images: which ones disaggregation works with on EFA, and what is in them."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from dpd.catalog.tables import yaml_table


@dataclass(frozen=True, slots=True)
class ServingImage:
    """An image by repository and tag; an unusable one is named by repository alone, with the reason in ``why``."""

    repository: str
    role: Literal["default", "supported", "unusable"]
    source: str
    tag: str = ""
    vllm: str = ""
    lmcache: str = ""
    nixl: str = ""
    why: str = ""
    digest: str = ""
    backend: str = "operator"
    """Which backend it serves."""


@cache
def images() -> tuple[ServingImage, ...]:
    """All images of the catalog, the default first."""
    return tuple(ServingImage(**row) for row in yaml_table("images"))


def default_image(backend: str = "operator") -> ServingImage:
    """The image that AWS, or llm-d for its own backend, names for disaggregated serving on EFA."""
    return next(image for image in images() if image.role == "default" and image.backend == backend)


def find(repository: str, tag: str = "") -> ServingImage | None:
    """The entry of an image, with or without ``docker.io/`` in front; an unusable repository matches whatever its tag."""
    name = repository.removeprefix("docker.io/")
    return next((image for image in images() if image.repository == name and image.tag in ("", tag)), None)
