"""Workers come from the manifests, and every difference from them is in the one list."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from dpd.backends.arguments import parse
from rehearsal.say import Unable
from rehearsal.substitutions import ADDED, MORE_VARIABLES, MOST_TOKENS, Fitted, Place, fit, together
from tests.rehearsal.support import BACKENDS, plan, workers_of
from tests.support import EXAMPLE, LLMD_EXAMPLE, ROOT

CONNECTOR = {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both"}
WIDE_EP = ROOT / "docs" / "example-wide-ep.yaml"
TIERS = ROOT / "docs" / "example-tiers.yaml"


def fitted(role: str, example: Path = LLMD_EXAMPLE, changes: dict[str, Any] | None = None) -> Fitted:
    connector = CONNECTOR if example == EXAMPLE else None
    return fit(workers_of(example, changes)[role], Place("127.0.9.1", 3, Path("/model"), Path("/mine"), connector))


@pytest.mark.parametrize(("backend", "ports"), [("llm-d", (8000, 8200)), ("operator", (8000, 8000))])
def test_each_role_has_its_arguments_and_its_port(backend: str, ports: tuple[int, int]) -> None:
    found = workers_of(BACKENDS[backend])
    assert (found["prefill"].port, found["decode"].port) == ports
    for worker in found.values():
        assert parse(worker.arguments).value("--port") == str(worker.port)
        assert worker.model == "/opt/ml/model"
    seqs = [parse(found[role].arguments).value("--max-num-seqs") for role in ("prefill", "decode")]
    assert seqs == ["16", "32"]


def test_replicas_over_nodes_are_refused() -> None:
    with pytest.raises(Unable, match="spans several processes or nodes"):
        workers_of(WIDE_EP)


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_difference_is_listed(backend: str, role: str) -> None:
    """Argument by argument and variable by variable: what is not listed is as in the manifest."""
    worker, here = workers_of(BACKENDS[backend])[role], fitted(role, BACKENDS[backend])
    listed = {each.name.partition(":")[0] for each in here.substitutions} | {"--model"}
    mine = {each.flag: each.values for each in parse(worker.arguments).known}
    theirs = {each.flag: each.values for each in parse(here.arguments).known}
    assert {flag for flag in mine.keys() | theirs.keys() if mine.get(flag) != theirs.get(flag)} <= listed
    changed = {name for name in here.variables if name in worker.variables and here.variables[name] != worker.variables[name]}
    assert changed <= listed
    assert {name for name, *_ in MORE_VARIABLES} <= listed
    assert worker.variables.keys() <= here.variables.keys()


def test_only_device_and_backend_of_the_connector_change() -> None:
    mine = json.loads(parse(workers_of()["decode"].arguments).value("--kv-transfer-config") or "")
    here = json.loads(parse(fitted("decode").arguments).value("--kv-transfer-config") or "")
    assert here == {**mine, "kv_buffer_device": "cpu", "kv_connector_extra_config": {"backends": ["UCX"]}}
    assert mine["kv_connector_extra_config"] == {"backends": ["LIBFABRIC"]}


def test_of_tiers_the_hand_over_is_left() -> None:
    here = fitted("prefill", TIERS)
    config = json.loads(parse(here.arguments).value("--kv-transfer-config") or "")
    assert (config["kv_connector"], config["kv_load_failure_policy"]) == ("NixlConnector", "recompute")
    assert "--kv-events-config" not in here.arguments
    assert any(each.manifest == "MultiConnector" for each in here.substitutions)


def test_the_operator_gets_the_connector_that_runs_here() -> None:
    here = fitted("prefill", EXAMPLE)
    assert json.loads(parse(here.arguments).value("--kv-transfer-config") or "") == CONNECTOR
    assert any(each.name == "--kv-transfer-config" for each in here.substitutions)


@pytest.mark.parametrize(
    ("flags", "gone", "kept"),
    [
        (["--quantization", "fp8"], ["--quantization"], []),
        (["--max-num-batched-tokens", "4096"], [], ["--max-num-batched-tokens"]),
        (["--kv-cache-dtype", "fp8"], ["fp8"], ["--kv-cache-dtype"]),
        (["--enforce-eager"], [], ["--enforce-eager"]),
    ],
)
def test_what_the_user_adds_stays_unless_a_cpu_cannot(flags: list[str], gone: list[str], kept: list[str]) -> None:
    here = fitted("decode", changes={"endpoints[0].decode.extra_args": flags})
    assert not set(gone) & set(here.arguments)
    assert all(here.arguments.count(flag) == 1 for flag in kept)


def test_lengths_shrink_together() -> None:
    found, seen = plan()
    endpoint = found.spec.endpoints[0]
    assert (found.max_model_len, found.threshold_tokens) == (MOST_TOKENS, MOST_TOKENS // 4)
    assert (endpoint.max_model_len, endpoint.threshold_tokens) == (found.max_model_len, found.threshold_tokens)
    assert {"max_model_len", "threshold_tokens", "kv_floor_gb_per_second", "objectives", "wire"} == {each.name for each in seen}


def test_short_lengths_stay() -> None:
    found, seen = plan(changes={"endpoints[0].model.max_model_len": 2048, "endpoints[0].routing.threshold_tokens": 600})
    assert (found.max_model_len, found.threshold_tokens) == (2048, 600)
    assert not {"max_model_len", "threshold_tokens"} & {each.name for each in seen}


def test_the_same_difference_of_both_roles_is_said_once() -> None:
    both = together([*fitted("prefill").substitutions, *fitted("decode").substitutions])
    (host,) = (each for each in both if each.name == "--host")
    assert host.role == "prefill, decode"
    assert sum(each.name == "--tensor-parallel-size" for each in both) == 2


def test_nothing_of_the_caller_reaches_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-key")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    assert not {"AWS_SECRET_ACCESS_KEY", "VLLM_LOGGING_LEVEL"} & fitted("decode").variables.keys()


def test_commands_can_be_typed_again() -> None:
    assert shlex.split(shlex.join(fitted("decode").arguments)) == list(fitted("decode").arguments)


def test_added_flags_have_reasons() -> None:
    assert all(why for _, why in ADDED)
