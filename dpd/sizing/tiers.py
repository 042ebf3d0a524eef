"""KV tiers behind GPU memory: what keeps them, and the host memory that they take of a pod."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dpd.catalog.instances import Instance
from dpd.environment.endpoint import Endpoint, Role
from dpd.sizing.expert_parallel import local_ranks, pod_gpus
from dpd.sizing.memory import GIB, kv_bytes_per_token_per_rank

MOONCAKE: Final = "mooncake://"
REDIS: Final = ("redis://", "rediss://")
MOONCAKE_BUFFER_GIB: Final = 4
"""Memory of each GPU's worker for the store's own copies (`local_buffer_size` of vLLM's example)."""


class TierEngine(StrEnum):
    """What moves KV between the tiers."""

    NATIVE = "native"
    LMCACHE = "lmcache"
    MOONCAKE = "mooncake"


@dataclass(frozen=True, slots=True)
class CpuTier:
    """The CPU tier of one pod. ``engines`` are its data parallel ranks, each with a tier of its own.

    ``shm_gib`` is the part that lies in ``/dev/shm``: vLLM's own tier is one file there, so that all workers of an engine
    see it. Kubernetes counts that as memory of the pod, as it does LMCache's and Mooncake's.
    """

    engine: TierEngine
    engines: int
    gib_per_engine: int
    buffers_gib: int = 0

    @property
    def tier_gib(self) -> int:
        """Memory that holds KV."""
        return self.gib_per_engine * self.engines

    @property
    def host_gib(self) -> int:
        """All memory of the pod that the tier takes."""
        return self.tier_gib + self.buffers_gib

    @property
    def shm_gib(self) -> int:
        """The part of it in ``/dev/shm``."""
        return self.tier_gib if self.engine is TierEngine.NATIVE else 0


def tier_engine(endpoint: Endpoint) -> TierEngine:
    """What keeps an endpoint's tiers: LMCache with the operator; a Mooncake store where one is named; else the file's choice, or vLLM."""
    if endpoint.backend == "operator":
        return TierEngine.LMCACHE
    if endpoint.kv.shared_tier.startswith(MOONCAKE):
        return TierEngine.MOONCAKE
    return TierEngine(endpoint.kv.tier_engine or TierEngine.NATIVE)


def keeps_tiers(endpoint: Endpoint, role_name: str) -> bool:
    """Whether the pods of a role have tiers behind their GPUs.

    With llm-d prefillers alone do: what a decoder needs is handed over to it, and vLLM's combination of the hand-over with
    tiers is only proven on that side.
    """
    kv = endpoint.kv
    wanted = kv.cpu_tier or kv.disk_tier is not None or kv.shared_tier != "none"
    return wanted and (endpoint.backend == "operator" or role_name == "prefill")


def cpu_tier(endpoint: Endpoint, role_name: str, role: Role, instance: Instance) -> CpuTier | None:
    """The CPU tier of a role's pods; ``None`` for a role without tiers.

    ``cpu_tier_gib`` is per GPU. vLLM's `cpu_bytes_to_use` is the sum over the workers of one engine, and every data
    parallel rank is an engine: a pod of eight ranks takes eight times as much (https://github.com/llm-d/llm-d/blob/main/guides/pd-disaggregation/README.multi-tier.md).
    """
    if not keeps_tiers(endpoint, role_name):
        return None
    engine, gpus = tier_engine(endpoint), pod_gpus(role, instance)
    size = endpoint.kv.cpu_tier_gib if endpoint.kv.cpu_tier else 0
    buffers = MOONCAKE_BUFFER_GIB * gpus if engine is TierEngine.MOONCAKE else 0
    return CpuTier(engine, local_ranks(role, instance), size * role.tensor_parallel, buffers)


def tier_host_gib(endpoint: Endpoint, role_name: str, role: Role, instance: Instance) -> int:
    """Host memory that tiers take of a pod."""
    tier = cpu_tier(endpoint, role_name, role, instance)
    return tier.host_gib if tier else 0


def blocks(endpoint: Endpoint, role: Role, gib: float, block_tokens: int) -> int:
    """KV blocks of one engine that fit into ``gib``: the router's idea of a tier's size.

    Latent attention has the same KV on every GPU of an engine, and vLLM keeps one copy of it.
    """
    model = endpoint.model.shape
    copies = 1 if model.attention == "mla" else role.tensor_parallel
    per_token = kv_bytes_per_token_per_rank(model, role.tensor_parallel, endpoint.kv.dtype) * copies
    return math.floor(gib * GIB / (per_token * block_tokens))
