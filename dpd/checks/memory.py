"""Rules about GPU memory and lengths: weights, KV cache, PD buffer, prompts. Every message prints its sum."""

import math
from collections.abc import Iterator
from typing import Final

from dpd.catalog import instances
from dpd.catalog.operator import operator
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.buffer import FEWEST_IN_FLIGHT, Buffer
from dpd.sizing.expert_parallel import expert_bytes, expert_parallel_size
from dpd.sizing.fleet import RoleOnGpus, roles, roles_on_gpus
from dpd.sizing.memory import GIB, GpuBudget, gpu_budget, kv_bytes_per_rank
from dpd.sizing.parallel import usable_tensor_parallel

_DPD: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_MEMORY: Final = "https://docs.vllm.ai/en/latest/configuration/conserving_memory/"
_ENGINE_ARGS: Final = "https://docs.vllm.ai/en/latest/configuration/engine_args/"
_TIGHT_GIB: Final = 1.0
"""Free GPU memory below which a start may still fail: our estimates are no better than this."""
_TIGHT_KV: Final = 0.9
"""Share of the KV cache that one sequence may take before its size is worth a warning."""
_LOWEST_UTILIZATION, _HIGHEST_UTILIZATION = 0.5, 0.95
_LONGER_CONTEXT: Final = ("--rope-scaling", "--hf-overrides")
_CHARACTERS_PER_ESTIMATED_TOKEN: Final = 4


def _budgets(environment: Environment) -> Iterator[tuple[RoleOnGpus, GpuBudget]]:
    for it in roles_on_gpus(environment):
        yield it, gpu_budget(it.placed.endpoint, it.placed.name, it.placed.role, it.instance)


def _share_text(it: RoleOnGpus, budget: GpuBudget) -> str:
    return f"{it.placed.role.gpu_memory_utilization:g} x {budget.gpu_gib:.1f} GiB = {budget.share_gib:.1f} GiB"


def _weights_text(it: RoleOnGpus, budget: GpuBudget) -> str:
    model, role = it.placed.endpoint.model.shape, it.placed.role
    if role.expert_parallel is None:
        return f"weights {model.weight_bytes / GIB:.1f} / {role.tensor_parallel} = {budget.weights_gib:.1f} GiB"
    experts, gpus = expert_bytes(model) / GIB, expert_parallel_size(role, it.instance)
    return (
        f"weights {model.weight_bytes / GIB - experts:.1f} / {role.tensor_parallel} + experts {experts:.1f} / {gpus} = "
        f"{budget.weights_gib:.1f} GiB"
    )


def _fits(budget: GpuBudget) -> bool:
    return budget.weights_gib + budget.activation_gib < budget.share_gib


def _more_memory(it: RoleOnGpus, budget: GpuBudget) -> str:
    """What would give the weights room: more ranks of the same node or more nodes of the group, else larger GPUs."""
    wide, model = it.placed.role.expert_parallel, it.placed.endpoint.model.shape
    if wide:
        alone = (model.weight_bytes - expert_bytes(model)) / it.placed.role.tensor_parallel / GIB
        room = budget.share_gib - budget.activation_gib - alone
        if room > 0:
            gpus = expert_bytes(model) / GIB / room
            return f"set expert_parallel.nodes: {math.floor(gpus / it.instance.gpus) + 1}"
    weights = budget.weights_gib * it.placed.role.tensor_parallel
    for ranks in usable_tensor_parallel(it.placed.endpoint.model.shape, it.instance.gpus):
        if ranks > it.placed.role.tensor_parallel and weights / ranks + budget.activation_gib < budget.share_gib:
            return f"set tensor_parallel: {ranks} for both roles"
    share = it.placed.role.gpu_memory_utilization
    larger = [
        name
        for name in instances.operator_dpd_types()
        if (found := instances.find(name)) and share * found.gpu_memory_gib > weights / found.gpus + budget.activation_gib
    ]
    return f"use {' or '.join(larger)}" if larger else "no type that AWS names has the memory: use a smaller model"


