"""What a change of an object does to pods and to requests."""

from typing import Any

import pytest

from dpd.review.assembly import Assembly
from dpd.review.objects import compare_objects
from tests.support import ROOT


def assembly(*bodies: dict[str, Any], number: int = 0) -> Assembly:
    return Assembly(ROOT, {}, {f"dev/llama/{number + index:02}-{body['kind']}.yaml": body for index, body in enumerate(bodies)})


def body(kind: str, place: str = "", value: Any = 1) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": kind, "metadata": {"name": "x", "namespace": "inference"}}
    at = made
    *parents, last = place.split("/")
    for part in parents:
        at = at.setdefault(part, {})
    if place:
        at[last] = value
    return made


@pytest.mark.parametrize(
    ("kind", "place", "expected"),
    [
        ("InferenceEndpointConfig", "spec/worker/image", ("restarts pods",)),
        ("InferenceEndpointConfig", "spec/pdSpec/prefillSpec/args", ("restarts pods",)),
        ("InferenceEndpointConfig", "spec/pdSpec/prefillSpec/replicas", ("scales",)),
        ("InferenceEndpointConfig", "spec/pdSpec/autoScalingSpec/prefillAutoScaling", ("scales",)),
        ("InferenceEndpointConfig", "spec/pdSpec/routingThreshold", ("re-routes requests",)),
        ("InferenceEndpointConfig", "spec/tags", ()),
        ("InferenceEndpointConfig", "spec/workerPools", ()),
        ("Deployment", "spec/template/spec", ("restarts pods",)),
        ("Deployment", "spec/replicas", ("scales",)),
        ("Deployment", "spec/strategy", ()),
        ("LeaderWorkerSet", "spec/leaderWorkerTemplate/size", ("restarts pods",)),
        ("ConfigMap", "data/config", ("restarts pods", "re-routes requests")),
        ("HTTPRoute", "spec/rules", ("re-routes requests",)),
        ("ScaledObject", "spec/maxReplicaCount", ("scales",)),
        ("ClusterRole", "rules", ("changes rights",)),
        ("Deployment", "metadata/labels/a", ()),
    ],
)
def test_a_field_has_its_consequence(kind: str, place: str, expected: tuple[str, ...]) -> None:
    (change,) = compare_objects(assembly(body(kind, place, 1)), assembly(body(kind, place, 2)))
    assert (change.effect, change.consequences) == ("changed", expected)


def test_objects_come_and_go() -> None:
    found = compare_objects(assembly(body("Service")), assembly(body("Deployment")))
    assert [(change.kind, change.effect) for change in found] == [("Deployment", "added"), ("Service", "removed")]


def test_another_place_in_the_order_is_no_change() -> None:
    assert compare_objects(assembly(body("Service"), body("Deployment")), assembly(body("Deployment"), body("Service"), number=7)) == ()


def owner(kind: str, revision: str) -> dict[str, Any]:
    made = body(kind)
    made["metadata"] |= {"name": f"x-decode-{revision}", "labels": {"dpd/revision": revision}}
    return made


@pytest.mark.parametrize("kind", ["Deployment", "LeaderWorkerSet", "DisaggregatedSet"])
def test_another_revision_of_an_endpoint_interrupts_its_requests(kind: str) -> None:
    before, after = owner(kind, "00000001"), owner(kind, "00000002")
    found = {change.effect: change.consequences for change in compare_objects(assembly(before), assembly(after))}
    assert found == {"added": (), "removed": ("interrupts requests",)}
    (gone,) = compare_objects(assembly(before), assembly())
    assert gone.consequences == (), "an endpoint that goes was meant to"
    (plain,) = (change for change in compare_objects(assembly(body(kind)), assembly(after)) if change.effect == "removed")
    assert plain.consequences == ()
