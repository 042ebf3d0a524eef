"""An endpoint as a whole: the order of its objects, and images from mirrors."""

import json
from typing import Any

import pytest

from dpd.backends.llmd.build import build
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from tests.backends.llmd.objects import Body, E
from tests.support import LLMD_EXAMPLE, environment

MIRRORS = {name: f"mirror.example/{name}" for name in ("picker", "sidecar", "envoy", "tokenizer")}


def made(changes: dict[str, Any] | None = None) -> tuple[Body, ...]:
    known = environment(changes, example=LLMD_EXAMPLE)
    return build(known.endpoints[0], Site.of(known))


def images(value: Any) -> set[str]:
    """Every image below a value."""
    if isinstance(value, dict):
        own = {value["image"]} if isinstance(value.get("image"), str) else set()
        return own.union(*map(images, value.values()))
    return set().union(*map(images, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("changes", [{}, {f"{E}routing.gateway": {}}, {f"{E}workload": "disaggregated_set"}])
def test_every_object_is_made_once(changes: dict[str, Any]) -> None:
    keys = [(body["apiVersion"], body["kind"], body["metadata"].get("namespace"), body["metadata"]["name"]) for body in made(changes)]
    assert len(keys) == len(set(keys))


def test_what_an_object_names_stands_before_it() -> None:
    kinds = [(body["kind"], body["metadata"]["name"]) for body in made({f"{E}routing.gateway": {}})]
    order = ["PersistentVolumeClaim", "ServiceAccount", "ConfigMap", "Service", "InferencePool", "Gateway", "HTTPRoute"]
    first = [next(index for index, (kind, _) in enumerate(kinds) if kind == wanted) for wanted in order]
    assert first == sorted(first)


def test_images_of_the_router_come_from_mirrors_with_their_digests() -> None:
    mirrored = images(list(made({f"{E}routing.strategy": "kv_aware", "cluster.router_repositories": MIRRORS})))
    public = [*llmd().router_repositories().values()]
    assert not [image for image in mirrored if image.startswith(tuple(public))]
    known = llmd().images
    assert {f"mirror.example/{name}:{image.tag}@{image.digest}" for name, image in known.items()} <= mirrored
    assert any(image.startswith("mirror.example/tokenizer:v") for image in mirrored)


def test_another_mirror_changes_images_and_nothing_else() -> None:
    plain, mirrored = (json.dumps(made(changes)) for changes in ({}, {"cluster.router_repositories": MIRRORS}))
    for name, repository in llmd().router_repositories().items():
        mirrored = mirrored.replace(f"{MIRRORS[name]}:", f"{repository}:")
    assert mirrored == plain


def test_the_same_input_gives_the_same_objects() -> None:
    assert json.dumps(made()) == json.dumps(made())
