"""From an environment and a traffic to the question that the planner answers."""

import math
from dataclasses import replace
from pathlib import Path

from dpd.catalog.serving import batch_defaults
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.environment.yaml_file import dotted
from dpd.planning.candidate import DEFAULT_CHUNK_TOKENS, Candidate, Case, Goal
from dpd.planning.requests import draw
from dpd.planning.traffic import Traffic
from dpd.sizing.fleet import RoleOnGpus, roles_on_gpus
from dpd.sizing.pod import efa_share


class CaseError(ValueError):
    """A question that has no answer. ``path`` is the field of the environment file to change; ``fix`` how."""

    def __init__(self, path: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.path, self.fix = path, fix


def endpoint_of(environment: Environment, name: str | None) -> tuple[int, Endpoint]:
    """The endpoint of a name, or the only one. Raises ``CaseError``."""
    known = [endpoint.name for endpoint in environment.endpoints]
    if name is None and len(known) == 1:
        return 0, environment.endpoints[0]
    if name not in known:
        said = f"has {', '.join(known)}" if known else "has no endpoints"
        raise CaseError("endpoints", f"{environment.name} {said}", "name one of them with --endpoint")
    return known.index(name), environment.endpoints[known.index(name)]


def sides(environment: Environment, endpoint: Endpoint) -> tuple[RoleOnGpus, RoleOnGpus]:
    """Prefill and decode on their groups. Raises ``CaseError`` when a group or its type is unknown, or the types differ."""
    found = {it.placed.name: it for it in roles_on_gpus(environment) if it.placed.endpoint is endpoint}
    here = dotted(("endpoints", environment.endpoints.index(endpoint)))
    for name, role in endpoint.roles:
        if name not in found:
            raise CaseError(
                f"{here}.{name}.group", f"group {role.group} does not exist, or has no GPUs that are known", "name a group with GPUs"
            )
        if role.expert_parallel is not None:
            raise CaseError(
                f"{here}.{name}.expert_parallel",
                "experts that are spread over nodes are not planned: nobody published what their exchange between nodes takes",
                "plan an endpoint without expert_parallel, or measure this one with the health gate and a load generator",
            )
    prefill, decode = found["prefill"], found["decode"]
    if prefill.instance.type != decode.instance.type:
        raise CaseError(
            "cluster.groups",
            f"prefill runs on {prefill.instance.type}, decode on {decode.instance.type}; layouts are compared over one type of node",
            "plan for one type, and the other one after it",
        )
    return prefill, decode


def case_of(environment: Environment, endpoint: Endpoint, traffic: Traffic, *, seed: int = 0, folder: Path = Path()) -> tuple[Case, str]:
    """The question, and where its requests come from. Raises ``CaseError``, or ``TraceError`` for a trace that cannot be read."""
    prefill, decode = sides(environment, endpoint)
    instance = decode.instance
    nodes = sum(environment.cluster.groups[name].count for name in {prefill.placed.role.group, decode.placed.role.group})
    if nodes < 1:
        raise CaseError("cluster.groups", "the groups of both roles have no nodes", "give them a count")
    drawn = draw(traffic, seed=seed, folder=folder)
    longest = max(request.input_tokens + request.output_tokens for request in drawn.requests)
    if longest > endpoint.model.max_model_len:
        beyond = sum(request.input_tokens + request.output_tokens > endpoint.model.max_model_len for request in drawn.requests)
        raise CaseError(
            f"{dotted(('endpoints', environment.endpoints.index(endpoint)))}.model.max_model_len",
            f"{beyond:,} of {len(drawn.requests):,} requests are longer than {endpoint.model.max_model_len:,} tokens; the longest has "
            f"{longest:,}",
            f"raise max_model_len to {longest:,} or more, or set a max in the traffic",
        )
    devices = {ranks: efa_share(instance, ranks) for ranks in range(1, instance.gpus + 1)}
    for side in (prefill, decode):
        role = side.placed.role
        if role.efa_devices is not None:
            devices[role.tensor_parallel] = min(role.efa_devices, devices.get(role.tensor_parallel, role.efa_devices))
    wanted = traffic.objectives
    goal = Goal(
        ttft_ms=wanted.ttft_ms or endpoint.objectives.ttft_p99_ms,
        itl_ms=wanted.itl_ms or endpoint.objectives.itl_p99_ms,
        percentile=wanted.percentile,
        goodput_share=wanted.goodput_share,
    )
    case = Case(
        model=endpoint.model.shape,
        instance=instance,
        gpus=nodes * instance.gpus,
        requests=drawn.requests,
        rate_per_second=drawn.rate_per_second,
        goal=goal,
        efa_devices=devices,
        max_model_len=endpoint.model.max_model_len,
        kv_dtype=endpoint.kv.dtype,
        gpu_memory_utilization=endpoint.decode.gpu_memory_utilization,
        most_sequences=endpoint.decode.max_concurrent_sequences or batch_defaults(instance.gpu, instance.gpu_memory_gib).sequences,
        seed=seed,
    )
    return case, drawn.source


def at_rate(case: Case, factor: float) -> Case:
    """The same requests, ``factor`` times as many a second."""
    requests = tuple(replace(request, arrival_ms=request.arrival_ms / factor) for request in case.requests)
    return replace(case, requests=requests, rate_per_second=case.rate_per_second * factor)


def default_chunk(case: Case) -> int:
    """vLLM's own ``max_num_batched_tokens`` on the GPUs of a case."""
    return batch_defaults(case.instance.gpu, case.instance.gpu_memory_gib).chunk_tokens


def of_file(endpoint: Endpoint, chunk_tokens: int = DEFAULT_CHUNK_TOKENS) -> Candidate:
    """The layout that the file asks for."""
    prefill, decode = endpoint.prefill, endpoint.decode
    return Candidate.disaggregated(
        prefill.replicas, decode.replicas, decode.tensor_parallel,
        prefill_tensor_parallel=prefill.tensor_parallel, chunk_tokens=chunk_tokens, threshold_tokens=endpoint.routing.threshold_tokens,
    )  # fmt: skip


def nodes_of(candidate: Candidate, case: Case) -> int:
    """Nodes that a layout takes. Pods do not reach over nodes, and both roles may share one."""
    each = case.instance.gpus
    if candidate.prefill_tensor_parallel == candidate.tensor_parallel:
        return math.ceil((candidate.prefillers + candidate.decoders) / max(1, each // candidate.tensor_parallel))
    return math.ceil(candidate.gpus / each)
