"""Tiers in the pods of prefillers: connectors, sizes, volumes and what the router is told."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.backends.llmd.tiers import tiers
from dpd.backends.llmd.workers import objects
from dpd.backends.site import Site
from dpd.catalog import instances
from dpd.environment.endpoint import Endpoint
from dpd.sizing.expert_parallel import pod_gpus
from dpd.sizing.memory import GIB
from dpd.sizing.tiers import TierEngine, blocks, cpu_tier
from tests.backends.llmd.objects import E, made, pod, server, transfer, variables
from tests.checks.test_tiers import GOOD, KV, LMCACHE, MOONCAKE, disk
from tests.schemas import check
from tests.support import LLMD_EXAMPLE, ROOT, environment

WIDE = ROOT / "docs" / "example-wide-ep.yaml"
SHARED = {**MOONCAKE, KV + ".cpu_tier": True, KV + ".cpu_tier_gib": 16}


def connector(changes: dict[str, Any]) -> dict[str, Any]:
    """The tier's connector beside the hand-over's."""
    _, found = transfer("prefill", changes)["kv_connector_extra_config"]["connectors"]
    assert isinstance(found, dict)
    return found


def shm(role: str, changes: dict[str, Any]) -> int:
    (size,) = (one["emptyDir"]["sizeLimit"] for one in pod(role, changes)["volumes"] if one.get("emptyDir", {}).get("medium") == "Memory")
    return int(size.removesuffix("Gi"))


@pytest.mark.parametrize(
    "changes",
    [GOOD, LMCACHE, SHARED, disk(), disk("lustre"), {**disk(), **LMCACHE}],
    ids=["cpu", "lmcache", "mooncake", "nvme", "lustre", "disk"],
)
def test_every_kind_of_tier_against_the_schemas(changes: dict[str, Any], crds: Path) -> None:
    for body in made(changes):
        check(body, crds)


def test_the_tier_of_an_engine_is_the_sum_of_its_gpus() -> None:
    assert connector(GOOD) == {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 64 * 4 * GIB, "eviction_policy": "lru"},
    }
    assert connector({**GOOD, KV + ".eviction": "arc"})["kv_connector_extra_config"]["eviction_policy"] == "arc"


def test_shared_memory_holds_the_tier_and_is_empty_at_the_start() -> None:
    assert shm("prefill", GOOD) - shm("prefill", {}) == 64 * 4
    assert shm("decode", GOOD) == shm("decode", {})
    command = server("prefill", GOOD)["command"]
    assert command[:2] == ["/bin/bash", "-c"]
    assert command[2].startswith("find /dev/shm -type f -delete; exec vllm serve")
    assert server("decode", GOOD)["command"] == ["vllm", "serve"]


@pytest.mark.parametrize(("size", "per_engine"), [(1, 64), (2, 128), (8, 512)])
def test_every_data_parallel_rank_has_a_connector_of_its_own(size: int, per_engine: int) -> None:
    """Eight GPUs of 64 GiB each are one tier of 512, or eight of 64."""
    wide = {E + "prefill.tensor_parallel": size, E + "decode.tensor_parallel": size, **GOOD}
    known = environment(wide, example=WIDE)
    found = tiers(known.endpoints[0], "prefill", Site.of(known))
    assert found.connector
    assert found.connector["kv_connector_extra_config"]["cpu_bytes_to_use"] == per_engine * GIB
    assert (found.memory_gib, found.shm_gib) == (512, 512)


def test_a_disk_behind_vllm_s_own_tier() -> None:
    extra = connector(disk())["kv_connector_extra_config"]
    assert extra["spec_name"] == "TieringOffloadingSpec"
    (second,) = extra["secondary_tiers"]
    assert second["type"] == "fs"
    assert second["root_dir"].startswith("/kv-disk/inference/llama-70b-")
    (volume,) = (one for one in pod("prefill", disk())["volumes"] if one["name"] == "kv-disk")
    assert volume["hostPath"] == {"path": "/opt/dlami/nvme/kv", "type": "DirectoryOrCreate"}
    assert server("prefill", disk())["securityContext"]["runAsUser"] == 0, "the directory belongs to root"
    assert "runAsUser" not in server("decode", disk())["securityContext"]


def test_files_of_other_weights_are_never_found() -> None:
    """Two models are mounted at the same path, and vLLM names its files by that path, sizes and types."""

    def root(changes: dict[str, Any]) -> str:
        (second,) = connector({**disk(), **changes})["kv_connector_extra_config"]["secondary_tiers"]
        return str(second["root_dir"])

    other = {E + "model.source": {"s3": {"prefix": "Llama-3.3-70B-tuned/"}}}
    assert len({root({}), root(other), root({E + "name": "tuned"}), root({E + "namespace": "other"})}) == 4
    assert root({}) == root({E + "prefill.replicas": 1}), "and files of the same are"


def test_a_tier_on_lustre_is_a_directory_of_the_claim() -> None:
    (mount,) = (one for one in server("prefill", disk("lustre"))["volumeMounts"] if one["name"] == "kv-disk")
    assert mount == {"name": "kv-disk", "mountPath": "/kv-disk", "subPath": "kv"}
    (volume,) = (one for one in pod("prefill", disk("lustre"))["volumes"] if one["name"] == "kv-disk")
    assert volume["persistentVolumeClaim"] == {"claimName": "lustre-models"}


def test_a_namespace_has_the_claim_that_a_tier_mounts() -> None:
    from charts.render import render

    kinds = [one.body["kind"] for one in render(environment(disk("lustre"), example=LLMD_EXAMPLE)).namespaces["inference"]]
    assert "PersistentVolumeClaim" in kinds
    assert "PersistentVolumeClaim" not in [
        one.body["kind"] for one in render(environment(disk(), example=LLMD_EXAMPLE)).namespaces["inference"]
    ]


def test_lustre_that_is_not_there_is_an_error() -> None:
    known = environment({**disk("lustre"), "storage.lustre": None}, example=LLMD_EXAMPLE)
    with pytest.raises(ValueError, match="keeps KV on Lustre"):
        objects(known.endpoints[0], Site.of(known))


def test_lmcache_counts_for_each_worker() -> None:
    changes = {**disk(capacity=2000), **LMCACHE, KV + ".eviction": "lfu"}
    said = variables("prefill", changes)
    assert connector(changes) == {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
    assert (said["LMCACHE_LOCAL_CPU"], said["LMCACHE_MAX_LOCAL_CPU_SIZE"]) == ("True", "64")
    assert (said["LMCACHE_LOCAL_DISK"], said["LMCACHE_MAX_LOCAL_DISK_SIZE"]) == ("file:///kv-disk/", "500")
    assert said["LMCACHE_CACHE_POLICY"] == "LFU"
    assert json.loads(said["LMCACHE_EXTRA_CONFIG"]) == {"use_odirect": True}
    assert not [name for name in variables("decode", changes) if name.startswith("LMCACHE")]
    (volume,) = (one for one in pod("prefill", changes)["volumes"] if one["name"] == "kv-disk")
    assert volume["emptyDir"] == {}, "its files are of no use to another process, and go with the pod"
    assert shm("prefill", changes) == shm("prefill", {}), "pinned memory, and no file"


def test_a_mooncake_store_over_efa() -> None:
    assert connector(SHARED)["kv_connector"] == "MooncakeStoreConnector"
    assert connector(SHARED)["kv_connector_extra_config"]["cache_prefix"].startswith("inference/llama-70b-")
    (config,) = (one for one in made(SHARED) if one["kind"] == "ConfigMap")
    said = json.loads(config["data"]["mooncake.json"])
    assert said == {
        "mode": "embedded", "metadata_server": "P2PHANDSHAKE", "master_server_address": "mooncake-master.mooncake:50051",
        "global_segment_size": 16 * GIB, "local_buffer_size": 4 * GIB, "protocol": "efa", "device_name": "", "enable_offload": False,
    }  # fmt: skip
    assert variables("prefill", SHARED)["MOONCAKE_CONFIG_PATH"] == "/etc/mooncake/mooncake.json"
    (volume,) = (one for one in pod("prefill", SHARED)["volumes"] if one["name"] == "mooncake")
    assert volume["configMap"]["name"] == config["metadata"]["name"]


def test_a_store_without_memory_of_ours_belongs_to_others() -> None:
    (config,) = (one for one in made(MOONCAKE) if one["kind"] == "ConfigMap")
    said = json.loads(config["data"]["mooncake.json"])
    assert (said["mode"], said["global_segment_size"]) == ("standalone-store", 0)


@pytest.mark.parametrize("changes", [{}, GOOD, LMCACHE, SHARED, disk()], ids=["none", "cpu", "lmcache", "mooncake", "nvme"])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_hashes_and_blocks_agree_everywhere(changes: dict[str, Any], role: str) -> None:
    args = server(role, changes)["args"]
    assert variables(role, changes)["PYTHONHASHSEED"] == "0"
    assert args[args.index("--block-size") + 1] == "128"


def picker(changes: dict[str, Any]) -> list[tuple[str, float, int | None]]:
    known = environment(changes, example=LLMD_EXAMPLE)
    return [(one.name, one.weight, one.blocks) for one in tiers(known.endpoints[0], "prefill", Site.of(known)).picker_tiers]


def test_the_router_counts_the_blocks_of_one_engine() -> None:
    # 64 GiB x 4 GPUs / (327,680 bytes x 128 tokens)
    assert picker(GOOD) == [("gpu", 1.0, None), ("cpu", 0.4, 64 * 4 * GIB // (327_680 * 128))]
    assert picker({**GOOD, KV + ".block_size": 64})[1][2] == 64 * 4 * GIB // (327_680 * 64)
    assert picker({**GOOD, KV + ".dtype": "fp8"})[1][2] == 64 * 4 * GIB // (163_840 * 128)
    assert picker(SHARED) == [("gpu", 1.0, None)], "any pod reads the store"
    assert picker({}) == []


def endpoint(gib: int, size: int, *, wide: bool, engine: str) -> Endpoint:
    changes = {KV + ".cpu_tier": True, KV + ".cpu_tier_gib": gib, KV + ".tier_engine": engine, E + "prefill.tensor_parallel": size}
    if wide:
        changes |= {E + "prefill.expert_parallel": {"nodes": 2}}
    return environment(changes, example=LLMD_EXAMPLE).endpoints[0]


@given(st.integers(1, 4096), st.sampled_from((1, 2, 4, 8)), st.booleans(), st.sampled_from(("native", "lmcache")))
def test_a_pod_s_memory_is_counted_once_for_every_gpu(gib: int, size: int, wide: bool, engine: str) -> None:
    known = endpoint(gib, size, wide=wide, engine=engine)
    instance = instances.find("ml.p5.48xlarge")
    assert instance is not None
    tier = cpu_tier(known, "prefill", known.prefill, instance)
    assert tier is not None
    gpus = pod_gpus(known.prefill, instance)
    assert tier.host_gib == tier.tier_gib == gib * gpus
    assert tier.engines * tier.gib_per_engine == tier.tier_gib
    assert tier.shm_gib == (tier.host_gib if tier.engine is TierEngine.NATIVE else 0)
    assert cpu_tier(known, "decode", known.decode, instance) is None
    kept = blocks(known, known.prefill, tier.gib_per_engine, 128) * 128 * 327_680
    assert tier.gib_per_engine * GIB - 128 * 327_680 < kept <= tier.gib_per_engine * GIB
