"""Rules about experts that are spread over nodes: the model, the way tokens take to them, ranks and their ports."""

from collections.abc import Iterator
from typing import Any, Final

from dpd.backends.arguments import parse
from dpd.catalog import serving
from dpd.catalog.images import default_image
from dpd.catalog.llmd import llmd
from dpd.checks.registry import Context, Problem, check
from dpd.environment.endpoint import ExpertParallel
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.expert_parallel import expert_parallel_size, local_ranks
from dpd.sizing.fleet import PlacedRole, RoleOnGpus, roles, roles_on_gpus

_GUIDE: Final = "https://github.com/llm-d/llm-d/tree/v0.8.0/guides/wide-ep-lws"
_VLLM: Final = "https://docs.vllm.ai/en/latest/serving/expert_parallel_deployment/"
_POOL: Final = "https://gateway-api-inference-extension.sigs.k8s.io/api-types/inferencepool/"
_V2: Final = "deepep_v2"


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = llmd().more["wide_ep"]
    return facts


def _wide(environment: Environment) -> Iterator[tuple[PlacedRole, ExpertParallel]]:
    for placed in roles(environment):
        if placed.role.expert_parallel:
            yield placed, placed.role.expert_parallel


def _wide_on_gpus(environment: Environment) -> Iterator[tuple[RoleOnGpus, ExpertParallel]]:
    for it in roles_on_gpus(environment):
        if it.placed.role.expert_parallel:
            yield it, it.placed.role.expert_parallel


