"""A failed update is taken back without proving what is not there any more, or not yet."""

import json
from typing import Any

import botocore.session
import pytest
from health_gate import handler

from tests.lambdas.health_gate.aws_calls import Calls, Refuse
from tests.lambdas.health_gate.world import World

STACK = "arn:aws:cloudformation:us-east-2:111122223333:stack/dpd-dev-gate/0a1b2c3d-1111-2222-3333-444455556666"


class Context:
    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def started(world: World, monkeypatch: pytest.MonkeyPatch, describe: Any, request: str = "Update") -> dict[str, Any]:
    calls = Calls({"DescribeStacks": describe})
    monkeypatch.setattr(botocore.session, "get_session", lambda: calls.session)
    event = {
        "RequestType": request,
        "StackId": STACK,
        "PhysicalResourceId": "health-gate-dpd-dev",
        "ResourceProperties": _properties(world),
    }
    return {**event, **handler.on_event(event, Context())}


def _properties(world: World) -> dict[str, str]:

    return {"Spec": json.dumps(world.document()), "Digest": "0"}


def stack(status: str) -> Any:
    return lambda asked: {"Stacks": [{"StackName": asked["StackName"], "CreationTime": 0, "StackStatus": status}]}


def test_the_old_properties_of_a_rollback_are_taken_without_a_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    event = started(world, monkeypatch, stack("UPDATE_ROLLBACK_IN_PROGRESS"))
    assert event["PhysicalResourceId"] == "health-gate-dpd-dev"
    world.override["/"] = (500, b"")
    assert handler.is_complete(event, Context()) == {"IsComplete": True}
    assert not world.requests


def refuse(_: Any) -> Any:
    raise Refuse("AccessDenied", 403)


@pytest.mark.parametrize("describe", [stack("UPDATE_IN_PROGRESS"), refuse], ids=["an update", "nobody knows"])
def test_everything_else_is_proven(world: World, monkeypatch: pytest.MonkeyPatch, describe: Any) -> None:
    event = started(world, monkeypatch, describe)
    assert "RolledBack" not in event
    assert event["Started"]


def test_a_first_deployment_does_not_ask(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    event = started(world, monkeypatch, refuse, request="Create")
    assert event["Started"]
