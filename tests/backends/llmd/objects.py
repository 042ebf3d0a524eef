"""Shared by the tests of llm-d's workers: an endpoint with some fields changed, and its objects by kind and role."""

import json
from typing import Any

from dpd.backends.llmd.workers import objects
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from tests.support import LLMD_EXAMPLE, environment

E = "endpoints[0]."
Body = dict[str, Any]


def made(changes: dict[str, Any] | None = None) -> tuple[Body, ...]:
    """Every object of the example's workers."""
    known = environment(changes, example=LLMD_EXAMPLE)
    return objects(known.endpoints[0], Site.of(known))


def of_role(role: str, kind: str = "Deployment", changes: dict[str, Any] | None = None) -> Body:
    """The object of a kind that belongs to a role."""
    label = llmd().labels["role"]
    (found,) = (body for body in made(changes) if body["kind"] == kind and body["metadata"]["labels"].get(label) == role)
    return found


def pod(role: str, changes: dict[str, Any] | None = None) -> Body:
    """``spec`` of a role's pods."""
    found: Body = of_role(role, changes=changes)["spec"]["template"]["spec"]
    return found


def server(role: str, changes: dict[str, Any] | None = None) -> Body:
    """The container with vLLM."""
    (found,) = pod(role, changes)["containers"]
    assert isinstance(found, dict)
    return found


def variables(role: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Environment variables: a text, or where the value comes from."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in server(role, changes)["env"]}


def argument(role: str, flag: str, changes: dict[str, Any] | None = None) -> str | None:
    """The value of a flag, ``None`` without it."""
    args = server(role, changes)["args"]
    return str(args[args.index(flag) + 1]) if flag in args else None


def transfer(role: str, changes: dict[str, Any] | None = None) -> Body:
    """The hand-over's configuration."""
    found = json.loads(argument(role, "--kv-transfer-config", changes) or "null")
    assert isinstance(found, dict)
    return found
