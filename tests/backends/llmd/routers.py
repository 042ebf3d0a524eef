"""Shared by the tests of llm-d's router: an endpoint with some fields changed, and its objects."""

from typing import Any

import yaml

from dpd.backends.llmd import gateway, picker
from dpd.backends.llmd.strategies import Picking, picking
from dpd.backends.site import Site
from dpd.environment.endpoint import Endpoint
from tests.support import LLMD_EXAMPLE, environment

E = "endpoints[0]."
ROUTING = f"{E}routing."
GATEWAY: dict[str, Any] = {f"{ROUTING}gateway": {}}
SPREAD: dict[str, Any] = {"nodes": 2}
MOE: dict[str, Any] = {
    E + "model.catalog": "deepseek-v3", E + "prefill.tensor_parallel": 1, E + "decode.tensor_parallel": 1,
    E + "prefill.replicas": 1, E + "decode.replicas": 1,
    "cluster.groups.prefill.count": 2, "cluster.groups.decode.count": 2,
    E + "prefill.expert_parallel": SPREAD, E + "decode.expert_parallel": SPREAD,
}  # fmt: skip
Body = dict[str, Any]


def given(changes: dict[str, Any] | None = None) -> tuple[Endpoint, Site]:
    """The example's endpoint and the place that it runs in."""
    known = environment(changes, example=LLMD_EXAMPLE)
    return known.endpoints[0], Site.of(known)


def chosen(changes: dict[str, Any] | None = None) -> Picking:
    """Its picker."""
    return picking(*given(changes))


def made(changes: dict[str, Any] | None = None) -> tuple[Body, ...]:
    """Every object of its router, those of a Gateway too."""
    endpoint, site = given(changes)
    return (*picker.objects(endpoint, site), *gateway.objects(endpoint, site))


def one(kind: str, changes: dict[str, Any] | None = None, name: str = "") -> Body:
    """The object of a kind, or of a name that begins so."""
    start = name or given(changes)[0].name
    found = [body for body in made(changes) if body["kind"] == kind and body["metadata"]["name"].startswith(start)]
    assert len(found) == 1, [body["metadata"]["name"] for body in found]
    return found[0]


def pod(changes: dict[str, Any] | None = None) -> Body:
    """``spec`` of the picker's pods."""
    found: Body = one("Deployment", changes, "llama-70b-picker")["spec"]["template"]["spec"]
    return found


def container(name: str, changes: dict[str, Any] | None = None) -> Body:
    """A container of the picker's pod."""
    (found,) = (container for container in pod(changes)["containers"] if container["name"] == name)
    assert isinstance(found, dict)
    return found


def flags(changes: dict[str, Any] | None = None) -> dict[str, str]:
    """The picker's flags."""
    return dict(text.removeprefix("--").split("=", 1) for text in container("epp", changes)["args"])


def file(name: str, changes: dict[str, Any] | None = None) -> Body:
    """A file of the picker's ConfigMap."""
    found = yaml.safe_load(one("ConfigMap", changes, "llama-70b-picker")["data"][name])
    assert isinstance(found, dict)
    return found
