"""A record of every connection of a VPC."""

from typing import Any, Final

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.constructs.realm import Realm, realm_of
from stacks.constructs.retained import retained
from stacks.constructs.roles import role

RETENTION_DAYS: Final = 90


class FlowLogs(Construct):
    """Flow logs of a VPC in an encrypted log group that outlives the stack."""

    def __init__(self, scope: Construct, id_: str, *, vpc_id: str, key_arn: str, name: str) -> None:
        super().__init__(scope, id_)
        realm = realm_of(self)
        group = logs.CfnLogGroup(self, "Group", kms_key_id=key_arn, retention_in_days=RETENTION_DAYS)
        retained(group, f"{id_}Group")
        writer = role(
            self,
            "Role",
            trust=_trust(realm),
            description="VPC flow logs",
            documents={"write": _write(group.attr_arn)},
        )
        ec2.CfnFlowLog(
            self,
            "FlowLog",
            resource_id=vpc_id,
            resource_type="VPC",
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_group_name=group.ref,
            deliver_logs_permission_arn=writer.attr_arn,
            tags=[{"key": "Name", "value": name}],
        ).override_logical_id(id_)


def _trust(realm: Realm) -> dict[str, Any]:
    """Flow logs of this account and Region alone: the service must not be talked into it by another's.

    https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html
    """
    source = f"arn:{realm.partition}:ec2:{realm.region}:{realm.account}:vpc-flow-log/*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "vpc-flow-logs.amazonaws.com"},
                "Action": "sts:AssumeRole",
                "Condition": {"StringEquals": {"aws:SourceAccount": realm.account}, "ArnLike": {"aws:SourceArn": source}},
            }
        ],
    }


def _write(group_arn: str) -> dict[str, Any]:
    actions = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": group_arn}]}
