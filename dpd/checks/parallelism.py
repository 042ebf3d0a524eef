"""Rules about parallelism: how a model is split, how the roles' splits go together, and whether two roles pay at all."""

from collections.abc import Iterator
from typing import Final

from dpd.backends.arguments import parse
from dpd.backends.backend import backend
from dpd.catalog import serving
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.fleet import PlacedRole, roles, roles_on_gpus
from dpd.sizing.parallel import Connector, heads_split, kv_heads_split, pair_problem, usable_tensor_parallel

_DPD: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_PARALLEL: Final = "https://docs.vllm.ai/en/latest/serving/parallelism_scaling/"
_EXPERTS: Final = "https://docs.vllm.ai/en/latest/serving/expert_parallel_deployment/"
_CONNECTORS: Final = {"operator": Connector.LMCACHE, "llm-d": Connector.NIXL}
"""What carries KV under each backend."""
_ALL2ALL_FLAG, _ALL2ALL_VARIABLE = "--all2all-backend", "VLLM_ALL2ALL_BACKEND"


def _path(placed: PlacedRole) -> str:
    return f"{placed.path}.tensor_parallel"


def _sizes(placed: PlacedRole) -> str:
    gpus = placed.instance.gpus if placed.instance and placed.instance.gpus else 8
    return ", ".join(map(str, usable_tensor_parallel(placed.endpoint.model.shape, gpus)))


