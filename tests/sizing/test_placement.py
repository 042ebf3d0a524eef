"""Placement under constraints: whatever is placed obeys all of them, and what is said to fit can be verified by counting."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.sizing.fleet import roles_on_gpus
from dpd.sizing.packing import exceeding
from dpd.sizing.placement import Node, Placement, Pods, apart, nodes, place, role_pods, spread
from dpd.sizing.pod import PodShape
from tests.support import LLMD_EXAMPLE, ROOT, environment

ROOM = (8, 32, 168, 1792, 40, 10_256)
ZONES = ("use2-az1", "use2-az2")
GROUPS = ("a", "b")
shapes = st.builds(
    PodShape,
    gpus=st.sampled_from((1, 2, 4, 8, 9)),
    efa_devices=st.integers(0, 32),
    cpus=st.integers(1, 170),
    memory_gib=st.integers(1, 1800),
    hugepages_mib=st.sampled_from((0, 5120, 10_258)),
)
node_lists = st.lists(st.builds(Node, group=st.sampled_from(GROUPS), zone=st.sampled_from(ZONES), room=st.just(ROOM)), max_size=6)


@st.composite
def pairs(draw: st.DrawFn) -> list[Pods]:
    """Up to three endpoints of two roles, that may avoid each other, stay together, and start in gangs."""
    made = []
    for number in range(draw(st.integers(0, 3))):
        separate, together = draw(st.booleans()), draw(st.booleans())
        for name, other in (("prefill", "decode"), ("decode", "prefill")):
            gang = draw(st.integers(1, 3))
            made.append(
                Pods(
                    name=f"{number} {name}",
                    path=f"endpoints[{number}].{name}",
                    groups=(draw(st.sampled_from(GROUPS)),),
                    shape=draw(shapes),
                    count=gang * draw(st.integers(0, 4)),
                    gang=gang,
                    label=f"{number} {name}",
                    avoids=f"{number} {other}" if separate else "",
                    together=str(number) if together else "",
                )
            )
    return made


def violations(placement: Placement) -> list[str]:
    """What is wrong with a placement, by counting alone: sizes, groups, neighbours, zones, gangs."""
    found, zones, placed = [], dict[str, set[str]](), Counter[Pods]()
    for node, on in zip(placement.nodes, placement.on, strict=True):
        used = tuple(sum(count * kind.needs[column] for kind, count in on) for column in range(len(ROOM)))
        found += [f"{node}: {excess}" for excess in exceeding(used, node.room)]
        labels = {kind.label for kind, _count in on}
        for kind, count in on:
            placed[kind] += count
            found += [f"{kind.name} on {node.group}"] * (node.group not in kind.groups)
            found += [f"{kind.name} beside {kind.avoids}"] * (kind.avoids in labels and bool(kind.avoids))
            if kind.together:
                zones.setdefault(kind.together, set()).add(node.zone)
    found += [f"{key} in {several}" for key, several in zones.items() if len(several) > 1]
    found += [f"{kind.name}: {count} of gangs of {kind.gang}" for kind, count in placed.items() if count % kind.gang]
    return found


@given(pairs(), node_lists)
def test_what_is_placed_obeys_every_constraint(kinds: list[Pods], at: list[Node]) -> None:
    assert violations(place(kinds, at)) == []


@given(pairs(), node_lists)
def test_every_pod_is_on_a_node_or_left_with_a_reason(kinds: list[Pods], at: list[Node]) -> None:
    placement = place(kinds, at)
    for kind in kinds:
        placed = sum(count for on in placement.on for other, count in on if other is kind)
        left = [entry for entry in placement.left if entry.pods is kind]
        assert placed + sum(entry.count for entry in left) == kind.count
        assert all(entry.why for entry in left)
    assert placement.waiting == sum(entry.count for entry in placement.left)


@given(pairs(), node_lists)
def test_a_single_pod_is_not_left_beside_a_node_that_takes_it(kinds: list[Pods], at: list[Node]) -> None:
    placement = place(kinds, at)
    zones = {kind.together: node.zone for node, on in zip(placement.nodes, placement.on, strict=True) for kind, _ in on if kind.together}
    for entry in placement.left:
        kind = entry.pods
        for node, on in zip(placement.nodes, placement.on, strict=True):
            used = tuple(sum(count * other.needs[column] for other, count in on) for column in range(len(ROOM)))
            free = tuple(have - need for have, need in zip(node.room, used, strict=True))
            welcome = all(other.label != kind.avoids and other.avoids != kind.label for other, _count in on) or not kind.avoids
            takes = (
                node.group in kind.groups
                and not exceeding(kind.needs, free)
                and welcome
                and zones.get(kind.together, node.zone) == node.zone
            )
            assert not takes or kind.gang > 1


@given(pairs(), node_lists)
def test_the_same_input_is_placed_in_the_same_way(kinds: list[Pods], at: list[Node]) -> None:
    assert place(kinds, at) == place(list(kinds), list(at))


def pods(name: str, count: int, gpus: int, **more: object) -> Pods:
    shape = PodShape(gpus, 4 * gpus, 20 * gpus, 200 * gpus)
    return Pods(name, name, ("a",), shape, count, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kinds", "at", "why"),
    [
        ([pods("one", 1, 1)], [], "a has no node"),
        ([pods("one", 1, 9)], [Node("a", "z", ROOM)], "it asks for 9 GPUs of 8, 36 EFA devices of 32, 180 CPUs of 168, 1800 GiB of memory"),
        ([pods("one", 2, 5)], [Node("a", "z", ROOM)], "no node of a has left 5 GPUs, 3 at most; 20 EFA devices, 12 at most"),
        ([pods("one", 1, 8, label="p", avoids="d"), pods("two", 1, 4, label="d", avoids="p")], [Node("a", "z", ROOM)],
         "no node of a has left"),
        ([pods("one", 1, 4, label="p", avoids="d"), pods("two", 1, 4, label="d", avoids="p")], [Node("a", "z", ROOM)],
         "it may not share a node with p, which has a pod on every node of a that has room"),
        ([pods("one", 2, 8, gang=2)], [Node("a", "z", ROOM)], "2 pods start together, and 1 more fit on a"),
        ([Pods("one", "one", ("b",), PodShape(8, 0, 1, 1), 1, together="e"), pods("two", 1, 1, together="e")],
         [Node("a", "near", ROOM), Node("b", "far", ROOM)],
         "it must be in far with the rest of its endpoint, and the nodes of a are in near"),
    ],
)  # fmt: skip
def test_why_there_is_no_node(kinds: list[Pods], at: list[Node], why: str) -> None:
    (left,) = place(kinds, at).left
    assert left.why.startswith(why)


def test_a_gang_that_does_not_fit_whole_takes_no_node() -> None:
    placement = place([pods("wide", 4, 8, gang=2), pods("small", 8, 1)], [Node("a", "z", ROOM)] * 3)
    assert [(entry.pods.name, entry.count) for entry in placement.left] == [("wide", 2)]
    assert sum(count for on in placement.on for kind, count in on if kind.name == "small") == 8


def test_equal_pods_are_tried_in_both_orders() -> None:
    """Three small pods of one kind and one of the other on two nodes of two: only one order leaves a single pod."""
    kinds = [pods("p", 1, 4, label="p", avoids="d"), pods("d", 2, 4, label="d", avoids="p")]
    assert not place(kinds, [Node("a", "z", ROOM)] * 2).left
    assert not place(kinds[::-1], [Node("a", "z", ROOM)] * 2).left


def test_the_pods_of_an_environment() -> None:
    known = environment(example=ROOT / "docs" / "example-wide-ep.yaml")
    made = [role_pods(it, known, it.placed.role.replicas) for it in roles_on_gpus(known)]
    assert [(one.name, one.count, one.gang, one.shape.gpus) for one in made] == [
        ("deepseek-r1 prefill", 2, 2, 8),
        ("deepseek-r1 decode", 2, 2, 8),
    ]
    assert not place(made, nodes(known)).left
    assert [node.group for node in nodes(known)] == ["system", "system", "prefill", "prefill", "decode", "decode"]
    assert {node.zone for node in nodes(known)} == {"use2-az1"}


def test_who_keeps_apart() -> None:
    shipped = environment(example=LLMD_EXAMPLE)
    assert apart(shipped.endpoints[0], shipped.cluster.groups)
    single = environment({"endpoints[0].decode.group": "prefill"}, example=LLMD_EXAMPLE)
    assert not apart(single.endpoints[0], single.cluster.groups), "on one node they must share it"
    operator = environment()
    assert not apart(operator.endpoints[0], operator.cluster.groups)


@given(st.lists(st.tuples(shapes, st.integers(0, 8)), max_size=3), st.integers(1, 6))
def test_pods_that_are_dealt_out_stay_within_their_nodes(rows: list[tuple[PodShape, int]], count: int) -> None:
    kinds = [Pods(str(number), "", ("a",), shape, amount) for number, (shape, amount) in enumerate(rows)]
    free = spread(kinds, ROOM, count)
    assert len(free) == count
    assert all(have >= 0 for space in free for have in space)
    taken = count * ROOM[4] - sum(space[4] for space in free)
    assert taken <= sum(kind.count for kind in kinds)


def test_equal_pods_are_dealt_out_one_to_a_node() -> None:
    assert [space[0] for space in spread([pods("small", 3, 1)], ROOM, 4)] == [7, 7, 7, 8]
    assert [space[0] for space in spread([pods("small", 5, 1)], ROOM, 4)] == [6, 7, 7, 7]
