"""Imports only point down, and the architecture page speaks of rooms that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

FLOORS = [
    {"dpd", "dpd.finding"},
    {"dpd.catalog"},
    {"dpd.environment"},
    {"dpd.sizing"},
    {"dpd.scaling"},
    {"dpd.backends"},
    {"dpd.preflight", "dpd.staging"},
    {"dpd.checks"},
    {"dpd.planning"},
    {"dpd.gate"},
    {"dpd.review", "dpd.promotion", "dpd.observe"},
    {"aws_reads"},
    {"charts"},
    {"stacks"},
    {"pages"},
    {"rehearsal"},
    {"commands", "app", "pipeline"},
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
FOREIGN = {
    "dpd": {"aws_cdk", "cdk8s", "constructs", "boto3", "botocore"},
    "aws_reads": {"aws_cdk", "cdk8s", "constructs", "click"},
    "charts": {"aws_cdk", "boto3"},
    "pages": {"aws_cdk", "cdk8s", "boto3", "charts", "stacks"},
    "rehearsal": {"aws_cdk", "cdk8s", "boto3", "botocore", "charts", "stacks", "click"},
    "commands": {"aws_cdk", "boto3"},
}


def room(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if ".".join(parts[:2]) in FLOOR else parts[0]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield (
                node.module
                if node.module not in ("dpd", "commands", "stacks", "charts", "pages", "aws_reads")
                else f"{node.module}.{node.names[0].name}"
            )


FILES = [
    path
    for folder in ("dpd", "aws_reads", "charts", "stacks", "pages", "rehearsal", "commands")
    for path in sorted((ROOT / folder).rglob("*.py"))
] + [ROOT / "app.py", ROOT / "pipeline.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    here = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for module in imports(path):
        top = module.split(".")[0]
        assert top not in FOREIGN.get(here.split(".")[0], set()), f"{here} imports {module}"
        if top in {"dpd", "aws_reads", "charts", "stacks", "pages", "rehearsal", "commands", "app"}:
            assert FLOOR[room(module)] <= FLOOR[room(here)], f"{here} imports {module}, which is above it"


@pytest.mark.parametrize("path", sorted((ROOT / "lambda").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_stand_alone(path: Path) -> None:
    tops = {module.split(".")[0] for module in imports(path)}
    assert not tops & {"dpd", "charts", "stacks", "commands", "aws_cdk", "cdk8s", "pydantic", "yaml"}


def test_the_app_is_short() -> None:
    code = [line for line in (ROOT / "app.py").read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(code) <= 42


def test_the_page_names_rooms_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:dpd|aws_reads|charts|stacks|lambda|lifecycle|commands|pages|rehearsal|tests)(?:/[\w./]*)?)`", page):
        assert (ROOT / name).exists(), name
