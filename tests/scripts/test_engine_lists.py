"""The lists are what the published wheels say, and reading a wheel is right on small sources."""

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.catalog.engines import FOLDER, Engine, engine, lists
from dpd.catalog.images import images
from scripts.engine_lists import vllm
from scripts.engine_lists.__main__ import RECIPES, file_text, fresh
from scripts.engine_lists.history import merged
from scripts.engine_lists.source import Sources, UnknownValueError
from scripts.engine_lists.wheels import find

OURS = {image.vllm for image in images() if image.vllm}
DRIFT = [("vllm", version) for version in sorted(OURS)] + [("lmcache", "0.4.3"), ("vllm-router", "0.1.17")]


@pytest.mark.parametrize(("software", "version"), DRIFT)
def test_reading_a_wheel_again_changes_nothing(software: str, version: str) -> None:
    found = next((known for package in RECIPES[software].packages if (known := find(package, version))), None)
    if found is None:
        pytest.skip(f"the wheel of {software} {version} was not fetched yet: make engine-lists")
    made = file_text(software, engine(software), {version: (found, fresh(software, found))})
    assert made == (FOLDER / f"{software}.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("software", RECIPES)
def test_a_file_is_made_of_its_own_content(software: str) -> None:
    assert file_text(software, engine(software), {}) == (FOLDER / f"{software}.json").read_text(encoding="utf-8")


def test_every_catalogued_image_has_lists() -> None:
    for image in images():
        assert not image.vllm or lists("vllm", image.vllm).exact, image
        assert not image.lmcache or lists("lmcache", image.lmcache).exact, image


ENTRIES = st.one_of(st.none(), st.integers(0, 2))
TABLES = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from("xyz"), st.integers(0, 2))), min_size=1, max_size=6
)


@given(TABLES)
def test_each_version_comes_back_as_it_went_in(versions: list[dict[str, dict[str, Any]]]) -> None:
    named = {f"0.{index}.0": tables for index, tables in enumerate(versions)}
    known = Engine("vllm", "", {version: {} for version in named}, merged(named))
    for version, tables in named.items():
        assert {table: names for table, names in known.tables(version).items() if names} == {t: n for t, n in tables.items() if n}


SMALL = Sources(
    {
        "p": "from p.a import Alias as Other\nfrom .a import SIZE",
        "p.a": """
from typing import Literal
SIZE = 4 * 1024
Kinds = Literal['b', 'a']
Alias = Kinds | None
class D(dict): pass
@config
class Base:
    size: int = SIZE
@config
class C(Base):
    kind: Kinds = 'a'
    old: 'Kinds | str' = field(default='x')
    items: list[int] = field(default_factory=lambda: [1])
    inner: Base | None = None
    pair: tuple[int, int] = None
    on: bool | None = None
    token: bool | str | None = None
    free: dict[str, Any] = field(default_factory=dict)
    strange: D = unknown()
    _own: int = 1
""",
    }
)


def test_fields_of_a_class() -> None:
    place = SMALL.define("p.a", "C")
    assert place is not None
    assert vllm.described(SMALL, place) == {
        "size": {"kind": "int", "default": 4096},
        "kind": {"kind": "text", "choices": ["a", "b"], "default": "a"},
        "old": {"kind": "text", "default": "x"},
        "items": {"kind": "int", "values": "many", "default": [1]},
        "inner": {"kind": "json", "config": "Base", "default": None},
        "pair": {"kind": "int", "values": 2, "default": None},
        "on": {"kind": "switch", "default": None},
        "token": {"kind": "text", "values": "optional", "default": None},
        "free": {"kind": "json", "default": {}},
        "strange": {"kind": "json"},
    }


def test_names_are_followed_through_imports() -> None:
    assert SMALL.value(("p", ast.parse("SIZE", mode="eval").body)) == 4096
    assert {hint.kind for hint in SMALL.hints(("p", ast.parse("Other", mode="eval").body))} == {"literal", "none"}


@pytest.mark.parametrize("text", ["missing", "call()", "1 + 'a'", "[x for x in y]"])
def test_what_must_be_run_is_not_guessed(text: str) -> None:
    with pytest.raises(UnknownValueError):
        SMALL.value(("p", ast.parse(text, mode="eval").body))


@pytest.mark.parametrize(
    "text",
    [
        "config.get_from_extra_config('k', 1)",
        "config.kv_connector_extra_config.get('k')",
        "extra_config['k']",
        "'k' in self.extra_config",
        "'k' not in extra_config",
    ],
)
def test_every_way_to_read_a_key(text: str) -> None:
    assert list(vllm.extra_keys(Sources({"m": text}), "m")) == ["k"]


def test_other_mappings_are_not_read() -> None:
    assert list(vllm.extra_keys(Sources({"m": "params.get('k'); data['k']; 'k' in other"}), "m")) == []
