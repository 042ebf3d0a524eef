"""The gate that waits for schedulable nodes, before anything that needs them is installed."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import CustomResource
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from dpd.environment.names import NODE_READER_GROUP
from stacks.constructs import constants
from stacks.constructs.access import member
from stacks.constructs.functions import Place, caller, function, patient_provider

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
        identity = caller(self, description="Counts schedulable nodes", cluster_arn=cluster_arn, key=key, log_retention=log_retention)
        access = member(self, "Access", cluster_name=cluster_name, role_arn=identity.made.attr_arn, groups=[NODE_READER_GROUP])
        security_group = ec2.SecurityGroup.from_security_group_id(self, "ClusterSecurityGroup", cluster_security_group_id, mutable=False)
        place = Place(vpc, subnets, [security_group])
        handlers = {
            name: function(self, name, package="node_gate", handler=name, identity=identity, place=place, timeout_seconds=_LOOK_SECONDS)
            for name in ("on_event", "is_complete")
        }
        provider = patient_provider(
            self,
            "Provider",
            **handlers,
            log_group=identity.log_group,
            look_seconds=_LOOK_SECONDS // 2,
            total_minutes=_PROVIDER_MINUTES,
        )
        gate = CustomResource(
            self,
            "Gate",
            service_token=provider.service_token,
            resource_type="Custom::DpdNodeGate",
            service_timeout=constants.seconds(60 * _SERVICE_MINUTES),
            properties={
                "ClusterName": cluster_name,
                "Groups": dict(minimums),
                "TimeoutSeconds": _GIVE_UP_SECONDS,
                "Digest": hashlib.sha256(json.dumps(watched, sort_keys=True).encode()).hexdigest(),
            },
        )
        gate.node.add_dependency(access)
