"""Rules about the account: who asks, CDK's bootstrap, permissions, roles of services."""

from collections.abc import Iterator
from typing import Final

from dpd.catalog import preflight
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.preflight.questions import ALL, DEPLOYER, EXECUTION, qualifier
from dpd.preflight.view import answers_about, each

_BOOTSTRAP: Final = "https://docs.aws.amazon.com/cdk/v2/guide/bootstrapping-env.html"
_SIMULATION: Final = "https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_testing-policies.html"
_SERVICE_LINKED: Final = "https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_create-service-linked-role.html"
_CREATE: Final = "iam:CreateServiceLinkedRole"


@check(
    "PRE010",
    "The caller is in the environment's account",
    why="With credentials of another account a deployment makes the environment there, or finds nothing of what it needs.",
    link="https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html",
)
def caller(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare the caller's account with the file's."""
    if (known := answers_about(environment, context.preflight).caller.get(ALL)) and known.account != environment.account:
        yield Problem(
            "account", f"the credentials are of account {known.account}", "name another --profile or --role-arn, or correct account",
            value=environment.account, limit=known.account,
        )  # fmt: skip


@check(
    "PRE011",
    "The account is bootstrapped for CDK",
    why="Without the bootstrap's roles and bucket no stack of this tool can be deployed; an old one lacks what assets need.",
    link=_BOOTSTRAP,
)
def bootstrapped(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare the version of the bootstrap with the least that stacks with assets need."""
    least = preflight.bootstrap().least
    for question, answer in each(environment, answers_about(environment, context.preflight).bootstrap, "bootstrap"):
        if answer is None or answer.version < least:
            own = question.subject != preflight.bootstrap().qualifier
            command = f"cdk bootstrap aws://{environment.account}/{environment.region}{f' --qualifier {question.subject}' if own else ''}"
            said = f"is of version {answer.version}" if answer else "is not there"
            yield Problem(
                question.path, f"the bootstrap {question.subject} in {environment.region} {said}", f"run: {command}",
                value=question.subject, limit=f"version {least} or newer",
            )  # fmt: skip


@check(
    "PRE012",
    "Who deploys may do it",
    why="A permission that is missing shows when the stack that needs it is reached, which is after the nodes have started. Simulation "
    "knows identity policies, boundaries and service control policies, not policies of resources.",
    link=_SIMULATION,
)
def permitted(environment: Environment, context: Context) -> Iterator[Problem]:
    """Name every action that IAM says is denied, and whose.

    CloudFormation is simulated on any resource: a role that may act on some alone is told so, and not stopped.
    """
    answers = answers_about(environment, context.preflight)
    for question, answer in each(environment, answers.permissions, "permissions"):
        if answer is None:
            # A missing bootstrap is said already.
            if answers.bootstrap.get(qualifier(environment)):
                yield Problem(question.path, f"the role of {_WHO[question.subject]} is not there", "bootstrap the account again")
        elif answer.denied:
            actions = ", ".join(f"{action}{' (explicitly)' if said == 'explicitDeny' else ''}" for action, said in answer.denied.items())
            yield Problem(
                question.path, f"{answer.principal} may not: {actions}", f"allow {_WHO[question.subject]} these actions",
                value=len(answer.denied), limit="every action allowed",
                level=None if question.subject == DEPLOYER or "explicitDeny" in answer.denied.values() else Level.WARNING,
            )  # fmt: skip


_WHO: Final = {DEPLOYER: "the caller", EXECUTION: "CloudFormation (CDK's execution role)"}


@check(
    "PRE013",
    "Service-linked roles are there, or can be made",
    why="HyperPod, EKS, FSx and load balancers each act through a role that AWS makes at first use, with the rights of whoever deploys.",
    link=_SERVICE_LINKED,
    level=Level.WARNING,
)
def service_roles(environment: Environment, context: Context) -> Iterator[Problem]:
    """Say which roles will be made, and whether they can be."""
    answers = answers_about(environment, context.preflight)
    may = answers.permissions.get(EXECUTION)
    services = {role.name: role.service for role in preflight.service_linked_roles()}
    for question, answer in each(environment, answers.service_linked_role, "service_linked_role"):
        if answer is None:
            said, level = f"whether CloudFormation may {_CREATE} is not known", Level.WARNING
            if may:
                said, level = f"CloudFormation may not {_CREATE}", Level.ERROR
                if _CREATE not in may.denied:
                    said, level = "AWS makes it at first use", Level.INFO
            fix = f"aws iam create-service-linked-role --aws-service-name {services[question.subject]}"
            yield Problem(question.path, f"{question.subject} is not there; {said}", fix, level=level)
