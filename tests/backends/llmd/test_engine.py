"""vLLM's command line, hand-over and environment, one assertion for each thing that goes wrong without it."""

import json
from typing import Any

import pytest

from dpd.backends.llmd.engine import engine
from dpd.backends.site import Site
from tests.backends.llmd.objects import E, argument, server, transfer, variables
from tests.support import LLMD_EXAMPLE, environment

ROLES = ("prefill", "decode")
HUB: dict[str, Any] = {
    E + "model.source": {
        "hub": {"model_id": "meta-llama/Llama-3.3-70B-Instruct", "revision": "a" * 40, "token": {"secret": "hub", "key": "token"}}
    }
}
SLIDING = {E + "model.catalog": "gpt-oss-120b", E + "prefill.tensor_parallel": 4}
NEWER = {
    E + "image": {"repository": "ghcr.io/llm-d/llm-d-aws", "tag": "v9", "digest": "sha256:" + "b" * 64, "vllm": "0.27.1", "nixl": "1.4.0"}
}
PODS = {"fieldRef": {"fieldPath": "status.podIP"}}


@pytest.mark.parametrize("role", ROLES)
def test_kv_is_handed_over_by_libfabric(role: str) -> None:
    found = transfer(role)
    assert found["kv_connector"] == "NixlConnector"
    assert found["kv_connector_extra_config"] == {"backends": ["LIBFABRIC"]}
    assert found["kv_buffer_device"] == "cuda"


def test_each_role_has_its_side_of_the_hand_over() -> None:
    assert [transfer(role)["kv_role"] for role in ROLES] == ["kv_producer", "kv_consumer"]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("policy", ["fail", "recompute"])
def test_what_happens_without_kv_is_written_out(role: str, policy: str) -> None:
    assert transfer(role, {E + "kv.load_failure": policy})["kv_load_failure_policy"] == policy


def test_a_tier_stands_beside_the_hand_over_on_prefillers_alone() -> None:
    tiered = {E + "kv.cpu_tier": True}
    found = transfer("prefill", tiered)
    assert found["kv_connector"] == "MultiConnector"
    first, second = found["kv_connector_extra_config"]["connectors"]
    assert first == {key: value for key, value in transfer("prefill").items() if key != "kv_load_failure_policy"}
    assert second["kv_connector"] == "OffloadingConnector"
    assert found["kv_load_failure_policy"] == "recompute", "a tier may miss, whatever the hand-over must do"
    assert transfer("decode", tiered) == transfer("decode")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("written", "used"), [(None, "128"), (128, "128"), (64, "64")])
def test_blocks_are_large_unless_the_file_says_otherwise(role: str, written: int | None, used: str) -> None:
    assert argument(role, "--block-size", {E + "kv.block_size": written}) == used


def test_ports_of_the_roles() -> None:
    assert [argument(role, "--port") for role in ROLES] == ["8000", "8200"]
    assert [{port["name"]: port["containerPort"] for port in server(role)["ports"]} for role in ROLES] == [
        {"modelserver": 8000, "nixl": 5600},
        {"modelserver": 8200, "nixl": 5600},
    ]


@pytest.mark.parametrize("role", ROLES)
def test_peers_are_told_the_pods_own_address(role: str) -> None:
    assert variables(role)["VLLM_NIXL_SIDE_CHANNEL_HOST"] == PODS
    assert variables(role)["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "5600"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "120"), ("USER", "llm-d"), ("PYTHONHASHSEED", "0"), ("FI_PROVIDER", "efa"),
        ("FI_EFA_USE_DEVICE_RDMA", "1"), ("FI_EFA_ENABLE_SHM_TRANSFER", "0"), ("NCCL_SOCKET_IFNAME", "^lo,docker,veth,pod-id-link"),
    ],
)  # fmt: skip
def test_variables_that_both_roles_need(role: str, name: str, value: str) -> None:
    assert variables(role)[name] == value


@pytest.mark.parametrize("role", ROLES)
def test_libfabric_is_told_nothing_without_devices(role: str) -> None:
    without = {E + "prefill.efa_devices": 0, E + "decode.efa_devices": 0}
    assert not [name for name in variables(role, without) if name.startswith("FI_")]


