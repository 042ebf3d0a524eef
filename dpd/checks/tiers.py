"""Rules about KV tiers behind the GPUs of prefillers: what moves KV, where it lies, how much fits, and whether anybody finds it again."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dpd.catalog.images import default_image
from dpd.catalog.instances import Instance
from dpd.catalog.llmd import llmd
from dpd.checks.registry import Context, Problem, check
from dpd.environment.endpoint import DiskTier, Endpoint
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.expert_parallel import local_ranks, pods_per_replica
from dpd.sizing.fleet import PlacedRole, roles
from dpd.sizing.memory import GIB, gpu_budget
from dpd.sizing.pod import pod_shape
from dpd.sizing.tiers import MOONCAKE, CpuTier, TierEngine, cpu_tier, tier_engine

_GUIDE: Final = "https://github.com/llm-d/llm-d/blob/main/guides/pd-disaggregation/README.multi-tier.md"
_OFFLOADING: Final = "https://docs.vllm.ai/en/latest/features/kv_offloading_usage/"
_STORE: Final = "https://docs.vllm.ai/en/latest/features/mooncake_store_connector_usage/"
_EFA: Final = "https://kvcache-ai.github.io/Mooncake/design/transfer-engine/efa_transport.html"
_FORGETFUL: Final = frozenset({"round_robin", "load"})
_MOST_OF_A_DISK: Final = 0.8
"""Share of a disk that KV may take: images and the folders of pods are on the same one (our choice)."""


@dataclass(frozen=True, slots=True)
class _Tiered:
    """An endpoint whose prefillers have tiers, with its place in the file."""

    path: str
    endpoint: Endpoint
    prefill: PlacedRole
    instance: Instance
    tier: CpuTier


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = llmd().more["tiers"]
    return facts


def _tiered(environment: Environment) -> Iterator[_Tiered]:
    for placed in roles(environment):
        instance, endpoint = placed.instance, placed.endpoint
        if endpoint.backend != "llm-d" or placed.name != "prefill" or instance is None or not instance.gpus:
            continue
        tier = cpu_tier(endpoint, placed.name, placed.role, instance)
        if tier:
            yield _Tiered(placed.endpoint_path, endpoint, placed, instance, tier)


def _on_disk(environment: Environment) -> Iterator[tuple[_Tiered, DiskTier]]:
    for it in _tiered(environment):
        if it.endpoint.kv.disk_tier:
            yield it, it.endpoint.kv.disk_tier


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@check(
    "TIR001", "vLLM can hand KV over and keep it at the same time",
    why="The hand-over and a tier are two connectors in one. That combination is proven from vLLM 0.27.1 on; before it, tiers beside a "
        "hand-over were not filled.",
    link=_GUIDE,
    seen_in=("https://github.com/LMCache/LMCache/pull/4084",),
)  # fmt: skip
def _version(environment: Environment, _: Context) -> Iterator[Problem]:
    least = str(_facts()["vllm"])
    for it in _tiered(environment):
        image = it.endpoint.image
        version = (image or default_image(it.endpoint.backend)).vllm
        if _numbers(version) < _numbers(least):
            path = f"{it.path}.image.vllm" if image else f"{it.path}.kv.cpu_tier"
            fix = f"use an image with vLLM {least} or newer, or set cpu_tier: false and remove the other tiers"
            yield Problem(path, f"tiers need vLLM {least}; the image has {version}", fix, version if image else True, f"{least} or newer")


@check(
    "TIR002", "A tier on disk has one in CPU memory before it",
    why="No engine moves KV between GPU and disk: all of it goes through the CPU tier, which decides what is kept.",
    link=_OFFLOADING,
)  # fmt: skip
def _staged(environment: Environment, _: Context) -> Iterator[Problem]:
    for it, disk in _on_disk(environment):
        if not it.endpoint.kv.cpu_tier and it.tier.engine is not TierEngine.MOONCAKE:
            message = f"{disk.capacity_gib:,} GiB on {disk.medium}, and no memory to take KV there"
            yield Problem(f"{it.path}.kv.cpu_tier", message, "set cpu_tier: true and cpu_tier_gib", value=False, limit="true")


@check(
    "TIR003", "The disk of the tier exists and has the space",
    why="A pod whose NVMe or Lustre is not there does not start, or writes to the node's root volume. A full disk takes images and the "
        "folders of other pods with it: the kubelet then evicts pods.",
    link=_OFFLOADING,
)  # fmt: skip
def _disk(environment: Environment, _: Context) -> Iterator[Problem]:
    for it, disk in _on_disk(environment):
        path = f"{it.path}.kv.disk_tier"
        if disk.medium == "nvme":
            yield from _nvme(it, disk, path)
            continue
        lustre = environment.storage.lustre
        if lustre is None:
            fix = "add storage.lustre, or use medium: nvme"
            yield Problem(f"{path}.medium", "the environment has no Lustre file system", fix, disk.medium, "storage.lustre")
            continue
        capacity = (lustre.existing.capacity_gib if lustre.existing else lustre.capacity_gib) or 0
        if disk.capacity_gib >= capacity:
            message = f"KV may take {disk.capacity_gib:,} GiB of a file system of {capacity:,} GiB, and nothing would be left"
            yield Problem(
                f"{path}.capacity_gib", message, "lower it, or enlarge the file system", disk.capacity_gib, f"below {capacity:,} GiB"
            )


def _nvme(it: _Tiered, disk: DiskTier, path: str) -> Iterator[Problem]:
    instance, role = it.instance, it.prefill.role
    if not instance.local_nvme_gb:
        message = f"{instance.type} is not known to have an instance store"
        yield Problem(f"{path}.medium", message, "use a type with NVMe, or medium: lustre", disk.medium, "instance NVMe")
        return
    pods = max(1, min(instance.gpus // max(1, pod_shape(role, instance).gpus), role.replicas * pods_per_replica(role)))
    room = int(instance.local_nvme_gb * 1e9 * _MOST_OF_A_DISK / GIB)
    if pods * disk.capacity_gib > room:
        message = (
            f"{pods} pods on a node x {disk.capacity_gib:,} GiB = {pods * disk.capacity_gib:,} GiB; {_MOST_OF_A_DISK:.0%} of the "
            f"{instance.local_nvme_gb:,} GB of {instance.type} are {room:,} GiB"
        )
        yield Problem(f"{path}.capacity_gib", message, f"set {room // pods} or less", disk.capacity_gib, f"{room // pods:,} GiB for a pod")


@check(
    "TIR004", "KV on Lustre stays out of what is linked to the bucket",
    why="New files in a linked directory are exported to the bucket: every block of KV would be uploaded, and paid for, and come back.",
    link="https://docs.aws.amazon.com/fsx/latest/LustreGuide/autoexport-data-repo-dra.html",
)  # fmt: skip
def _linked(environment: Environment, _: Context) -> Iterator[Problem]:
    lustre = environment.storage.lustre
    if lustre is None or lustre.link is None:
        return
    linked = lustre.link.path.strip("/")
    for it, disk in _on_disk(environment):
        if disk.medium == "lustre" and f"{disk.path}/".startswith(f"{linked}/"):
            message = f"/{linked} is linked to the bucket's prefix {lustre.link.prefix}"
            yield Problem(f"{it.path}.kv.disk_tier.path", message, "choose a directory beside it", disk.path, f"not below {linked}")


@check(
    "TIR005", "Something removes KV from disk", level=Level.WARNING,
    why="vLLM writes files and removes none, whatever the capacity: the disk fills, and from then on nothing new is kept, nor by others "
        "that share it. LMCache keeps to a size, but forgets its files when its process ends; on a shared file system they stay for ever.",
    link=_OFFLOADING,
    seen_in=(
        "https://github.com/LMCache/LMCache/issues/2840", "https://github.com/LMCache/LMCache/issues/2273",
        "https://github.com/LMCache/LMCache/issues/1454",
    ),
)  # fmt: skip
def _evicted(environment: Environment, _: Context) -> Iterator[Problem]:
    for it, disk in _on_disk(environment):
        path = f"{it.path}.kv.disk_tier"
        if it.tier.engine is TierEngine.NATIVE:
            message = f"vLLM does not keep to {disk.capacity_gib:,} GiB: nothing removes its files, nor those of earlier revisions"
            other = "tier_engine: lmcache keeps to it, or " if disk.medium == "nvme" else ""
            fix = f"{other}remove files that were not read lately with a job of your own, and acknowledge this"
            yield Problem(f"{path}.capacity_gib", message, fix, disk.capacity_gib)
        elif it.tier.engine is TierEngine.LMCACHE and disk.medium == "lustre":
            message = "LMCache finds its files by an index in memory: each pod that ends leaves its own behind, and no other reads them"
            fix = "use tier_engine: native, whose files all pods find, or medium: nvme"
            yield Problem(f"{path}.medium", message, fix, disk.medium, "nvme", level=Level.ERROR)


@check(
    "TIR006", "The engine of the tiers can evict as the file asks",
    why="Which KV leaves a full tier is the engine's own code: vLLM knows least recently used and adaptive (ARC), LMCache others. A name "
        "that it does not know stops the server.",
    link=_OFFLOADING,
)  # fmt: skip
def _policy(environment: Environment, _: Context) -> Iterator[Problem]:
    known: dict[str, list[str]] = _facts()["eviction"]
    for index, endpoint in enumerate(environment.endpoints):
        wanted, path = endpoint.kv.eviction, f"endpoints[{index}].kv.eviction"
        if endpoint.backend != "llm-d" or wanted is None:
            continue
        engine = tier_engine(endpoint)
        able = known[engine]
        if engine is not TierEngine.MOONCAKE and not endpoint.kv.cpu_tier:
            yield Problem(path, "there is no CPU tier that could be full", "remove it, or set cpu_tier: true", wanted)
        elif wanted not in able:
            names = ", ".join(able)
            other = next((name for name, policies in known.items() if wanted in policies), "")
            message = f"{engine} knows {names}" if able else "the store's master decides what leaves it"
            fix = " or ".join([f"use {names}"] * bool(able) + [f"set tier_engine: {other}"] * bool(other and able)) or "remove it"
            yield Problem(path, message, fix, wanted, names or "nothing")


@check(
    "TIR007", "A Mooncake store can be reached over EFA",
    why="The packages in vLLM's, AWS's and llm-d's images speak to InfiniBand (and TCP) alone: asked for EFA, they make a queue pair that "
        "EFA does not have and crash at the first transfer. mooncake-transfer-engine-efa is another package, and works.",
    link=_EFA,
    seen_in=(
        "https://github.com/kvcache-ai/Mooncake/issues/2070", "https://github.com/vllm-project/vllm/issues/55635",
        "https://github.com/sgl-project/sglang/issues/24838", "https://github.com/vllm-project/vllm/issues/49360",
    ),
)  # fmt: skip
def _mooncake(environment: Environment, _: Context) -> Iterator[Problem]:
    package = _facts()["mooncake"]["wheel"]
    for index, endpoint in enumerate(environment.endpoints):
        path, kv = f"endpoints[{index}]", endpoint.kv
        if endpoint.backend != "llm-d" or not kv.shared_tier.startswith(MOONCAKE):
            continue
        if endpoint.image is None or endpoint.image.mooncake_efa is None:
            message = f"the image is not said to have {package}, and the ordinary package has no transport for EFA"
            fix = f"build an image with {package} and state its version in image.mooncake_efa, or use cpu_tier and disk_tier"
            yield Problem(f"{path}.kv.shared_tier", message, fix, kv.shared_tier, "image.mooncake_efa")
        if endpoint.model.shape.linear_layers:
            message = f"{endpoint.model.shape.name} has {endpoint.model.shape.linear_layers} layers of linear attention; it hangs"
            yield Problem(f"{path}.model", message, "use cpu_tier, or another model", limit="no linear attention")
        if kv.tier_engine:
            message = "the store takes the place of the tiers' engine"
            yield Problem(f"{path}.kv.tier_engine", message, "remove tier_engine, or shared_tier", kv.tier_engine, "nothing")
        if kv.disk_tier:
            message = "disks of a Mooncake store belong to clients of its own, beside its master"
            yield Problem(f"{path}.kv.disk_tier", message, "remove disk_tier, or shared_tier", kv.disk_tier.medium, "nothing")


@check(
    "TIR008", "EFA can register the memory of a store", level=Level.WARNING,
    why="Memory that crosses EFA is registered page by page, and a device takes about 95 GiB in ordinary pages. With more, workers fail "
        "while they start, although the node has the memory.",
    link="https://github.com/ofiwg/libfabric/issues/9739",
)  # fmt: skip
def _registered(environment: Environment, _: Context) -> Iterator[Problem]:
    most = int(_facts()["registered_gib"])
    for it in _tiered(environment):
        if it.tier.engine is TierEngine.MOONCAKE and it.tier.host_gib > most:
            message = f"{it.tier.tier_gib} GiB for the pool + {it.tier.buffers_gib} for buffers = {it.tier.host_gib} GiB in a pod"
            fix = "lower cpu_tier_gib, or acknowledge this when the store takes its memory from huge pages"
            yield Problem(f"{it.path}.kv.cpu_tier_gib", message, fix, it.endpoint.kv.cpu_tier_gib, f"{most} GiB in a pod")


@check(
    "TIR009", "Requests come back to where their KV is", level=Level.WARNING,
    why="CPU memory and NVMe belong to one prefiller. A strategy that does not look at prompts sends the next turn of a conversation to "
        "any of them, and the tiers are filled and hardly read.",
    link=_GUIDE,
)  # fmt: skip
def _found_again(environment: Environment, _: Context) -> Iterator[Problem]:
    for it in _tiered(environment):
        strategy, role = it.endpoint.routing.strategy, it.prefill.role
        engines = it.prefill.most_replicas * pods_per_replica(role) * local_ranks(role, it.instance)
        shared = it.tier.engine is TierEngine.MOONCAKE or (it.endpoint.kv.disk_tier and it.endpoint.kv.disk_tier.medium == "lustre")
        if strategy in _FORGETFUL and engines > 1 and not shared:
            message = f"{strategy} spreads a conversation over {engines} engines, each with tiers of its own"
            fix = "use prefix_aware, kv_aware or session"
            yield Problem(f"{it.path}.routing.strategy", message, fix, strategy, "prefix_aware, kv_aware, session")


@check(
    "TIR010", "The CPU tier holds more than the GPUs do", level=Level.WARNING,
    why="KV is copied to the CPU tier as it is made, and both drop the oldest first: a tier smaller than the cache on the GPUs "
        "holds what those have anyway. It costs copies and saves nothing.",
    link=_GUIDE,
)  # fmt: skip
def _worth(environment: Environment, _: Context) -> Iterator[Problem]:
    for it in _tiered(environment):
        kv = it.endpoint.kv
        if not kv.cpu_tier or kv.disk_tier or it.tier.engine is TierEngine.MOONCAKE:
            continue
        budget = gpu_budget(it.endpoint, it.prefill.name, it.prefill.role, it.instance)
        if kv.cpu_tier_gib < budget.kv_gib:
            message = f"{kv.cpu_tier_gib} GiB for each GPU; the KV cache on it has {budget.kv_gib:.1f} GiB"
            fix = f"set cpu_tier_gib: {-int(-2 * budget.kv_gib // 1)} (twice the cache) or more, or cpu_tier: false"
            yield Problem(f"{it.path}.kv.cpu_tier_gib", message, fix, kv.cpu_tier_gib, f"more than {budget.kv_gib:.1f} GiB")


@check(
    "TIR011", "What is said about tiers has a tier", level=Level.WARNING,
    why="An engine without a tier does nothing; whoever wrote it expects that KV is kept.",
    link=_GUIDE,
)  # fmt: skip
def _idle(environment: Environment, _: Context) -> Iterator[Problem]:
    for index, endpoint in enumerate(environment.endpoints):
        kv = endpoint.kv
        if endpoint.backend == "llm-d" and kv.tier_engine and not kv.cpu_tier and not kv.disk_tier and kv.shared_tier == "none":
            path = f"endpoints[{index}].kv.tier_engine"
            yield Problem(path, "there is no tier for it", "set cpu_tier: true and cpu_tier_gib, or remove it", kv.tier_engine)
