"""Requests through the router: who worked on them, whether KV moved, and whether the answers are right."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from health_gate.result import Outcome, Patience

from tests.lambdas.health_gate.efa import Efa
from tests.lambdas.health_gate.engine import DECODE_IP, PICKER_IP, PREFILL_IP, ROUTER_IP, SECRET
from tests.lambdas.health_gate.world import NAMESPACE, World, pod

FAIL, UNKNOWN = Outcome.FAIL, Outcome.UNKNOWN

WRONG: list[tuple[set[str], str, Outcome, str]] = [
    ({"500"}, "traffic.short", FAIL, "status 500"),
    ({"html"}, "traffic.short", FAIL, "body is not JSON"),
    ({"odd_form"}, "traffic.short", FAIL, "form that no such server gives"),
    ({"empty"}, "traffic.short", FAIL, "without a single token"),
    ({"huge"}, "traffic.short", FAIL, "larger than 8 MiB"),
    ({"error_in_body"}, "traffic.short", FAIL, "error in the body: decoder_error.*answered 200 before the decoder failed"),
    ({"always_prefill"}, "traffic.short", FAIL, "below the threshold went through prefill"),
    ({"hidden", "silent_router"}, "traffic.short", UNKNOWN, "Nobody can say whether a short prompt"),
    ({"no_prefill"}, "traffic.long", FAIL, "without prefill: the router decided against it"),
    ({"no_prefill", "silent_router"}, "traffic.long", FAIL, "no prefill pod worked on it"),
    ({"no_prefill", "hidden"}, "traffic.long", FAIL, "decided against it"),
    ({"error_in_stream"}, "traffic.stream", FAIL, "error in the body: decoder_error"),
    ({"lump"}, "traffic.stream", FAIL, "one lump"),
    ({"recompute"}, "kv.moved", FAIL, "2 of 2 ranks retrieved 0 tokens|ranks retrieved 0 tokens"),
    ({"recompute", "silent_connector"}, "kv.moved", FAIL, "took no tokens from prefill"),
    ({"hidden", "silent_connector"}, "kv.moved", UNKNOWN, "Nobody can say whether KV moved"),
    ({"decode_hidden", "silent_connector"}, "kv.moved", UNKNOWN, "Nobody can say whether KV moved"),
    ({"partial"}, "kv.complete", FAIL, "retrieved 256 of 3840 tokens"),
    ({"partial", "silent_connector"}, "kv.complete", FAIL, "Only 256 of"),
    ({"failed_transfers"}, "kv.failures", FAIL, "nixl_num_failed_transfers_total rose"),
    ({"corrupt"}, "answers.match", FAIL, "token 4 is another one"),
    ({"corrupt", "no_logprobs"}, "answers.match", FAIL, "no log-probabilities to compare"),
    ({"corrupt", "token_ids"}, "answers.match", FAIL, "token 4 is another one"),
    ({"garbage"}, "answers.match", FAIL, "one character again and again"),
    ({"decoder_500"}, "answers.match", FAIL, "decoder alone does not answer"),
    ({"salt_ignored"}, "answers.match", UNKNOWN, "comparison proves nothing"),
]


@pytest.mark.parametrize(("faults", "id", "outcome", "words"), WRONG, ids=["+".join(sorted(row[0])) for row in WRONG])
def test_wrong(world: World, faults: set[str], id: str, outcome: Outcome, words: str) -> None:
    world.engine.faults = set(faults)
    report = world.run()
    first = report.causes()[0]
    assert (first.id, first.outcome) == (id, outcome), report.table()
    assert re.search(words, f"{first.summary} {first.remedy}")
    assert SECRET not in report.as_json()
    assert "river carries" not in report.as_json()


@pytest.mark.parametrize(
    ("faults", "id", "evidence"),
    [
        ({"silent_router"}, "traffic.short", {"proven_by": "counters", "prefill_requests": 0.0}),
        ({"silent_router"}, "traffic.long", {"proven_by": "counters", "prefill_requests": 1.0}),
        ({"hidden"}, "traffic.short", {"proven_by": "router log", "prefill_requests": None}),
        ({"prefill_hidden"}, "traffic.long", {"proven_by": "router log", "prefill_requests": None}),
        ({"hidden"}, "kv.complete", {"proven_by": "log", "got": 3840, "needed": 3840}),
        ({"silent_connector"}, "kv.moved", {"proven_by": "counters", "tokens": 3840.0}),
        ({"silent_connector"}, "kv.throughput", {"proven_by": "counters", "gb_per_second": 176.0}),
        ({"tie"}, "answers.match", {"compared": "log-probabilities"}),
        ({"token_ids"}, "answers.match", {"compared": "token ids"}),
        ({"no_logprobs"}, "answers.match", {"compared": "text"}),
        ({"hidden"}, "answers.match", {"external_tokens": None, "compared": "text"}),
        ({"503_once"}, "traffic.short", {"status": 200}),
    ],
)
def test_right(world: World, monkeypatch: pytest.MonkeyPatch, faults: set[str], id: str, evidence: dict[str, Any]) -> None:
    monkeypatch.setattr("health_gate.probe._RETRY_SECONDS", 0.01)
    world.engine.faults = set(faults)
    report = world.run()
    assert report.outcome is Outcome.PASS, report.table()
    (found,) = (result for result in report.results if result.id == id)
    assert evidence.items() <= found.evidence.items()


def test_a_router_that_lies_about_prefill_is_found_by_the_counters(world: World) -> None:
    world.engine.faults = {"no_prefill", "lying_router"}
    world.changes["deadlines"] = {"settle_seconds": 0.2}
    found = {result.id: result for result in world.run(keep_going=True).results}
    assert found["traffic.long"].summary == "A long prompt was answered, but no prefill pod worked on it, although the router says so."


def test_a_lost_router_is_asked_again_and_then_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("health_gate.probe._RETRY_SECONDS", 0.2)
    world.engine.faults = {"503"}
    world.changes["deadlines"] = {"settle_seconds": 0.1, "checks": {"traffic.short": 2}}
    first = world.run().causes()[0]
    assert (first.id, first.patience) == ("traffic.short", Patience.NEVER)
    assert "status 503" in first.summary
    assert len(world.engine.prompts) > 3


def test_a_slow_server_ends_its_check(world: World) -> None:
    world.engine.faults = {"slow"}
    world.changes["deadlines"] = {"settle_seconds": 0.1, "checks": {"traffic.short": 0.5}}
    report = world.run()
    first = report.causes()[0]
    assert (first.id, first.outcome) == ("traffic.short", FAIL)
    assert "no answer (timed out)" in first.summary
    assert report.seconds < 15


def test_a_threshold_of_nothing_sends_every_prompt_through_prefill(world: World) -> None:
    world.engine.threshold = 0
    world.endpoint_changes["threshold_tokens"] = 0
    report = world.run()
    assert report.outcome is Outcome.PASS, report.table()
    world.engine.faults = {"no_prefill"}
    assert world.run().causes()[0].id == "traffic.short"


def test_a_threshold_that_no_prompt_reaches(world: World) -> None:
    world.endpoint_changes["threshold_tokens"] = 16384
    assert world.result("traffic.long").summary == "No prompt that fits reaches the threshold."


def test_the_router_decides_by_characters_and_not_by_tokens(world: World) -> None:
    world.run()
    estimates = [int(line.split("estimated_tokens=")[1].split(",")[0]) for line in world.engine.logs[ROUTER_IP]]
    sent = [len(body["messages"][0]["content"]) for body in world.engine.prompts]
    assert estimates[0] < 4096 <= min(estimates[1:])
    assert estimates[0] == sent[0] // 4


def test_a_prompt_near_the_limit_fits_and_is_near(world: World) -> None:
    tokens = world.result("traffic.limit").evidence["prompt_tokens"]
    assert isinstance(tokens, int)
    assert 0.93 * 16384 < tokens < 16384 - 16


def test_no_prompt_is_sent_twice_but_for_the_comparison(world: World) -> None:
    world.run()
    texts = [body["messages"][0]["content"] for body in world.engine.prompts]
    assert len(texts) - len(set(texts)) == 1
    heads = [text[:16] for text in dict.fromkeys(texts)]
    assert len(set(heads)) == len(heads)
    salted = [body for body in world.engine.prompts if "cache_salt" in body]
    assert len(salted) == 1
    assert {body["temperature"] for body in world.engine.prompts} == {0}


def test_other_clients_during_a_long_prompt_make_the_counter_worthless(world: World) -> None:
    world.engine.faults = {"silent_connector", "busy"}
    world.engine.counters[DECODE_IP].external = 0
    original = world.engine._move

    def move(text: str) -> None:
        original(text)
        world.engine.counters[DECODE_IP].external += 10**6

    world.engine._move = move  # type: ignore[method-assign]
    found = world.result("kv.complete")
    assert (found.outcome, found.patience) == (UNKNOWN, Patience.DEADLINE)
    assert "Other requests" in found.summary


def test_other_clients_during_a_short_prompt_do_not_matter_when_the_router_speaks(world: World) -> None:
    original = world.engine._router

    def router(body: dict[str, Any]) -> Any:
        world.engine.counters[PREFILL_IP].requests += 1
        return original(body)

    world.engine._router = router  # type: ignore[method-assign]
    assert world.result("traffic.short").evidence["proven_by"] == "router log"


def test_other_clients_do_not_hide_that_this_prompt_missed_prefill(world: World) -> None:
    world.engine.faults = {"no_prefill"}
    original = world.engine._router

    def router(body: dict[str, Any]) -> Any:
        world.engine.counters[PREFILL_IP].requests += 1
        return original(body)

    world.engine._router = router  # type: ignore[method-assign]
    found = world.result("traffic.long")
    assert found.outcome is FAIL
    assert "the router decided against it" in found.summary


def test_slower_than_promised(world: World) -> None:
    world.engine.faults = {"laggard"}
    world.endpoint_changes["objectives"] = {"ttft_ms": 5000, "itl_ms": 5}
    found = world.result("traffic.latency")
    assert found.outcome is FAIL
    assert found.evidence["requests"] == 3
    world.endpoint_changes["objectives"] = None
    assert world.result("traffic.latency").passed


@pytest.mark.parametrize("faults", [set(), {"silent_connector"}])
def test_slower_than_efa(world: World, faults: set[str]) -> None:
    world.engine.faults, world.engine.rate = set(faults), 0.8
    found = world.result("kv.throughput")
    assert found.outcome is FAIL
    assert found.summary == "KV moved at 0.80 GB/s; the floor is 1 GB/s."
    assert "to and from itself" in found.remedy


@pytest.fixture
def efa(world: World) -> Efa:
    return Efa().join(world)


@pytest.mark.parametrize("direct", [True, False], ids=["in the VPC", "from a laptop"])
@pytest.mark.parametrize(
    "counted",
    [{"prefill-0": "tx_bytes", "decode-0": "rx_bytes"}, {"prefill-0": "tx_bytes"}, {"decode-0": "rx_bytes"}],
    ids=["both", "sent", "received"],
)
def test_efa_s_own_counters_prove_that_kv_crossed_it(world: World, efa: Efa, counted: dict[str, str], direct: bool) -> None:
    """Flat written bytes are no fault while sent or received bytes rise."""
    efa.counted = counted
    found = world.result("kv.wire", direct=direct)
    assert found.passed, found
    assert found.evidence["rdma_written_bytes"] == 0
    assert found.evidence["nodes"] == 2
    rises = [float(str(found.evidence[name])) for name in ("sent_bytes", "received_bytes")]
    assert max(rises) == pytest.approx(found.evidence["kv_bytes"], rel=1e-3)


def _other_network(efa: Efa) -> None:
    efa.share = 0


def _a_trickle(efa: Efa) -> None:
    efa.share = 0.1


def _written_alone(efa: Efa) -> None:
    efa.counted = {"prefill-0": "rdma_write_bytes"}


def _one_node_dark(efa: Efa) -> None:
    efa.counted = {}
    efa.servers["prefill-0"].shutdown()
    efa.servers["prefill-0"].server_close()


@pytest.mark.parametrize(
    ("change", "outcome", "words"),
    [
        (_other_network, FAIL, "sent and received bytes are flat.*to and from itself"),
        (_written_alone, FAIL, "sent and received bytes are flat"),
        (_a_trickle, FAIL, "EFA carried .* bytes of .* of KV: most of it took another network"),
        (_one_node_dark, UNKNOWN, "cannot be read on prefill-0.*exporter's pods in dpd-gate"),
    ],
)
def test_what_efa_did_not_carry(world: World, efa: Efa, change: Callable[[Efa], None], outcome: Outcome, words: str) -> None:
    change(efa)
    found = world.result("kv.wire")
    assert found.outcome is outcome
    assert re.search(words, f"{found.summary} {found.remedy}")


def test_a_trickle_is_enough_when_nobody_says_how_much_kv_moved(world: World, efa: Efa) -> None:
    efa.share, world.engine.faults = 0.1, {"hidden"}
    assert world.result("kv.wire").passed


@pytest.mark.parametrize("missing", ["exporter", "device"])
def test_counters_that_are_not_there_are_unknown(world: World, efa: Efa, missing: str) -> None:
    """Neither an absent pod nor a node without devices is a zero."""
    if missing == "exporter":
        world.pods[:] = [each for each in world.pods if each["spec"]["nodeName"] != "decode-0" or "efa" not in each["metadata"]["name"]]
    else:
        for file in (efa.folder / "decode-0").rglob("tx_bytes"):
            file.unlink()
    efa.share = 0
    found = world.result("kv.wire")
    assert (found.outcome, found.patience) == (UNKNOWN, Patience.DEADLINE)
    assert "cannot be read on decode-0" in found.summary


def test_without_an_exporter_in_the_spec_nothing_is_said(world: World) -> None:
    assert "kv.wire" not in [result.id for result in world.run().results]


# --- failures of transfers


def _uncounted(world: World) -> None:
    for counters in world.engine.counters.values():
        counters.failed = None


def test_a_connector_without_failure_counters_must_log_that_all_arrived(world: World) -> None:
    _uncounted(world)
    found = world.result("kv.failures")
    assert found.passed
    assert found.evidence == {
        "proven_by": "log",
        "prompts": 2,
        "pods_without_counters": 2,
        "without_counters": "prefill-chat-abc, decode-chat-abc",
    }


def test_one_pod_without_counters_is_enough_to_ask_the_log(world: World) -> None:
    world.engine.counters[PREFILL_IP].failed = None
    assert world.result("kv.failures").evidence["pods_without_counters"] == 1


def test_neither_counters_nor_log_is_unknown(world: World) -> None:
    _uncounted(world)
    world.engine.faults = {"silent_connector"}
    found = world.result("kv.failures")
    assert (found.outcome, found.patience) == (UNKNOWN, Patience.DEADLINE)
    assert "2 pods export no failure counter, and of 2 prompts no log line says that all KV arrived" in found.summary
    assert "log level" in found.remedy


def test_a_known_error_beside_whole_transfers_is_a_failure(world: World) -> None:
    _uncounted(world)
    original = world.engine._move

    def move(text: str) -> None:
        original(text)
        world.engine.logs[PREFILL_IP].append("nixl: REMOTE_DISCONNECT")

    world.engine._move = move  # type: ignore[method-assign]
    found = world.result("kv.failures")
    assert found.outcome is FAIL
    assert "prefill-chat-abc logs 'REMOTE_DISCONNECT'" in found.summary


# --- a backend that proves its ways with counters


def _counting_router(world: World) -> None:
    """A picker that counts its decisions, and a router whose log says nothing."""
    made = pod("picker", PICKER_IP, containers=1)
    world.pods.append(made)
    pods = world.document()["endpoints"][0]["pods"]
    picker = {"namespace": NAMESPACE, "name_prefix": "picker-chat-", "container": "picker-chat", "replicas": 1, "containers": 1}
    world.endpoint_changes |= {
        "pods": {**pods, "picker": {**picker, "port": world.pods_port}},
        "logs": {},
        "decisions": {
            "role": "picker",
            "split": ['decisions_total{decision_type="prefill-decode"}'],
            "whole": ['decisions_total{decision_type="decode-only"}'],
        },
    }
    world.engine.logs[PICKER_IP] = []


@pytest.mark.parametrize(
    ("faults", "id", "outcome", "evidence"),
    [
        (set(), "traffic.short", Outcome.PASS, {"proven_by": "counters"}),
        ({"prefill_hidden"}, "traffic.short", Outcome.PASS, {"proven_by": "router counters"}),
        ({"prefill_hidden"}, "traffic.long", Outcome.PASS, {"proven_by": "router counters"}),
        ({"no_prefill", "prefill_hidden"}, "traffic.long", FAIL, {"shown_by": "router counters"}),
        ({"prefill_hidden", "picker_hidden"}, "traffic.short", UNKNOWN, {}),
    ],
)
def test_counters_of_decisions_prove_as_a_log_does(
    world: World, faults: set[str], id: str, outcome: Outcome, evidence: dict[str, Any]
) -> None:
    world.engine.faults = set(faults)
    _counting_router(world)
    found = world.result(id)
    assert found.outcome is outcome, found
    assert evidence.items() <= found.evidence.items()


def test_a_backend_without_any_log_line_and_without_an_object_is_proven_by_counters(world: World) -> None:
    _counting_router(world)
    world.endpoint_changes |= {"resources": [], "patterns": [], "sagemaker_endpoint": ""}
    world.changes |= {"definitions": []}
    report = world.run()
    assert report.outcome is Outcome.PASS, report.table()
    by = {result.id: result.evidence.get("proven_by") for result in report.results if "proven_by" in result.evidence}
    assert set(by.values()) == {"counters"}, by


def test_decisions_about_other_requests_prove_nothing(world: World) -> None:
    """Other clients' prompts were decided at the same time."""
    world.engine.faults = {"prefill_hidden", "busy_picker"}
    _counting_router(world)
    assert world.result("traffic.short").outcome is UNKNOWN