@check(
    "PAR001", "Attention heads divide by tensor_parallel",
    why="vLLM gives every rank the same number of attention heads and stops when that does not work out, minutes after the node is billed.",
    link=_PARALLEL,
    seen_in=(
        "https://github.com/vllm-project/vllm/issues/2652", "https://github.com/vllm-project/vllm/issues/596",
        "https://github.com/vllm-project/vllm/issues/4232", "https://github.com/gpustack/gpustack/issues/814",
    ),
)  # fmt: skip
def _heads(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed in roles(environment):
        model, size = placed.endpoint.model.shape, placed.role.tensor_parallel
        if not heads_split(model, size):
            message = f"{model.name} has {model.heads} attention heads; {model.heads} % {size} = {model.heads % size}"
            yield Problem(_path(placed), message, f"use one of {_sizes(placed)}", size, f"a divisor of {model.heads}")


@check(
    "PAR002", "KV heads divide by tensor_parallel, or the other way round",
    why="KV heads are split over the ranks, or copied evenly where there are more ranks than heads. vLLM stops when neither works; copies "
        "work, and take KV memory on every rank that holds one.",
    link=_PARALLEL,
)  # fmt: skip
def _kv_heads(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed in roles(environment):
        model, size = placed.endpoint.model.shape, placed.role.tensor_parallel
        if not heads_split(model, size) or model.attention == "mla":
            continue
        if not kv_heads_split(model, size):
            message = (
                f"{model.name} has {model.kv_heads} KV heads; {model.kv_heads} % {size} = {model.kv_heads % size} and "
                f"{size} % {model.kv_heads} = {size % model.kv_heads}"
            )
            yield Problem(_path(placed), message, f"use one of {_sizes(placed)}", size, f"a divisor or a multiple of {model.kv_heads}")
        elif size > model.kv_heads:
            message = f"{size} ranks share {model.kv_heads} KV heads: each head is kept {size // model.kv_heads} times"
            fix = f"{model.kv_heads} ranks keep each head once; more replicas may serve you better"
            yield Problem(_path(placed), message, fix, size, f"{model.kv_heads} without copies", level=Level.INFO)


@check(
    "PAR003", "Prefill and decode are split so that KV can be handed over",
    why="KV lies in pieces, one for each rank. With LMCache, which the operator uses, a rank hands its piece to the rank of the same "
        "number; with NIXL, which llm-d uses, a decode rank reads a part of a prefill rank's piece, never several. Other splits fail at "
        "the first long prompt, with an assertion or an index error.",
    link=_DPD,
    seen_in=("https://github.com/LMCache/LMCache/issues/1142", "https://github.com/vllm-project/vllm/issues/42895"),
)  # fmt: skip
def _pair(environment: Environment, _: Context) -> Iterator[Problem]:
    for index, endpoint in enumerate(environment.endpoints):
        prefill, decode = endpoint.prefill.tensor_parallel, endpoint.decode.tensor_parallel
        latent = endpoint.model.shape.attention == "mla"
        problem = pair_problem(_CONNECTORS[endpoint.backend], prefill, decode, latent=latent)
        if problem:
            path = f"endpoints[{index}].decode.tensor_parallel"
            other = "" if backend(endpoint.backend).capabilities.equal_tensor_parallel else f", or decode to a multiple of {prefill}"
            yield Problem(path, problem, f"set both to {max(prefill, decode)}{other}", decode, str(prefill))


@check(
    "PAR004", "Expert parallelism does without GPU-initiated InfiniBand",
    why="DeepEP's kernels let the GPU drive the network card itself (IBGDA). EFA cannot do that, so vLLM fails while it starts.",
    link=_EXPERTS,
    seen_in=("https://github.com/vllm-project/vllm/issues/27898", "https://github.com/awslabs/ai-on-eks/issues/198"),
)  # fmt: skip
def _all2all(environment: Environment, _: Context) -> Iterator[Problem]:
    usable = ", ".join(serving.all2all_usable())
    seen: set[str] = set()
    for it in roles_on_gpus(environment):
        if not it.instance.efa:
            continue
        placed = it.placed
        variable = placed.endpoint.environment.get(_ALL2ALL_VARIABLE)
        asked = {f"{placed.endpoint_path}.environment.{_ALL2ALL_VARIABLE}": variable if isinstance(variable, str) else None}
        for argument in parse(placed.role.extra_args).known:
            if argument.flag == _ALL2ALL_FLAG:
                asked[f"{placed.path}.extra_args[{argument.index}]"] = " ".join(argument.values)
        for path, value in asked.items():
            if value in serving.all2all_refused() and path not in seen:
                seen.add(path)
                message = f"needs GPU-initiated InfiniBand, and {it.instance.type} has {it.instance.efa} EFA devices instead"
                yield Problem(path, message, f"use {usable}", value, usable)


@check(
    "PAR005", "The model is one that AWS advises to disaggregate", level=Level.WARNING,
    why="Disaggregation takes a second node and buys steady token times. AWS advises against it for small models and for mixtures of "
        "experts, whose prefill is too short to be in the way, and finds it worth its nodes for dense models from 70 billion parameters "
        "with inputs from 4,000 tokens, outputs from 256 tokens and 2 requests a second.",
    link=_DPD,
)  # fmt: skip
def _worth(environment: Environment, _: Context) -> Iterator[Problem]:
    worth = serving.worth()
    least = f"dense, {worth.dense_parameters / 1e9:g} billion parameters or more"
    fix = "serve it without disaggregation, or measure both and acknowledge this with the result"
    for index, endpoint in enumerate(environment.endpoints):
        model, path = endpoint.model.shape, f"endpoints[{index}].model"
        size = f"{model.parameters / 1e9:.1f} billion parameters"
        if model.experts:
            # AWS speaks of its operator; llm-d's own guide to disaggregation serves such a model.
            if endpoint.backend != "llm-d":
                message = f"{model.name} is a mixture of {model.experts} experts; AWS does not recommend disaggregating those"
                yield Problem(path, message, fix, limit=least)
        elif model.parameters < serving.small_parameters():
            message = f"{model.name} has {size}; AWS does not recommend disaggregating small models"
            yield Problem(path, message, fix, limit=least)
        elif model.parameters < worth.dense_parameters:
            message = f"{model.name} has {size}; AWS finds it worth two nodes from {worth.dense_parameters / 1e9:g} billion"
            yield Problem(path, message, fix, limit=least, level=Level.INFO)
        if endpoint.model.max_model_len < worth.input_tokens + worth.output_tokens:
            message = (
                f"max_model_len {endpoint.model.max_model_len:,} is less than {worth.input_tokens:,} + {worth.output_tokens} tokens, the "
                "input and output from which AWS finds it worth two nodes"
            )
            value = endpoint.model.max_model_len
            yield Problem(f"{path}.max_model_len", message, fix, value, f"{worth.input_tokens + worth.output_tokens:,}", level=Level.INFO)
