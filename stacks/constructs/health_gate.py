"""The gate that proves a deployment, and looks again on a schedule."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import CustomResource
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from dpd.sizing.startup import GATE_LOOK_SECONDS, GATE_RUN_SECONDS
from stacks.constructs import constants
from stacks.constructs.functions import Caller, Place, function, patient_provider
from stacks.constructs.roles import role, service_trust

_MEMORY_MIB: Final = 256
_START_SECONDS: Final = 60
_RUN_SECONDS: Final = GATE_RUN_SECONDS + 60
"""A run, the start of the function and the report."""
_MINUTES: Final = 60
"""CloudFormation waits no longer. The function gives up well before it, since only it can say what is not proven."""


class HealthGate(Construct):
    """A custom resource that is complete once everything in a spec is proven. ``digest`` makes it prove again.

    ``spec_uri`` is where the function reads the spec, ``values`` what stands for its placeholders: an event has room for
    little, whatever the number of endpoints.

    Starting and deleting need nothing of the VPC: the function for it stays outside, so that a broken network cannot keep a
    stack from being deleted, and a rollback can be told from an update in a closed network too.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        spec_uri: str,
        values: Mapping[str, str],
        digest: str,
        identity: Caller,
        place: Place,
        schedule_minutes: int | None,
        after: Sequence[Construct],
    ) -> None:
        super().__init__(scope, id_)
        event = {"SpecUri": spec_uri, "Values": dict(values), "Digest": digest}
        common: dict[str, Any] = {"package": "health_gate", "identity": identity, "memory_mib": _MEMORY_MIB}
        provider = patient_provider(
            self,
            "Provider",
            on_event=function(self, "OnEvent", handler="on_event", place=None, timeout_seconds=_START_SECONDS, **common),
            is_complete=function(self, "IsComplete", handler="is_complete", place=place, timeout_seconds=_RUN_SECONDS, **common),
            log_group=identity.log_group,
            look_seconds=GATE_LOOK_SECONDS,
            total_minutes=_MINUTES,
        )
        gate = CustomResource(
            self,
            "Gate",
            service_token=provider.service_token,
            resource_type="Custom::DpdHealthGate",
            service_timeout=constants.seconds(60 * _MINUTES),
            properties=event,
        )
        gate.node.add_dependency(*after)
        if schedule_minutes is not None:
            # Never again by itself: a run that ended without an answer is missing from the metrics, which the alarm sees.
            canary = function(self, "Canary", handler="canary", place=place, timeout_seconds=_RUN_SECONDS, retry_attempts=0, **common)
            self._schedule(canary, event, schedule_minutes).node.add_dependency(gate)

    def _schedule(self, canary: lambda_.Function, event: Mapping[str, Any], minutes: int) -> scheduler.CfnSchedule:
        invoke = {"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": canary.function_arn}
        made = role(
            self,
            "ScheduleRole",
            trust=service_trust("scheduler.amazonaws.com"),
            description="Starts the health gate on its schedule",
            documents={"invoke": {"Version": "2012-10-17", "Statement": [invoke]}},
        )
        return scheduler.CfnSchedule(
            self,
            "Schedule",
            description="Proves the environment again",
            flexible_time_window={"mode": "OFF"},
            schedule_expression=f"rate({minutes} minutes)",
            target={
                "arn": canary.function_arn,
                "roleArn": made.attr_arn,
                # Encoded like this a token inside of the text stays one.
                "input": json.dumps(event),
                "retryPolicy": {"maximumRetryAttempts": 0},
            },
        )