def _kv_path(it: RoleOnGpus) -> str:
    return f"{it.placed.endpoint_path}.model.max_model_len"


@check(
    "MEM001", "The weights fit the GPUs of a pod",
    why="vLLM loads for minutes and then fails for lack of memory, or starts without room for a single sequence.",
    link=_MEMORY,
)  # fmt: skip
def _weights(environment: Environment, _: Context) -> Iterator[Problem]:
    for it, budget in _budgets(environment):
        if not _fits(budget):
            message = (
                f"{_weights_text(it, budget)} + {budget.activation_gib:g} GiB for activations = "
                f"{budget.weights_gib + budget.activation_gib:.1f} GiB; vLLM's share of a {it.instance.gpu} is {_share_text(it, budget)}"
            )
            value = it.placed.role.tensor_parallel
            fix = f"{_more_memory(it, budget)}, or use a quantized checkpoint"
            yield Problem(f"{it.placed.path}.tensor_parallel", message, fix, value, f"less than {budget.share_gib:.1f} GiB")


@check(
    "MEM002", "vLLM's share and the PD buffer fit one GPU",
    why="The buffer in which a decoder receives KV lies outside of vLLM's share. Together they must leave room for the CUDA context; "
        "0.90 of 80 GiB and a buffer of 8 GiB do not, and the pod dies while it starts.",
    link=_DPD,
)  # fmt: skip
def _gpu(environment: Environment, _: Context) -> Iterator[Problem]:
    for it, budget in _budgets(environment):
        path, value = f"{it.placed.path}.gpu_memory_utilization", it.placed.role.gpu_memory_utilization
        free = budget.gpu_gib - budget.used_gib
        buffer = f" + buffer {budget.buffer_gib:g} GiB" if budget.buffer_gib else ""
        message = (
            f"{_share_text(it, budget)}{buffer} + runtime {budget.runtime_gib:g} GiB = {budget.used_gib:.1f} GiB of "
            f"{budget.gpu_gib:.1f} GiB"
        )
        lower = _lower(budget, budget.buffer_gib)
        if free < 0:
            yield Problem(path, message, lower, value, f"at most {budget.gpu_gib:.1f} GiB")
        elif free < _TIGHT_GIB:
            yield Problem(path, f"{message}: {free:.1f} GiB are left", lower, value, f"{_TIGHT_GIB:g} GiB free", level=Level.WARNING)
        elif not buffer and free < (size := it.placed.endpoint.kv.buffer_gib or 0):
            more = (
                f"{message}; AWS speaks of the buffer ({size} GiB) on decoders only, but LMCache makes one on the sending side too, "
                f"and {free:.1f} GiB are left for it"
            )
            yield Problem(path, more, f"{_lower(budget, size)}, or see that the pod starts", value, f"{size} GiB free", level=Level.WARNING)


def _lower(budget: GpuBudget, buffer_gib: float) -> str:
    """The largest share, in hundredths, that leaves room for a buffer."""
    most = math.floor(100 * (budget.gpu_gib - buffer_gib - budget.runtime_gib - _TIGHT_GIB) / budget.gpu_gib) / 100
    if most <= 0:
        return "lower the buffer"
    return f"lower gpu_memory_utilization to {most:g}" + (", or the buffer" if buffer_gib else "")


