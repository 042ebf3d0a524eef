"""What the docs say is what the code says."""

import re

import pytest

from commands.docs import FOLDER, generated
from commands.rules import rules
from dpd.environment.mistakes import _homes
from tests.commands.support import Dpd
from tests.support import ROOT

IDS = tuple(rules())


@pytest.mark.parametrize("name", ["environment.schema.json", "configuration.md", "checks.md"])
def test_the_committed_docs_are_the_generated_ones(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == generated()[name], "run `make docs`"


def test_the_schema_command_prints_the_committed_schema(dpd: Dpd) -> None:
    assert dpd("schema").out == (FOLDER / "environment.schema.json").read_text(encoding="utf-8")


def test_the_reference_has_a_row_for_every_key() -> None:
    reference = generated()["configuration.md"]
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^<a id|\Z)", reference, re.MULTILINE | re.DOTALL))
    rows = {
        place.strip("`"): set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
        for title, text in sections.items()
        for place in title.split(", ")
    }
    for home in _homes():
        parent, _, key = home.rpartition(".")
        assert key in rows[parent or "The top of the file"], home


def test_links_inside_the_reference_lead_somewhere() -> None:
    reference = generated()["configuration.md"]
    assert set(re.findall(r"\]\(#(\w+)\)", reference)) <= set(re.findall(r'<a id="(\w+)"', reference))


def test_tables_are_whole() -> None:
    for name in ("configuration.md", "checks.md"):
        columns = 0
        for line in generated()[name].splitlines():
            cells = len(re.findall(r"(?<!\\)\|", line))
            columns = cells if line.startswith("|---") else columns
            if line.startswith("| `") or re.match(r"\| [A-Z]{3}", line):
                assert cells == columns, line


@pytest.mark.parametrize("id_", IDS)
def test_every_rule_is_explained_and_linked(dpd: Dpd, id_: str) -> None:
    rule = rules()[id_]
    assert re.fullmatch(r"[A-Z][A-Z0-9]{2}[0-9]{3}", id_)
    assert rule.link.startswith("https://") or (ROOT / rule.link).is_file()
    assert all(url.startswith("https://") for url in rule.seen_in)
    assert f"| {id_} |" in generated()["checks.md"]
    outcome = dpd("explain", id_.lower())
    assert outcome.code == 0
    assert outcome.out.startswith(f"{id_} ({rule.level.value}): {rule.title}\n")
    assert " ".join(rule.why.split())[:60] in " ".join(outcome.out.split())
    assert rule.link in outcome.out


def test_all_rules_are_listed(dpd: Dpd) -> None:
    listed = re.findall(r"^  (\w+) ", dpd("explain", "--all").out, re.MULTILINE)
    assert listed == list(IDS)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("CFG033", "Near it: CFG003"),
        ("mem", "Near it: MEM001"),
        ("zzzzzz", "dpd explain --all"),
        ("hf_" + "a1B2" * 8, "there is no check (hidden)"),
    ],
)
def test_an_unknown_id_is_told_what_is_near(dpd: Dpd, asked: str, says: str) -> None:
    outcome = dpd("explain", asked)
    assert (outcome.code, outcome.out) == (1, "")
    assert says in outcome.err


def test_known_ids_are_explained_beside_an_unknown_one(dpd: Dpd) -> None:
    outcome = dpd("explain", "CFG001", "CFG999", "CFG002")
    assert outcome.code == 1
    assert "CFG999" in outcome.err
    assert outcome.out.index("CFG001") < outcome.out.index("CFG002")
