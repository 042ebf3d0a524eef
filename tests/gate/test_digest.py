"""The digest changes with every single thing that a pod is made of, and with nothing else."""

from typing import Any

import pytest

from dpd.gate.digest import digest
from tests.support import environment

HUB = {"hub": {"model_id": "meta-llama/Llama-3.3-70B-Instruct", "revision": "0" * 40}}
IMAGE = {
    "repository": "registry.example.com/vllm",
    "tag": "v1",
    "digest": "sha256:" + "0" * 64,
    "lmcache": "0.4.3",
    "vllm": "0.19.0",
    "nixl": "1.0.0",
}
CHANGES: dict[str, Any] = {
    "endpoints[0].prefill.extra_args": ["--enforce-eager"],
    "endpoints[0].decode.extra_args": ["--enforce-eager"],
    "endpoints[0].prefill.gpu_memory_utilization": 0.76,
    "endpoints[0].decode.gpu_memory_utilization": 0.76,
    "endpoints[0].prefill.max_concurrent_sequences": 17,
    "endpoints[0].decode.max_concurrent_sequences": 33,
    "endpoints[0].prefill.tensor_parallel": 4,
    "endpoints[0].prefill.efa_devices": 16,
    "endpoints[0].decode.cpus": 90,
    "endpoints[0].decode.memory_gib": 900,
    "endpoints[0].prefill.replicas": 2,
    "endpoints[0].model.max_model_len": 8192,
    "endpoints[0].model.served_name": "other",
    "endpoints[0].model.source": {"s3": {"prefix": "Llama-3.3-70B-Instruct-v2/"}},
    "endpoints[0].environment": {"NCCL_DEBUG": "INFO"},
    "endpoints[0].image": IMAGE,
    "endpoints[0].routing.threshold_tokens": 2048,
    "endpoints[0].routing.strategy": "round_robin",
    "endpoints[0].kv.buffer_gib": 9,
    "endpoints[0].kv.cpu_tier": False,
    "endpoints[0].kv.cpu_tier_gib": 6,
    "endpoints[0].kv.dtype": "fp8",
    "endpoints[0].kv.block_size": 128,
    "endpoints[0].raw.spec": {"worker": {"modelInvocationPort": {"name": "other"}}},
    "endpoints[0].name": "other",
    "endpoints[0].namespace": "other",
}
UNRELATED: dict[str, Any] = {
    "tags": {"owner": "somebody-else"},
    "gate.schedule_minutes": 30,
    "gate.notify": ["team@example.com"],
    "cluster.groups.system.count": 3,
    "cluster.admin_role_arns": ["arn:aws:iam::111122223333:role/ops"],
    "network.flow_logs": False,
    "endpoints[0].objectives.ttft_p99_ms": 3000,
    "termination_protection": False,
}


@pytest.mark.parametrize(("path", "value"), CHANGES.items(), ids=CHANGES)
def test_every_change_of_a_pod_is_proven_again(path: str, value: Any) -> None:
    assert digest(environment({path: value})) != digest(environment())


@pytest.mark.parametrize(("path", "value"), UNRELATED.items(), ids=UNRELATED)
def test_nothing_else_is(path: str, value: Any) -> None:
    assert digest(environment({path: value})) == digest(environment())


def test_a_new_revision_of_the_model_is_proven_again() -> None:
    first, second = ({"endpoints[0].model.source": {"hub": {**HUB["hub"], "revision": char * 40}}} for char in "01")
    assert digest(environment(first)) != digest(environment(second))


@pytest.mark.parametrize("key", ["repository", "digest"])
def test_a_new_image_is_proven_again(key: str) -> None:
    other = {"repository": "registry.example.com/other", "digest": "sha256:" + "1" * 64}[key]
    assert digest(environment({"endpoints[0].image": IMAGE})) != digest(environment({"endpoints[0].image": {**IMAGE, key: other}}))


def test_every_endpoint_counts_and_so_does_their_absence() -> None:
    one = environment()
    two = environment({"endpoints[1]": {**_endpoint(), "name": "second"}})
    assert len({digest(each) for each in (one, two, environment({"endpoints": []}))}) == 3


def _endpoint() -> dict[str, Any]:
    from tests.support import base

    found: dict[str, Any] = base()["endpoints"][0]
    return found


def test_all_changes_differ_from_each_other() -> None:
    found = [digest(environment({path: value})) for path, value in CHANGES.items()]
    assert len(set(found)) == len(found)
