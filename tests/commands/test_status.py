"""``dpd status`` against servers on loopback: what it says of roles, paths, KV and the last gate, and every way not to know."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml

from tests.commands.support import Dpd
from tests.gate.deployment import CHANGES, deployed
from tests.lambdas.health_gate.aws_calls import Refuse
from tests.lambdas.health_gate.engine import DECODE_IP, PREFILL_IP
from tests.lambdas.health_gate.world import World, running
from tests.support import TODAY, edited

BUCKET = "dpd-dev-logs-111122223333-us-east-2"
FOLDER = f"health-gate/dpd-dev/{TODAY:%Y/%m/%d}"
STARTED = datetime(2026, 11, 29, 9, 30, tzinfo=UTC).timestamp()


def result(id: str, outcome: str = "PASS", **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "endpoint": "llm/chat",
        "outcome": outcome,
        "summary": f"about {id}",
        "remedy": "",
        "skipped": False,
        "evidence": {},
        **more,
    }


def left(world: World, *results: dict[str, Any], key: str = f"{FOLDER}/093000.json") -> None:
    """A report of the gate in its bucket."""
    world.aws.objects.append({"Key": key, "Size": 1})
    world.aws.stored[key] = json.dumps({"environment": "dpd-dev", "started": STARTED, "results": list(results)}).encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dev.yaml"
    path.write_text(yaml.safe_dump(edited(CHANGES), sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A healthy deployment of that file that has served requests."""
    with running() as made:
        deployed(made)
        made.aws.objects = []
        made.aws.answers["GetCallerIdentity"] = lambda _: identity()
        prefill, decode = made.engine.counters[PREFILL_IP], made.engine.counters[DECODE_IP]
        prefill.requests, decode.requests, decode.kv_bytes, decode.kv_seconds = 30, 40, 90e9, 5.0
        plain = made.engine.metrics
        prefill_load = {
            "num_requests_running": 2.0,
            "num_requests_waiting": 5.0,
            "prefix_cache_queries_total": 1e3,
            "prefix_cache_hits_total": 250.0,
        }
        decode_load = {"num_requests_running": 12.0, "num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.42}
        load = {PREFILL_IP: prefill_load, DECODE_IP: decode_load}

        def metrics(ip: str) -> str | None:
            text = plain(ip)
            return text and text + "".join(f'vllm:{name}{{engine="0"}} {value}\n' for name, value in load[ip].items())

        monkeypatch.setattr(made.engine, "metrics", metrics)
        monkeypatch.setattr(botocore.session, "get_session", lambda: made.calls.session)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield made


def identity(account: str = "111122223333") -> dict[str, str]:
    return {"Account": account, "UserId": "U", "Arn": f"arn:aws:iam::{account}:user/tester"}


def status(dpd: Dpd, file: Path, *more: str) -> Any:
    return dpd("status", file, "--seconds", "0", *more)


def test_roles_paths_throughput_and_the_last_gate(dpd: Dpd, world: World, file: Path) -> None:
    left(
        world,
        result("kv.throughput", evidence={"gb_per_second": 17.6}),
        result("traffic.latency", evidence={"ttft_ms": 410.0, "itl_ms": 12.0}),
    )
    said = status(dpd, file)
    assert said.code == 0, said.out + said.err
    lines = said.out.splitlines()
    assert lines[0] == "llm/chat: serves"
    for words in (
        "prefill   1 of 1 ready", "decode    1 of 1 ready", "router    1 of 1 ready", "2 running, 5 waiting", "25% of prompt tokens found",
        "12 running, 0 waiting, KV cache 42% full at most", "75% of the finished requests through prefill, 25% on a decoder alone",
        "18.00 GB/s a rank in the mean, none just now; floor 2.5, 90.0 GB in all",
        "gate      passed, 2026-11-29 09:30 UTC (TTFT 410 ms, inter-token 12 ms, KV 17.6 GB/s)", f"s3://{BUCKET}/{FOLDER}/093000.json",
    ):  # fmt: skip
        assert any(words in line for line in lines), words


def test_nothing_is_sent_and_nothing_is_written(dpd: Dpd, world: World, file: Path) -> None:
    status(dpd, file)
    assert world.engine.prompts == []
    assert not {"PutObject", "PutMetricData", "Publish"} & {name for name, _ in world.calls.made}


def test_the_newest_report_counts(dpd: Dpd, world: World, file: Path) -> None:
    left(world, result("kv.moved", "FAIL"), key=f"{FOLDER}/080000.json")
    left(world, result("kv.moved"), key=f"{FOLDER}/100000.json")
    left(world, result("kv.moved", "FAIL"), key="health-gate/dpd-dev/2026/11/28/230000.json")
    assert "gate      passed" in status(dpd, file).out


def test_a_report_of_some_days_ago_is_found(dpd: Dpd, world: World, file: Path) -> None:
    left(world, result("kv.moved"), key="health-gate/dpd-dev/2026/11/25/230000.json")
    assert "2026/11/25/230000.json" in status(dpd, file).out


def test_as_json(dpd: Dpd, world: World, file: Path) -> None:
    left(world, result("kv.moved", "FAIL", remedy="look"))
    said = status(dpd, file, "--format", "json")
    found = json.loads(said.out)
    assert said.code == 1
    assert found["serves"] is True
    assert found["roles"]["prefill"]["waiting"] == 5
    assert found["kv"]["gb_per_second"] == {"total": 18.0, "now": None}
    assert found["gate"]["outcome"] == "FAIL"
    assert found["gate"]["open"][0]["id"] == "kv.moved"


def crash(world: World) -> None:
    world.container("prefill", ready=False, state={"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=7)


@pytest.mark.parametrize(
    ("break_", "words"),
    [
        (crash, "prefill   0 of 1 ready, 7 restarts"),
        (crash, "waits (CrashLoopBackOff)"),
        (lambda world: world.pods.pop(0), "prefill   0 of 1 ready"),
        (lambda world: world.pods.pop(1), "decode    0 of 1 ready"),
        (lambda world: world.pods.pop(2), "router    0 of 1 ready"),
    ],
)
def test_an_endpoint_that_does_not_serve(dpd: Dpd, world: World, file: Path, break_: Callable[[World], Any], words: str) -> None:
    break_(world)
    said = status(dpd, file)
    assert said.code == 1
    assert said.out.startswith("llm/chat: does not serve")
    assert words in said.out


@pytest.mark.parametrize(
    ("break_", "words"),
    [
        (lambda it: it.engine.faults.add("decode_hidden"), "metrics cannot be read of decode-chat-abc"),
        (lambda it: it.engine.faults.add("hidden"), "paths     unknown"),
        (lambda it: it.engine.faults.add("hidden"), "KV        unknown"),
        (lambda it: setattr(it.engine.counters[DECODE_IP], "kv_seconds", 90.0), "below the floor, is it EFA?"),
        (lambda it: setattr(it.engine.counters[PREFILL_IP], "requests", 0), "0% of the finished requests through prefill"),
        (lambda it: setattr(it.engine.counters[PREFILL_IP], "failed", 3), "vllm:nixl_num_failed_transfers_total 3"),
    ],
)
def test_what_is_wrong_or_not_known_of_one_that_serves(
    dpd: Dpd, world: World, file: Path, break_: Callable[[World], Any], words: str
) -> None:
    break_(world)
    said = status(dpd, file)
    assert said.code == 0
    assert words in said.out


def refuse(code: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def answer(_: dict[str, Any]) -> dict[str, Any]:
        raise Refuse(code)

    return answer


def no_report(world: World) -> None:
    left(world)
    world.aws.stored[f"{FOLDER}/093000.json"] = b"<html>"


@pytest.mark.parametrize(
    ("prepare", "words", "code"),
    [
        (lambda _: None, "unknown: no report of the last 7 days", 0),
        (lambda it: it.aws.answers.update(ListObjectsV2=refuse("NoSuchBucket")), f"unknown: there is no bucket {BUCKET}", 0),
        (lambda it: it.aws.answers.update(ListObjectsV2=refuse("AccessDenied")), "its report cannot be read (AccessDenied): allow", 0),
        (no_report, "is no report of this gate", 0),
        (lambda it: left(it, result("kv.moved", "FAIL", remedy="Look at EFA.")), "FAIL kv.moved: about kv.moved", 1),
        (lambda it: left(it, result("kv.moved", "FAIL", remedy="Look at EFA.")), "-> Look at EFA.", 1),
        (lambda it: left(it, result("cluster.nodes", "UNKNOWN", endpoint="")), "UNKNOWN cluster.nodes", 1),
        (lambda it: left(it, result("kv.moved", "FAIL", endpoint="llm/other")), "gate      passed", 0),
        (lambda it: left(it, result("kv.moved", "UNKNOWN", skipped=True)), "gate      passed", 0),
    ],
)  # fmt: skip
def test_every_state_of_the_last_gate(dpd: Dpd, world: World, file: Path, prepare: Callable[[World], Any], words: str, code: int) -> None:
    prepare(world)
    said = status(dpd, file)
    assert words in said.out
    assert said.code == code


def test_a_file_without_a_gate_asks_for_no_report(dpd: Dpd, world: World, tmp_path: Path) -> None:
    path = tmp_path / "dev.yaml"
    path.write_text(yaml.safe_dump(edited({**CHANGES, "gate.deploy": False}), sort_keys=False), encoding="utf-8")
    assert "unknown: the file deploys no gate" in status(dpd, path).out
    assert not world.calls.of("ListObjectsV2")


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda it: it.aws.answers.update(GetCallerIdentity=refuse("ExpiredToken")), "does not accept the credentials (ExpiredToken)"),
        (
            lambda it: it.aws.answers.update(GetCallerIdentity=lambda _: identity("999999999999")),
            "The credentials are of account 999999999999",
        ),
        (lambda it: it.aws.answers.update(DescribeCluster=refuse("AccessDeniedException")), "The caller may not call eks:DescribeCluster"),
        (lambda it: it.aws.answers.update(DescribeCluster=refuse("ResourceNotFoundException")), "There is no EKS cluster 'dpd-dev'"),
        (lambda it: it.override.update({"/api/v1/namespaces/llm/pods": (403, b"{}")}), "dpd doctor says what your role needs"),
        (lambda it: it.override.update({"/api/v1/namespaces/llm/pods": (401, b"{}")}), "does not know the caller (401)"),
        (lambda it: it.override.update({"/api/v1/namespaces/llm/pods": (500, b"{}")}), "The Kubernetes API answered 500"),
        (lambda it: setattr(it.aws, "api", ("https://localhost:1", it.aws.api[1])), "The API must be reachable from here"),
    ],
)
def test_who_cannot_look_says_why(dpd: Dpd, world: World, file: Path, prepare: Callable[[World], Any], words: str) -> None:
    prepare(world)
    said = status(dpd, file)
    assert said.code == 3
    assert words in said.err


@pytest.mark.usefixtures("world")
def test_an_endpoint_that_is_not_in_the_file(dpd: Dpd, file: Path) -> None:
    said = status(dpd, file, "--endpoint", "other")
    assert said.code == 1
    assert "has chat" in said.err