def test_from_a_laptop_everything_goes_through_the_api_server(world: World) -> None:
    report = world.run(direct=False)
    assert report.outcome is Outcome.PASS, report.table()
    assert next(result for result in report.results if result.id == "traffic.long").evidence["way"] == "API server"
    assert sum("/proxy/" in path for path, _ in world.requests) > 10
    asked = {path.partition("/proxy")[0].rsplit("/", 2)[1] for path, headers in world.requests if "/proxy/v1/" in path}
    assert asked == {"services", "pods"}, "clients' requests go to the Service, the decoder is asked alone at its pod"


def test_pods_that_cannot_be_reached_are_asked_through_the_api_server(world: World) -> None:
    for each in world.pods:
        each["spec"]["hostNetwork"] = False
    world.slices[0]["endpoints"][0]["addresses"] = ["127.0.0.1"]
    world.slices[0]["ports"] = [{"port": 1}]
    found = world.result("traffic.short")
    assert found.evidence["way"] == "API server"
    assert found.passed


def test_two_endpoints_are_told_apart(world: World) -> None:
    world.engine.faults = {"no_prefill"}
    document = world.document()
    second = {**document["endpoints"][0], "name": "second", "threshold_tokens": 16384}
    world.changes["endpoints"] = [document["endpoints"][0], second]
    report = world.run()
    assert [(result.id, result.endpoint) for result in report.open] == [("traffic.long", "llm/chat"), ("traffic.long", "llm/second")]
    assert world.spec().only("second").endpoints[0].key == "llm/second"
