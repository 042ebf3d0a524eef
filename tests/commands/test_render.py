"""``dpd render``: the manifests on disk, without CDK."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands.support import Dpd, process
from tests.commands.test_check import written
from tests.support import ROOT, edited

SHIPPED = sorted(file.stem for file in (ROOT / "environments").glob("*.yaml"))
OUTPUTS = {"LustreFileSystemId": "fs-0123456789abcdef0", "LustreDnsName": "fs-0.fsx.us-east-2.amazonaws.com", "LustreMountName": "abcdefgh"}


def tree(folder: Path) -> dict[str, bytes]:
    """All manifests by file. Dashboards and files of rules lie apart from them."""
    found = {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
    return {name: content for name, content in found.items() if not name.startswith("_observe/")}


def test_every_environment_is_written_and_twice_the_same(dpd: Dpd, tmp_path: Path) -> None:
    assert dpd("render", "-o", tmp_path / "one").code == 0
    assert dpd("render", "-o", tmp_path / "two").code == 0
    files = tree(tmp_path / "one")
    assert files == tree(tmp_path / "two")
    assert {name.split("/")[0] for name in files} == {*SHIPPED}
    assert "dev/llama-70b/inferenceendpointconfig-llama-70b.yaml" in files
    for content in files.values():
        assert {"apiVersion", "kind", "metadata"} <= set(yaml.safe_load(content))


def test_one_environment_can_be_chosen(dpd: Dpd, tmp_path: Path) -> None:
    outcome = dpd("render", "--env", "dev", "-o", tmp_path)
    assert (outcome.code, sorted(path.name for path in tmp_path.iterdir())) == (0, ["_observe", "dev"])
    outcome = dpd("render", "--env", "qa", "-o", tmp_path)
    assert outcome.code == 1
    assert f"There is no environment 'qa'. There are: {', '.join(SHIPPED)}." in outcome.err


def test_what_a_deployment_knows_is_named_or_filled_in(dpd: Dpd, tmp_path: Path) -> None:
    assert "still to fill in: ${LUSTRE_FILE_SYSTEM_ID}" in dpd("render", "--env", "prod", "-o", tmp_path / "open").out
    outputs = written(tmp_path, "outputs.json", json.dumps({"llama-dpd-prod-storage": OUTPUTS}))
    outcome = dpd("render", "--env", "prod", "-o", tmp_path / "full", "--outputs", outputs)
    assert outcome.code == 0
    assert "still to fill in" not in outcome.out
    text = b"".join(tree(tmp_path / "full").values()).decode()
    assert "${" not in text
    assert all(value in text for value in OUTPUTS.values())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "stack llama-dpd-prod-storage lack LustreFileSystemId, LustreDnsName, LustreMountName"),
        ('{"llama-dpd-prod-storage": 3}', "lack LustreFileSystemId"),
        ('{"llama-dpd-prod-storage": {"LustreFileSystemId": 3, "LustreDnsName": "a", "LustreMountName": "b"}}', "lack LustreFileSystemId:"),
    ],
)
def test_outputs_that_do_not_help(dpd: Dpd, tmp_path: Path, content: str | None, says: str) -> None:
    outputs = tmp_path / "outputs.json" if content is None else written(tmp_path, "outputs.json", content)
    outcome = dpd("render", "--env", "prod", "-o", tmp_path / "out", "--outputs", outputs)
    assert (outcome.code, outcome.out) == (1, "")
    assert says in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["", edited({"endpoints[0].kv.buffer_gib": 60}), edited({"regoin": 1})])
def test_nothing_is_written_for_a_file_with_an_error(dpd: Dpd, tmp_path: Path, content: Any) -> None:
    file = written(tmp_path, "dev.yaml", content)
    outcome = dpd("render", file, ROOT / "environments" / "prod.yaml", "-o", tmp_path / "out")
    assert (outcome.code, outcome.out) == (1, "")
    assert "error" in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "content"), [("thesis.txt", "mine"), ("kustomization.yaml", "resources: []")])
def test_a_folder_with_other_files_is_left_alone(dpd: Dpd, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / name).write_text(content, encoding="utf-8")
    outcome = dpd("render", "--env", "dev", "-o", tmp_path)
    assert outcome.code == 1
    assert name in outcome.err
    assert tree(tmp_path) == {f"dev/{name}": content.encode()}


def test_an_output_folder_that_is_a_file(dpd: Dpd, tmp_path: Path) -> None:
    file = written(tmp_path, "file", "mine")
    outcome = dpd("render", "--env", "dev", "-o", file)
    assert (outcome.code, outcome.err) == (1, f"Error: {file} is a file; name another output folder.\n")
    assert file.read_text(encoding="utf-8") == "mine"


def test_a_place_that_cannot_be_written_is_a_fault_of_the_machine(dpd: Dpd, tmp_path: Path) -> None:
    file = written(tmp_path, "file", "")
    outcome = dpd("render", "--env", "dev", "-o", file / "out")
    assert outcome.code == 3
    assert outcome.err.startswith("Error: Not a directory")


def test_rendering_does_not_import_cdk(tmp_path: Path) -> None:
    program = (
        "import sys; from commands.main import _run; code = _run(['render', '--env', 'dev', '-o', sys.argv[1]]); "
        "print(sorted(name for name in sys.modules if name.split('.')[0] in {'aws_cdk', 'stacks', 'boto3', 'rich'}), code)"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_without_what_renders_it_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['cdk8s'] = None; from commands.main import _run; sys.exit(_run(['render', '-o', sys.argv[1]]))"
    done = subprocess.run([sys.executable, "-c", program, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "pip install 'hyperpod-dpd[render]'" in done.stderr


def test_the_node_beside_this_python_is_found(tmp_path: Path) -> None:
    done = process("render", "--env", "dev", "-o", tmp_path, PATH="/usr/bin:/bin")
    assert (done.returncode, done.stderr) == (0, b"")


def test_without_node_it_says_so(tmp_path: Path) -> None:
    done = process("render", "-o", tmp_path, PATH="/nowhere", JSII_NODE="/nowhere/node")
    assert done.returncode == 3
    assert done.stderr == b"Error: Node.js, on which cdk8s runs, is not found. Install it with: pip install 'hyperpod-dpd[render]'\n"
