"""`dpd review` as people and pipelines call it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner, Result

from commands.review import command
from tests.support import ROOT, edited

ENVIRONMENT: Final = Path("environments", "dev.yaml")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments], cwd=folder, check=True, capture_output=True)


def write(folder: Path, changes: dict[str, Any]) -> None:
    file = folder / ENVIRONMENT
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(edited(changes), sort_keys=False), encoding="utf-8")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not (ROOT / "node_modules" / "@aws-cdk" / "cloudformation-diff").is_dir() or shutil.which("git") is None:
        pytest.skip("needs git and what `make setup` installs")
    folder = tmp_path / "repository"
    write(folder, {})
    git(folder, "init", "--quiet", ".")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    monkeypatch.chdir(folder)
    return folder


def review(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_a_branch_is_compared_with_a_ref_and_with_a_folder(repository: Path, tmp_path: Path) -> None:
    write(repository, {"endpoints[0].routing.threshold_tokens": 2048})
    page, machine, comment = (tmp_path / "out" / name for name in ("page.html", "all.json", "comment.md"))
    done = review("--base", "HEAD", "--html", str(page), "--json", str(machine), "--markdown", str(comment))
    assert (done.exit_code, done.output) == (10, "")
    assert "re-routes requests" in comment.read_text(encoding="utf-8")
    assert "spec.pdSpec.routingThreshold" in page.read_text(encoding="utf-8")
    assert '"verdict": "changes"' in machine.read_text(encoding="utf-8")
    assert not (repository / "cdk.out").exists()


def test_one_environment_can_be_reviewed_alone(repository: Path) -> None:
    staging = repository / "environments" / "staging.yaml"
    staging.write_text(yaml.safe_dump(edited({"account": "222233334444"}), sort_keys=False), encoding="utf-8")
    write(repository, {"endpoints[0].routing.threshold_tokens": 2048})
    assert "staging" in review("--base", "HEAD").output
    alone = review("--base", "HEAD", "--env", "dev")
    assert alone.exit_code == 10
    assert "staging" not in alone.output
    unknown = review("--base", "HEAD", "--env", "prod")
    assert (unknown.exit_code, "neither state has an environment 'prod'" in unknown.output) == (1, True)


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ("no-such-branch", "'no-such-branch' is neither a folder nor a git ref"),
        ("--upload-pack=x", "is neither a folder nor a git ref"),
        ("HEAD:environments", "is neither a folder nor a git ref"),
        ("environments", "environments is no cloud assembly"),
    ],
)
def test_what_cannot_be_compared_is_told_without_a_traceback(repository: Path, base: str, says: str) -> None:
    done = review(f"--base={base}")
    assert done.exit_code == 1
    assert says in done.output
    assert "Traceback" not in done.output
    assert repository.exists()


def test_a_file_that_stops_a_synthesis_stops_the_review_with_its_findings(repository: Path) -> None:
    write(repository, {"endpoints[0].prefill.group": "nowhere"})
    done = review("--base", "HEAD")
    assert done.exit_code == 1
    assert "the files as they are now cannot be synthesized" in done.output
    assert "nowhere" in done.output
