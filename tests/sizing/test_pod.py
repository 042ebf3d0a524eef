"""Shares of a node: what belongs to a pod's GPUs, and never more than the node has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.catalog import instances
from dpd.catalog.instances import Instance
from dpd.environment.endpoint import Role
from dpd.sizing.packing import PodKind, node_room, pack
from dpd.sizing.pod import cpu_share, efa_share, host_memory_floor_gib, memory_share_gib, pod_shape, shared_memory_gib

GPU_TYPES = tuple(it for name in instances.types() if (it := instances.find(name)) and it.gpus)
EFA_TYPES = tuple(it for it in GPU_TYPES if it.efa)
gpu_types = st.sampled_from(GPU_TYPES)


def role(tensor_parallel: int, **changes: object) -> Role:
    return Role.model_validate({"group": "g", "replicas": 1, "tensor_parallel": tensor_parallel, **changes})


@pytest.mark.parametrize(
    ("instance_type", "gpus", "efa"),
    [
        ("ml.p5.48xlarge", 8, 32), ("ml.p5.48xlarge", 4, 16), ("ml.p5.48xlarge", 1, 4), ("ml.p5en.48xlarge", 8, 16),
        ("ml.p5en.48xlarge", 1, 2), ("ml.p6-b200.48xlarge", 8, 8), ("ml.p6-b300.48xlarge", 4, 8), ("ml.p5.4xlarge", 1, 1),
        ("ml.g6e.48xlarge", 8, 4), ("ml.g6e.48xlarge", 1, 0), ("ml.g6e.48xlarge", 2, 1), ("ml.g6.xlarge", 1, 0),
        ("ml.p6e-gb200.36xlarge", 4, 0), ("ml.c5.4xlarge", 1, 0),
    ],
)  # fmt: skip
def test_efa_devices_of_a_pod(instance_type: str, gpus: int, efa: int) -> None:
    instance = instances.find(instance_type)
    assert instance is not None
    assert efa_share(instance, gpus) == efa


@given(gpu_types, st.data())
def test_shares_of_a_full_node_never_exceed_it(instance: Instance, data: st.DataObject) -> None:
    sizes, left = [], instance.gpus
    while left:
        size = data.draw(st.integers(1, left))
        sizes.append(size)
        left -= size
    assert sum(efa_share(instance, size) for size in sizes) <= (instance.efa or 0)
    assert sum(cpu_share(instance, size) for size in sizes) <= instance.vcpus
    assert sum(memory_share_gib(instance, size) for size in sizes) <= instance.memory_gib


@given(st.sampled_from(EFA_TYPES), st.data())
def test_pods_with_their_shares_are_scheduled_together(instance: Instance, data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(1, instance.gpus))]
    sizes += [1] * (instance.gpus - sizes[0])
    kinds = [PodKind(str(index), pod_shape(role(size), instance), 1) for index, size in enumerate(sizes)]
    assert not pack(kinds, node_room(instance), 1).left


@given(gpu_types)
def test_a_pod_with_all_gpus_gets_all_devices(instance: Instance) -> None:
    assert efa_share(instance, instance.gpus) == (instance.efa or 0)


def test_what_the_file_says_wins() -> None:
    instance = instances.find("ml.p5.48xlarge")
    assert instance is not None
    said = pod_shape(role(8, efa_devices=0, cpus=96, memory_gib=1024), instance)
    assert (said.gpus, said.efa_devices, said.cpus, said.memory_gib) == (8, 0, 96, 1024)
    derived = pod_shape(role(8), instance)
    assert (derived.gpus, derived.efa_devices, derived.cpus, derived.memory_gib) == (8, 32, 168, 1792)


@given(st.integers(1, 8), st.integers(1, 64), st.floats(1, 2000))
def test_the_host_memory_floor_grows_with_the_tiers(gpus: int, tier: int, weights: float) -> None:
    without, small, large = (host_memory_floor_gib(gpus, tier_gib=size, weight_gib=weights) for size in (0, tier * gpus, (tier + 1) * gpus))
    assert without < small < large
    assert large - small == gpus


@pytest.mark.parametrize(("gpus", "gib"), [(1, 10), (4, 16), (8, 24)])
def test_shared_memory_grows_with_the_ranks(gpus: int, gib: int) -> None:
    assert shared_memory_gib(gpus) == gib
    assert gib < host_memory_floor_gib(gpus, tier_gib=0, weight_gib=1), "what is in it counts as memory of the pod"
