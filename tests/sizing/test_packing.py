"""Packing: nothing is lost, no node is overfull, and nothing waits beside a node with room for it."""

from hypothesis import given
from hypothesis import strategies as st

from dpd.sizing.packing import RESOURCES, PodKind, exceeding, pack, total
from dpd.sizing.pod import PodShape

ROOM = (8, 32, 184, 1984, 40, 10_256)
shapes = st.builds(
    PodShape,
    gpus=st.integers(1, 9),
    efa_devices=st.integers(0, 33),
    cpus=st.integers(1, 190),
    memory_gib=st.integers(1, 2000),
    hugepages_mib=st.sampled_from((0, 0, 2, 5120, 10_256, 10_258)),
)
kinds = st.lists(st.tuples(shapes, st.integers(0, 6)), max_size=5).map(
    lambda rows: [PodKind(str(index), shape, count) for index, (shape, count) in enumerate(rows)]
)


def fits(needs: tuple[int, ...], room: tuple[int, ...]) -> bool:
    return not exceeding(needs, room)


@given(kinds, st.integers(0, 6))
def test_every_pod_is_on_a_node_or_left(pods: list[PodKind], nodes: int) -> None:
    packing = pack(pods, ROOM, nodes)
    assert len(packing.nodes) == nodes
    for kind in pods:
        placed = sum(it.count for node in packing.nodes for it in node if it.name == kind.name)
        left = sum(it.count for it in packing.left if it.name == kind.name)
        assert placed + left == kind.count


@given(kinds, st.integers(1, 6))
def test_no_node_is_overfull_and_none_is_passed_over(pods: list[PodKind], nodes: int) -> None:
    packing = pack(pods, ROOM, nodes)
    for node in packing.nodes:
        used = total(node)
        assert fits(used, ROOM)
        free = tuple(have - need for have, need in zip(ROOM, used, strict=True))
        assert not any(fits(kind.needs, free) for kind in packing.left)


@given(kinds, st.integers(0, 5))
def test_another_node_leaves_no_more_pods(pods: list[PodKind], nodes: int) -> None:
    assert pack(pods, ROOM, nodes + 1).left_count <= pack(pods, ROOM, nodes).left_count


@given(st.sampled_from((1, 2, 4, 8)), st.integers(0, 40), st.integers(0, 6))
def test_powers_of_two_fill_every_gpu(gpus: int, count: int, nodes: int) -> None:
    pods = [PodKind("p", PodShape(gpus, 4 * gpus, 23 * gpus, 248 * gpus), count)]
    assert pack(pods, ROOM, nodes).left_count == max(0, count - nodes * 8 // gpus)


def test_what_is_short_is_named() -> None:
    assert exceeding((16, 32, 1, 1, 1, 0), ROOM) == ("16 GPUs of 8",)
    assert exceeding(ROOM, ROOM) == ()
    assert total([]) == (0,) * len(RESOURCES)
