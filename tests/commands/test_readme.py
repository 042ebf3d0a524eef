"""The README says what the code says."""

import re

import pytest

from commands.readme import README, ROOT, rewritten
from commands.rules import rules
from dpd.environment.names import PARTS

TEXT = README.read_text(encoding="utf-8")


def test_generated_parts_are_what_the_code_says() -> None:
    assert rewritten(TEXT) == TEXT, "run: make docs"


def test_a_part_that_nothing_makes_is_noticed() -> None:
    with pytest.raises(KeyError):
        rewritten("<!-- generated: weather -->\n<!-- end -->")


def test_every_local_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", TEXT):
        assert (ROOT / target).exists(), target


def test_every_heading_that_is_linked_exists() -> None:
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors


def test_every_named_rule_exists() -> None:
    named = set(re.findall(r"\b[A-Z0-9]{3}\d{3}\b", TEXT))
    assert named == set(rules()), named ^ set(rules())


def test_every_stack_is_described_in_order() -> None:
    assert re.findall(r"^\| `(\w+)` \| [A-Z].* \| .* \|$", TEXT.split("## Outputs")[0].split("## Deploy")[1], re.MULTILINE) == list(PARTS)


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:\$ |`)make (\w+)", TEXT)):
        assert f"\n{target}:" in makefile, target
