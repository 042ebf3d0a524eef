"""Reading YAML strictly: every way in which a file can be unreadable, or mean something else than it shows."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.environment.yaml_file import YamlError, dotted, parse, place_of, read

_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
_MERGE_BOMB = "a: &a {k: v}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}], own{name}: 1}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("", "is empty", 0),
        ("# only a comment\n\n# another\n", "is empty", 0),
        ("---\n", "is empty", 0),
        ("---\n...\n", "is empty", 0),
        ("just text\n", "must be a mapping", 1),
        ("\n- a\n- b\n", "must be a mapping", 2),
        ("42\n", "must be a mapping", 1),
        ("a: 1\n---\nb: 2\n", "more than one YAML document", 3),
        ("a: 1\n\tb: 2\n", "not valid YAML", 2),
        ("a:\n  b: [1, 2\n", "not valid YAML", 3),
        ("a: 'open\n", "not valid YAML", 2),
        ("a: *nobody\n", "not valid YAML", 1),
        ("a: 1\n b: 2\n", "not valid YAML", 2),
        ("a: %x\n", "not valid YAML", 1),
        ("a: 1\nb: \x07\n", "control character U+0007", 2),
        ("a: \x00\n", "control character U+0000", 1),
        (f"a: {'[' * 10_000}{']' * 10_000}", "not valid YAML", 1),
        (f"a: {'[' * 70}{']' * 70}", "deeper than 64 levels", 1),
        ("\n".join(" " * level + "a:" for level in range(10_000)), "not valid YAML", 1_000),
        ("a: &a [*a]\n", "deeper than 64 levels", 1),
        ("a: &a {b: *a}\n", "deeper than 64 levels", 1),
        (_BOMB, "too many values", 1),
    ],
)
def test_a_text_that_is_no_environment(text: str, says: str, line: int) -> None:
    with pytest.raises(YamlError) as caught:
        parse(text)
    assert says in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "path", "line", "says"),
    [
        ("a: 1\na: 2\n", "a", 2, "stands twice, first on line 1"),
        ("a:\n  b: 1\n  c:\n    - d: 1\n      d: 2\n", "a.c[0].d", 5, "stands twice, first on line 4"),
        ("a: {b: 1, 'b': 2}\n", "a.b", 1, "stands twice"),
        ("a: 010\n", "a", 1, "reads it as the number 8"),
        ("a: [1, 1:30]\n", "a[1]", 1, "reads it as the number 90"),
        ("a: 190:20:30.15\n", "a", 1, "reads it as the number 685230.15"),
        ("a: .inf\n", "a", 1, "is not a number"),
        ("a: -.inf\n", "a", 1, "is not a number"),
        ("a: .NaN\n", "a", 1, "is not a number"),
        (f"a: {'9' * 25}\n", "a", 1, "is not a number"),
        (f"a: {'9' * 10_000}\n", "a", 1, "is no int"),
        (f"a: 0x{'f' * 10_000}\n", "a", 1, "is not a number"),
        ("a: !!binary aGVsbG8=\n", "a", 1, "has the tag !!binary"),
        ("a: !!python/object/apply:os.system [ls]\n", "a", 1, "has the tag !!python/object/apply:os.system"),
        ("a: !!python/name:os.system\n", "a", 1, "has the tag"),
        ("a: !secret x\n", "a", 1, "has the tag !secret"),
        ("a: !!set {b, c}\n", "a", 1, "has the tag !!set"),
        ("a: !!omap [b: 1]\n", "a", 1, "has the tag !!omap"),
        ("a: !!int x\n", "a", 1, "is no int"),
        ("a: !!int ''\n", "a", 1, "is no int"),
        ("a: !!bool maybe\n", "a", 1, "is no bool"),
        ("a: !!float ''\n", "a", 1, "is no float"),
        ("? [a, b]\n: 1\n", "", 1, "has a key that is no plain text"),
        ("? {a: b}\n: 1\n", "", 1, "has a key that is no plain text"),
        ("a: {<<: 5}\n", "a", 1, "merges (<<) something that is no mapping"),
        ("a: {<<: [1, {b: 2}]}\n", "a", 1, "merges (<<) something that is no mapping"),
    ],
)
def test_a_place_that_means_something_else_than_it_shows(text: str, path: str, line: int, says: str) -> None:
    (mistake,) = parse(text).mistakes
    assert (dotted(mistake.place), mistake.line) == (path, line)
    assert says in mistake.message
    assert mistake.fix


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("a: 2026-11-29\n", {"a": "2026-11-29"}),
        ("a: '010'\nb: 10\nc: 0\nd: 1_000\ne: 0x1f\n", {"a": "010", "b": 10, "c": 0, "d": 1000, "e": 31}),
        ("1.34: x\nyes: y\n~: z\n", {"1.34": "x", "yes": "y", "~": "z"}),
        ("a: no\nb: ~\nc: 1.5\n", {"a": False, "b": None, "c": 1.5}),
        ("\ufeffa: 1\n".encode().decode("utf-8-sig"), {"a": 1}),
        ("a: 1\r\nb:\r\n  - 2\r\n", {"a": 1, "b": [2]}),
        ("a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}\nc: {<<: *x}\n", {"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 3}, "c": {"k": 1, "l": 2}}),
        ("a: &x {k: 1}\nb: &y {<<: *x}\nc: *y\nd: *y\n", {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1}, "d": {"k": 1}}),
        ("a: {<<: [{k: 1}, {k: 2, l: 2}]}\n", {"a": {"k": 1, "l": 2}}),
        ("a: &a {<<: *a, b: 1}\n", {"a": {"b": 1}}),
    ],
)
def test_a_text_that_means_what_it_shows(text: str, content: dict[str, object]) -> None:
    document = parse(text)
    assert document.content == content
    assert document.mistakes == []


def test_merging_does_not_multiply() -> None:
    assert len(parse(_MERGE_BOMB).content["i"]) == 9


def test_a_file_of_every_encoding_mistake(tmp_path: Path) -> None:
    file = tmp_path / "dev.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\n")
    assert read(file).content == {"a": 1}
    file.write_bytes("a: 1\nb: Zürich\n".encode("latin-1"))
    with pytest.raises(YamlError, match="is not UTF-8 text") as caught:
        read(file)
    assert caught.value.line == 2
    file.write_bytes("a: 1\n".encode("utf-16"))
    with pytest.raises(YamlError, match="is not UTF-8 text"):
        read(file)
    file.write_bytes(b"#" * 4_000_001)
    with pytest.raises(YamlError, match="an environment file has at most 4,000,000"):
        read(file)


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    for path, says in (
        (tmp_path / "dev.yaml", "no such file"),
        (tmp_path, "is a folder"),
        (Path("/dev/null"), "is not a regular file"),
        (tmp_path / ("x" * 300), "cannot be read"),
        (Path("a\0b"), "no such file|is not the name"),
    ):
        with pytest.raises(YamlError, match=says):
            read(path)


def test_lines_of_fields_by_place_and_by_path() -> None:
    document = parse("a:\n  b:\n    - c: 1\n    - c: 2\n      example.com/team: x\n")
    assert document.line(("a", "b", 1, "c")) == 4
    assert document.line(("a", "b", 1, "missing", "deeper")) == 4
    assert document.line_of("a.b[1].c") == 4
    assert document.line_of("a.b[1].example.com/team") == 5
    assert document.line_of("a.b[7].c") == 2
    assert document.line_of("nowhere") == 1


@given(
    st.lists(st.integers(0, 99) | st.from_regex(r"[a-z_][a-z0-9_-]*", fullmatch=True), min_size=1).filter(
        lambda place: isinstance(place[0], str)
    )
)
def test_paths_are_read_back(place: list[int | str]) -> None:
    assert place_of(dotted(tuple(place))) == tuple(place)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        said = str(parse(text).mistakes)
    except YamlError as error:
        said = error.message
    assert said.isprintable()