@pytest.mark.parametrize(("pages", "value"), [(None, None), (5120, "1")])
def test_huge_pages_are_in_the_environment_and_the_requests_or_in_neither(pages: int | None, value: str | None) -> None:
    changes = {E + "prefill.hugepages_mib": pages}
    asked = server("prefill", changes)["resources"]
    assert variables("prefill", changes).get("FI_EFA_USE_HUGE_PAGE") == value
    amount = f"{pages}Mi" if pages else None
    assert asked["requests"].get("hugepages-2Mi") == asked["limits"].get("hugepages-2Mi") == amount
    assert "FI_EFA_USE_HUGE_PAGE" not in variables("decode", changes)


@pytest.mark.parametrize(
    ("changes", "threads"),
    [({}, None), (NEWER, "4"), ({**NEWER, "cluster.groups.decode.instance_type": "ml.p6-b200.48xlarge"}, None)],
    ids=["old", "p5", "p6"],
)  # fmt: skip
def test_transfers_are_posted_by_a_thread_for_each_rail(changes: dict[str, Any], threads: str | None) -> None:
    assert variables("decode", changes).get("NIXL_LIBFABRIC_NUM_THREADS") == threads


def test_weights_on_a_volume_are_served_from_their_directory() -> None:
    assert server("prefill")["args"][0] == "/opt/ml/model"
    assert argument("prefill", "--model") is None
    assert server("prefill", {E + "model.source": {"volume": {"claim": "w", "path": "a/b"}}})["args"][0] == "/opt/ml/model/a/b"


def test_weights_of_the_hub_are_pinned_and_their_token_is_a_reference() -> None:
    assert server("decode", HUB)["args"][0] == "meta-llama/Llama-3.3-70B-Instruct"
    assert argument("decode", "--revision", HUB) == "a" * 40
    assert variables("decode", HUB)["HF_TOKEN"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert "HF_TOKEN" not in variables("decode")


def test_clients_call_the_model_by_its_name() -> None:
    assert argument("decode", "--served-model-name") == "llama-70b"


def test_gpus_and_parallel_size_come_from_one_number() -> None:
    for role, size in zip(ROLES, ("4", "8"), strict=True):
        assert argument(role, "--tensor-parallel-size") == server(role)["resources"]["limits"]["nvidia.com/gpu"] == size


def test_running_requests_may_finish() -> None:
    assert argument("prefill", "--shutdown-timeout") == "60"
    assert argument("decode", "--shutdown-timeout") == "600"
    short = {E + "model.max_model_len": 4096, E + "objectives.itl_p99_ms": 30}
    assert argument("decode", "--shutdown-timeout", short) == "123", "4096 tokens of 30 ms"
    assert argument("decode", "--shutdown-timeout", {E + "model.max_model_len": 100}) == "60"


def test_sliding_windows_keep_their_cache_manager() -> None:
    switch = "--no-disable-hybrid-kv-cache-manager"
    assert switch in server("decode", SLIDING)["args"]
    assert switch not in server("decode")["args"]


def test_block_events_are_published_where_the_router_asks_for_them() -> None:
    aware = {E + "routing.strategy": "kv_aware"}
    told = json.loads(argument("decode", "--kv-events-config", aware) or "")
    assert told == {
        "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:5556", "topic": "kv@$(POD_IP):8000@llama-70b",
    }  # fmt: skip
    assert variables("decode", aware)["POD_IP"] == PODS
    assert {"name": "kv-events", "containerPort": 5556, "protocol": "TCP"} in server("decode", aware)["ports"]
    assert argument("decode", "--kv-events-config") is None


def test_a_users_argument_comes_last_and_variables_are_sorted() -> None:
    changes = {E + "decode.extra_args": ["--seed", "1"], E + "environment": {"B": "2", "A": {"secret": "s", "key": "k"}}}
    assert server("decode", changes)["args"][-2:] == ["--seed", "1"]
    assert list(variables("decode", changes).items())[-2:] == [("A", {"secretKeyRef": {"name": "s", "key": "k"}}), ("B", "2")]


def test_an_unknown_group_is_refused() -> None:
    known = environment({E + "decode.group": "nowhere"}, example=LLMD_EXAMPLE)
    with pytest.raises(ValueError, match="nowhere"):
        engine(known.endpoints[0], "decode", Site.of(known))