@check(
    "MEM003", "The longest sequence fits the KV cache",
    why="vLLM refuses to start when max_model_len needs more KV cache than is left after the weights, and says so only after it has "
        "loaded them.",
    link=_MEMORY,
    seen_in=(
        "https://github.com/vllm-project/vllm/issues/10517", "https://github.com/vllm-project/vllm/pull/2163",
        "https://github.com/deepseek-ai/DeepSeek-V2/issues/83",
    ),
)  # fmt: skip
def _kv(environment: Environment, _: Context) -> Iterator[Problem]:
    for it, budget in _budgets(environment):
        model, tokens, ranks = it.placed.endpoint.model, it.placed.endpoint.model.max_model_len, it.placed.role.tensor_parallel
        if not _fits(budget):
            continue  # said by MEM001
        need = kv_bytes_per_rank(model.shape, tokens, ranks, it.placed.endpoint.kv.dtype) / GIB
        if need <= _TIGHT_KV * budget.kv_gib:
            continue
        room = int(budget.kv_gib / need * tokens)
        message = (
            f"{it.placed.name}: {_share_text(it, budget)} - {_weights_text(it, budget)} - {budget.activation_gib:g} GiB for activations = "
            f"{budget.kv_gib:.2f} GiB, about {room:,} tokens; one sequence of {tokens:,} tokens takes {need:.2f} GiB "
            f"({budget.kv_bytes_per_token:,.0f} bytes for a token and rank)"
        )
        fix = f"lower max_model_len to {int(room * _TIGHT_KV):,} or less, or raise tensor_parallel"
        level = None if need > budget.kv_gib else Level.WARNING
        yield Problem(_kv_path(it), message, fix, tokens, f"about {room:,} tokens", level=level)


