"""What AWS says: each fault is named, and named first."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from health_gate.result import Outcome, Patience
from health_gate.run import ORDERED

from tests.lambdas.health_gate.aws_calls import SELF, Refuse, cluster_node, rule, security_group, trust
from tests.lambdas.health_gate.world import World

OTHER = "sg-0fedcba9876543210"
Break = Callable[[World], Any]


def test_open_egress_to_everybody_is_no_egress_to_itself(world: World) -> None:
    """The nearest validator that people use passes this group: it looks at ingress only. EFA breaks with it."""
    world.aws.security_groups = [security_group(egress=[rule(anyone=True)])]
    report = world.run()
    assert report.outcome is Outcome.FAIL
    first = report.causes()[0]
    assert first.id == "aws.security_groups"
    assert first.summary == f"EFA cannot work: {SELF} lacks egress to itself."
    assert "0.0.0.0/0 does not count" in first.remedy
    assert first.patience is Patience.NEVER


def test_a_healthy_environment_passes_every_check(world: World) -> None:
    report = world.run()
    assert report.outcome is Outcome.PASS, report.table()
    assert [result.id for result in report.results] == [check.id for check in ORDERED if check.id != "kv.wire"]


def _set(what: str, **values: Any) -> Break:
    return lambda world: getattr(world.aws, what).update(values)


def _refuse(operation: str, code: str, status: int = 400) -> Break:
    def answer(_: Any) -> Any:
        raise Refuse(code, status)

    return lambda world: world.aws.answers.update({operation: answer})


def _groups(*groups: dict[str, Any]) -> Break:
    def change(world: World) -> None:
        world.aws.security_groups = list(groups)
        world.changes["security_groups"] = [group["GroupId"] for group in groups]

    return change


def _node(number: int, status: str, message: str = "") -> Break:
    def change(world: World) -> None:
        world.aws.nodes[number] = cluster_node("prefill", 0, status, message)

    return change


def _give(name: str, value: Any) -> Break:
    return lambda world: setattr(world.aws, name, value)


def _far(world: World) -> None:
    world.aws.cluster["InstanceGroups"][2]["OverrideVpcConfig"] = {"SecurityGroupIds": [SELF], "Subnets": ["subnet-0fedcba9876543210"]}


def _without_group(world: World) -> None:
    world.aws.cluster["InstanceGroups"].pop()


def _other_type(world: World) -> None:
    world.aws.cluster["InstanceGroups"][1]["InstanceType"] = "ml.p4d.24xlarge"


DEFINITE, NOT_YET = (Outcome.FAIL, Patience.NEVER), (Outcome.FAIL, Patience.DEADLINE)
DENIED, UNSEEN = (Outcome.UNKNOWN, Patience.GRACE), (Outcome.UNKNOWN, Patience.DEADLINE)
WRONG: list[tuple[Any, ...]] = [
    ("slurm", _set("cluster", Orchestrator={"Slurm": {}}), "aws.cluster", *DEFINITE, "orchestrated by Slurm"),
    ("none", _set("cluster", Orchestrator={}), "aws.cluster", *DEFINITE, "not by EKS"),
    (
        "other EKS",
        _set("cluster", Orchestrator={"Eks": {"ClusterArn": "arn:aws:eks:us-east-2:111122223333:cluster/x"}}),
        "aws.cluster",
        *DEFINITE,
        "another EKS cluster",
    ),
    ("creating", _set("cluster", ClusterStatus="Creating"), "aws.cluster", *NOT_YET, "is Creating"),
    (
        "failed",
        _set("cluster", ClusterStatus="Failed", FailureMessage="EFA health checks did not run successfully"),
        "aws.cluster",
        *DEFINITE,
        "every attached security group",
    ),
    ("absent", _refuse("DescribeCluster", "ResourceNotFound"), "aws.cluster", *DEFINITE, "does not exist"),
    (
        "denied",
        _refuse("DescribeCluster", "AccessDeniedException", 403),
        "aws.cluster",
        *DENIED,
        "may not call DescribeCluster",
    ),
    ("expired", _refuse("DescribeCluster", "ExpiredTokenException", 403), "aws.cluster", *DENIED, "ExpiredToken"),
    (
        "service error",
        _refuse("DescribeCluster", "InternalFailure", 500),
        "aws.cluster",
        *UNSEEN,
        "InternalFailure",
    ),
    ("no group", _without_group, "aws.groups", *DEFINITE, "no instance group decode"),
    ("other type", _other_type, "aws.groups", *DEFINITE, r"p4d.24xlarge instead of ml.p5"),
    ("pending node", _node(2, "Pending"), "aws.groups", *NOT_YET, "prefill 0 running of 1"),
    (
        "node without EFA",
        _node(2, "Failure", "EFA health checks did not run successfully"),
        "aws.groups",
        *NOT_YET,
        "i-prefill-0 Failure.*every attached security group",
    ),
    ("other AZ", _far, "aws.zone", *DEFINITE, "decode in use2-az3"),
    ("no ingress", _groups(security_group(ingress=[])), "aws.security_groups", *DEFINITE, "lacks ingress from itself"),
    (
        "TCP alone",
        _groups(security_group(ingress=[rule(SELF, protocol="tcp")])),
        "aws.security_groups",
        *DEFINITE,
        "lacks ingress",
    ),
    ("another's id", _groups(security_group(egress=[rule(OTHER)])), "aws.security_groups", *DEFINITE, "lacks egress"),
    (
        "second group",
        _groups(security_group(), security_group(OTHER, egress=[rule(anyone=True)])),
        "aws.security_groups",
        *DEFINITE,
        f"{OTHER} lacks egress",
    ),
    ("no such group", _give("security_groups", []), "aws.security_groups", *DEFINITE, "does not exist"),
    (
        "may not look",
        _refuse("DescribeSecurityGroups", "UnauthorizedOperation", 403),
        "aws.security_groups",
        *DENIED,
        "may not call",
    ),
    ("Lustre broken", _set("file_system", Lifecycle="MISCONFIGURED"), "aws.lustre", *DEFINITE, "MISCONFIGURED"),
    ("Lustre starts", _set("file_system", Lifecycle="CREATING"), "aws.lustre", *NOT_YET, "CREATING"),
    (
        "Lustre far away",
        _set("file_system", SubnetIds=["subnet-0fedcba9876543210"]),
        "aws.lustre",
        *DEFINITE,
        "in use2-az3",
    ),
    (
        "Lustre unseen",
        _refuse("DescribeFileSystems", "AccessDeniedException", 403),
        "aws.lustre",
        *DENIED,
        "DescribeFileSystems",
    ),
    ("no association", _give("associations", []), "aws.lustre", *DEFINITE, "no data repository association"),
    (
        "association broken",
        _give(
            "associations",
            [{"AssociationId": "dra-0123456789abcdef0", "Lifecycle": "MISCONFIGURED", "FailureDetails": {"Message": "denied"}}],
        ),
        "aws.lustre",
        *DEFINITE,
        "MISCONFIGURED. denied",
    ),
    ("other Region", _give("bucket_region", "us-west-2"), "aws.weights", *DEFINITE, "bucket is in us-west-2"),
    ("no weights", _give("objects", []), "aws.weights", *DEFINITE, "nothing below s3://models/llama/"),
    ("a mere folder", _give("objects", [{"Key": "llama/", "Size": 0}]), "aws.weights", *DEFINITE, "nothing below"),
    ("a longer name", _give("objects", [{"Key": "llama-70b/w", "Size": 9}]), "aws.weights", *DEFINITE, "nothing below"),
    ("no bucket", _refuse("HeadBucket", "404", 404), "aws.weights", *DEFINITE, "does not exist"),
    ("no role", _refuse("GetRole", "NoSuchEntity", 404), "aws.roles", *DEFINITE, "does not exist"),
    ("other service", _give("trust", trust(service="ec2.amazonaws.com")), "aws.roles", *DEFINITE, "not trust sagemaker"),
    (
        "other account",
        _give("trust", trust(subject="system:serviceaccount:default:controller")),
        "aws.roles",
        *DEFINITE,
        "not trust system:serviceaccount:hyperpod-inference-system",
    ),
    ("old add-on", _set("add_on", addonVersion="v1.3.0-eksbuild.9"), "aws.add_ons", *DEFINITE, "is the floor"),
    ("much newer number", _set("add_on", addonVersion="v0.10.0-eksbuild.1"), "aws.add_ons", *DEFINITE, "is the floor"),
    ("add-on starts", _set("add_on", status="CREATING"), "aws.add_ons", *NOT_YET, "is CREATING"),
    (
        "add-on broken",
        _set("add_on", status="CREATE_FAILED", health={"issues": [{"code": "InsufficientNumberOfReplicas", "message": "no nodes"}]}),
        "aws.add_ons",
        *DEFINITE,
        "CREATE_FAILED. no nodes Delete the add-on",
    ),
    (
        "no add-on",
        _refuse("DescribeAddon", "ResourceNotFoundException", 404),
        "aws.add_ons",
        *DEFINITE,
        "does not exist",
    ),
]


@pytest.mark.parametrize(("change", "id", "outcome", "patience", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong(world: World, change: Break, id: str, outcome: Outcome, patience: Patience, words: str) -> None:
    change(world)
    first = world.run().causes()[0]
    assert (first.id, first.outcome, first.patience) == (id, outcome, patience)
    assert re.search(words, f"{first.summary} {first.remedy}")


@pytest.mark.parametrize(
    "change",
    [
        _set("add_on", addonVersion="v1.10.0-eksbuild.1"),
        _give("trust", trust(subject="system:serviceaccount:*:controller")),
        _groups(security_group(), security_group(OTHER)),
        _groups(security_group(ingress=[rule("sg-00000000000000001"), rule(SELF, OTHER)])),
        lambda world: world.changes.update(lustre=None),
        lambda world: (
            world.changes.update(lustre={"file_system_id": "fs-0123456789abcdef0", "associated": False}) or _give("associations", [])(world)
        ),
        lambda world: world.changes.update(weights=[], roles=[], add_ons=[]),
        _give("node_page", 1),
        lambda world: world.aws.nodes.append(cluster_node("spare", 0, "Failure")),
    ],
)
def test_right(world: World, change: Break) -> None:
    world.changes["endpoints"] = []
    change(world)
    report = world.run()
    assert not report.open, report.table()


def test_nodes_are_counted_over_all_pages(world: World) -> None:
    world.aws.node_page = 2
    assert world.result("aws.groups").passed
    assert [asked.get("NextToken") for asked in world.calls.of("ListClusterNodes")] == [None, "2"]


def test_what_cannot_be_reached_is_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client library itself, against a port where nobody listens."""
    from botocore.session import Session

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    world.calls.session = Session()
    world.calls.session.set_credentials("testing", "testing")
    found = world.result("aws.cluster")
    assert (found.outcome, found.patience) == (Outcome.UNKNOWN, Patience.DEADLINE)
    assert found.summary == "AWS did not answer (EndpointConnectionError)."


def test_the_first_cause_stops_the_layers_above(world: World) -> None:
    world.aws.objects = []
    report = world.run()
    assert [result.id for result in report.open] == ["aws.weights"]
    above = [result for result in report.results if not result.id.startswith("aws.")]
    assert {(result.outcome, result.summary) for result in above} == {(Outcome.UNKNOWN, "Not examined, because aws.weights did not pass.")}
    assert world.requests == []


def test_a_layer_is_examined_as_a_whole(world: World) -> None:
    world.aws.objects, world.aws.associations = [], []
    assert [result.id for result in world.run().open] == ["aws.lustre", "aws.weights"]


def test_somebody_who_looks_for_a_fault_sees_the_layers_above(world: World) -> None:
    world.aws.objects = []
    report = world.run(keep_going=True)
    assert [result.id for result in report.results if not result.passed] == ["aws.weights"]
