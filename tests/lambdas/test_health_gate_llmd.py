"""The gate in front of a real llm-d endpoint: its spec, its pods as the manifests make them, its own counters and headers."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from health_gate.result import Outcome, Result

from dpd.backends.backend import backend
from dpd.backends.site import Site
from dpd.gate.spec import document
from tests.backends.llmd.objects import E
from tests.lambdas.health_gate import engine as serving
from tests.lambdas.health_gate.engine import DECODE_IP, PICKER_IP, PREFILL_IP, ROUTER_IP, Counters
from tests.lambdas.health_gate.world import STARTED, World, endpoint_slice
from tests.support import LLMD_EXAMPLE, environment

PLACES = {"prefill": (PREFILL_IP, "prefill-0"), "decode": (DECODE_IP, "decode-0"), "picker": (PICKER_IP, "system-0")}
ONE = {f"{E}prefill.replicas": 1}
SET = {**ONE, f"{E}workload": "disaggregated_set"}
WIDE = {f"{E}{role}.{word}": value for role in ("prefill", "decode") for word, value in
        (("replicas", 1), ("tensor_parallel", 2), ("expert_parallel", {"nodes": 1}))}  # fmt: skip


def live(template: dict[str, Any], name: str, role: str) -> dict[str, Any]:
    """A pod of a template, ready on a node."""
    ip, node = PLACES[role]
    spec = template["spec"]
    state = {"ready": True, "restartCount": 0, "state": {"running": {"startedAt": STARTED}}, "lastState": {}}
    return {
        "metadata": {"name": name, "namespace": "inference", "labels": template["metadata"]["labels"]},
        "spec": {**spec, "nodeName": node},
        "status": {
            "podIP": ip,
            "phase": "Running",
            "containerStatuses": [{"name": each["name"], **state} for each in spec["containers"]],
            "initContainerStatuses": [{"name": each["name"], **state} for each in spec.get("initContainers", ())],
        },
    }


def pods_of(bodies: tuple[dict[str, Any], ...]) -> Iterator[dict[str, Any]]:
    """One pod of each owner, named as its controller names it."""
    for body in bodies:
        name, spec = body["metadata"]["name"], body.get("spec", {})
        if body["kind"] == "DisaggregatedSet":
            for role in spec["roles"]:
                yield live(role["spec"]["leaderWorkerTemplate"]["workerTemplate"], f"{name}-0-5c9d7f-{role['name']}-0", role["name"])
        elif body["kind"] == "LeaderWorkerSet":
            template = spec["leaderWorkerTemplate"]["workerTemplate"]
            yield live(template, f"{name}-0", body["metadata"]["labels"]["llm-d.ai/role"])
        elif body["kind"] == "Deployment":
            yield live(spec["template"], f"{name}-6d4f8b9c7-x2x4z", body["metadata"]["labels"].get("llm-d.ai/role", "picker"))


def settle(world: World, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the world's endpoint that of the example."""
    typed = environment(changes, example=LLMD_EXAMPLE)
    bodies = backend("llm-d").objects(typed.endpoints[0], Site.of(typed))
    (known,) = document(typed)["endpoints"]
    pods = {role: {**each, "port": world.pods_port} for role, each in known["pods"].items()}
    world.endpoint_changes = {**known, "pods": pods, "wire": None, "threshold_tokens": 4096, "served_name": "llama"}
    world.changes |= {"definitions": []}
    world.pods = list(pods_of(bodies))
    router = next(each["metadata"]["name"] for each in world.pods if "-picker-" in each["metadata"]["name"])
    world.slices[0] = endpoint_slice("inference", known["pods"]["router"]["service"], ROUTER_IP, router, world.pods_port)
    done = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
    for resource in known["resources"]:
        conditions = [done, {"type": "Available", "status": "True"}]
        world.deployments[resource["name"]] = {"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "conditions": conditions}}
    world.engine.logs = {ip: [] for ip in (PREFILL_IP, DECODE_IP, PICKER_IP, ROUTER_IP)}
    world.engine.faults |= {"silent_router", "silent_connector"}
    monkeypatch.setattr(serving, "CHUNK", known["chunk_tokens"])

    def decisions() -> str:
        name = "llm_d_epp_disagg_decision_total"
        lines = (f'{name}{{decision_type="{each}",model_name="llama"}} {count}' for each, count in world.engine.decided.items())
        return "\n".join([f"# TYPE {name} counter", *lines, ""])

    monkeypatch.setattr(world.engine, "_decisions", decisions)


def result(world: World, id: str, **how: Any) -> Result:
    return next(each for each in world.run(**how).results if each.id == id)


@pytest.mark.parametrize("changes", [ONE, SET], ids=["deployments", "disaggregated_set"])
def test_a_healthy_endpoint_passes_by_its_own_counters(world: World, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    settle(world, changes, monkeypatch)
    report = world.run()
    assert report.outcome is Outcome.PASS, report.table()
    by = {each.id: each.evidence["proven_by"] for each in report.results if "proven_by" in each.evidence}
    assert by["traffic.long"] == by["kv.moved"] == by["kv.complete"] == "counters"
    assert next(each for each in report.results if each.id == "workload.pods").evidence["decode"] == "2/2"


@pytest.mark.parametrize(
    ("faults", "id", "outcome", "words"),
    [
        ({"no_prefill"}, "traffic.long", Outcome.FAIL, "decided against it"),
        ({"no_prefill", "prefill_hidden"}, "traffic.long", Outcome.FAIL, "decided against it"),
        ({"always_prefill"}, "traffic.short", Outcome.FAIL, "below the threshold"),
        ({"recompute"}, "kv.moved", Outcome.FAIL, "took no tokens from prefill"),
        ({"failed_transfers"}, "kv.failures", Outcome.FAIL, "nixl_num_failed_transfers_total rose"),
        ({"corrupt"}, "answers.match", Outcome.FAIL, "is another one"),
    ],
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, set) else None,
)
def test_what_is_wrong_is_said_by_the_first_check_that_sees_it(
    world: World, monkeypatch: pytest.MonkeyPatch, faults: set[str], id: str, outcome: Outcome, words: str
) -> None:
    world.engine.faults |= faults
    settle(world, ONE, monkeypatch)
    first = world.run().causes()[0]
    assert (first.id, first.outcome) == (id, outcome)
    assert words in first.summary


def test_a_decoder_without_its_sidecar_is_not_ready(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(world, ONE, monkeypatch)
    decode = next(each for each in world.pods if each["status"]["podIP"] == DECODE_IP)
    decode["status"]["initContainerStatuses"][0]["ready"] = False
    world.changes["deadlines"] = {"wait_seconds": 0.1, "settle_seconds": 0.1}
    found = result(world, "workload.pods")
    assert found.outcome is Outcome.FAIL
    assert "decode 0 of 1 (1/2" in found.summary


def test_pods_of_the_revision_before_do_not_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(world, ONE, monkeypatch)
    for each in world.pods:
        if each["status"]["podIP"] == PREFILL_IP:
            each["metadata"]["labels"] = {**each["metadata"]["labels"], "dpd/revision": "00000000"}
    assert "prefill 0 of 1 (none)" in result(world, "workload.pods").summary


def test_a_node_without_a_zone_is_named_as_the_cause(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(world, ONE, monkeypatch)
    decode = next(each for each in world.pods if each["status"]["podIP"] == DECODE_IP)
    message = "0/4 nodes are available: 1 node(s) didn't match pod affinity rules, 3 node(s) didn't match Pod's node affinity/selector."
    decode["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}
    found = result(world, "workload.events")
    assert found.outcome is Outcome.FAIL
    assert "topology.kubernetes.io/zone" in found.remedy


def test_every_rank_of_a_pod_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt is served by the last of four ranks, whose counters are behind a port of its own."""
    settle(world, WIDE, monkeypatch)
    pods = world.endpoint_changes["pods"]
    assert {role: each["servers"] for role, each in pods.items()} == {"prefill": 4, "decode": 4, "router": 1, "picker": 1}
    pods["router"]["service_port"] = 443
    asked, proxied, metrics = threading.local(), world.proxied, world.metrics
    last = world.pods_port + 3

    def remember(path: str) -> str:
        asked.port = int(path.partition("/proxy")[0].rpartition(":")[2])
        return proxied(path)

    def by_rank(ip: str, path: str) -> str | None:
        return metrics(ip, path) if ip == PICKER_IP or asked.port == last else Counters().text()

    monkeypatch.setattr(world, "proxied", remember)
    monkeypatch.setattr(world, "metrics", by_rank)
    report = world.run(direct=False)
    assert report.outcome is Outcome.PASS, report.table()
    assert next(each for each in report.results if each.id == "kv.moved").evidence["proven_by"] == "counters"
