"""Tiers behind the GPU memory of prefillers: vLLM's connector for them, and what a pod needs to have them."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.names import LUSTRE_CLAIM, LlmdNames
from dpd.sizing.memory import GIB
from dpd.sizing.tiers import MOONCAKE, MOONCAKE_BUFFER_GIB, CpuTier, TierEngine, blocks, cpu_tier

_DISK: Final = "kv-disk"
_METRICS: Final = "lmcache-metrics"
_STORE: Final = "mooncake"
_CLEARED_SHM: Final = ("/bin/bash", "-c", 'find /dev/shm -type f -delete; exec vllm serve "$@"', "serve")
"""Shared memory outlives a container that restarts in its pod, and with it the tier of a process that is gone: the next one
finds no room for its own (https://github.com/llm-d/llm-d/issues/352). What follows are the arguments of ``vllm serve``."""


@dataclass(frozen=True, slots=True)
class PickerTier:
    """A tier as the router counts it: what a block in it is worth, and how many blocks one engine keeps there.

    Without ``blocks`` the router learns the number from the engine.
    """

    name: str
    weight: float
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Tiers:
    """What the tiers of a role add to its pods; nothing for a role without them.

    ``connector`` stands beside the hand-over's in vLLM's ``MultiConnector``. ``memory_gib`` is the part of the pod's memory
    that the tiers take, ``shm_gib`` the part of it in ``/dev/shm``. ``objects`` are applied before the pods. A lost tier is
    a miss and no fault, so ``load_failure`` is vLLM's policy to read such blocks from the prompt again.
    """

    connector: dict[str, Any] | None = None
    env: dict[str, str] = field(default_factory=dict)
    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    memory_gib: int = 0
    shm_gib: int = 0
    command: tuple[str, ...] = ()
    run_as_root: bool = False
    objects: tuple[dict[str, Any], ...] = ()
    picker_tiers: tuple[PickerTier, ...] = ()
    load_failure: str = "recompute"


def tiers(endpoint: Endpoint, role_name: str, site: Site) -> Tiers:
    """The tiers of a role's pods. Raises ``ValueError`` for a group that is not known, or a Lustre tier without Lustre."""
    role = dict(endpoint.roles)[role_name]
    instance = site.instance(role.group)
    if instance is None:
        raise ValueError(f"endpoint {endpoint.name!r}: the {role_name} role's group {role.group!r} has no known instance type")
    tier = cpu_tier(endpoint, role_name, role, instance)
    if tier is None:
        return Tiers()
    if tier.engine is TierEngine.MOONCAKE:
        return _mooncake(endpoint, role, tier)
    volumes, mounts = _disk(endpoint, site)
    engine = _native if tier.engine is TierEngine.NATIVE else _lmcache
    return engine(endpoint, role, tier, volumes, mounts)


def picker_tiers(endpoint: Endpoint, role: Role, tier: CpuTier) -> tuple[PickerTier, ...]:
    """The private tiers of an engine, nearest first.

    A store that all pods share is no reason to prefer one of them, and where files on a disk lie no engine tells the router.
    """
    facts = _facts()
    near = PickerTier("gpu", facts["weights"]["gpu"])
    if tier.engine is TierEngine.MOONCAKE or not tier.gib_per_engine:
        return (near,)
    block_tokens = endpoint.kv.block_size or int(llmd().more["workers"]["block_size_tokens"])
    return near, PickerTier("cpu", facts["weights"]["cpu"], blocks(endpoint, role, tier.gib_per_engine, block_tokens))


def private_root(endpoint: Endpoint) -> str:
    """Where an endpoint keeps its KV below a mount.

    vLLM names files by the model's path and a digest of layout and types, and every model of this tool has the same path:
    only a folder of its own keeps an endpoint, and a revision of it, from reading the KV of other weights.
    """
    names = LlmdNames.of(endpoint)
    return f"{names.namespace}/{names.endpoint}-{names.revision}"


def _native(
    endpoint: Endpoint, role: Role, tier: CpuTier, volumes: tuple[dict[str, Any], ...], mounts: tuple[dict[str, Any], ...]
) -> Tiers:
    """vLLM's own tiers. All that leaves the GPU goes through CPU memory, which evicts; files stay until somebody removes them."""
    facts, kv = _facts(), endpoint.kv
    extra: dict[str, Any] = {"cpu_bytes_to_use": tier.gib_per_engine * GIB, "eviction_policy": kv.eviction or "lru"}
    if kv.disk_tier:
        root = f"{facts['disk_mount']}/{private_root(endpoint)}"
        extra |= {
            "spec_name": facts["native"]["with_disk"],
            "secondary_tiers": [{"type": facts["native"]["disk_type"], "root_dir": root}],
        }
    return Tiers(
        connector=_connector(tier.engine, extra),
        env={},
        volumes=volumes,
        mounts=mounts,
        memory_gib=tier.host_gib,
        shm_gib=tier.shm_gib,
        command=_CLEARED_SHM,
        run_as_root=bool(volumes),
        picker_tiers=picker_tiers(endpoint, role, tier),
    )


def _lmcache(
    endpoint: Endpoint, role: Role, tier: CpuTier, volumes: tuple[dict[str, Any], ...], mounts: tuple[dict[str, Any], ...]
) -> Tiers:
    """LMCache, whose sizes are for each worker. It forgets its files with the process, so each pod has a disk of its own."""
    facts, kv = _facts(), endpoint.kv
    workers = tier.engines * role.tensor_parallel
    metrics = facts["lmcache_metrics"]
    env = {
        "LMCACHE_LOCAL_CPU": str(kv.cpu_tier),
        "LMCACHE_MAX_LOCAL_CPU_SIZE": str(kv.cpu_tier_gib),
        **({"LMCACHE_CACHE_POLICY": kv.eviction.upper()} if kv.eviction else {}),
        metrics["variable"]: metrics["path"],
    }
    if kv.disk_tier:
        env |= {
            "LMCACHE_LOCAL_DISK": f"file://{facts['disk_mount']}/",
            "LMCACHE_MAX_LOCAL_DISK_SIZE": f"{kv.disk_tier.capacity_gib / workers:g}",
            "LMCACHE_EXTRA_CONFIG": json.dumps({"use_odirect": True}),
        }
    return Tiers(
        connector=_connector(tier.engine, {}),
        env=env,
        volumes=({"name": _METRICS, "emptyDir": {}}, *volumes),
        mounts=({"name": _METRICS, "mountPath": metrics["path"]}, *mounts),
        memory_gib=tier.host_gib,
        shm_gib=tier.shm_gib,
        run_as_root=bool(volumes),
        picker_tiers=picker_tiers(endpoint, role, tier),
    )


def _mooncake(endpoint: Endpoint, role: Role, tier: CpuTier) -> Tiers:
    """A Mooncake store over EFA. With a CPU tier each worker gives its memory to the pool; without one the pool is others'."""
    facts, names = _facts()["mooncake"], LlmdNames.of(endpoint)
    share = endpoint.kv.cpu_tier_gib * GIB if tier.tier_gib else 0
    config = {
        "mode": "embedded" if share else "standalone-store",
        "metadata_server": "P2PHANDSHAKE",
        "master_server_address": endpoint.kv.shared_tier.removeprefix(MOONCAKE),
        "global_segment_size": share,
        "local_buffer_size": MOONCAKE_BUFFER_GIB * GIB,
        "protocol": facts["protocol"],
        "device_name": "",
        "enable_offload": False,
    }
    folder, _, file = facts["config"].rpartition("/")
    name = names.workload(_STORE)
    return Tiers(
        connector=_connector(tier.engine, {"cache_prefix": private_root(endpoint)}),
        env={facts["variable"]: facts["config"]},
        volumes=({"name": _STORE, "configMap": {"name": name}},),
        mounts=({"name": _STORE, "mountPath": folder, "readOnly": True},),
        memory_gib=tier.host_gib,
        objects=(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": endpoint.namespace, "labels": names.labels()},
                "data": {file: json.dumps(config, indent=2)},
            },
        ),
        picker_tiers=picker_tiers(endpoint, role, tier),
    )


