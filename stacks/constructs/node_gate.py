"""The gate that waits for schedulable nodes, before anything that needs them is installed."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aws_cdk import CustomResource, Duration, IgnoreMode, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk.custom_resources import Provider
from constructs import Construct

from dpd.environment.names import NODE_READER_GROUP
from stacks.acknowledgements import accept, accept_provider
from stacks.constructs.access import member
from stacks.constructs.roles import fixed, role, service_trust

_SOURCE: Final = Path(__file__).parents[2] / "lambda"
_LOOK_SECONDS: Final = 60
_GIVE_UP_SECONDS: Final = 45 * 60
"""A new CPU node joins within half an hour."""
_PROVIDER_MINUTES, _SERVICE_MINUTES = 50, 60
"""The function gives up first, since only it can say which nodes are missing; then the framework; then CloudFormation."""


class NodeGate(Construct):
    """Opens when every group has its least number of schedulable nodes, and looks again when ``watched`` changes."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        cluster_name: str,
        cluster_arn: str,
        cluster_security_group_id: str,
        vpc: ec2.IVpc,
        subnets: Sequence[ec2.ISubnet],
        minimums: Mapping[str, int],
        watched: Any,
        key: kms.IKey,
        log_retention: logs.RetentionDays,
    ) -> None:
        super().__init__(scope, id_)
        log_group = logs.LogGroup(self, "Logs", encryption_key=key, retention=log_retention, removal_policy=RemovalPolicy.RETAIN)
        made = role(
            self,
            "Role",
            trust=service_trust("lambda.amazonaws.com"),
            description="Counts schedulable nodes",
            grants={
                "cluster_reader": {"cluster": cluster_arn},
                "lambda_network": {},
                "lambda_logs": {"log_group": log_group.log_group_arn},
            },
        )
        access = member(self, "Access", cluster_name=cluster_name, role_arn=made.attr_arn, groups=[NODE_READER_GROUP])
        fixed_role = fixed(self, "FixedRole", made)
        security_group = ec2.SecurityGroup.from_security_group_id(self, "ClusterSecurityGroup", cluster_security_group_id, mutable=False)
        code = lambda_.Code.from_asset(
            str(_SOURCE),
            exclude=["*", "!eks_api", "!eks_api/*.py", "!node_gate", "!node_gate/*.py"],
            ignore_mode=IgnoreMode.GIT,
        )

        def function(name: str) -> lambda_.Function:
            return lambda_.Function(
                self,
                name,
                code=code,
                handler=f"node_gate.handler.{name}",
                runtime=lambda_.Runtime.PYTHON_3_14,
                architecture=lambda_.Architecture.ARM_64,
                timeout=Duration.seconds(_LOOK_SECONDS),
                role=fixed_role,
                log_group=log_group,
                vpc=vpc,
                vpc_subnets=ec2.SubnetSelection(subnets=list(subnets)),
                security_groups=[security_group],
            )

        # The framework's own functions stay outside of the VPC, where they reach Lambda and Step Functions without endpoints.
        provider = Provider(
            self,
            "Provider",
            on_event_handler=(on_event := function("on_event")),
            is_complete_handler=(is_complete := function("is_complete")),
            query_interval=Duration.seconds(_LOOK_SECONDS // 2),
            total_timeout=Duration.minutes(_PROVIDER_MINUTES),
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
        gate = CustomResource(
            self,
            "Gate",
            service_token=provider.service_token,
            resource_type="Custom::DpdNodeGate",
            service_timeout=Duration.minutes(_SERVICE_MINUTES),
            properties={
                "ClusterName": cluster_name,
                "Groups": dict(minimums),
                "TimeoutSeconds": _GIVE_UP_SECONDS,
                "Digest": hashlib.sha256(json.dumps(watched, sort_keys=True).encode()).hexdigest(),
            },
        )
        gate.node.add_dependency(access)
