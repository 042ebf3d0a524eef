"""Differences are told leaf by leaf."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.review.leaves import Leaf, leaves

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 2}, [("a", "1", "2")]),
        ({"a": {"b": [1]}}, {"a": {"b": [1]}}, []),
        ({"a": 1}, {}, [("a", "1", "")]),
        ({}, {"a": False}, [("a", "", "false")]),
        ({"a": ""}, {"a": "x"}, [("a", "(empty)", "x")]),
        # Items with names keep them, wherever they stand.
        (
            {"g": [{"InstanceGroupName": "p", "n": 1}, {"InstanceGroupName": "d", "n": 1}]},
            {"g": [{"InstanceGroupName": "d", "n": 2}, {"InstanceGroupName": "p", "n": 1}]},
            [("g[d].n", "1", "2")],
        ),
        ({"g": [{"name": "p", "n": 1}]}, {"g": []}, [("g[p]", "{'name': 'p', 'n': 1}", "")]),
        # Plain lists are compared as what came and what went.
        ({"args": ["--a", "1"]}, {"args": ["--a", "2"]}, [("args", "1", "2")]),
        ({"args": ["--a"]}, {"args": ["--a", "--b"]}, [("args", "", "--b")]),
        ({"args": ["--a", "--b"]}, {"args": ["--b", "--a"]}, [("args", "['--a', '--b']", "['--b', '--a']")]),
        # Two items of one name cannot be told apart by it.
        (
            {"e": [{"name": "x", "v": 1}, {"name": "x", "v": 2}]},
            {"e": [{"name": "x", "v": 1}, {"name": "x", "v": 3}]},
            [("e[1].v", "2", "3")],
        ),
    ],
)
def test_a_difference_is_a_place_and_two_values(before: Any, after: Any, expected: list[tuple[str, str, str]]) -> None:
    assert list(leaves(before, after)) == [Leaf(*one) for one in expected]


def test_credentials_are_hidden() -> None:
    (found,) = leaves({"env": {"HF_TOKEN": "hf_aaaaaaaaaaaa"}}, {"env": {"HF_TOKEN": "hf_bbbbbbbbbbbb"}})
    assert "aaaa" not in str(found)
    assert "bbbb" not in str(found)


@given(JSON, JSON)
def test_something_is_said_when_and_only_when_something_differs(before: Any, after: Any) -> None:
    said = list(leaves({"x": before}, {"x": after}))
    # JSON tells 1 from true, and Python does not.
    if before == after:
        assert not said
    else:
        assert said
        assert all(leaf.path.startswith("x") for leaf in said)