def _usable() -> str:
    return f"{', '.join(serving.all2all_usable())} or {_V2}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@check(
    "EXP001", "Only a mixture of experts is spread by experts",
    why="A dense model has none, and vLLM refuses data parallel ranks behind a router for it: they would be copies with nothing to share.",
    link=_VLLM,
)  # fmt: skip
def _mixture(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed, wide in _wide(environment):
        model = placed.endpoint.model.shape
        if not model.experts:
            fix = "remove expert_parallel, and use more replicas"
            yield Problem(f"{placed.path}.expert_parallel", f"{model.name} is a dense model", fix, wide.nodes, "a mixture of experts")


@check(
    "EXP002", "Tokens reach their experts over EFA",
    why="DeepEP's first kernels let GPUs drive InfiniBand themselves (IBGDA), as llm-d's guide has it. EFA has no such thing: the ranks "
        "hang or fail while they start. NCCL's own collectives run over EFA, and so does DeepEP v2 with NCCL's CPU proxy.",
    link=_GUIDE,
    seen_in=(
        "https://github.com/deepseek-ai/DeepEP/issues/369", "https://github.com/vllm-project/vllm/issues/27898",
        "https://github.com/vllm-project/vllm/issues/27633", "https://github.com/aws-samples/aws-do-eks/pull/45",
    ),
)  # fmt: skip
def _way(environment: Environment, _: Context) -> Iterator[Problem]:
    for it, wide in _wide_on_gpus(environment):
        if wide.all2all in serving.all2all_refused():
            devices = f"has {it.instance.efa} EFA devices instead" if it.instance.efa else "has none"
            message = f"needs GPU-initiated InfiniBand, and {it.instance.type} {devices}"
            yield Problem(f"{it.placed.path}.expert_parallel.all2all", message, f"use {_usable()}", wide.all2all, _usable())


@check(
    "EXP003", "DeepEP v2 gets what it needs of a pod",
    why="Over EFA its traffic goes through NCCL's CPU proxy, which wants huge pages and, for GDRCopy's device, a privileged container; "
        "vLLM has it since 0.24. Without them the first dispatch fails, after the weights were loaded on every node.",
    link="https://github.com/vllm-project/vllm/pull/41183",
    seen_in=("https://github.com/awslabs/awsome-distributed-ai/pull/1215",),
)  # fmt: skip
def _second_version(environment: Environment, _: Context) -> Iterator[Problem]:
    wants = _facts()[_V2]
    for placed, wide in _wide(environment):
        if wide.all2all != _V2:
            continue
        role, pages = placed.role, int(wants["hugepages_mib"])
        if (role.hugepages_mib or 0) < pages:
            message = f"{_V2} registers its buffers in huge pages; the pod asks for {role.hugepages_mib or 0} MiB"
            yield Problem(f"{placed.path}.hugepages_mib", message, f"set hugepages_mib: {pages}", role.hugepages_mib, f"{pages} or more")
        if not role.privileged:
            message = f"{_V2} opens /dev/gdrdrv, which an ordinary container does not have"
            yield Problem(f"{placed.path}.privileged", message, "set privileged: true", role.privileged, "true")
        if role.memory_gib is not None and role.memory_gib <= wants["shm_gib"]:
            message = f"shared memory alone may take {wants['shm_gib']} GiB of it"
            fix = "leave memory_gib out, so that the pod has all that the node gives"
            yield Problem(f"{placed.path}.memory_gib", message, fix, role.memory_gib, f"more than {wants['shm_gib']}")


@check(
    "EXP004", "Ranks fill a node",
    why="With expert parallelism a pod takes a whole node and divides it into ranks of tensor_parallel GPUs. What is left over is paid "
        "for and idle, and a rank larger than a node cannot exist.",
    link=_VLLM,
)  # fmt: skip
def _even(environment: Environment, _: Context) -> Iterator[Problem]:
    for it, _wide_role in _wide_on_gpus(environment):
        size, gpus = it.placed.role.tensor_parallel, it.instance.gpus
        if gpus % size:
            whole = [number for number in range(1, gpus + 1) if gpus % number == 0]
            message = f"{it.instance.type} has {gpus} GPUs; {gpus} % {size} = {gpus % size}"
            fix = f"use one of {', '.join(map(str, whole))}"
            yield Problem(f"{it.placed.path}.tensor_parallel", message, fix, size, f"a divisor of {gpus}")


@check(
    "EXP005", "A pool has a port for every rank, and best the same ports for both roles",
    why="Each rank is a server on a port of its own, and the router's pool is one list of at most eight ports for all of its pods. A rank "
        "without a port gets no request; a port without a rank refuses every request that is sent to it.",
    link=_POOL,
)  # fmt: skip
def _ports(environment: Environment, _: Context) -> Iterator[Problem]:
    most = int(_facts()["pool_ports"])
    pairs: dict[str, dict[str, RoleOnGpus]] = {}
    for it in roles_on_gpus(environment):
        pairs.setdefault(it.placed.endpoint_path, {})[it.placed.name] = it
    for both in pairs.values():
        if not any(it.placed.role.expert_parallel for it in both.values()):
            continue
        ranks = {name: local_ranks(it.placed.role, it.instance) for name, it in both.items()}
        for name, it in both.items():
            if ranks[name] > most:
                message = f"{it.instance.gpus} GPUs / {it.placed.role.tensor_parallel} = {ranks[name]} ranks in a pod"
                fix = f"set tensor_parallel: {-(-it.instance.gpus // most)} or more"
                yield Problem(f"{it.placed.path}.tensor_parallel", message, fix, it.placed.role.tensor_parallel, f"{most} ports")
        if len(set(ranks.values())) > 1:
            it = both["decode"]
            message = (
                f"a prefill pod has {ranks['prefill']} ranks, a decode pod {ranks['decode']}; the pool lists the same ports for both, "
                "and an annotation of the pods that have fewer is all that keeps requests from closed ones"
            )
            fix = "give both roles expert_parallel and the same tensor_parallel on nodes with as many GPUs, or acknowledge this"
            limit = f"{ranks['prefill']} ranks in a pod"
            yield Problem(f"{it.placed.path}.expert_parallel", message, fix, limit=limit, level=Level.WARNING)


@check(
    "EXP006", "Experts divide by the GPUs they are spread over", level=Level.WARNING,
    why="Each GPU holds the same number of experts. With a remainder some hold one more, all others wait for those at every layer, and "
        "DeepEP refuses to start; a GPU without any expert is paid for in vain.",
    link=_VLLM,
)  # fmt: skip
def _experts(environment: Environment, _: Context) -> Iterator[Problem]:
    for it, wide in _wide_on_gpus(environment):
        experts, gpus = it.placed.endpoint.model.shape.experts, expert_parallel_size(it.placed.role, it.instance)
        if not experts or experts % gpus == 0:
            continue
        even = [nodes for nodes in range(1, wide.nodes + 1) if experts % (gpus // wide.nodes * nodes) == 0]
        few = experts < gpus
        message = (
            f"{wide.nodes} nodes x {gpus // wide.nodes} GPUs = {gpus} for {experts} experts: "
            f"{f'{gpus - experts} GPUs have none' if few else f'{experts % gpus} GPUs have one more'}"
        )
        fix = f"set nodes: {even[-1]}" if even else "use another model or other nodes"
        level = Level.ERROR if few or wide.all2all == _V2 else None
        yield Problem(f"{it.placed.path}.expert_parallel.nodes", message, fix, wide.nodes, f"a divisor of {experts} GPUs", level=level)


@check(
    "EXP007", "vLLM knows the flags of expert parallel groups",
    why="One supervisor for the ranks of a pod, on which probes and graceful shutdown rest, came with vLLM 0.22, and DeepEP v2 with 0.24. "
        "An older server stops at an argument that it does not know.",
    link="https://github.com/vllm-project/vllm/pull/40841",
)  # fmt: skip
def _versions(environment: Environment, _: Context) -> Iterator[Problem]:
    seen: set[str] = set()
    for placed, wide in _wide(environment):
        version = (placed.endpoint.image or default_image(placed.endpoint.backend)).vllm
        least = _facts()[_V2]["vllm"] if wide.all2all == _V2 else _facts()["vllm"]
        path = f"{placed.endpoint_path}.image" + (".vllm" if placed.endpoint.image else "")
        if _numbers(version) < _numbers(least) and path not in seen:
            seen.add(path)
            message = f"{wide.all2all} needs vLLM {least}; the image has {version}"
            yield Problem(path, message, "use an image with a newer vLLM", version, f"{least} or newer")


@check(
    "EXP008", "Arguments of an expert parallel role leave its group alone",
    why="Ranks, their addresses and the way to the experts follow from expert_parallel and from a pod's place in its group; a second value "
        "takes a rank out of it, and the rest waits. Two batches in turns (DBO) exist with DeepEP's first kernels only.",
    link=_VLLM,
    seen_in=("https://github.com/vllm-project/vllm/issues/27633",),
)  # fmt: skip
def _arguments(environment: Environment, _: Context) -> Iterator[Problem]:
    facts = _facts()
    for placed, _wide_role in _wide(environment):
        for argument in parse(placed.role.extra_args).known:
            path = f"{placed.path}.extra_args[{argument.index}]"
            if argument.base in facts["owned_flags"]:
                yield Problem(path, "follows from expert_parallel", "remove it", argument.flag)
            elif argument.base in facts["two_batches"]:
                message = f"works with {' and '.join(serving.all2all_refused())} only, which EFA cannot run"
                yield Problem(path, message, "remove it", argument.flag)
