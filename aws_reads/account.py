"""The account: CDK's bootstrap, stacks, roles of services, and what who deploys may do."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from aws_reads.asking import Ask, NoCallError, missing
from aws_reads.session import caller as who
from dpd.catalog import preflight, regions
from dpd.preflight.facts import Bootstrap, Caller, Decisions, Named, Stack
from dpd.preflight.questions import DEPLOYER, needs, qualifier

_ASSUMED: Final = re.compile(r"arn:[a-z-]+:sts::[0-9]{12}:assumed-role/(?P<role>[^/]+)/.+")
_AT_ONCE: Final = 50
"""Actions in one simulation."""


def caller(ask: Ask) -> Caller:
    """Who asks."""
    account, arn = ask.clients.once("caller", lambda: who(ask.clients))
    return Caller(account=account, arn=arn)


def bootstrap(ask: Ask) -> Bootstrap | None:
    """Version of CDK's bootstrap."""
    name = preflight.bootstrap().parameter.format(qualifier=ask.subject)
    try:
        value = ask.clients("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    except ClientError as error:
        missing(error, "ParameterNotFound")
        return None
    return Bootstrap(version=int(value) if value.isascii() and value.isdigit() else 0)


def stack(ask: Ask) -> Stack | None:
    """A stack by its name. One that was only ever planned is none."""
    try:
        (found,) = ask.clients("cloudformation").describe_stacks(StackName=ask.subject)["Stacks"]
    except ClientError as error:
        if "does not exist" not in error.response["Error"].get("Message", ""):
            raise
        return None
    return None if found["StackStatus"] in {"REVIEW_IN_PROGRESS", "DELETE_COMPLETE"} else Stack(status=found["StackStatus"])


def service_linked_role(ask: Ask) -> Named | None:
    """A role by its name."""
    return Named(name=ask.subject) if _role_arn(ask, ask.subject) else None


def _role_arn(ask: Ask, name: str) -> str:
    try:
        arn: str = ask.clients("iam").get_role(RoleName=name)["Role"]["Arn"]
    except ClientError as error:
        missing(error, "NoSuchEntity", "NoSuchEntityException")
        return ""
    return arn


def permissions(ask: Ask) -> Decisions | None:
    """What IAM would say: to the caller about CDK's roles, to CDK's execution role about what the stacks are made of."""
    known, environment = preflight.bootstrap(), ask.environment
    region = regions.find(environment.region)
    partition, marks = (region.partition if region else "aws"), {"qualifier": qualifier(environment)}
    if ask.subject == DEPLOYER:
        roles = [f"cdk-{marks['qualifier']}-{role}-{environment.account}-{environment.region}" for role in known.assumed_roles]
        arns = [f"arn:{partition}:iam::{environment.account}:role/{role}" for role in roles]
        return _decisions(ask, _principal(ask), ["sts:AssumeRole"], arns)
    name = known.execution_role.format(**marks, account=environment.account, region=environment.region)
    if not (arn := _role_arn(ask, name)):
        return None
    parts = [part for part in preflight.MADE_BY if part in needs(environment)]
    return _decisions(ask, arn, sorted({action for part in parts for action in preflight.deployer_actions(part)}), [])


def _principal(ask: Ask) -> str:
    """The ARN that IAM can simulate: of a session, its role's."""
    arn = caller(ask).arn
    if arn.endswith(":root"):
        raise NoCallError("IAM does not simulate the root user")
    if (assumed := _ASSUMED.fullmatch(arn)) is None:
        return arn
    if not (role := _role_arn(ask, assumed["role"])):
        raise NoCallError(f"the caller's role {assumed['role']} is not in this account")
    return role


def _decisions(ask: Ask, principal: str, actions: Sequence[str], resources: Sequence[str]) -> Decisions:
    allowed, denied = [], {}
    pages = ask.clients("iam").get_paginator("simulate_principal_policy")
    for start in range(0, len(actions), _AT_ONCE):
        given: dict[str, Any] = {"PolicySourceArn": principal, "ActionNames": list(actions[start : start + _AT_ONCE])}
        if resources:
            given["ResourceArns"] = list(resources)
        for page in pages.paginate(**given):
            for name, decision in _each(page["EvaluationResults"]):
                if decision == "allowed":
                    allowed.append(name)
                else:
                    denied[name] = decision
    return Decisions(principal=principal, denied=dict(sorted(denied.items())), allowed=tuple(sorted(set(allowed) - denied.keys())))


def _each(results: Iterable[dict[str, Any]]) -> Iterable[tuple[str, str]]:
    for result in results:
        resources = result.get("ResourceSpecificResults") or ()
        for one in resources:
            yield _named(result["EvalActionName"], one["EvalResourceName"]), one["EvalResourceDecision"]
        if not resources:
            yield _named(result["EvalActionName"], result.get("EvalResourceName", "*")), result["EvalDecision"]


def _named(action: str, resource: str) -> str:
    return action if resource in {"", "*"} else f"{action} {resource.rpartition('/')[2]}"
