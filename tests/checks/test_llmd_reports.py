"""What people report of NIXL, EFA, probes and roll-outs, as edits of the llm-d example: the wrong one is found, the nearest right one not.

Each row names the public report. Faults that no field of the file can cause stand in ``test_llmd_pods.py``, over the objects.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from dpd.finding import Level
from tests.support import LLMD_EXAMPLE, findings

E = "endpoints[0]."
Changes = dict[str, Any]
TYPES = ("cluster.groups.prefill.instance_type", "cluster.groups.decode.instance_type")
OLD = {"repository": "ghcr.io/llm-d/llm-d-aws", "tag": "v0.3.0", "vllm": "0.11.0", "nixl": "0.6.1"}
PLAN = {"training_plan_arn": "arn:aws:sagemaker:us-east-2:111122223333:training-plan/llama-plan", "availability_zone_id": "use2-az1"}
MOE = {E + "model.catalog": "deepseek-r1", E + "decode.tensor_parallel": 1, E + "prefill.tensor_parallel": 1}


@dataclass(frozen=True)
class Report:
    """``id`` is said of ``wrong``, with a path that ends in ``place``, and not of ``right``."""

    url: str
    id: str
    wrong: Changes
    place: str
    right: Changes
    level: Level = Level.ERROR

    def __str__(self) -> str:
        return f"{self.id} {self.url.removeprefix('https://github.com/')}"


def on(instance_type: str) -> Changes:
    return dict.fromkeys(TYPES, instance_type)


def variable(name: str, value: str) -> Changes:
    return {E + "environment": {name: value}}


REPORTS = [
    # EFA devices.
    Report(
        "https://github.com/aws/sagemaker-hyperpod-cli/issues/306",
        "CAP004",
        {E + "decode.efa_devices": 0},
        "decode.efa_devices",
        {},
    ),
    Report(
        "https://github.com/aws/sagemaker-hyperpod-cli/pull/318",
        "CAP004",
        {E + "decode.efa_devices": 1},
        "decode.efa_devices",
        {E + "decode.efa_devices": 32},
        Level.WARNING,
    ),
    Report(
        "https://github.com/aws-samples/aws-efa-eks/issues/4",
        "CAP003",
        {E + "prefill.efa_devices": 32},
        "groups.prefill.count",
        {E + "prefill.efa_devices": 16},
    ),
    Report(
        "https://github.com/skypilot-org/skypilot/pull/5318",
        "INS001",
        on("ml.p7.48xlarge"),
        "groups.prefill.instance_type",
        on("ml.p6-b200.48xlarge"),
    ),
    Report(
        "https://github.com/aws/sagemaker-hyperpod-cli/issues/367",
        "INS003",
        on("ml.g6e.4xlarge"),
        "groups.prefill.instance_type",
        {**on("ml.g6e.8xlarge"), E + "prefill.tensor_parallel": 1, E + "decode.tensor_parallel": 1},
    ),
    # libfabric, NIXL and NCCL in the environment.
    Report(
        "https://github.com/awslabs/ai-on-sagemaker-hyperpod/pull/134",
        "RUN008",
        {**variable("FI_LOG_LEVEL", "warn"), E + "decode.efa_devices": 0},
        "environment.FI_LOG_LEVEL",
        variable("FI_LOG_LEVEL", "warn"),
    ),
    Report(
        "https://github.com/ai-dynamo/nixl/issues/909",
        "RUN008",
        variable("NIXL_BACKEND", "UCX"),
        "environment.NIXL_BACKEND",
        variable("NIXL_LOG_LEVEL", "debug"),
    ),
    Report(
        "https://github.com/aws-samples/aws-do-eks/pull/54",
        "RUN008",
        variable("NCCL_SOCKET_IFNAME", "^lo,docker"),
        "environment.NCCL_SOCKET_IFNAME",
        {},
    ),
    Report(
        "https://github.com/volcano-sh/kthena/issues/503",
        "RUN008",
        variable("VLLM_NIXL_SIDE_CHANNEL_HOST", "0.0.0.0"),
        "environment.VLLM_NIXL_SIDE_CHANNEL_HOST",
        {},
    ),
    Report(
        "https://github.com/aws/karpenter-provider-aws/issues/6296",
        "RUN008",
        variable("FI_EFA_USE_HUGE_PAGE", "1"),
        "environment.FI_EFA_USE_HUGE_PAGE",
        {E + "prefill.hugepages_mib": 5120, E + "decode.hugepages_mib": 5120},
    ),
    Report(
        "https://github.com/LMCache/LMCache/issues/2979",
        "RUN007",
        variable("PYTHONHASHSEED", "1"),
        "environment.PYTHONHASHSEED",
        {},
    ),
    # One hand-over in two roles.
    Report(
        "https://github.com/vllm-project/vllm/issues/41814",
        "RUN003",
        {E + "decode.extra_args": ["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}']},
        "decode.extra_args[0]",
        {},
    ),
    Report("https://github.com/vllm-project/vllm/issues/27055", "LLD001", {E + "image": OLD}, "image.vllm", {}),
    Report(
        "https://github.com/LMCache/LMCache/issues/1142",
        "PAR003",
        {E + "prefill.tensor_parallel": 8, E + "prefill.replicas": 1, E + "decode.tensor_parallel": 4},
        "decode.tensor_parallel",
        {E + "prefill.tensor_parallel": 4, E + "decode.tensor_parallel": 8},
    ),
    Report(
        "https://github.com/vllm-project/vllm/issues/42895",
        "RUN006",
        {E + "decode.extra_args": ["--dtype", "float16"]},
        "decode.extra_args[0]",
        {E + f"{role}.extra_args": ["--dtype", "float16"] for role in ("prefill", "decode")},
    ),
    Report(
        "https://github.com/ai-dynamo/nixl/issues/1514",
        "LLD003",
        {E + "kv.block_size": 16},
        "kv.block_size",
        {E + "kv.block_size": 64},
        Level.WARNING,
    ),
    Report(
        "https://github.com/vllm-project/vllm/issues/27898",
        "PAR004",
        {**MOE, E + "decode.extra_args": ["--all2all-backend", "deepep_low_latency"]},
        "decode.extra_args[0]",
        {**MOE, E + "decode.extra_args": ["--all2all-backend", "allgather_reducescatter"]},
    ),
    Report(
        "https://github.com/ai-dynamo/nixl/issues/1862",
        "LLD002",
        {E + "image": {**OLD, "vllm": "0.28.0", "nixl": "1.3.0"}},
        "image.nixl",
        {E + "image": {**OLD, "vllm": "0.28.0", "nixl": "1.4.0"}},
        Level.WARNING,
    ),
    Report("https://github.com/LMCache/LMCache/issues/4209", "BCK002", {E + "kv.buffer_gib": 8}, "kv.buffer_gib", {}),
    # The router and its threshold.
    Report(
        "https://github.com/llm-d/llm-d-router/pull/2335",
        "MEM005",
        {E + "routing.threshold_tokens": 16384},
        "routing.threshold_tokens",
        {},
    ),
    Report(
        "https://github.com/ai-dynamo/dynamo/pull/4220",
        "LLR005",
        {E + "routing.gateway": {}},
        "routing.no_prefiller",
        {E + "routing.gateway": {}, E + "routing.no_prefiller": "fallback"},
        Level.WARNING,
    ),
    Report(
        "https://github.com/awslabs/ai-on-sagemaker-hyperpod/issues/142",
        "LLR008",
        {"cluster.groups.system.count": 0},
        "cluster.groups",
        {"cluster.groups.system.count": 1},
    ),
    # Start, roll-out and scheduling.
    Report(
        "https://github.com/aws-samples/amazon-eks-machine-learning-with-terraform-and-kubeflow/issues/77",
        "PCK001",
        {"cluster.groups.decode.capacity": {**PLAN, "availability_zone_id": "use2-az2"}},
        "prefill",
        {"cluster.groups.decode.capacity": PLAN},
    ),
    Report(
        "https://github.com/aws/sagemaker-hyperpod-cli/pull/449",
        "CLU004",
        {"cluster.groups.decode.taints": [{"key": "sagemaker.amazonaws.com/node-health-status", "value": "x", "effect": "NoSchedule"}]},
        "groups.decode.taints[0]",
        {"cluster.groups.decode.taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]},
    ),
    Report(
        "https://github.com/vllm-project/vllm/issues/10517",
        "MEM003",
        {E + "model.max_model_len": 131072, E + "decode.gpu_memory_utilization": 0.30},
        "model.max_model_len",
        {E + "model.max_model_len": 65536, E + "decode.gpu_memory_utilization": 0.30},
    ),
    Report(
        "https://github.com/validatedpatterns/rag-llm-gitops/issues/70",
        "SEC001",
        variable("HF_TOKEN", "hf_abcdefghijklmnopqrstuv"),
        "environment.HF_TOKEN",
        {E + "environment": {"HF_TOKEN": {"secret": "hub", "key": "token"}}},
    ),
    Report("https://github.com/vllm-project/vllm/issues/34199", "NAM007", {E + "name": "vllm"}, "name", {E + "name": "vllm-70b"}),
    Report(
        "https://github.com/defilantech/LLMKube/issues/192",
        "CAP005",
        {E + "decode.max_surge": 1},
        "decode.max_surge",
        {E + "decode.max_surge": 1, "cluster.groups.decode.count": 2},
    ),
    Report(
        "https://github.com/vllm-project/vllm/issues/596",
        "PAR001",
        {E + "decode.tensor_parallel": 6},
        "decode.tensor_parallel",
        {E + "decode.tensor_parallel": 4},
    ),
    Report(
        "https://github.com/llm-d/llm-d/pull/1101",
        "RUN002",
        {E + "decode.extra_args": ["--tensor-parallel-size", "4"]},
        "decode.extra_args[0]",
        {},
    ),
    Report(
        "https://github.com/awslabs/awsome-distributed-ai/issues/312",
        "CAP009",
        {E + "decode.memory_gib": 8},
        "decode.memory_gib",
        {E + "decode.memory_gib": 512},
    ),
]


@pytest.mark.parametrize("report", REPORTS, ids=str)
def test_the_wrong_input_is_found_and_the_right_one_is_not(report: Report) -> None:
    found = [one for one in findings(report.wrong, id=report.id, example=LLMD_EXAMPLE) if one.path.endswith(report.place)]
    assert [one.level for one in found] == [report.level]
    assert found[0].fix
    assert not findings(report.right, id=report.id, example=LLMD_EXAMPLE)


def test_every_row_names_a_public_report() -> None:
    assert all(report.url.startswith("https://github.com/") for report in REPORTS)
