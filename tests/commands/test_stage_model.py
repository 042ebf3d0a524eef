"""``dpd stage-model``: what it starts, what it follows, and what it refuses."""

from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml

from commands import stage_model
from tests.checks.cases import CLOSED
from tests.commands.support import Dpd
from tests.lambdas.health_gate.aws_calls import Calls, Refuse
from tests.support import edited

REVISION = "0123456789abcdef0123456789abcdef01234567"
HUB = f"hub:meta-llama/Llama-3.3-70B-Instruct@{REVISION}"
STAGED: dict[str, Any] = {"storage.staging": {"token_secret": "hub-token", "source_buckets": ["our-weights"]}}
PROJECT, ID = "llama-dpd-dev-weights", "llama-dpd-dev-weights:0a1b2c3d"
FOLDER = "s3://llama-dpd-dev-models-111122223333-us-east-2/Llama-3.3-70B-Instruct/"


def written(folder: Path, changes: dict[str, Any], name: str = "dev") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(edited(changes), sort_keys=False), encoding="utf-8")
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, STAGED)


class Project:
    """A project with its builds; what a build says and how it ends come one look after the other."""

    def __init__(self) -> None:
        self.running: list[dict[str, str]] = []
        self.looks: list[tuple[str, list[str]]] = [("SUCCEEDED", ["stage: done"])]
        self.said: list[str] = []
        self.started: list[dict[str, Any]] = []
        self.followed: list[str] = []
        self.calls = Calls(
            {
                "ListBuildsForProject": lambda _: {"ids": ids} if (ids := [f"{PROJECT}:{n}" for n in range(len(self.running))]) else {},
                "BatchGetBuilds": self._builds,
                "StartBuild": self._start,
                "GetLogEvents": self._log,
            }
        )

    def _start(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.started.append(asked)
        return {"build": {"id": ID}}

    def _builds(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["ids"] == [ID] or asked["ids"] == self.followed:
            status, lines = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
            self.said += lines
            return {"builds": [{"id": asked["ids"][0], "buildStatus": status, "logs": {"groupName": "g", "streamName": "s"}}]}
        self.followed = [f"{PROJECT}:2"]
        return {"builds": [self._known(id, self.running[int(id.rpartition(":")[2])]) for id in asked["ids"]]}

    def _known(self, id: str, values: dict[str, str]) -> dict[str, Any]:
        variables = [{"name": name, "value": value} for name, value in values.items() if name != "status"]
        environment = {"type": "LINUX_CONTAINER", "image": "i", "computeType": "BUILD_GENERAL1_LARGE", "environmentVariables": variables}
        return {"id": id, "buildStatus": values.get("status", "IN_PROGRESS"), "environment": environment}

    def _log(self, asked: dict[str, Any]) -> dict[str, Any]:
        start = int(asked.get("nextToken", "f/0").removeprefix("f/"))
        events = [{"timestamp": 0, "message": f"{line}\n", "ingestionTime": 0} for line in self.said[start : start + 2]]
        return {"events": events, "nextForwardToken": f"f/{start + len(events)}"}


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project()
    monkeypatch.setattr(botocore.session, "get_session", lambda: made.calls.session)
    monkeypatch.setattr(stage_model, "_LOOK_SECONDS", 0.0)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return made


def test_a_dry_run_says_what_it_would_do_and_asks_nobody(dpd: Dpd, file: Path, project: Project) -> None:
    said = dpd("stage-model", file, "--endpoint", "llama-70b", "--from", HUB, "--dry-run")
    assert said.code == 0
    assert f"From     {HUB}" in said.out
    assert f"To       {FOLDER} (about 131 GiB)" in said.out
    assert "dpd-staging/Llama-3.3-70B-Instruct/manifest.json" in said.out
    assert PROJECT in said.out
    assert not project.calls.made


def test_it_starts_and_follows_to_the_end(dpd: Dpd, file: Path, project: Project) -> None:
    project.looks = [
        ("IN_PROGRESS", ["[Container] Running command python3 -m stage_weights", "stage: 10% there"]),
        ("IN_PROGRESS", []),
        ("IN_PROGRESS", ["stage: 20% there", "stage: 30% there", "stage: 40% there"]),
        ("SUCCEEDED", ["stage: done: 42 files"]),
    ]
    said = dpd("stage-model", file, "--from", HUB)
    assert said.code == 0
    (started,) = project.started
    assert started["projectName"] == PROJECT
    given = {one["name"]: one["value"] for one in started["environmentVariablesOverride"]}
    assert given == {"STAGE_FROM": HUB, "STAGE_PREFIX": "Llama-3.3-70B-Instruct/"}
    lines = said.out.splitlines()
    assert lines[lines.index(f"Build    {ID}") + 1 :] == [
        "10% there", "20% there", "30% there", "40% there", "done: 42 files", "The weights are there. Next: dpd preflight -e dev",
    ]  # fmt: skip


@pytest.mark.parametrize(("status", "code"), [("FAILED", 1), ("FAULT", 3), ("TIMED_OUT", 3), ("STOPPED", 3)])
def test_how_it_ends(dpd: Dpd, file: Path, project: Project, status: str, code: int) -> None:
    project.looks = [(status, ["stage: it broke off"])]
    said = dpd("stage-model", file, "--from", HUB)
    assert (said.code, f"ended as {status}" in said.err) == (code, True)
    assert "it broke off" in said.out


def test_it_need_not_be_followed(dpd: Dpd, file: Path, project: Project) -> None:
    said = dpd("stage-model", file, "--from", HUB, "--no-follow")
    assert (said.code, len(project.started)) == (0, 1)
    assert not project.calls.of("GetLogEvents")


def test_a_build_that_runs_is_followed_and_not_started_twice(dpd: Dpd, file: Path, project: Project) -> None:
    project.running = [
        {"STAGE_FROM": HUB, "STAGE_PREFIX": "other/"},
        {"STAGE_FROM": HUB, "STAGE_PREFIX": "Llama-3.3-70B-Instruct/", "status": "FAILED"},
        {"STAGE_FROM": HUB, "STAGE_PREFIX": "Llama-3.3-70B-Instruct/"},
    ]
    said = dpd("stage-model", file, "--from", HUB)
    assert said.code == 0
    assert not project.started
    assert f"Build    {PROJECT}:2" in said.out


def test_a_folder_is_not_filled_from_two_sides(dpd: Dpd, file: Path, project: Project) -> None:
    project.running = [{"STAGE_FROM": "s3://our-weights/x/", "STAGE_PREFIX": "Llama-3.3-70B-Instruct/"}]
    said = dpd("stage-model", file, "--from", HUB)
    assert (said.code, "fills that folder from s3://our-weights/x/ now" in said.err) == (1, True)
    assert not project.started


def test_logs_that_cannot_be_read_do_not_matter(dpd: Dpd, file: Path, project: Project) -> None:
    def refuse(_: dict[str, Any]) -> dict[str, Any]:
        raise Refuse("AccessDeniedException")

    project.calls.answers["GetLogEvents"] = refuse
    assert dpd("stage-model", file, "--from", HUB).code == 0


@pytest.mark.parametrize(
    ("code", "exit_code", "says"),
    [("ResourceNotFoundException", 1, "deploy the stack weights"), ("AccessDeniedException", 3, "AWS refuses ListBuildsForProject")],
)
def test_what_aws_refuses(dpd: Dpd, file: Path, project: Project, code: str, exit_code: int, says: str) -> None:
    def refuse(_: dict[str, Any]) -> dict[str, Any]:
        raise Refuse(code)

    project.calls.answers["ListBuildsForProject"] = refuse
    said = dpd("stage-model", file, "--from", HUB)
    assert (said.code, says in said.err) == (exit_code, True)


@pytest.mark.parametrize(
    ("changes", "arguments", "says"),
    [
        ({}, ("--from", HUB), "no storage.staging"),
        (STAGED, (), "--from hub:meta-llama/Llama-3.3-70B-Instruct@<commit>"),
        (STAGED, ("--from", "hub:meta-llama/Llama-3.3-70B-Instruct@main"), "is neither"),
        (STAGED, ("--from", "https://huggingface.co/x"), "is neither"),
        (STAGED, ("--from", "s3://their-weights/x"), "may not read their-weights"),
        (STAGED, ("--from", FOLDER), "the same folder"),
        ({"storage.staging": {}}, ("--from", HUB), "is gated"),
        ({**CLOSED, **STAGED}, ("--from", HUB), "without NAT cannot reach the hub"),
        ({**STAGED, "endpoints[0].model.source": {"lustre": {"path": "/checkpoints/x"}}}, ("--from", HUB), "reads its weights from lustre"),
        (STAGED, ("--from", HUB, "--endpoint", "other"), "There are: inference/llama-70b"),
    ],
)  # fmt: skip
def test_what_cannot_be_copied(
    dpd: Dpd, tmp_path: Path, project: Project, changes: dict[str, Any], arguments: tuple[str, ...], says: str
) -> None:
    said = dpd("stage-model", written(tmp_path, changes), *arguments)
    assert (said.code, says in said.err) == (1, True), said.err
    assert not project.calls.made


@pytest.mark.parametrize(
    ("changes", "source"),
    [
        (STAGED, HUB),
        (STAGED, "s3://our-weights/Llama"),
        (STAGED, "s3://llama-dpd-dev-models-111122223333-us-east-2/elsewhere/"),
        ({**CLOSED, **STAGED}, "s3://our-weights/Llama"),
        ({"storage.staging": {}, "endpoints[0].model.catalog": "qwen3-32b"}, f"hub:Qwen/Qwen3-32B@{REVISION}"),
    ],
)
def test_what_can(dpd: Dpd, tmp_path: Path, changes: dict[str, Any], source: str) -> None:
    said = dpd("stage-model", written(tmp_path, changes), "--from", source, "--dry-run")
    assert (said.code, f"From     {source}\n" in said.out) == (0, True), said.err


def test_without_a_file_that_can_be_read(dpd: Dpd, tmp_path: Path) -> None:
    file = tmp_path / "dev.yaml"
    file.write_text("version: 1\n", encoding="utf-8")
    said = dpd("stage-model", file, "--dry-run")
    assert (said.code, "CFG002" in said.err) == (1, True)


def test_the_endpoint_may_be_named_with_its_namespace(dpd: Dpd, file: Path) -> None:
    assert dpd("stage-model", file, "--endpoint", "inference/llama-70b", "--from", HUB, "--dry-run").code == 0


def test_aws_that_cannot_be_reached(dpd: Dpd, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    said = dpd("stage-model", file, "--from", HUB)
    assert (said.code, "AWS cannot be reached" in said.err) == (3, True)
