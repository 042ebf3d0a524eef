"""`pipeline.py` as the pipeline runs it: the environments' templates are those of `app.py`, and mistakes are said in words."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dpd.environment.names import PARTS
from dpd.promotion.compare import differences, release
from dpd.promotion.teardown import teardown
from dpd.review.assembly import Assembly, read
from tests.promotion.made import PINNED
from tests.stacks.test_assembly import NO_CREDENTIALS, run
from tests.support import ROOT, edited

GITHUB = "{repository: o/r, owner_id: '1', repository_id: '2', provider: create}"
ACCOUNTS = {"dev": "111122223333", "staging": "222233334444", "prod": "333344445555"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with three environments and a release file."""
    made = tmp_path_factory.mktemp("project")
    (made / "environments").mkdir()
    for name, account in ACCOUNTS.items():
        content = edited({**PINNED, "account": account})
        (made / "environments" / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    for file in (ROOT / "docs" / "pipeline.yaml", ROOT / "cdk.json"):
        shutil.copy(file, made)
    return made


@pytest.fixture(scope="module")
def released(folder: Path) -> Assembly:
    cdk = shutil.which("cdk", path=f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert cdk is not None, "the CDK command line is installed by: make setup"
    out = folder / "cdk.out"
    command = [
        cdk,
        "synth",
        "--app",
        f"{sys.executable} {ROOT / 'pipeline.py'}",
        "--strict",
        "--quiet",
        "--no-notices",
        "--output",
        str(out),
    ]
    done = run(command, out, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
    return read(out)


def test_a_release_holds_the_environments_as_app_py_makes_them(released: Assembly, folder: Path) -> None:
    plain = folder / "plain"
    # What the CDK command line asks of an app.
    asked = {"aws:cdk:enable-path-metadata": True, "aws:cdk:enable-asset-metadata": True}
    settings = NO_CREDENTIALS | {"CDK_OUTDIR": str(plain), "CDK_CONTEXT_JSON": json.dumps(asked)}
    subprocess.run([sys.executable, str(ROOT / "app.py")], cwd=folder, env=settings, check=True)
    compared = 0
    for file in sorted(plain.rglob("*")):
        if file.suffix == ".yaml" or file.name.endswith(".template.json") or file.parent.name == "summaries":
            assert (released.folder / file.relative_to(plain)).read_bytes() == file.read_bytes(), file.name
            compared += 1
    assert compared > len(PARTS) * len(ACCOUNTS)
    assert (released.folder / "pipeline.template.json").is_file()


def test_alike_environments_may_follow_each_other(released: Assembly) -> None:
    for before, after in (("dev", "staging"), ("staging", "prod")):
        assert differences(release(released, before), release(released, after)) == []


def test_a_real_environment_goes_in_the_one_order_and_keeps_its_state(released: Assembly) -> None:
    plan = teardown(released, "prod")
    assert [step.part for step in plan.steps if step.part in PARTS] == list(reversed(PARTS))
    assert {step.part for step in plan.protected} == {"network", "storage", "eks", "hyperpod"}
    kept = {each.type for step in plan.steps for each in step.kept}
    assert {"AWS::S3::Bucket", "AWS::FSx::FileSystem", "AWS::KMS::Key", "AWS::Logs::LogGroup"} <= kept
    assert plan.eks_cluster == "llama-dpd-prod"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "pipeline.yaml"),
        ("version: [", "CFG001"),
        (
            f"version: 1\napp: a\nstages: [{{environment: qa}}]\ngithub: {GITHUB}\n",
            "REL001",
        ),
    ],
)
def test_mistakes_of_the_release_file_stop_before_a_stack_is_built(folder: Path, tmp_path: Path, text: str | None, says: str) -> None:
    shutil.copytree(folder / "environments", tmp_path / "environments")
    if text is not None:
        (tmp_path / "pipeline.yaml").write_text(text, encoding="utf-8")
    done: subprocess.CompletedProcess[str] = run([sys.executable, str(ROOT / "pipeline.py")], tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "out").iterdir())
