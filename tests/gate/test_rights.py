"""What the gate may do is what it does: every call of a run is allowed, and every right is used by one."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import botocore.session
import pytest
from health_gate import handler

from charts.gate import gate_objects
from dpd.environment.environment import Environment
from dpd.gate.digest import digest
from dpd.gate.spec import PLACEHOLDERS, document, filled, named_values, text
from tests.gate.deployment import CHANGES, GROUP, LUSTRE, deployed
from tests.lambdas.health_gate.engine import PREFILL_IP
from tests.lambdas.health_gate.world import World
from tests.stacks.conftest import changed
from tests.stacks.support import Template
from tests.support import environment

TOPIC = "arn:aws:sns:us-east-2:111122223333:failures"
VALUES = dict(zip(PLACEHOLDERS, (GROUP, LUSTRE, "arn:aws:kms:us-east-2:111122223333:key/a", TOPIC), strict=True))
NETWORK_AND_LOGS = {
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
    "logs:CreateLogStream",
    "logs:PutLogEvents",
}
"""Of every function of ours in the VPC."""
IMPLIED = {"kms:GenerateDataKey", "kms:Decrypt"}
"""S3 encrypts a report and SNS a message with the caller's rights on the key."""
IAM_NAMES = {"s3:HeadBucket": "s3:ListBucket", "s3:ListObjectsV2": "s3:ListBucket"}

Right = tuple[str, str, str, str]
"""Namespace (empty for the cluster), API group, resource, verb."""


class Context:
    def get_remaining_time_in_millis(self) -> int:
        return 300_000


@pytest.fixture
def gone_through(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which the gate ran from event to report, and once more on its schedule with a failure to tell."""
    deployed(world)
    monkeypatch.setattr(botocore.session, "get_session", lambda: world.calls.session)
    world.aws.answers["DescribeStacks"] = lambda asked: {
        "Stacks": [{"StackName": asked["StackName"], "CreationTime": 0, "StackStatus": "UPDATE_IN_PROGRESS"}]
    }
    spec = document(deployed_environment())
    world.aws.stored["spec.json"] = text(spec).encode()
    properties = {"SpecUri": "s3://assets/spec.json", "Values": named_values(spec, VALUES), "Digest": digest(deployed_environment())}
    event: dict[str, Any] = {
        "RequestType": "Update", "StackId": "arn:stack", "PhysicalResourceId": "health-gate-dpd-dev", "ResourceProperties": properties,
    }  # fmt: skip
    done = handler.is_complete({**event, **handler.on_event(event, Context())}, Context())
    assert done["IsComplete"], world.calls.made
    world.engine.faults.add("recompute")
    assert handler.canary(properties, Context())["Outcome"] == "FAIL"
    return world


def deployed_environment() -> Environment:
    return environment(CHANGES)


def template() -> Template:
    return changed(CHANGES).templates["gate"]


def allowed(template: Template, role: str) -> Iterator[tuple[str, Any]]:
    for policy in template.resources[role]["Properties"]["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            for action in statement["Action"]:
                yield action, statement["Resource"]


def test_the_role_may_call_what_a_run_calls_and_nothing_else(gone_through: World) -> None:
    called = {f"{service}:{operation}" for service, operation in gone_through.calls.used}
    needed = {IAM_NAMES.get(call, call) for call in called}
    assert {action for action, _ in allowed(template(), "Role")} == needed | NETWORK_AND_LOGS | IMPLIED


def test_only_what_knows_no_resource_is_allowed_on_all() -> None:
    everywhere = {action for action, resources in allowed(template(), "Role") if resources == ["*"]} - NETWORK_AND_LOGS
    assert everywhere == {
        "ec2:DescribeSecurityGroups",
        "cloudwatch:PutMetricData",
        "fsx:DescribeFileSystems",
        "fsx:DescribeDataRepositoryAssociations",
    }


def granted() -> set[Right]:
    rights = set()
    for manifest in gate_objects(deployed_environment()):
        for rule in manifest.body.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    rights |= {(manifest.namespace, group, resource, verb) for verb in rule["verbs"]}
    return rights


def used(path: str, method: str) -> Right:
    """The right that a request needs, as the API server's authorizer reads its path."""
    address = urlsplit(path)
    parts = [unquote(part) for part in address.path.strip("/").split("/")]
    group = "" if parts[0] == "api" else parts[1]
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource = "/".join([rest[0], *rest[2:3]])
    verb = {"POST": "create"}.get(method, "list" if len(rest) == 1 else "get")
    assert not parse_qs(address.query).get("watch")
    return namespace, group, resource, verb


def test_the_group_may_read_what_a_run_reads_and_nothing_else(gone_through: World) -> None:
    direct = {used(path, "GET") for path, _ in gone_through.requests if "/proxy" not in path}
    proxied = {
        ("llm", "", "pods/proxy", "get"),
        ("llm", "", "pods/proxy", "create"),
        ("dpd-gate", "", "pods/proxy", "get"),
        ("hyperpod-inference-system", "", "services/proxy", "create"),
    }
    # Listed although the webhooks of this world are all the operator's.
    certificates = {("cert-manager", "discovery.k8s.io", "endpointslices", "list")}
    logs = {("llm", "", "pods/log", "get"), ("hyperpod-inference-system", "", "pods/log", "get")}
    assert direct | proxied | certificates | logs == granted()
    assert direct - granted() == set()


def test_over_the_proxy_it_needs_no_other_right(world: World) -> None:
    from health_gate.clients import clients
    from health_gate.run import run
    from health_gate.spec import Spec

    deployed(world)
    spec = Spec.parse(filled(document(deployed_environment()), VALUES))
    report = run(spec, clients(spec, direct=False, session=world.calls.session))
    assert not report.open, report.table()
    verbs = {("POST" if "Content-Length" in headers else "GET") for path, headers in world.requests if "/proxy" in path}
    assert verbs == {"GET", "POST"}
    named = {"http:chat-llm-routing-service:443"}
    assert {path.partition("/proxy")[0].rpartition("/")[2] for path, _ in world.requests if "/services/" in path} == named
    for path, headers in world.requests:
        right = used(path, "POST" if "Content-Length" in headers else "GET")
        assert right in granted(), path


def test_named_objects_are_named() -> None:
    rules = {
        (manifest.namespace, resource): rule.get("resourceNames")
        for manifest in gate_objects(deployed_environment())
        for rule in manifest.body.get("rules", ())
        for resource in rule["resources"]
    }
    assert rules["", "namespaces"] == ["kube-system"]
    assert rules["", "customresourcedefinitions"] == ["inferenceendpointconfigs.inference.sagemaker.aws.amazon.com"]
    assert rules["llm", "inferenceendpointconfigs"] == ["chat"]
    assert rules["hyperpod-inference-system", "services/proxy"] == ["http:chat-llm-routing-service:443"]


def test_no_secret_and_no_wildcard_is_in_any_rule() -> None:
    text = json.dumps([manifest.body.get("rules", []) for manifest in gate_objects(deployed_environment())])
    assert "*" not in text
    assert "secrets" not in text
    assert PREFILL_IP not in text
