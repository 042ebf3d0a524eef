"""Who hears of failures."""

from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.constructs.realm import Realm, realm_of


class AlarmTopic(Construct):
    """An encrypted topic that alarms of this account and roles with the permission may publish to, over TLS."""

    def __init__(self, scope: Construct, id_: str, *, key: kms.IKey, alarms: str, emails: Sequence[str], workspaces: bool = False) -> None:
        """``alarms`` is a pattern of alarm names. The key's policy must let CloudWatch use it for them.

        ``workspaces`` lets Prometheus workspaces of this account and Region publish as well.
        """
        super().__init__(scope, id_)
        realm = realm_of(self)
        topic = sns.CfnTopic(self, "Topic", kms_master_key_id=key.key_arn)
        self.arn: Final = topic.ref
        statements: list[dict[str, Any]] = [
            {
                "Sid": "Alarms",
                "Effect": "Allow",
                "Principal": {"Service": "cloudwatch.amazonaws.com"},
                "Action": "sns:Publish",
                "Resource": self.arn,
                "Condition": from_alarms(realm, alarms),
            },
            *(
                [{**from_workspaces(realm), "Sid": "Workspaces", "Action": ["sns:Publish", "sns:GetTopicAttributes"], "Resource": self.arn}]
                if workspaces
                else []
            ),
            {
                "Sid": "TlsOnly",
                "Effect": "Deny",
                "Principal": {"AWS": "*"},
                "Action": "sns:Publish",
                "Resource": self.arn,
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            },
        ]
        sns.CfnTopicPolicy(self, "Policy", topics=[self.arn], policy_document={"Version": "2012-10-17", "Statement": statements})
        for index, email in enumerate(emails):
            sns.CfnSubscription(self, f"Email{index}", topic_arn=self.arn, protocol="email", endpoint=email)


def from_alarms(realm: Realm, alarms: str) -> dict[str, Any]:
    """Only alarms of this account whose name is like ``alarms``.

    https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html#compatibility-with-aws-services
    """
    return {
        "StringEquals": {"aws:SourceAccount": realm.account},
        "ArnLike": {"aws:SourceArn": f"arn:{realm.partition}:cloudwatch:{realm.region}:{realm.account}:alarm:{alarms}"},
    }


def from_workspaces(realm: Realm) -> dict[str, Any]:
    """Alert managers of Prometheus workspaces of this account and Region.

    https://docs.aws.amazon.com/prometheus/latest/userguide/AMP-alertmanager-receiver-AWSpermission.html
    """
    return {
        "Effect": "Allow",
        "Principal": {"Service": "aps.amazonaws.com"},
        "Condition": {
            "StringEquals": {"aws:SourceAccount": realm.account},
            "ArnLike": {"aws:SourceArn": f"arn:{realm.partition}:aps:{realm.region}:{realm.account}:workspace/*"},
        },
    }


def failure_alarm(
    scope: Construct,
    id_: str,
    *,
    namespace: str,
    metric: str,
    environment: str,
    topic_arn: str,
    period_minutes: int,
    missing_is_failure: bool,
    description: str,
) -> cloudwatch.CfnAlarm:
    """An alarm when a metric was above 0 within the period, or, with ``missing_is_failure``, when nobody measured it."""
    return cloudwatch.CfnAlarm(
        scope,
        id_,
        alarm_description=description,
        namespace=namespace,
        metric_name=metric,
        dimensions=[{"name": "Environment", "value": environment}],
        statistic="Maximum",
        period=period_minutes * 60,
        evaluation_periods=1,
        threshold=0,
        comparison_operator="GreaterThanThreshold",
        treat_missing_data="breaching" if missing_is_failure else "notBreaching",
        alarm_actions=[topic_arn],
        ok_actions=[topic_arn],
    )