def _connector(engine: TierEngine, extra: dict[str, Any]) -> dict[str, Any]:
    facts = _facts()
    more = {"kv_connector_extra_config": extra} if extra else {}
    return {"kv_connector": facts["connectors"][engine.value], "kv_role": facts["role"], **more}


def _disk(endpoint: Endpoint, site: Site) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]:
    """The volume of the disk tier and its mount.

    vLLM's files are found again by every pod of the node or of the file system. LMCache's are of no use once its process
    ends, so on NVMe they lie in the pod's own folder, which Kubernetes removes with the pod (nodes keep those on NVMe).
    """
    tier, facts = endpoint.kv.disk_tier, _facts()
    if tier is None:
        return (), ()
    mount: dict[str, Any] = {"name": _DISK, "mountPath": facts["disk_mount"]}
    if tier.medium == "nvme":
        if endpoint.kv.tier_engine == "lmcache":
            return ({"name": _DISK, "emptyDir": {}},), (mount,)
        return ({"name": _DISK, "hostPath": {"path": f"{facts['nvme_root']}/{tier.path}", "type": "DirectoryOrCreate"}},), (mount,)
    if site.lustre is None:
        raise ValueError(f"endpoint {endpoint.name!r} keeps KV on Lustre, and the environment has none")
    return ({"name": _DISK, "persistentVolumeClaim": {"claimName": LUSTRE_CLAIM}},), ({**mount, "subPath": tier.path},)


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = llmd().more["tiers"]
    return facts
