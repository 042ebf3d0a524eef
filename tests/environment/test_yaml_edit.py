"""Edits change what they name, and nothing else."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dpd.environment.yaml_edit import EditError, edited
from dpd.environment.yaml_file import Place
from tests.support import EXAMPLE

TEXT = """\
# head
a: 1   # one
b: {c: 2, d: "x"}   # flow
list:
  - name: first   # comment
    size: 3
    inner: {p: 1}
  # between
  - {name: second}
block:
  deep:
    x: 1
    y: 2

  # trailing
empty: {}
"""


@pytest.mark.parametrize(
    ("place", "value", "before", "after"),
    [
        (("a",), 7, "a: 1   # one", "a: 7   # one"),
        (("b", "d"), "y", 'd: "x"}', "d: y}"),
        (("b", "e"), 5, '{c: 2, d: "x"}   # flow', '{c: 2, d: "x", e: 5}   # flow'),
        (("list", 0, "size"), 4, "size: 3", "size: 4"),
        (("list", 0, "more"), True, "    inner: {p: 1}\n", "    inner: {p: 1}\n    more: true\n"),
        (("list", 1, "size"), 9, "{name: second}", "{name: second, size: 9}"),
        (("block", "deep", "x"), 2, "    x: 1", "    x: 2"),
        (("block", "deep", "z"), 3, "    y: 2\n", "    y: 2\n    z: 3\n"),
        (("block", "flat"), 3, "block:\n  deep:", "block:\n  flat: 3\n  deep:"),
        (("empty", "k"), 1, "empty: {}", "empty: {k: 1}"),
        (("new",), "1.5", "empty: {}\n", "empty: {}\nnew: '1.5'\n"),
    ],
)
def test_one_edit(place: Place, value: object, before: str, after: str) -> None:
    assert before in TEXT
    assert edited(TEXT, [(place, value)]) == TEXT.replace(before, after)


def test_line_ends_are_kept() -> None:
    windows = TEXT.replace("\n", "\r\n")
    changed = edited(windows, [(("list", 0, "more"), 1), (("a",), 2)])
    assert changed.replace("\r\n", "").count("\n") == 0
    assert yaml.safe_load(changed)["list"][0]["more"] == 1


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: &x {n: 1}\nb: *x\n", ("b", "n")),
        ("a: &x {n: 1}\nb:\n  <<: *x\n  m: 2\n", ("a", "n")),
        ("a: [1, 2]\n", ("a",)),
        ("a: 1\n", ("b", "c")),
        ("a: 1\n", ("a", "c")),
        ("a: [1]\n", ("a", 4)),
    ],
)
def test_what_would_change_more_is_refused(text: str, place: Place) -> None:
    with pytest.raises(EditError, match="by hand"):
        edited(text, [(place, 5)])


@given(
    value=st.one_of(st.integers(-(10**9), 10**9), st.booleans(), st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs"))))
)
def test_any_value_is_read_back(value: object) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    changed = edited(text, [(("endpoints", 0, "decode", "replicas"), value), (("endpoints", 0, "decode", "cpus"), value)])
    assert yaml.safe_load(changed)["endpoints"][0]["decode"]["replicas"] == value
    assert changed.count("\n") == text.count("\n")
