"""One Kubernetes object as a file, and the one way in which any object is made with cdk8s from Python."""

import functools
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cdk8s import ApiObject, App, Chart, JsonPatch
from constructs import Construct


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object: ``path`` relative to the folder of its endpoint, namespace or cluster; ``body`` as Kubernetes reads it."""

    path: str
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Namespace of the object; empty for one that belongs to the cluster."""
        return str(self.body["metadata"].get("namespace", ""))


def api_object(scope: Construct, body: dict[str, Any]) -> ApiObject:
    """Add any object to a chart.

    ``ApiObject`` takes no ``spec`` in Python (https://github.com/cdk8s-team/cdk8s/issues/2161), so everything besides
    metadata travels as one JSON patch: one call over jsii for a whole body, whatever its size.
    """
    metadata = body["metadata"]
    known = ApiObject(scope, file_name(body), api_version=body["apiVersion"], kind=body["kind"], metadata=metadata)
    rest = {key: value for key, value in body.items() if key not in {"apiVersion", "kind", "metadata"}}
    if rest:
        known.add_json_patch(*(JsonPatch.add(f"/{key}", value) for key, value in rest.items()))
    return known


def file_name(body: dict[str, Any]) -> str:
    """Name of an object's file, without its suffix: ``<kind>-<name>`` (colons of RBAC names become dashes)."""
    return f"{body['kind'].lower()}-{body['metadata']['name']}".replace(":", "-")


def manifests(chart: Chart) -> tuple[Manifest, ...]:
    """What a chart renders to, in the order in which its objects were added unless they depend on each other."""
    return tuple(Manifest(path=f"{file_name(body)}.yaml", body=body) for body in chart.to_json())


def chart_of(bodies: Iterable[dict[str, Any]]) -> tuple[Manifest, ...]:
    """Render objects as one chart. Equal objects are rendered once: environments of one Region share what their nodes need."""
    return _rendered(json.dumps(list(bodies)))


@functools.cache
def _rendered(bodies: str) -> tuple[Manifest, ...]:
    chart = Chart(_app(), hashlib.sha256(bodies.encode()).hexdigest())
    for body in json.loads(bodies):
        api_object(chart, body)
    return manifests(chart)


@functools.cache
def _app() -> App:
    return App()
