"""By what an llm-d endpoint is known: every sign is one of an object that is made."""

import re
from typing import Any

import pytest

from dpd.backends.llmd.build import build
from dpd.backends.llmd.signs import signs
from dpd.backends.signs import Signs
from dpd.backends.site import Site
from tests.backends.llmd.objects import Body, E
from tests.support import LLMD_EXAMPLE, environment

GATEWAY: dict[str, Any] = {f"{E}routing.gateway": {}}
SET = {f"{E}workload": "disaggregated_set"}
WIDE = {f"{E}prefill.expert_parallel": {"nodes": 1}, f"{E}prefill.replicas": 1, f"{E}prefill.tensor_parallel": 1}
SHAPES = {"deployments": {}, "set": SET, "wide": WIDE, "gateway": GATEWAY}


def known(changes: dict[str, Any]) -> tuple[Signs, tuple[Body, ...]]:
    typed = environment(changes, example=LLMD_EXAMPLE)
    site = Site.of(typed)
    return signs(typed.endpoints[0], site), build(typed.endpoints[0], site)


def templates(bodies: tuple[Body, ...]) -> list[Body]:
    """Every pod template that is made."""
    found = []
    for body in bodies:
        specs = [role["spec"] for role in body["spec"]["roles"]] if body["kind"] == "DisaggregatedSet" else [body.get("spec", {})]
        for spec in specs:
            inner = spec.get("leaderWorkerTemplate", {})
            found += [one for one in (spec.get("template"), inner.get("workerTemplate"), inner.get("leaderTemplate")) if one]
    return found


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_pods_are_those_that_are_made(changes: dict[str, Any]) -> None:
    sign, bodies = known(changes)
    for role in ("prefill", "decode", "picker"):
        pods = sign.pods[role]
        mine = [one for one in templates(bodies) if pods.labels.items() <= one["metadata"]["labels"].items()]
        assert mine, role
        for template in mine:
            containers = {container["name"]: container for container in template["spec"]["containers"]}
            assert pods.container in containers
            assert pods.port in [port["containerPort"] for port in containers[pods.container]["ports"]]
            limits = containers[pods.container].get("resources", {}).get("limits", {})
            assert int(limits.get("vpc.amazonaws.com/efa", 0)) == pods.efa
            assert int(limits.get("nvidia.com/gpu", 0)) == pods.gpus
            ports = [port["containerPort"] for port in containers[pods.container]["ports"]]
            assert set(range(pods.port, pods.port + pods.servers)) <= set(ports)
            assert pods.servers == (8 if role == "prefill" and changes is WIDE else 1)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_worker_s_own_settings_say_its_side_of_the_transfer(role: str) -> None:
    sign, bodies = known({})
    pods = sign.pods[role]
    (template,) = [one for one in templates(bodies) if pods.labels.items() <= one["metadata"]["labels"].items()]
    lines = [f"arg {argument}" for argument in template["spec"]["containers"][0]["args"]]
    other = sign.pods["decode" if role == "prefill" else "prefill"].role_settings
    assert any(re.search(pods.role_settings, line) for line in lines)
    assert not any(re.search(other, line) for line in lines)
    key, _, value = pods.role_label.partition("=")
    assert template["metadata"]["labels"][key] == value


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_clients_find_the_router_s_service(changes: dict[str, Any]) -> None:
    sign, bodies = known(changes)
    router = sign.pods["router"]
    if changes is GATEWAY:
        (front,) = [body for body in bodies if body["kind"] == "Service" and body["spec"].get("externalName")]
        assert front["spec"]["externalName"].startswith(f"{router.service}.inference.")
        return
    (front,) = [body for body in bodies if body["kind"] == "Service" and body["metadata"]["name"] == router.service]
    assert front["spec"]["ports"][0]["port"] == router.service_port
    assert front["spec"]["selector"] == router.labels


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_objects_that_tell_how_it_fares_are_made(changes: dict[str, Any]) -> None:
    sign, bodies = known(changes)
    made = {(body["apiVersion"], f"{body['kind'].lower()}s", body["metadata"]["name"]) for body in bodies}
    assert sign.resources
    for resource in sign.resources:
        assert (f"{resource.group}/{resource.version}", resource.plural, resource.name) in made


def test_definitions_are_those_of_the_kinds_that_kubernetes_has_not() -> None:
    assert known({})[0].definitions == ()
    names = {definition.name for definition in known(GATEWAY)[0].definitions}
    assert {"inferencepools.inference.networking.k8s.io", "gateways.gateway.networking.k8s.io"} <= names
    (the_set,) = known(SET)[0].definitions
    assert the_set.name == "disaggregatedsets.disaggregatedset.x-k8s.io"
    assert "spec.roles[].name" in the_set.fields


@pytest.mark.parametrize("block", [64, 128])
def test_kv_moves_in_blocks(block: int) -> None:
    assert known({f"{E}kv.block_size": block})[0].chunk_tokens == block


@pytest.mark.parametrize(("strategy", "characters"), [("prefix_aware", 4), ("kv_aware", 5)])
def test_a_prompt_that_must_be_long_enough_is_so_for_a_picker_that_counts_tokens(strategy: str, characters: int) -> None:
    assert known({f"{E}routing.strategy": strategy})[0].characters_per_token == characters
