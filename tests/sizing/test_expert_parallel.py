"""Pods, ranks and weights of expert parallel groups: against published models, and their properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.catalog import instances, models
from dpd.catalog.models import ModelShape
from dpd.environment.endpoint import Role
from dpd.sizing.expert_parallel import (
    data_parallel_size,
    expert_bytes,
    expert_parallel_size,
    local_ranks,
    pod_gpus,
    pods_per_replica,
    weight_bytes_per_gpu,
)
from dpd.sizing.memory import GIB
from dpd.sizing.pod import pod_shape

P5EN = instances.find("ml.p5en.48xlarge")
MIXTURES = tuple(it for name in models.names() if (it := models.find(name)) and it.experts)
mixtures = st.sampled_from(MIXTURES)
sizes = st.sampled_from((1, 2, 4, 8))


def role(tensor_parallel: int, nodes: int | None = None) -> Role:
    wide = {"expert_parallel": {"nodes": nodes}} if nodes else {}
    return Role.model_validate({"group": "g", "replicas": 1, "tensor_parallel": tensor_parallel, **wide})


@pytest.mark.parametrize(
    ("name", "experts"),
    [
        # layers with experts x experts x three matrices of hidden size x their inner size, x bytes
        ("deepseek-v3", 58 * 256 * 3 * 7168 * 2048),
        ("deepseek-r1", 58 * 256 * 3 * 7168 * 2048),
        ("qwen3-235b-a22b", 94 * 128 * 3 * 4096 * 1536 * 2),
        ("gpt-oss-120b", 36 * 128 * 3 * 2880 * 2880 * 0.53125),
        ("gpt-oss-20b", 24 * 32 * 3 * 2880 * 2880 * 0.53125),
        ("llama-3.3-70b-instruct", 0),
    ],
)
def test_bytes_of_the_routed_experts(name: str, experts: float) -> None:
    model = models.find(name)
    assert model is not None
    assert expert_bytes(model) == pytest.approx(experts, rel=1e-3)


def test_the_group_of_the_guide() -> None:
    """Two nodes of eight GPUs, tensor parallel 1: sixteen ranks with a sixteenth of the experts each."""
    assert P5EN is not None
    model = models.find("deepseek-r1")
    assert model is not None
    wide = role(1, 2)
    assert (pod_gpus(wide, P5EN), local_ranks(wide, P5EN), data_parallel_size(wide, P5EN), pods_per_replica(wide)) == (8, 8, 16, 2)
    shape = pod_shape(wide, P5EN)
    assert (shape.gpus, shape.efa_devices) == (8, 16)
    # 688.6 - 653.9 GB for everybody, and 653.9 / 16 GB of experts
    assert weight_bytes_per_gpu(model, wide, P5EN) / GIB == pytest.approx((688.587 - 653.909 + 653.909 / 16) / 1.073741824, rel=1e-3)


@given(mixtures, sizes, st.integers(1, 8))
def test_more_nodes_take_experts_and_nothing_else_off_a_gpu(model: ModelShape, size: int, nodes: int) -> None:
    assert P5EN is not None
    here, there = (weight_bytes_per_gpu(model, role(size, count), P5EN) for count in (nodes, nodes + 1))
    assert (model.weight_bytes - expert_bytes(model)) / size < there < here


@given(mixtures, sizes, st.integers(1, 8))
def test_a_group_holds_every_expert_once(model: ModelShape, size: int, nodes: int) -> None:
    assert P5EN is not None
    wide = role(size, nodes)
    gpus = pod_gpus(wide, P5EN) * nodes
    assert expert_parallel_size(wide, P5EN) == gpus
    copies = data_parallel_size(wide, P5EN)
    whole = gpus * weight_bytes_per_gpu(model, wide, P5EN)
    assert whole == pytest.approx(copies * (model.weight_bytes - expert_bytes(model)) + expert_bytes(model))


@given(st.sampled_from(tuple(it for name in models.names() if (it := models.find(name)))), sizes)
def test_without_expert_parallelism_every_gpu_has_its_share(model: ModelShape, size: int) -> None:
    assert P5EN is not None
    assert pod_gpus(role(size), P5EN) == size
    assert local_ranks(role(size), P5EN) == pods_per_replica(role(size)) == 1
    assert weight_bytes_per_gpu(model, role(size), P5EN) == model.weight_bytes / size
