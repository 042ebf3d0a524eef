"""Rules about the account."""

import pytest

from dpd.finding import Level
from dpd.preflight.facts import Bootstrap, Caller, Decisions
from tests.checks.answers import Told, said

ROLE = "arn:aws:iam::111122223333:role/deployer"
EKS = "AWSServiceRoleForAmazonEKS"
HYPERPOD = "AWSServiceRoleForSageMakerHyperPod"


def denied(decision: str, *actions: str) -> Decisions:
    return Decisions(principal=ROLE, denied=dict.fromkeys(actions, decision))


ASSUME = "sts:AssumeRole cdk-hnb659fds-deploy-role-111122223333-us-east-2"
CASES = [
    Told("PRE010", {("caller", ""): Caller(account="444455556666", arn="x")}, "account", "of account 444455556666"),
    Told("PRE011", {("bootstrap", "hnb659fds"): None}, "bootstrap_qualifier", "cdk bootstrap aws://111122223333/us-east-2"),
    Told(
        "PRE011",
        {("bootstrap", "hnb659fds"): Bootstrap(version=5)},
        "bootstrap_qualifier",
        "of version 5",
        {("bootstrap", "hnb659fds"): Bootstrap(version=6)},
    ),
    Told(
        "PRE011",
        {("bootstrap", "ours"): None},
        "bootstrap_qualifier",
        "--qualifier ours",
        changes={"bootstrap_qualifier": "ours"},
    ),
    Told("PRE012", {("permissions", "deployer"): denied("implicitDeny", ASSUME)}, "account", ASSUME),
    Told(
        "PRE012",
        {("permissions", "cloudformation"): denied("explicitDeny", "eks:CreateCluster")},
        "account",
        "eks:CreateCluster (explicitly)",
    ),
    Told(
        "PRE012",
        {("permissions", "cloudformation"): denied("implicitDeny", "fsx:CreateFileSystem")},
        "account",
        f"{ROLE} may not: fsx:CreateFileSystem",
        level=Level.WARNING,
    ),
    Told("PRE012", {("permissions", "cloudformation"): None}, "account", "CloudFormation"),
    Told("PRE013", {("service_linked_role", HYPERPOD): None}, "account", "AWS makes it at first use", level=Level.INFO),
    Told("PRE013", {("service_linked_role", EKS): None}, "account", "--aws-service-name eks.amazonaws.com", level=Level.INFO),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_smallest_wrong_and_nearest_right(case: Told) -> None:
    case.verify()


@pytest.mark.parametrize(("decision", "level"), [("explicitDeny", Level.ERROR), ("implicitDeny", Level.ERROR)])
def test_a_service_linked_role_that_cannot_be_made(decision: str, level: Level) -> None:
    found = said(
        {}, {("service_linked_role", EKS): None, ("permissions", "cloudformation"): denied(decision, "iam:CreateServiceLinkedRole")}
    )
    (one,) = [one for one in found if one.id == "PRE013"]
    assert one.level is level


def test_a_service_linked_role_of_which_nothing_is_known() -> None:
    found = said({}, {("service_linked_role", EKS): None, ("permissions", "cloudformation"): ...})
    (one,) = [one for one in found if one.id == "PRE013"]
    assert (one.level, "is not known" in one.message) == (Level.WARNING, True)


def test_a_role_that_is_missing_with_its_bootstrap_is_said_once() -> None:
    found = said({}, {("bootstrap", "hnb659fds"): None, ("permissions", "cloudformation"): None})
    assert [one.id for one in found] == ["PRE011"]
