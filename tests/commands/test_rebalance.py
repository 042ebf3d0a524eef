"""``dpd rebalance`` against answers of AWS: what would be done, what is refused and why, and what is done."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml

from tests.commands.support import Dpd
from tests.lambdas.health_gate.aws_calls import Calls, Refuse, Things, cluster_node
from tests.support import edited

GROUPS = {"system": ("ml.c5.4xlarge", 2), "prefill": ("ml.p5.48xlarge", 1), "decode": ("ml.p5.48xlarge", 2)}
FILE: dict[str, Any] = {"cluster.groups.decode.count": 2, "cluster.groups.prefill.max_count": 3}
MOVE = ("rebalance", "--from", "decode", "--to", "prefill")
ID = "i-0123456789abcdef{}"


class Aws:
    """A cluster as the file says, and what it was asked to do."""

    def __init__(self) -> None:
        self.things = Things(GROUPS)
        self.things.cluster["NodeProvisioningMode"] = "Continuous"
        for number, node in enumerate(self.things.nodes):
            node["InstanceId"] = ID.format(number)
        self.moved: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], dict[str, Any]] = lambda asked: {
            "Successful": asked.get("NodeIds") or [ID.format(3 + number) for number in range(asked["InstanceCount"])]
        }
        self.calls = Calls(self.things.answers)
        self.things.answers |= {"GetCallerIdentity": lambda _: identity(), "MoveClusterNodes": self._move}

    def _move(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.moved.append(asked)
        return self.answer(asked)


def identity(account: str = "111122223333") -> dict[str, str]:
    return {"Account": account, "UserId": "U", "Arn": f"arn:aws:iam::{account}:user/tester"}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Aws:
    made = Aws()
    monkeypatch.setattr(botocore.session, "get_session", lambda: made.calls.session)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return made


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(changes: dict[str, Any] | None = None) -> Path:
        path = tmp_path / "dev.yaml"
        path.write_text(yaml.safe_dump(edited({**FILE, **(changes or {})}), sort_keys=False), encoding="utf-8")
        return path

    return written


def counts(path: Path) -> tuple[int, int]:
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))["cluster"]["groups"]
    return groups["prefill"]["count"], groups["decode"]["count"]


def test_nothing_is_changed_unless_asked(dpd: Dpd, aws: Aws, write: Callable[..., Path]) -> None:
    path = write()
    said = dpd(*MOVE, path)
    assert said.code == 0, said.err
    assert "decode       2 -> 1 nodes, for llama-70b decode" in said.out
    assert "prefill      1 -> 2 nodes, for llama-70b prefill" in said.out
    assert "Nothing was changed." in said.out
    assert counts(path) == (1, 2)
    assert aws.moved == []


def test_a_move_is_asked_for_once_and_the_file_says_the_new_counts(dpd: Dpd, aws: Aws, write: Callable[..., Path]) -> None:
    path = write()
    said = dpd(*MOVE, path, "--apply")
    assert said.code == 0, said.err
    (asked,) = aws.moved
    token = asked.pop("ClientToken")
    assert len(token) == 32
    arn = aws.things.cluster["ClusterArn"]
    assert asked == {
        "SourceClusterArn": arn, "SourceInstanceGroupName": "decode", "TargetClusterArn": arn, "TargetInstanceGroupName": "prefill",
        "InstanceCount": 1,
    }  # fmt: skip
    assert counts(path) == (2, 1)


def test_a_named_node_is_moved_and_no_other(dpd: Dpd, aws: Aws, write: Callable[..., Path]) -> None:
    assert dpd(*MOVE, write(), "--node", ID.format(3), "--apply").code == 0
    assert aws.moved[0]["NodeIds"] == [ID.format(3)]


def test_offline_the_file_alone_is_asked(dpd: Dpd, monkeypatch: pytest.MonkeyPatch, write: Callable[..., Path]) -> None:
    monkeypatch.setattr(botocore.session, "get_session", lambda: pytest.fail("AWS was asked"))
    said = dpd(*MOVE, write(), "--offline")
    assert said.code == 0
    assert "AWS was not asked" in said.out


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({}, ("--from", "nowhere", "--to", "prefill"), "there is no group 'nowhere'"),
        ({}, ("--from", "decode", "--to", "decode"), "gives no nodes to itself"),
        ({}, ("--from", "system", "--to", "prefill"), "nodes keep their type"),
        ({"cluster.groups.prefill.capacity": "spot"}, (*MOVE[1:],), "bought differently"),
        ({}, (*MOVE[1:], "--nodes", "3"), "decode has 2 nodes"),
        ({}, (*MOVE[1:], "--nodes", "2"), "CAP001"),
        ({"endpoints[0].decode.replicas": 2}, (*MOVE[1:],), "CAP001"),
    ],
)
def test_what_the_file_refuses(
    dpd: Dpd, aws: Aws, write: Callable[..., Path], changes: dict[str, Any], arguments: tuple[str, ...], words: str
) -> None:
    path = write(changes)
    before = path.read_text(encoding="utf-8")
    said = dpd("rebalance", path, *arguments, "--apply")
    assert said.code == 1
    assert words in said.err
    assert "Refused" in said.err
    assert path.read_text(encoding="utf-8") == before
    assert aws.moved == []


def test_a_role_that_scales_gives_up_what_its_nodes_no_longer_hold(dpd: Dpd, aws: Aws, write: Callable[..., Path]) -> None:
    scaled = {"min_replicas": 1, "max_replicas": 1, "cloudwatch": [{"namespace": "N", "metric": "M", "target": 1, "statistic": "Sum"}]}
    changes = {"endpoints[0].decode.replicas": 2, "endpoints[0].decode.autoscaling": scaled}
    path = write(changes)
    assert dpd(*MOVE, path, "--apply").code == 0
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["endpoints"][0]["decode"]["replicas"] == 1
    assert len(aws.moved) == 1


@pytest.mark.parametrize(
    ("break_", "words"),
    [
        (lambda it: it.things.cluster.update(ClusterStatus="Updating"), "the cluster is Updating"),
        (lambda it: it.things.cluster.pop("NodeProvisioningMode"), "does not provision its nodes continuously"),
        (
            lambda it: it.things.cluster.update(AutoScaling={"Mode": "Enable", "AutoScalerType": "Karpenter", "Status": "InService"}),
            "Karpenter adds and takes",
        ),
        (lambda it: it.things.cluster["InstanceGroups"][2].update(CurrentCount=1), "decode has 1 nodes of 2 and the file says 2"),
        (lambda it: it.things.cluster["InstanceGroups"][1].update(TargetCount=2), "prefill has 1 nodes of 2 and the file says 1"),
        (lambda it: it.things.cluster["InstanceGroups"].pop(1), "the cluster has no group prefill"),
        (
            lambda it: it.things.nodes.__setitem__(slice(3, 5), [cluster_node("decode", n, "Failure") for n in range(2)]),
            "0 nodes of decode",
        ),
    ],
)
def test_what_the_cluster_refuses(dpd: Dpd, aws: Aws, write: Callable[..., Path], break_: Callable[[Aws], Any], words: str) -> None:
    break_(aws)
    path = write()
    said = dpd(*MOVE, path, "--apply")
    assert said.code == 1
    assert words in said.err
    assert aws.moved == []
    assert counts(path) == (1, 2)


@pytest.mark.parametrize(
    ("id", "status", "words"),
    [("i-0fedcba9876543210", "Running", "is not in decode"), (ID.format(3), "DetachInProgress", "is DetachInProgress; only a node")],
)
def test_a_node_that_cannot_move(dpd: Dpd, aws: Aws, write: Callable[..., Path], id: str, status: str, words: str) -> None:
    aws.things.nodes[3]["InstanceStatus"]["Status"] = status
    said = dpd(*MOVE, write(), "--node", id, "--apply")
    assert said.code == 1
    assert words in said.err


def refuse(code: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def answer(_: dict[str, Any]) -> dict[str, Any]:
        raise Refuse(code)

    return answer


@pytest.mark.parametrize(
    ("operation", "answer", "code", "words"),
    [
        ("GetCallerIdentity", refuse("ExpiredToken"), 3, "does not accept the credentials"),
        ("GetCallerIdentity", lambda _: identity("999999999999"), 3, "The credentials are of account 999999999999"),
        ("DescribeCluster", refuse("ResourceNotFound"), 3, "There is no cluster llama-dpd-dev"),
        ("DescribeCluster", refuse("AccessDeniedException"), 3, "AWS refused DescribeCluster (AccessDeniedException)"),
        ("ListClusterNodes", refuse("ThrottlingException"), 3, "AWS refused ListClusterNodes"),
        ("MoveClusterNodes", refuse("AccessDeniedException"), 3, "Allow sagemaker:MoveClusterNodes"),
        ("MoveClusterNodes", refuse("ValidationException"), 1, "SageMaker moved nothing (ValidationException)"),
    ],
)
def test_every_failure_of_aws_is_another_sentence(
    dpd: Dpd,
    aws: Aws,
    write: Callable[..., Path],
    operation: str,
    answer: Callable[[dict[str, Any]], dict[str, Any]],
    code: int,
    words: str,
) -> None:
    aws.things.answers[operation] = answer
    path = write()
    said = dpd(*MOVE, path, "--apply")
    assert said.code == code
    assert words in said.err
    assert counts(path) == (1, 2)


def test_of_several_nodes_only_those_that_move_are_counted(dpd: Dpd, aws: Aws, write: Callable[..., Path]) -> None:
    aws.things.cluster["InstanceGroups"][2].update(CurrentCount=3, TargetCount=3)
    aws.things.nodes.append({**cluster_node("decode", 2), "InstanceId": ID.format(5)})
    failed = {"NodeId": ID.format(4), "Code": "InvalidNodeStatus", "Message": "not Running"}
    aws.answer = lambda _: {"Successful": [ID.format(3)], "Failed": [failed]}
    path = write({"cluster.groups.decode.count": 3})
    said = dpd(*MOVE, path, "--node", ID.format(3), "--node", ID.format(4), "--apply")
    assert said.code == 1
    assert "Not moved: i-0123456789abcdef4 (InvalidNodeStatus)" in said.err
    assert counts(path) == (2, 2)


@pytest.mark.parametrize(
    "arguments", [("--nodes", "1", "--node", ID.format(3)), ("--offline", "--apply"), ("--nodes", "0"), ("--nodes", "51")]
)
def test_wrong_calls(dpd: Dpd, write: Callable[..., Path], arguments: tuple[str, ...]) -> None:
    assert dpd(*MOVE, write(), *arguments).code == 2
