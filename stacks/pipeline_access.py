"""What the pipeline needs in the account of an environment besides CDK's bootstrap: a role that looks, and its metrics shared."""

from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_oam as oam
from constructs import Construct

from dpd.gate.spec import METRIC_NAMESPACE
from stacks.acknowledgements import accept, wildcard
from stacks.constructs.realm import realm_of
from stacks.constructs.release_rights import Seen, any_key, decrypting, reading
from stacks.constructs.roles import role


class PipelineAccessStack(Stack):
    """The reader role, which only the steps of the pipeline can take, and optionally the link to CloudWatch's sink."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        role_name: str,
        pipeline_account: str,
        pipeline_role: str,
        sink_arn: str | None,
        seen: Seen,
        **stack: Any,
    ) -> None:
        super().__init__(scope, id_, **stack)
        partition = realm_of(self).partition
        made = role(
            self,
            "Reader",
            name=role_name,
            trust={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        # The account, narrowed to one role: a role that does not exist yet cannot be a principal.
                        "Principal": {"AWS": f"arn:{partition}:iam::{pipeline_account}:root"},
                        "Action": "sts:AssumeRole",
                        "Condition": {"ArnEquals": {"aws:PrincipalArn": f"arn:{partition}:iam::{pipeline_account}:role/{pipeline_role}"}},
                    }
                ],
            },
            description="Steps of the release pipeline: look before a deployment, and read what proved it",
            grants=reading(self, seen, role_name),
            documents={"reports": decrypting(self, seen)},
        )
        if not seen.key_arn:
            accept(made, {wildcard(resource): why for resource, why in any_key(self).items()})
        if sink_arn:
            oam.CfnLink(
                self,
                "Metrics",
                label_template="$AccountName",
                resource_types=["AWS::CloudWatch::Metric"],
                sink_identifier=sink_arn,
                link_configuration={"metricConfiguration": {"filter": f"Namespace IN ('{METRIC_NAMESPACE}')"}},
            )
