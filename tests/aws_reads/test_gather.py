"""Every question has somebody who asks it, and every failure of a call is told apart."""

from typing import Any, get_args

import pytest
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError
from botocore.parsers import ResponseParserError

from aws_reads.gather import ASKERS, gather
from aws_reads.session import CredentialsError
from dpd.catalog import iam_policies
from dpd.checks.registry import Context, run
from dpd.finding import Level
from dpd.preflight.facts import Answers, Facts
from dpd.preflight.questions import Kind, questions
from dpd.preflight.store import Reading
from tests.aws_reads.account import TAKEN, Account, everything
from tests.support import ROOT, TODAY

OPERATIONS: dict[Kind, tuple[str, str]] = {
    "quota": ("ListAWSDefaultServiceQuotas", "servicequotas:ListAWSDefaultServiceQuotas"),
    "nodes": ("ListClusters", "sagemaker:ListClusters"),
    "offering": ("DescribeInstanceTypeOfferings", "ec2:DescribeInstanceTypeOfferings"),
    "zone": ("DescribeAvailabilityZones", "ec2:DescribeAvailabilityZones"),
    "training_plan": ("DescribeTrainingPlan", "sagemaker:DescribeTrainingPlan"),
    "subnet": ("DescribeSubnets", "ec2:DescribeSubnets"),
    "security_group": ("DescribeSecurityGroups", "ec2:DescribeSecurityGroups"),
    "bucket": ("HeadBucket", "s3:ListBucket"),
    "folder": ("ListObjectsV2", "s3:ListBucket"),
    "key": ("DescribeKey", "kms:DescribeKey"),
    "file_system": ("DescribeFileSystems", "fsx:DescribeFileSystems"),
    "kubernetes": ("DescribeClusterVersions", "eks:DescribeClusterVersions"),
    "add_on": ("DescribeAddonVersions", "eks:DescribeAddonVersions"),
    "eks_cluster": ("DescribeCluster", "eks:DescribeCluster"),
    "image": ("DescribeImages", "ecr:DescribeImages"),
    "secret": ("DescribeSecret", "secretsmanager:DescribeSecret"),
    "certificate": ("DescribeCertificate", "acm:DescribeCertificate"),
    "service_linked_role": ("GetRole", "iam:GetRole"),
    "bootstrap": ("GetParameter", "ssm:GetParameter"),
    "stack": ("DescribeStacks", "cloudformation:DescribeStacks"),
    "permissions": ("SimulatePrincipalPolicy", "iam:SimulatePrincipalPolicy"),
}
SECOND = [
    ("quota", "GetServiceQuota", "servicequotas:GetServiceQuota"),
    ("security_group", "DescribeSecurityGroupRules", "ec2:DescribeSecurityGroupRules"),
    ("bucket", "GetBucketEncryption", "s3:GetEncryptionConfiguration"),
    ("folder", "GetObject", "s3:GetObject"),
]
"""Calls that follow the first one of a kind."""


@pytest.fixture
def account() -> Account:
    return Account()


def asked(account: Account) -> Facts:
    return gather(everything(), account.clients, TAKEN)


def test_there_is_somebody_for_every_kind() -> None:
    assert set(ASKERS) == set(get_args(Kind)) == set(Answers.model_fields)
    assert {question.kind for question in questions(everything())} == set(ASKERS)
    assert set(OPERATIONS) == set(ASKERS) - {"caller", "kubernetes_secret"}


def test_an_account_in_which_all_is_right(account: Account) -> None:
    facts = asked(account)
    # a Secret of Kubernetes is no matter of AWS
    assert [(one.kind, one.subject, one.reason) for one in facts.unanswered] == [("kubernetes_secret", "inference/api", "no_call")]
    assert facts.taken_at == TAKEN.replace(microsecond=0)
    for question in questions(everything()):
        assert (question.subject in getattr(facts.answers, question.kind)) is (question.kind != "kubernetes_secret")
    found = run(everything(), Context(TODAY, Reading("preflight/dev.json", facts)))
    (note,) = [one for one in found if one.id.startswith("PRE")]
    assert (note.level, note.path) == (Level.INFO, "endpoints[0].environment.API_TOKEN")
    assert "kubectl get secret api --namespace inference" in note.message


def test_the_same_account_is_the_same_file(account: Account) -> None:
    assert asked(account).text() == asked(Account()).text() == gather(everything(), Account().clients, TAKEN, at_once=1).text()


def test_only_what_reads_is_called_and_it_is_what_the_role_allows(account: Account) -> None:
    asked(account)
    operations = {operation for _, operation in account.calls.used}
    assert all(name.startswith(("Get", "List", "Describe", "Head", "Simulate")) for name in operations)
    page = (ROOT / "docs" / "preflight.md").read_text(encoding="utf-8")
    allowed = {action for statement in iam_policies.find("release_reader").statements for action in statement.actions}
    needed = {"sts:GetCallerIdentity", *(action for _, action in OPERATIONS.values()), *(action for _, _, action in SECOND)}
    assert needed <= {*allowed, "sts:GetCallerIdentity"}
    assert not {action for action in {*allowed, *needed} if f"`{action}`" not in page}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("AccessDenied", "denied"),
        ("AccessDeniedException", "denied"),
        ("UnauthorizedOperation", "denied"),
        ("403", "denied"),
        ("ThrottlingException", "throttled"),
        ("RequestLimitExceeded", "throttled"),
        ("TooManyRequestsException", "throttled"),
        ("InternalFailure", "refused"),
    ],
)
@pytest.mark.parametrize("kind", OPERATIONS)
def test_a_call_that_is_refused(account: Account, kind: Kind, code: str, reason: str) -> None:
    operation, action = OPERATIONS[kind]
    account.refuse(operation, code)
    facts = asked(account)
    found = [one for one in facts.unanswered if one.kind == kind]
    assert found
    assert {(one.action, one.reason) for one in found} == {(action, reason)}
    assert {one.subject for one in found} <= {question.subject for question in questions(everything()) if question.kind == kind}
    assert not getattr(facts.answers, kind).keys() & {one.subject for one in found}
    # the others are answered all the same
    assert {one.kind for one in facts.unanswered} <= {kind, "permissions", "nodes", "folder", "bucket", "kubernetes_secret"}


@pytest.mark.parametrize(("kind", "operation", "action"), SECOND)
def test_a_later_call_that_is_denied(account: Account, kind: Kind, operation: str, action: str) -> None:
    account.refuse(operation, "AccessDenied", 403)
    found = [one for one in asked(account).unanswered if one.kind == kind]
    assert {(one.action, one.reason) for one in found} == {(action, "denied")}


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="https://x"),
        ConnectTimeoutError(endpoint_url="https://x"),
        ResponseParserError("a proxy's page"),
    ],
)
def test_a_network_that_is_down(account: Account, error: Exception) -> None:
    def fail(_: dict[str, Any]) -> dict[str, Any]:
        raise error

    account.answers["DescribeKey"] = fail
    found = [one for one in asked(account).unanswered if one.kind == "key"]
    assert {(one.action, one.reason) for one in found} == {("kms", "unreachable")}


def test_what_a_service_says_is_not_kept(account: Account) -> None:
    account.refuse("DescribeKey", "AccessDeniedException")
    assert "as the test wants" not in asked(account).text()


def test_credentials_that_end_meanwhile(account: Account) -> None:
    account.refuse("GetCallerIdentity", "ExpiredToken")
    with pytest.raises(CredentialsError, match="ExpiredToken"):
        asked(account)