@check(
    "MEM004", "The PD buffer takes the longest prompt",
    why="A prompt whose KV is larger than the decoder's buffer is never handed over: the request hangs, or the decoder recomputes it. "
        "With room for one prompt only, prefiller, decoder and router can wait for each other for ever.",
    link=_DPD,
    seen_in=(
        "https://github.com/LMCache/LMCache/issues/4209", "https://github.com/LMCache/LMCache/issues/1990",
        "https://github.com/LMCache/LMCache/issues/2365", "https://github.com/LMCache/LMCache/issues/1337",
        "https://github.com/LMCache/LMCache/pull/1215", "https://github.com/LMCache/LMCache/issues/1547",
    ),
)  # fmt: skip
def _buffer(environment: Environment, _: Context) -> Iterator[Problem]:
    prefill = {placed.endpoint_path: placed for placed in roles(environment) if placed.name == "prefill"}
    for it in roles_on_gpus(environment):
        endpoint, decode = it.placed.endpoint, it.placed.role
        model, size = endpoint.model, endpoint.kv.buffer_gib
        if it.placed.name != "decode" or size is None:
            continue
        buffer = Buffer(model.shape, decode.tensor_parallel, endpoint.kv.dtype)
        one, fits = buffer.prompt_bytes(model.max_model_len) / GIB, buffer.prompts(size, model.max_model_len)
        senders = prefill[it.placed.endpoint_path]
        wanted = -(-FEWEST_IN_FLIGHT * senders.most_replicas // decode.replicas)
        sequences = senders.role.max_concurrent_sequences or operator().default_max_sequences["prefill"]
        at_once = -(-sequences * senders.most_replicas // decode.replicas)
        path = f"{it.placed.endpoint_path}.kv.buffer_gib"
        message = f"KV of one prompt of {model.max_model_len:,} tokens is {one:.3f} GiB on a rank; {size} GiB hold {fits}"
        if fits < 1:
            yield Problem(path, message, f"set buffer_gib: {_whole(one)} or more, or lower max_model_len", size, f"{one:.2f} GiB or more")
        elif fits < wanted:
            more = f"{message}; {FEWEST_IN_FLIGHT} for each of {senders.most_replicas} prefillers = {wanted} for a decoder"
            fix = f"set buffer_gib: {_whole(one * wanted)} or more"
            yield Problem(path, more, fix, size, f"{one * wanted:.2f} GiB or more", level=Level.WARNING)
        elif fits < at_once:
            more = f"{message}; the prefillers may work on {at_once} at once, and then wait for the decoder if all are that long"
            fix = f"nothing, if most prompts are shorter; else buffer_gib: {_whole(one * at_once)}"
            yield Problem(path, more, fix, size, f"{one * at_once:.2f} GiB for {at_once}", level=Level.INFO)
        elif not buffer.prompts_by_whole_model(size, model.max_model_len):
            whole = one * decode.tensor_parallel
            more = f"{message}; LMCache's example proxy counts all ranks, {whole:.2f} GiB, and would refuse such a prompt"
            fix = f"nothing with the operator's router; with that proxy buffer_gib: {_whole(whole)}"
            yield Problem(path, more, fix, size, f"{whole:.2f} GiB with LMCache's proxy", level=Level.INFO)


def _whole(gib: float) -> int:
    return -int(-gib // 1)


@check(
    "MEM005", "Some prompts reach the routing threshold",
    why="The router compares an estimate, characters // 4, with the threshold. A threshold at or above the longest sequence sends every "
        "request straight to the decoder: the prefill nodes are billed and never used.",
    link=_DPD,
    seen_in=("https://github.com/ai-dynamo/dynamo/pull/4220", "https://github.com/sgl-project/sglang/pull/34773"),
)  # fmt: skip
def _threshold(environment: Environment, _: Context) -> Iterator[Problem]:
    for index, endpoint in enumerate(environment.endpoints):
        path = f"endpoints[{index}].routing.threshold_tokens"
        threshold, longest = endpoint.routing.threshold_tokens, endpoint.model.max_model_len
        factor, start = _CHARACTERS_PER_ESTIMATED_TOKEN, operator().threshold_default
        if threshold >= longest:
            message = f"threshold {threshold:,} >= max_model_len {longest:,}: no prompt is long enough to go through a prefiller"
            fix = f"choose a threshold well below {longest:,}; AWS starts at {start}"
            yield Problem(path, message, fix, threshold, f"below {longest:,}")
        elif threshold * factor > longest:
            message = (
                f"the estimate is characters // {factor}: a text with about one character in a token (Chinese, Japanese, some code) would "
                f"need {threshold:,} x {factor} = {threshold * factor:,} tokens, and max_model_len is {longest:,}"
            )
            fix = f"for such texts, {longest // factor:,} or less"
            yield Problem(path, message, fix, threshold, f"{longest // factor:,} for such texts", level=Level.INFO)
        elif threshold == 0:
            message = "every request goes through a prefiller, short prompts too, whose hand-over costs more than it saves"
            yield Problem(path, message, f"AWS starts at {start}", threshold, f"{start} is AWS's default", level=Level.INFO)


@check(
    "MEM006", "max_model_len is within the model's positions",
    why="vLLM refuses a length beyond the positions that the model was trained for, unless the positions are scaled on purpose.",
    link=_ENGINE_ARGS,
)  # fmt: skip
def _positions(environment: Environment, _: Context) -> Iterator[Problem]:
    for index, endpoint in enumerate(environment.endpoints):
        longest, positions = endpoint.model.max_model_len, endpoint.model.shape.max_positions
        scaled = all(any(arg.split("=")[0] in _LONGER_CONTEXT for arg in role.extra_args) for _name, role in endpoint.roles)
        if longest > positions and not scaled:
            message = f"{longest:,} tokens; {endpoint.model.shape.name} has {positions:,} positions"
            fix = f"write {positions:,} or less, or scale positions with {_LONGER_CONTEXT[1]} in extra_args of both roles"
            yield Problem(f"endpoints[{index}].model.max_model_len", message, fix, longest, f"{positions:,}")


@check(
    "MEM007", "gpu_memory_utilization is in a sensible range", level=Level.WARNING,
    why="A small share leaves paid GPU memory unused; one close to 1 leaves nothing for fragmentation and for what other libraries take.",
    link=_ENGINE_ARGS,
)  # fmt: skip
def _utilization(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed in roles(environment):
        share = placed.role.gpu_memory_utilization
        path = f"{placed.path}.gpu_memory_utilization"
        limit = f"{_LOWEST_UTILIZATION:g} to {_HIGHEST_UTILIZATION:g}"
        if share < _LOWEST_UTILIZATION:
            yield Problem(path, f"leaves {1 - share:.0%} of every GPU to others", "raise it; AWS starts at 0.75", share, limit)
        elif share > _HIGHEST_UTILIZATION:
            yield Problem(path, f"leaves {1 - share:.1%} of every GPU to everything else", "lower it; AWS starts at 0.75", share, limit)
