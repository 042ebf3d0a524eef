"""Every check has its table."""

import re
from pathlib import Path

import pytest

from dpd.checks.registry import Check, checks
from dpd.finding import Level

HERE = Path(__file__).parent


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.id)
def test_every_check_stands_in_the_table_of_its_family(check: Check) -> None:
    table = (HERE / f"test_{check.family}.py").read_text(encoding="utf-8")
    assert f'"{check.id}"' in table


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.id)
def test_every_check_explains_itself(check: Check) -> None:
    assert re.fullmatch(r"[A-Z0-9]{3}[0-9]{3}", check.id)
    assert check.title
    assert check.why.endswith(".")
    assert check.link.startswith(("https://", "docs/"))
    assert all(url.startswith("https://") for url in check.seen_in)
    assert check.level in Level
