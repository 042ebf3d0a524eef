"""Lambda functions that call the cluster's API, and custom resources that may take an hour."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aws_cdk import IgnoreMode, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk.custom_resources import Provider
from constructs import Construct

from dpd.catalog.iam_policies import Values
from stacks.acknowledgements import accept, accept_provider
from stacks.constructs import constants
from stacks.constructs.roles import fixed, role, service_trust

_SOURCE: Final = Path(__file__).parents[2] / "lambda"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a function is: a role that nothing can widen, and an encrypted log that outlives the stack."""

    made: iam.CfnRole
    role: iam.IRole
    log_group: logs.ILogGroup


def caller(
    scope: Construct,
    *,
    description: str,
    cluster_arn: str,
    key: kms.IKey,
    log_retention: logs.RetentionDays,
    grants: Mapping[str, Values] | None = None,
) -> Caller:
    """A function in the VPC that finds the cluster, and is allowed ``grants`` besides."""
    log_group = logs.LogGroup(scope, "Logs", encryption_key=key, retention=log_retention, removal_policy=RemovalPolicy.RETAIN)
    made = role(
        scope,
        "Role",
        trust=service_trust("lambda.amazonaws.com"),
        description=description,
        grants={
            "cluster_reader": {"cluster": cluster_arn},
            "lambda_network": {},
            "lambda_logs": {"log_group": log_group.log_group_arn},
            **(grants or {}),
        },
    )
    return Caller(made, fixed(scope, "FixedRole", made), log_group)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the VPC a function runs."""

    vpc: ec2.IVpc
    subnets: Sequence[ec2.ISubnet]
    security_groups: Sequence[ec2.ISecurityGroup]


def function(
    scope: Construct,
    id_: str,
    *,
    package: str,
    handler: str,
    identity: Caller,
    place: Place | None,
    timeout_seconds: int,
    memory_mib: int = 128,
    retry_attempts: int | None = None,
) -> lambda_.Function:
    """A function of a package in ``lambda/``, which travels with ``eks_api`` alone. ``place`` is ``None`` outside of the VPC."""
    code = lambda_.Code.from_asset(
        str(_SOURCE),
        exclude=["*", "!eks_api", "!eks_api/*.py", f"!{package}", f"!{package}/*.py"],
        ignore_mode=IgnoreMode.GIT,
    )
    inside: dict[str, Any] = (
        {}
        if place is None
        else {
            "vpc": place.vpc,
            "vpc_subnets": ec2.SubnetSelection(subnets=list(place.subnets)),
            "security_groups": list(place.security_groups),
        }
    )
    return lambda_.Function(
        scope,
        id_,
        code=code,
        handler=f"{package}.handler.{handler}",
        runtime=constants.python(),
        architecture=constants.arm_64(),
        timeout=constants.seconds(timeout_seconds),
        memory_size=memory_mib,
        role=identity.role,
        log_group=identity.log_group,
        retry_attempts=retry_attempts,
        **inside,
    )


def patient_provider(
    scope: Construct,
    id_: str,
    *,
    on_event: lambda_.Function,
    is_complete: lambda_.Function,
    log_group: logs.ILogGroup,
    look_seconds: int,
    total_minutes: int,
) -> Provider:
    """A provider that asks again and again. Its own functions stay outside of the VPC, where they reach Lambda and Step Functions."""
    provider = Provider(
        scope,
        id_,
        on_event_handler=on_event,
        is_complete_handler=is_complete,
        query_interval=constants.seconds(look_seconds),
        total_timeout=constants.seconds(60 * total_minutes),
        log_group=log_group,
    )
    inner = [provider.node.find_child(f"framework-{name}") for name in ("isComplete", "onTimeout")]
    accept_provider(provider, on_event, is_complete, *inner)
    accept(
        provider.node.find_child("waiter-state-machine"),
        {
            "SF1": "two states that only call the gate, whose own log says at each look what is missing",
            "SF2": "two states that only call the gate; there is no trace to follow",
        },
    )
    return provider
