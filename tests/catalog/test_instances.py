"""The instance table: known answers, and what every row must keep."""

import pytest

from dpd.catalog import instances
from dpd.catalog.instances import Instance

ALL = tuple(it for name in instances.types() if (it := instances.find(name)))


@pytest.mark.parametrize(
    ("instance_type", "gpus", "gpu_gib", "efa", "gbps", "addresses"),
    [
        ("ml.p5.48xlarge", 8, 80.0, 32, 3200, 81),
        ("ml.p5e.48xlarge", 8, 141.0, 32, 3200, 81),
        ("ml.p5en.48xlarge", 8, 141.0, 16, 3200, 65),
        ("ml.p6-b200.48xlarge", 8, 179.1, 8, 3200, 57),
        ("ml.p6-b300.48xlarge", 8, 268.6, 16, 6400, 65),
        ("ml.p5.4xlarge", 1, 80.0, 1, 100, 50),
        ("ml.g6e.48xlarge", 8, 44.7, 4, 400, 53),
        ("ml.c5.4xlarge", 0, 0.0, 0, 10, 60),
    ],
)  # fmt: skip
def test_known_answers(instance_type: str, gpus: int, gpu_gib: float, efa: int, gbps: float, addresses: int) -> None:
    it = instances.find(instance_type)
    assert it is not None
    assert (it.gpus, round(it.gpu_memory_gib, 1), it.efa, it.network_gbps, it.addresses_per_node) == (gpus, gpu_gib, efa, gbps, addresses)


def test_the_types_that_aws_names() -> None:
    assert instances.operator_dpd_types() == (
        "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p5en.48xlarge", "ml.p6-b200.48xlarge", "ml.p6-b300.48xlarge",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("instance_type", "slots"), [("ml.g5.xlarge", 14), ("ml.g5.2xlarge", 14), ("ml.c5.4xlarge", 29), ("ml.p5.48xlarge", 49)]
)
def test_pods_of_a_hyperpod_node(instance_type: str, slots: int) -> None:
    it = instances.find(instance_type)
    assert it is not None
    assert it.pod_slots == slots


@pytest.mark.parametrize("instance_type", ["", "p5.48xlarge", "ml.p5.48xlarge ", "ML.P5.48XLARGE", "ml.p7.48xlarge"])
def test_an_unknown_type_is_none_and_never_zero(instance_type: str) -> None:
    assert instances.find(instance_type) is None


@pytest.mark.parametrize("it", ALL, ids=lambda it: it.type)
def test_every_row_agrees_with_itself(it: Instance) -> None:
    assert it.type.startswith("ml.")
    assert it.architecture in {"amd64", "arm64"}
    assert it.vcpus > 0
    assert it.memory_gib > 0
    assert (it.gpus > 0) == bool(it.gpu)
    assert not it.gpus_share_pcie or it.gpus > 1
    assert it.addresses_basis in {"published", "derived", "unknown"}
    assert (it.addresses_per_node is None) == (it.addresses_basis == "unknown")
    if it.operator_dpd:
        assert it.efa
        assert it.rdma_write
        assert it.gpus == 8
    if it.efa == 0 and it.gpus:
        assert it.rdma_write is False
    if it.efa and it.gpus and it.addresses_per_node:
        assert it.addresses_per_node == it.efa + 49


def test_a_type_stands_once() -> None:
    assert len(set(instances.types())) == len(instances.types())
