"""Conditions of a stage of CodePipeline, for which CDK Pipelines has no argument."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import CfnResource
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codepipeline as codepipeline
from constructs import Construct

from dpd.gate.spec import METRIC_NAMESPACE

GATE_METRIC: Final = "GateFailed"


@dataclass(frozen=True, slots=True)
class Condition:
    """What follows when a stage fails, and which alarm is watched, and how long, when it succeeded."""

    rolls_back: bool
    alarm_name: str = ""
    minutes: int = 0

    def properties(self) -> dict[str, Any]:
        """As CloudFormation reads them. A failed condition is a failed stage."""
        result = "ROLLBACK" if self.rolls_back else "FAIL"
        found: dict[str, Any] = {"OnFailure": {"Result": "ROLLBACK"}} if self.rolls_back else {}
        if self.alarm_name:
            # https://docs.aws.amazon.com/codepipeline/latest/userguide/rule-reference-CloudWatchAlarm.html
            rule = {
                "Name": "Soak",
                "RuleTypeId": {"Category": "Rule", "Owner": "AWS", "Provider": "CloudWatchAlarm", "Version": "1"},
                "Configuration": {"AlarmName": self.alarm_name, "AlarmStates": "ALARM", "WaitTime": str(self.minutes)},
            }
            found["OnSuccess"] = {"Conditions": [{"Result": result, "Rules": [rule]}]}
        return found


def set_conditions(pipeline: codepipeline.Pipeline, conditions: Mapping[str, Condition]) -> None:
    """Set the conditions of stages by name. Raises ``ValueError`` for a stage that the pipeline does not have.

    A stage's place is looked up: it moves when a stage for assets comes or goes.
    """
    resource = pipeline.node.default_child
    assert isinstance(resource, CfnResource)
    places = [stage.stage_name for stage in pipeline.stages]
    for name, condition in conditions.items():
        for key, value in condition.properties().items():
            resource.add_property_override(f"Stages.{places.index(name)}.{key}", value)


def soak_alarm(scope: Construct, id_: str, *, name: str, environment: str, account: str, period_minutes: int, topic_arn: str) -> str:
    """The alarm on an environment's health gate as the pipeline's account sees it; gives its name. Silence is a failure.

    A metric of another account is there when both are linked by CloudWatch's cross-account observability:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-Unified-Cross-Account.html
    """
    metric = {
        "namespace": METRIC_NAMESPACE,
        "metricName": GATE_METRIC,
        "dimensions": [{"name": "Environment", "value": environment}],
    }
    cloudwatch.CfnAlarm(
        scope,
        id_,
        alarm_name=name,
        alarm_description=f"The health gate of {environment} did not pass, or nobody knows",
        metrics=[
            {
                "id": "gate",
                "accountId": account,
                "returnData": True,
                "metricStat": {"metric": metric, "period": period_minutes * 60, "stat": "Maximum"},
            }
        ],
        evaluation_periods=1,
        threshold=0,
        comparison_operator="GreaterThanThreshold",
        treat_missing_data="breaching",
        alarm_actions=[topic_arn],
    )
    return name
