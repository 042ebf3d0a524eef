"""What Kubernetes says of nodes, definitions and webhooks, and how the gate asks it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from botocore.httpsession import DEFAULT_CA_BUNDLE
from health_gate.result import Outcome, Patience

from dpd.catalog.instances import find
from tests.lambdas.health_gate.world import CRD, SYSTEM, World, endpoint_slice, kube_node

Break = Callable[[World], Any]


def _node(place: int, made: dict[str, Any]) -> Break:
    return lambda world: world.nodes.__setitem__(place, made)


def _definition(**values: Any) -> Break:
    def change(world: World) -> None:
        assert world.definition is not None
        world.definition["spec"].update(values)

    return change


def _conversion(world: World) -> None:
    client = {"service": {"namespace": SYSTEM, "name": "converter"}}
    _definition(conversion={"strategy": "Webhook", "webhook": {"clientConfig": client}})(world)


def _override(path: str, status: int, body: bytes = b"{}") -> Break:
    return lambda world: world.override.update({path: (status, body)})


def _schema(spec: dict[str, Any]) -> Break:
    return _definition(versions=[{"name": "v1", "served": True, "schema": {"openAPIV3Schema": {"properties": {"spec": spec}}}}])


def _hidden_pages(world: World) -> None:
    world.nodes[0]["status"]["conditions"] = []
    world.page = 1


OLD: dict[str, Any] = {"properties": {"tags": {"items": {"properties": {"name": {}}}}}}
DEFINITE, NOT_YET = (Outcome.FAIL, Patience.NEVER), (Outcome.FAIL, Patience.DEADLINE)
DENIED, UNSEEN = (Outcome.UNKNOWN, Patience.GRACE), (Outcome.UNKNOWN, Patience.DEADLINE)
WRONG: list[tuple[Any, ...]] = [
    (
        "not ready",
        _node(2, kube_node("prefill", ready=False)),
        "cluster.nodes",
        *NOT_YET,
        r"prefill 0 of 1 \(not Ready\)",
    ),
    ("cordoned", _node(2, kube_node("prefill", unschedulable=True)), "cluster.nodes", *NOT_YET, "cordoned"),
    (
        "unhealthy",
        _node(2, kube_node("prefill", labels={"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReplacement"})),
        "cluster.nodes",
        *NOT_YET,
        "UnschedulablePendingReplacement",
    ),
    ("on the last page", _hidden_pages, "cluster.nodes", *NOT_YET, "system 1 of 2"),
    ("other AZ", _node(3, kube_node("decode", zone="use2-az2")), "cluster.zone", *DEFINITE, "decode-0 in use2-az2"),
    ("no AZ", _node(3, kube_node("decode", zone="")), "cluster.zone", *UNSEEN, "without the label"),
    ("no GPU plugin", _node(3, kube_node("decode", gpus=0)), "cluster.gpus", *NOT_YET, "NVIDIA device plugin"),
    ("a dead GPU", _node(3, kube_node("decode", gpus=7)), "cluster.gpus", *NOT_YET, "7 of 8.*replace the node"),
    ("no EFA", _node(3, kube_node("decode", efa=0)), "cluster.efa", *NOT_YET, "driver.*security group"),
    ("one EFA of many", _node(3, kube_node("decode", efa=1)), "cluster.efa", *NOT_YET, "1 of 32"),
    ("too many EFA", _node(3, kube_node("decode", efa=34)), "cluster.efa", *DEFINITE, "0.5.10"),
    (
        "no huge pages",
        lambda world: world.nodes[2]["status"]["allocatable"].update({"hugepages-2Mi": "0"}),
        "cluster.hugepages",
        *DEFINITE,
        "prefill-0 has 0 MiB of 5120 MiB",
    ),
    (
        "no definition",
        lambda world: setattr(world, "definition", None),
        "cluster.definitions",
        *NOT_YET,
        "no definition",
    ),
    ("field pruned", _schema(OLD), "cluster.definitions", *DEFINITE, "does not know spec.pdSpec.prefillSpec.*silently"),
    (
        "version unserved",
        _definition(versions=[{"name": "v1", "served": False}]),
        "cluster.definitions",
        *DEFINITE,
        "does not serve v1",
    ),
    (
        "webhook without pods",
        lambda world: world.slices.__setitem__(1, endpoint_slice(SYSTEM, "hooks", "", "", 9443)),
        "cluster.webhooks",
        *NOT_YET,
        "hyperpod-inference-system/hooks",
    ),
    ("conversion without pods", _conversion, "cluster.webhooks", *NOT_YET, "conversion of inferenceendpointconfigs"),
    ("API unknown", _override("/api/v1/namespaces/kube-system", 401), "cluster.api", *DENIED, "access entry"),
    (
        "API forbids",
        _override("/api/v1/nodes", 403, b'{"message": "nodes is forbidden"}'),
        "cluster.nodes",
        *DENIED,
        "forbidden",
    ),
    (
        "API fails",
        _override("/api/v1/namespaces/kube-system", 500, b"oops"),
        "cluster.api",
        *UNSEEN,
        "answered 500",
    ),
    ("not JSON", _override("/api/v1/nodes", 200, b"<html>"), "cluster.nodes", *UNSEEN, "something else"),
    ("list changed", _override("/api/v1/nodes", 410), "cluster.nodes", *UNSEEN, "410"),
    (
        "same page for ever",
        _override("/api/v1/nodes", 200, b'{"items": [], "metadata": {"continue": "x"}}'),
        "cluster.nodes",
        *UNSEEN,
        "repeats a page",
    ),
    (
        "strange form",
        _override("/api/v1/nodes", 200, b'{"items": [1]}'),
        "cluster.nodes",
        *DENIED,
        r"TypeError at kubernetes.py:\d+",
    ),
]


@pytest.mark.parametrize(("change", "id", "outcome", "patience", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong(world: World, change: Break, id: str, outcome: Outcome, patience: Patience, words: str) -> None:
    change(world)
    first = world.run().causes()[0]
    assert (first.id, first.outcome, first.patience) == (id, outcome, patience)
    assert re.search(words, f"{first.summary} {first.remedy}")


@pytest.mark.parametrize(
    "change",
    [
        lambda world: setattr(world, "page", 1),
        lambda world: world.nodes.append(kube_node("prefill", 1, ready=False)),
        lambda world: world.nodes.append(kube_node("spare", 0, efa=0, zone="use2-az3")),
        _schema({"x-kubernetes-preserve-unknown-fields": True}),
        _schema({"additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}}),
        lambda world: world.webhooks.append(
            {"name": "i", "failurePolicy": "Ignore", "clientConfig": {"service": {"namespace": SYSTEM, "name": "x"}}}
        ),
        lambda world: world.webhooks.append({"name": "o", "clientConfig": {"service": {"namespace": "elsewhere", "name": "x"}}}),
        lambda world: world.webhooks.append({"name": "u", "clientConfig": {"url": "https://hook.example"}}),
        lambda world: world.changes.update(webhook_namespaces=[], definitions=[]),
    ],
)
def test_right(world: World, change: Break) -> None:
    world.changes["endpoints"] = []
    change(world)
    report = world.run()
    assert not report.open, report.table()


def test_an_expired_token_is_renewed_once(world: World) -> None:
    world.refuse_tokens = 1
    assert world.result("cluster.api").passed


def test_a_token_that_stays_void_is_a_refusal(world: World) -> None:
    world.refuse_tokens = 10**6
    first = world.run().causes()[0]
    assert (first.id, first.outcome, first.patience) == ("cluster.api", Outcome.UNKNOWN, Patience.GRACE)


def test_an_api_that_cannot_be_reached(world: World) -> None:
    world.aws.api = ("https://127.0.0.1:1", world.aws.api[1])
    first = world.run().causes()[0]
    assert (first.id, first.outcome, first.patience) == ("cluster.api", Outcome.UNKNOWN, Patience.DEADLINE)
    assert "did not answer" in first.summary


def test_a_stranger_with_another_certificate_never_sees_the_token(world: World) -> None:
    text = Path(DEFAULT_CA_BUNDLE).read_text(encoding="utf-8")
    begin = text.index("-----BEGIN CERTIFICATE-----")
    world.aws.api = (world.api, text[begin : text.index("-----END CERTIFICATE-----", begin)] + "-----END CERTIFICATE-----\n")
    first = world.run().causes()[0]
    assert (first.id, first.outcome) == ("cluster.api", Outcome.UNKNOWN)
    assert "authority did not sign" in first.summary
    assert world.requests == []


def test_a_slow_api_ends_its_own_check_and_not_the_gate(world: World) -> None:
    world.stalled = {"/api/v1/nodes"}
    world.changes["deadlines"] = {"settle_seconds": 0.1, "checks": {"cluster.nodes": 0.3}}
    report = world.run()
    first = report.causes()[0]
    assert (first.id, first.outcome) == ("cluster.nodes", Outcome.UNKNOWN)
    assert "timed out" in first.summary
    assert report.seconds < 10
    assert next(result for result in report.results if result.id == "cluster.definitions").passed


def test_a_run_without_time_says_so(world: World) -> None:
    report = world.run(seconds=0)
    assert {result.outcome for result in report.results} == {Outcome.UNKNOWN}
    assert "no time left" in report.causes()[0].summary


def test_two_hundred_nodes_are_read_in_pages(world: World) -> None:
    world.nodes += [kube_node("spare", number) for number in range(200)]
    assert world.result("cluster.nodes").passed
    assert len([path for path, _ in world.requests if path.startswith("/api/v1/nodes?")]) == 3


def test_the_gate_only_reads(world: World) -> None:
    world.run()
    assert {path.partition("?")[0].rsplit("/", 1)[-1] for path, _ in world.requests} <= {
        "kube-system", "nodes", "pods", "log", "events", "endpointslices", "chat",
        "mutatingwebhookconfigurations", "validatingwebhookconfigurations", CRD,
    }  # fmt: skip


# --- EFA devices of p6-b200, of which a plugin before 0.5.10 counts two too many


B200: Final = "ml.p6-b200.48xlarge"


def _of_b200(world: World, efa: int) -> World:
    """The decode group is of p6-b200, with what the catalog says of it in the spec, and its node offers so many devices."""
    instance = find(B200)
    assert instance is not None
    groups = world.document()["groups"]
    world.changes["groups"] = {**groups, "decode": {**groups["decode"], "instance_type": B200, "gpus": instance.gpus, "efa": instance.efa}}
    world.aws.cluster["InstanceGroups"][2]["InstanceType"] = B200
    for node in world.aws.nodes:
        if node["InstanceGroupName"] == "decode":
            node["InstanceType"] = B200
    world.nodes[3] = kube_node("decode", efa=efa)
    return world


def test_a_p6_b200_node_has_eight_devices(world: World) -> None:
    assert _of_b200(world, 8).result("cluster.efa", keep_going=True).passed


@pytest.mark.parametrize(
    ("efa", "patience", "said", "link"),
    [
        (10, Patience.NEVER, "Too many EFA devices: decode-0 offers 10 of 8.*device plugin counts.*before 0.5.10.*p6-b200", "pull/282"),
        (0, Patience.DEADLINE, "missing: decode-0 offers 0 of 8.*EFA driver.*security group without the rule to and from itself", ""),
        (7, Patience.DEADLINE, "missing: decode-0 offers 7 of 8.*replace the node", ""),
    ],
)
def test_another_number_on_p6_b200_names_its_cause(world: World, efa: int, patience: Patience, said: str, link: str) -> None:
    first = _of_b200(world, efa).run().causes()[0]
    assert (first.id, first.outcome, first.patience) == ("cluster.efa", Outcome.FAIL, patience)
    assert re.search(said, f"{first.summary} {first.remedy}")
    assert link in first.link
