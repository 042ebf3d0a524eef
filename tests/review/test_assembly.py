"""Folders that are no assembly are told, with the file that is wrong."""

import shutil
from pathlib import Path

import pytest

from dpd.review.assembly import Assembly, NotAnAssemblyError, read
from tests.review.conftest import Synthesize


@pytest.fixture
def copied(assembly: Synthesize, tmp_path: Path) -> Path:
    folder = tmp_path / "cdk.out"
    shutil.copytree(assembly({}).folder, folder)
    return folder


def test_what_a_synthesis_writes_is_read(assembly: Synthesize) -> None:
    made: Assembly = assembly({})
    assert made.environments == ("dev",)
    assert [stack.part for stack in made.stacks.values()] == ["network", "storage", "eks", "hyperpod", "addons", "serving", "gate"]
    assert any(path.startswith("dev/llama-70b/") for path in made.objects)
    assert made.summaries["dev"]["topology"]["gpu_availability_zone"] == "use2-az1"
    assert all(finding["file"] == "environments/dev.yaml" for finding in made.summaries["dev"]["findings"])


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("manifest.json", None, "no manifest.json"),
        ("manifest.json", "{", "manifest.json cannot be read"),
        ("manifest.json", "[]", "not what a synthesis writes"),
        ("manifest.json", '{"artifacts": {}}', "holds no environment"),
        ("assembly-dev/manifest.json", None, "assembly-dev/manifest.json cannot be read"),
        ("manifests/dev/llama-70b/broken.yaml", "a: [", "is no manifest"),
        ("manifests/dev/llama-70b/list.yaml", "- 1", "holds no Kubernetes object"),
        ("summaries/dev.json", "{", "summaries/dev.json cannot be read"),
    ],
)
def test_a_damaged_assembly_is_told(copied: Path, file: str, text: str | None, says: str) -> None:
    if text is None:
        (copied / file).unlink()
    else:
        (copied / file).write_text(text, encoding="utf-8")
    with pytest.raises(NotAnAssemblyError, match=says):
        read(copied)


def test_an_assembly_without_summaries_is_still_read(copied: Path) -> None:
    shutil.rmtree(copied / "summaries")
    assert read(copied).summaries == {}
