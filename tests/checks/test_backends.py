"""What a backend cannot do: the smallest wrong input of each backend, and the nearest right one."""

from typing import Any

import pytest

from dpd.backends.backend import backend
from dpd.environment.endpoint import KvCache, Routing
from tests.support import EXAMPLE, LLMD_EXAMPLE, REMOVE, findings

E = "endpoints[0]."
KV, ROUTING = f"{E}kv.", f"{E}routing."
DISK = {"medium": "nvme", "path": "kv", "capacity_gib": 100}
IMAGE = {"repository": "example.com/vllm", "tag": "1", "vllm": "0.23.0", "nixl": "1.2.0"}
ARN = "arn:aws:acm:us-east-2:111122223333:certificate/12345678-1234-1234-1234-123456789012"
CERTIFICATE = {"acm_arn": ARN, "domain_name": "a.example.com"}

OPERATOR: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("BCK001", {f"{ROUTING}strategy": "load"}, f"{ROUTING}strategy", {f"{ROUTING}strategy": "round_robin"}),
    ("BCK001", {f"{ROUTING}threshold_counts": "non_cached"}, f"{ROUTING}threshold_counts", {f"{ROUTING}threshold_counts": "prompt"}),
    ("BCK001", {f"{ROUTING}no_prefiller": "fallback"}, f"{ROUTING}no_prefiller", {f"{ROUTING}no_prefiller": "fail"}),
    ("BCK001", {f"{ROUTING}gateway": {}}, f"{ROUTING}gateway", {}),
    ("BCK002", {f"{KV}buffer_gib": REMOVE}, f"{KV}buffer_gib", {f"{KV}buffer_gib": 8}),
    ("BCK003", {f"{KV}load_failure": "fail"}, f"{KV}load_failure", {f"{KV}load_failure": "recompute"}),
    ("BCK003", {f"{KV}tier_engine": "native"}, f"{KV}tier_engine", {f"{KV}tier_engine": "lmcache"}),
    ("BCK003", {f"{KV}shared_tier": "mooncake://a.b:1"}, f"{KV}shared_tier", {f"{KV}shared_tier": "rediss://a.b:1"}),
    ("BCK003", {f"{KV}disk_tier": DISK}, f"{KV}disk_tier", {}),
    ("BCK003", {f"{KV}eviction": "lru"}, f"{KV}eviction", {}),
    ("BCK004", {f"{E}workload": "disaggregated_set"}, f"{E}workload", {f"{E}workload": "deployments"}),
    ("BCK004", {f"{E}decode.expert_parallel": {"nodes": 2}}, f"{E}decode.expert_parallel", {}),
    ("BCK004", {f"{E}decode.hugepages_mib": 5120}, f"{E}decode.hugepages_mib", {}),
    ("BCK004", {f"{E}prefill.privileged": True}, f"{E}prefill.privileged", {f"{E}prefill.privileged": False}),
    ("BCK006", {f"{E}objectives.priority": 1}, f"{E}objectives.priority", {}),
    ("BCK007", {f"{E}image": IMAGE}, f"{E}image.lmcache", {f"{E}image": {**IMAGE, "lmcache": "0.4.3"}}),
]
LLMD: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("BCK001", {f"{ROUTING}inference_gateway": True}, f"{ROUTING}inference_gateway", {f"{ROUTING}gateway": {}}),
    ("BCK002", {f"{KV}buffer_gib": 8}, f"{KV}buffer_gib", {}),
    ("BCK003", {f"{KV}shared_tier": "redis://a.b:1"}, f"{KV}shared_tier", {f"{KV}shared_tier": "none"}),
    ("BCK003", {f"{KV}shared_tier": "tiered_storage"}, f"{KV}shared_tier", {f"{KV}shared_tier": "none"}),
    ("BCK005", {f"{E}exposure.sagemaker_endpoint": "a"}, f"{E}exposure.sagemaker_endpoint", {}),
    ("BCK005", {f"{E}exposure.certificate": CERTIFICATE}, f"{E}exposure.certificate", {}),
    ("BCK005", {f"{E}raw.spec": {"replicas": 1}}, f"{E}raw.spec", {}),
    ("BCK005", {f"{E}raw.unknown_fields_reason": "new"}, f"{E}raw.unknown_fields_reason", {}),
    ("BCK006", {f"{E}objectives.priority": 1}, f"{E}objectives.priority", {f"{E}objectives.priority": 1, f"{ROUTING}gateway": {}}),
    (
        "BCK007",
        {f"{E}image": IMAGE, f"{KV}tier_engine": "lmcache"},
        f"{E}image.lmcache",
        {f"{E}image": {**IMAGE, "lmcache": "0.4.6"}, f"{KV}tier_engine": "lmcache"},
    ),
]
TABLE = [(EXAMPLE, *row) for row in OPERATOR] + [(LLMD_EXAMPLE, *row) for row in LLMD]


@pytest.mark.parametrize(("example", "id", "wrong", "path", "right"), TABLE, ids=[f"{row[0].stem} {row[1]} {row[3]}" for row in TABLE])
def test_what_a_backend_cannot_do_is_said_once(example: Any, id: str, wrong: dict[str, Any], path: str, right: dict[str, Any]) -> None:
    (one,) = findings(wrong, id=id, example=example)
    assert one.path == path
    assert one.stops
    assert one.fix
    assert one.message
    assert not findings(right, id=id, example=example)


def test_a_mirror_that_nobody_pulls_from_is_said() -> None:
    mirrors = {"cluster.router_repositories": {"picker": "mirror.example/picker", "tokenizer": "mirror.example/tokenizer"}}
    paths = [f"cluster.router_repositories.{name}" for name in ("picker", "tokenizer")]
    assert [one.path for one in findings(mirrors, id="BCK008")] == paths
    assert [one.path for one in findings(mirrors, id="BCK008", example=LLMD_EXAMPLE)] == paths[1:]
    assert not findings({**mirrors, f"{ROUTING}strategy": "kv_aware"}, id="BCK008", example=LLMD_EXAMPLE)


def test_what_cannot_be_done_cannot_be_accepted() -> None:
    changes = {f"{ROUTING}strategy": "load", "acknowledge": [{"id": "BCK001", "reason": "we shall see"}]}
    (one,) = findings(changes, id="BCK001")
    assert one.stops


def test_capabilities_are_words_of_the_file() -> None:
    words = {
        "strategies": Routing.model_fields["strategy"],
        "threshold_counts": Routing.model_fields["threshold_counts"],
        "no_prefiller": Routing.model_fields["no_prefiller"],
        "load_failure": KvCache.model_fields["load_failure"],
    }
    for name in ("operator", "llm-d"):
        for capability, field in words.items():
            assert field.annotation is not None
            assert getattr(backend(name).capabilities, capability) <= set(field.annotation.__args__), capability


def test_each_backend_is_good_by_itself() -> None:
    for example in (EXAMPLE, LLMD_EXAMPLE):
        assert not [one for one in findings(example=example) if one.id.startswith("BCK")]
