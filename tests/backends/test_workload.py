"""One model of an endpoint, whichever backend runs it."""

from typing import Any

import pytest

from dpd.backends.backend import backend
from dpd.backends.site import PLACEHOLDERS, Site
from dpd.backends.workload import Workload, arguments, image_reference, workload
from dpd.environment.model import SecretKey
from tests.support import environment


def of(changes: dict[str, Any] | None = None) -> Workload:
    made = environment(changes)
    return workload(made.endpoints[0], Site.of(made))


def test_flags_that_agree_are_shared_and_others_are_not() -> None:
    work = of({"endpoints[0].prefill.gpu_memory_utilization": 0.9})
    assert "--gpu-memory-utilization" not in work.shared_flags()
    assert work.own_flags(work.prefill) == {"--gpu-memory-utilization": "0.9", "--max-num-seqs": "16"}
    assert work.own_flags(work.decode) == {"--gpu-memory-utilization": "0.75", "--max-num-seqs": "32"}


def test_equal_limits_are_shared() -> None:
    work = of({"endpoints[0].prefill.max_concurrent_sequences": 32})
    assert work.shared_flags()["--max-num-seqs"] == "32"
    assert work.own_flags(work.prefill) == {}


@pytest.mark.parametrize(
    ("changes", "flag", "value"),
    [
        ({"endpoints[0].kv.dtype": "fp8"}, "--kv-cache-dtype", "fp8"),
        ({}, "--kv-cache-dtype", None),
        ({"endpoints[0].kv.block_size": 64}, "--block-size", "64"),
        ({}, "--block-size", None),
        ({"endpoints[0].model.served_name": "a/b.c"}, "--served-model-name", "a/b.c"),
        ({}, "--served-model-name", "llama-70b"),
        ({"endpoints[0].model.source": {"volume": {"claim": "weights", "path": "llama/v1"}}}, "--model", "/opt/ml/model/llama/v1"),
        ({"endpoints[0].model.source": {"volume": {"claim": "weights"}}}, "--model", "/opt/ml/model"),
    ],
)
def test_derived_flags(changes: dict[str, Any], flag: str, value: str | None) -> None:
    assert of(changes).shared_flags().get(flag) == value


def test_arguments_alternate_flag_and_value() -> None:
    assert arguments({"--a": "1", "--b": "2"}) == ["--a", "1", "--b", "2"]


@pytest.mark.parametrize(
    ("changes", "variable", "value"),
    [
        ({"endpoints[0].kv.buffer_gib": 16}, "PD_BUFFER_SIZE", "17179869184"),
        ({}, "PYTHONHASHSEED", "0"),
        ({}, "LMCACHE_SAVE_DECODE_CACHE", "False"),
        ({"endpoints[0].kv.cpu_tier_gib": 40}, "LMCACHE_MAX_LOCAL_CPU_SIZE", "40"),
        ({"endpoints[0].kv.cpu_tier": False}, "LMCACHE_MAX_LOCAL_CPU_SIZE", None),
        ({}, "FI_PROVIDER", "efa"),
        ({"endpoints[0].decode.efa_devices": 0}, "FI_PROVIDER", None),
        ({"endpoints[0].environment": {"VLLM_LOGGING_LEVEL": "DEBUG"}}, "VLLM_LOGGING_LEVEL", "DEBUG"),
        (
            {"endpoints[0].environment": {"HF_TOKEN": {"secret": "hub", "key": "token"}}},
            "HF_TOKEN",
            SecretKey(secret="hub", key="token"),
        ),
        ({"endpoints[0].environment": {"NCCL_SOCKET_IFNAME": "eth"}}, "NCCL_SOCKET_IFNAME", "eth"),
    ],
)
def test_environment(changes: dict[str, Any], variable: str, value: object) -> None:
    assert of(changes).environment.get(variable) == value


def test_nccl_never_loses_the_pods_own_interface() -> None:
    excluded = str(of().environment["NCCL_SOCKET_IFNAME"])
    assert excluded.startswith("^")
    assert not any("eth0".startswith(name) for name in excluded[1:].split(","))
    assert any("pod-id-link0".startswith(name) for name in excluded[1:].split(","))


def test_users_variables_come_in_one_order() -> None:
    names = list(of({"endpoints[0].environment": {"B": "1", "A": "2"}}).environment)
    assert names[-2:] == ["A", "B"]


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        (None, "public.ecr.aws/deep-learning-containers/vllm:server-hyperpod-cuda-v1.1"),
        ({}, "example.com/a/b:1"),
        ({"digest": "sha256:" + "a" * 64}, "example.com/a/b@sha256:" + "a" * 64),
    ],
)
def test_image(image: dict[str, str] | None, reference: str) -> None:
    stated = {"repository": "example.com/a/b", "tag": "1", "lmcache": "0.4.3", "vllm": "0.19.0", "nixl": "1.0.0"}
    changes = {} if image is None else {"endpoints[0].image": {**stated, **image}}
    assert image_reference(environment(changes).endpoints[0]) == reference


def test_unknown_group_is_named() -> None:
    with pytest.raises(ValueError, match="'llama-70b': the decode role's group 'nowhere'"):
        of({"endpoints[0].decode.group": "nowhere"})


def test_site_uses_placeholders_until_a_file_system_is_adopted() -> None:
    made = Site.of(environment()).lustre
    assert made is not None
    assert (made.file_system_id, made.dns_name, made.mount_name) == PLACEHOLDERS
    existing = {
        "file_system_id": "fs-0123456789abcdef0", "dns_name": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com", "mount_name": "abcdefgh",
        "availability_zone_id": "use2-az1", "capacity_gib": 4800, "security_group_id": "sg-0123456789abcdef0",
    }  # fmt: skip
    adopted = Site.of(environment({"storage.lustre": {"existing": existing}})).lustre
    assert adopted is not None
    assert (adopted.file_system_id, adopted.mount_name, adopted.capacity_gib) == ("fs-0123456789abcdef0", "abcdefgh", 4800)


def test_site_takes_the_adopted_bucket() -> None:
    site = Site.of(environment({"storage.models.bucket": {"existing": "weights", "region": "us-west-2"}}))
    assert (site.model_bucket, site.model_bucket_region) == ("weights", "us-west-2")


def test_backend_traits() -> None:
    known = backend("operator")
    assert known.capabilities.decode_replicas == 1
    assert known.capabilities.equal_tensor_parallel
    assert known.ports["server"] == 8000
    assert known.logs["prefill_role"] == "'pd_role': 'sender'"


def test_pods_get_what_managed_tiered_storage_leaves() -> None:
    typed = environment({"cluster.tiered_storage_memory_percent": 20, "endpoints[0].kv.shared_tier": "tiered_storage"})
    work = workload(typed.endpoints[0], Site.of(typed))
    assert {work.prefill.pod.memory_gib, work.decode.pod.memory_gib} == {1433}  # 2048 x 0.8 x 7/8
