"""The stack that brings weights into the model bucket: what its build may do, and nothing besides."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, Stage, Validations
from aws_cdk import Environment as Place
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import ManualArgs, lint

from dpd.catalog import staging as facts
from dpd.environment.names import NETWORK, STORAGE, WEIGHTS
from tests.checks.cases import CLOSED
from tests.stacks.conftest import build, changed
from tests.stacks.support import Template, context
from tests.support import environment

KEY: Final = "arn:aws:kms:us-east-2:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666"
OTHER: Final = KEY.replace("0a1b2c3d", "0a1b2c3e")
MADE: Final = "arn:aws:s3:::llama-dpd-dev-models-111122223333-us-east-2"
PLAIN: Final[dict[str, Any]] = {"storage.staging": {}}
WHOLE: Final[dict[str, Any]] = {"storage.staging": {"token_secret": "team/hub-token", "source_buckets": ["weights-b", "weights-a"]}}
ADOPTED: Final[dict[str, Any]] = {
    **WHOLE,
    "storage.encryption_key": {"existing": KEY},
    "storage.models.bucket": {"existing": "our-weights", "region": "us-east-2", "kms_key_arn": OTHER},
}


def template(changes: dict[str, Any]) -> Template:
    return changed(changes).templates[WEIGHTS]


def one(made: Template, kind: str) -> dict[str, Any]:
    return made.one(kind)


def statements(changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    policies = one(template(changes), "AWS::IAM::Role")["Policies"]
    return {statement["Sid"]: statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]}


def test_there_is_none_where_the_file_does_not_ask() -> None:
    assert WEIGHTS not in changed().templates


def test_it_is_beside_the_cluster_and_after_the_bucket() -> None:
    (before,) = [one for one in changed(PLAIN).stacks[WEIGHTS]["dependencies"] if not one.endswith(".assets")]
    assert STORAGE in before


def test_the_project() -> None:
    project = one(template(WHOLE), "AWS::CodeBuild::Project")
    assert project["Name"] == "llama-dpd-dev-weights"
    assert project["Artifacts"] == {"Type": "NO_ARTIFACTS"}
    build = facts.build()
    assert project["TimeoutInMinutes"] == build.longest_minutes
    environment = project["Environment"]
    assert (environment["Image"], environment["ComputeType"], environment["PrivilegedMode"]) == (build.image, build.compute_type, False)
    assert environment["EnvironmentVariables"] == [
        {"Name": "STAGE_BUCKET", "Value": "llama-dpd-dev-models-111122223333-us-east-2"},
        {"Name": "HUB_TOKEN", "Type": "SECRETS_MANAGER", "Value": "team/hub-token"},
    ]
    assert "python3 -m stage_weights" in project["Source"]["BuildSpec"]
    assert "VpcConfig" not in project
    assert project["EncryptionKey"]


def test_without_a_token_no_secret_is_read() -> None:
    assert [one["Name"] for one in one(template(PLAIN), "AWS::CodeBuild::Project")["Environment"]["EnvironmentVariables"]] == [
        "STAGE_BUCKET"
    ]
    assert "secretsmanager" not in json.dumps(template(PLAIN).content)


def test_what_the_build_may_do() -> None:
    found = statements(WHOLE)
    assert found["Folder"]["Resource"] == [MADE]
    assert found["Weights"]["Resource"] == [f"{MADE}/*"]
    assert set(found["Weights"]["Action"]) == {"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"}
    assert found["Sources"]["Resource"] == ["arn:aws:s3:::weights-a", "arn:aws:s3:::weights-b"]
    assert found["SourceFiles"]["Action"] == ["s3:GetObject"]
    token = json.dumps(found["Token"]["Resource"])
    assert "secret:team/hub-token-??????" in token
    assert "iam:" not in json.dumps(found)
    assert not {"Sources", "SourceFiles", "Token"} & statements(PLAIN).keys()


def test_keys_of_an_adopted_bucket() -> None:
    found = statements(ADOPTED)
    assert found["Keys"]["Resource"] == [KEY, OTHER]
    assert found["Weights"]["Resource"] == ["arn:aws:s3:::our-weights/*"]
    assert len(statements(WHOLE)["Keys"]["Resource"]) == 1


def test_in_a_closed_network_it_runs_inside() -> None:
    closed = {**PLAIN, **CLOSED}
    made = template(closed)
    vpc = one(made, "AWS::CodeBuild::Project")["VpcConfig"]
    assert len(vpc["Subnets"]) == 2
    assert len(vpc["SecurityGroupIds"]) == 1
    (egress,) = one(made, "AWS::EC2::SecurityGroup")["SecurityGroupEgress"]
    assert (egress["FromPort"], egress["ToPort"], egress["IpProtocol"]) == (443, 443, "tcp")
    permission = statements(closed)["Permission"]
    assert permission["Condition"]["StringEquals"]["ec2:AuthorizedService"] == "codebuild.amazonaws.com"
    assert len(permission["Condition"]["StringEquals"]["ec2:Subnet"]) == 2
    assert NETWORK in changed(closed).templates


@pytest.mark.parametrize("changes", [PLAIN, WHOLE, {**PLAIN, **CLOSED}], ids=["plain", "whole", "closed"])
def test_the_log_is_encrypted_and_kept(changes: dict[str, Any]) -> None:
    made = template(changes)
    (group,) = [one for one in made.resources.values() if one["Type"] == "AWS::Logs::LogGroup"]
    assert group["DeletionPolicy"] == "Retain"
    assert group["Properties"]["KmsKeyId"]
    assert one(made, "AWS::CodeBuild::Project")["LogsConfig"]["CloudWatchLogs"]["Status"] == "ENABLED"


FORMS: Final = {"whole": WHOLE, "adopted": ADOPTED, "closed": {**PLAIN, **CLOSED}}


@pytest.mark.parametrize("changes", FORMS.values(), ids=FORMS)
def test_cfn_lint_finds_nothing(changes: dict[str, Any]) -> None:
    found = lint(template(changes).text, config=ManualArgs(include_checks=["I3"], regions=["us-east-2"]))
    assert [f"{match.rule.id} {match.message}" for match in found] == []


def test_cdk_nag_finds_nothing(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), context=context(), analytics_reporting=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    for name, changes in FORMS.items():
        typed = environment(changes)
        build(Stage(app, name, env=Place(account=typed.account, region=typed.region)), typed)
    app.synth()
    reports = json.loads((tmp_path / "validation-report.json").read_text(encoding="utf-8"))["pluginReports"]
    assert [(one["ruleName"], one["violatingConstructs"][0]["constructPath"]) for report in reports for one in report["violations"]] == []
