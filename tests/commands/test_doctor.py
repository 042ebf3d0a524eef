"""``dpd doctor`` against servers on loopback: from the environment file to the answers of the endpoint."""

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml

from commands import doctor
from dpd.environment.names import GATE_READER_GROUP
from tests.commands.support import Dpd, process
from tests.gate.deployment import CHANGES, GROUP, LUSTRE, deployed
from tests.lambdas.health_gate.aws_calls import Refuse
from tests.lambdas.health_gate.world import World, running
from tests.support import edited

OUTPUTS = {"dpd-dev-network": {"EfaSecurityGroupId": GROUP}, "dpd-dev-storage": {"LustreFileSystemId": LUSTRE}}
METADATA = "AWS_EC2_METADATA_DISABLED"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dev.yaml"
    path.write_text(yaml.safe_dump(edited(CHANGES), sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A healthy deployment of that file."""
    with running() as made:
        deployed(made)
        made.aws.answers["GetCallerIdentity"] = lambda _: {
            "Account": "111122223333",
            "UserId": "U",
            "Arn": "arn:aws:iam::111122223333:user/tester",
        }
        made.aws.answers["DescribeStacks"] = stacks
        monkeypatch.setattr(botocore.session, "get_session", lambda: made.calls.session)
        monkeypatch.setenv(METADATA, "true")
        yield made


def identity(account: str = "111122223333") -> dict[str, str]:
    return {"Account": account, "UserId": "U", "Arn": f"arn:aws:iam::{account}:user/tester"}


def stacks(asked: dict[str, Any]) -> dict[str, Any]:
    outputs = [{"OutputKey": key, "OutputValue": value} for key, value in OUTPUTS[asked["StackName"]].items()]
    return {"Stacks": [{"StackName": asked["StackName"], "CreationTime": 0, "StackStatus": "CREATE_COMPLETE", "Outputs": outputs}]}


@pytest.mark.usefixtures("world")
def test_what_is_healthy_is_proven(dpd: Dpd, file: Path) -> None:
    said = dpd("doctor", file)
    assert said.code == 0, said.out
    assert said.out.startswith("PASS  dpd-dev")
    assert "kv.complete llm/chat" in said.out
    assert said.err == ""


def test_nothing_is_written_and_every_pod_is_reached_through_the_api(dpd: Dpd, world: World, file: Path) -> None:
    assert dpd("doctor", file).code == 0
    assert not {"PutObject", "PutMetricData", "Publish"} & {name for name, _ in world.calls.made}
    posts = [path for path, headers in world.requests if "Content-Length" in headers and path.endswith("completions")]
    assert posts
    assert all("/proxy/" in path for path in posts)


def test_what_is_not_proven_is_said_with_its_remedy(dpd: Dpd, world: World, file: Path) -> None:
    world.engine.faults.add("recompute")
    said = dpd("doctor", file)
    assert said.code == 1
    assert said.out.startswith("FAIL")
    assert "-> The decoder computed the prompt again." in said.out


@pytest.mark.parametrize("place", ["-", "report.json"])
def test_the_report_is_a_table_and_json_at_once(dpd: Dpd, world: World, file: Path, place: str) -> None:
    world.nodes.pop()
    target = place if place == "-" else str(file.with_name(place))
    said = dpd("doctor", file, "--json", target)
    table, text = (said.err, said.out) if place == "-" else (said.out, Path(target).read_text(encoding="utf-8"))
    report = json.loads(text)
    assert said.code == 1
    assert report["outcome"] == "FAIL"
    assert report["causes"] == ["cluster.nodes"]
    rows = [line.split() for line in table.splitlines() if line.startswith(("PASS  ", "FAIL  ", "UNKNOWN "))][1:]
    assert [(row[0], row[1]) for row in rows] == [(result["outcome"], result["id"]) for result in report["results"]]


@pytest.mark.usefixtures("world")
def test_a_report_that_cannot_be_written_says_so(dpd: Dpd, file: Path) -> None:
    said = dpd("doctor", file, "--endpoint", "chat", "--json", str(file / "report.json"))
    assert said.code == 3
    assert "cannot be written to" in said.err


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("named", [("-c", "env=dev"), ("-e", "dev"), ("-c", "env=dev", "-e", "dev"), ("--context", "env=dev")])
def test_the_environment_is_named_as_cdk_names_it(dpd: Dpd, file: Path, named: tuple[str, ...]) -> None:
    assert dpd("doctor", file, *named).out.startswith("PASS  dpd-dev")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("-c", "dev"), "is not env=NAME"),
        (("-c", "env="), "is not env=NAME"),
        (("-c", "environment=dev"), "is not env=NAME"),
        (("-c", "env=dev", "-c", "env=prod"), "names another environment"),
        (("-c", "env=dev", "-e", "prod"), "names another environment"),
        (("-c", "env=porduction"), "dev, prod, staging"),
    ],
)
def test_a_context_that_names_no_environment_is_refused(dpd: Dpd, given: tuple[str, ...], words: str) -> None:
    said = dpd("doctor", *given)
    assert said.code in {1, 2}
    assert words in said.err


@pytest.mark.usefixtures("world")
def test_one_endpoint(dpd: Dpd, file: Path) -> None:
    assert dpd("doctor", file, "--endpoint", "llm/chat").code == 0
    said = dpd("doctor", file, "--endpoint", "other")
    assert said.code == 1
    assert "There is no endpoint 'other'; known: chat." in said.err


def test_stacks_that_cannot_be_read_leave_their_part_out(dpd: Dpd, world: World, file: Path) -> None:
    def refuse(_: Any) -> Any:
        raise Refuse("AccessDenied", 403)

    world.aws.answers["DescribeStacks"] = refuse
    said = dpd("doctor", file)
    assert said.code == 0, said.out
    assert "Not examined: lustre" in said.err
    assert "aws.lustre" not in said.out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Refuse("ExpiredToken", 403), "They have expired: sign in again."),
        (Refuse("InvalidClientTokenId", 403), "does not accept the credentials (InvalidClientTokenId)"),
        ("444455556666", "The credentials are of account 444455556666; dev is in 111122223333."),
    ],
)
def test_whoever_cannot_look_says_so_before_anything_else(dpd: Dpd, world: World, file: Path, answer: Any, words: str) -> None:
    def answered(_: Any) -> dict[str, str]:
        if isinstance(answer, Refuse):
            raise answer
        return identity(answer)

    world.aws.answers["GetCallerIdentity"] = answered
    said = dpd("doctor", file)
    assert said.code == 3
    assert words in said.err
    assert [name for name, _ in world.calls.made] == ["GetCallerIdentity"]
    assert not world.requests


def test_without_credentials_it_says_so_and_never_asks_for_instance_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(METADATA, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as metadata:
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "HOME"):
            monkeypatch.setenv(name, "/nonexistent")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{metadata.getsockname()[1]}")
        said = process("doctor", "-e", "dev")
        assert said.returncode == 3
        assert b"No AWS credentials." in said.stderr
        metadata.setblocking(False)
        with pytest.raises(BlockingIOError):
            metadata.accept()


def test_a_profile_that_does_not_exist(dpd: Dpd, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(METADATA, "true")
    said = dpd("doctor", file, "--profile", "nowhere")
    assert said.code == 3
    assert "nowhere" in said.err


def test_a_wrong_file_is_not_examined(dpd: Dpd, file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace("use2-az1", "usw2-az1"), encoding="utf-8")
    said = dpd("doctor", file)
    assert said.code == 1
    assert "1 file checked" in said.err


@pytest.mark.parametrize("arguments", [(), ("-e", "porduction")])
def test_one_environment_must_be_named(dpd: Dpd, arguments: tuple[str, ...]) -> None:
    said = dpd("doctor", *arguments)
    assert said.code == 1
    assert "dev, prod, staging" in said.err


def test_what_is_not_installed_is_named(dpd: Dpd, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    said = dpd("doctor", file)
    assert said.code == 3
    assert "pip install 'hyperpod-dpd[doctor]'" in said.err


def test_the_laptop_and_the_function_run_the_same_code() -> None:
    import health_gate

    assert Path(str(health_gate.__file__)).parent == doctor._GATE / "health_gate"
    assert GATE_READER_GROUP == "dpd:gate-readers"
