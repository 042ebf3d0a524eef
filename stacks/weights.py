"""How weights come into the model bucket: a build that copies and checks them inside AWS. It costs nothing while it does not run."""

from pathlib import Path
from typing import Any, Final

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

from dpd.catalog import staging as facts
from dpd.environment.storage import Staging
from stacks.constructs.roles import role, service_trust
from stacks.values import NetworkValues, StorageValues

_PROGRAM: Final = Path(__file__).parents[1] / "lambda" / "stage_weights"
_HTTPS: Final = 443
_BUILD_SPEC: Final = """\
version: 0.2
phases:
  build:
    commands:
      - mkdir stage_weights && mv ./*.py stage_weights/
      - python3 -m stage_weights
"""


class WeightsStack(Stack):
    """The CodeBuild project that `dpd stage-model` starts.

    Not a job in the cluster: the weights must be there before its nodes are paid for. It runs in the VPC only when that
    has no way to the internet, so that it has none either.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        staging: Staging,
        project_name: str,
        storage: StorageValues,
        inside: NetworkValues | None,
        log_retention: logs.RetentionDays,
        **stack: Any,
    ) -> None:
        """``inside`` is the network to run in; ``None`` runs outside of any VPC."""
        super().__init__(scope, id_, **stack)
        program = Asset(self, "Program", path=str(_PROGRAM), exclude=["__pycache__"])
        log_group = logs.LogGroup(self, "Logs", encryption_key=storage.key, retention=log_retention, removal_policy=RemovalPolicy.RETAIN)
        made = role(
            self,
            "Role",
            trust=service_trust("codebuild.amazonaws.com"),
            description="Copies weights into the model bucket",
            grants={
                "stage_weights": {
                    "model_bucket": storage.model_bucket.arn,
                    "program": f"arn:{self.partition}:s3:::{program.s3_bucket_name}/{program.s3_object_key}",
                    "program_bucket": f"arn:{self.partition}:s3:::{program.s3_bucket_name}",
                    "keys": list(dict.fromkeys(filter(None, (storage.key_arn, storage.model_bucket.key_arn)))),
                    "log_group": log_group.log_group_arn,
                },
                **self._sources(staging),
                **({"stage_weights_token": {"secret": staging.token_secret}} if staging.token_secret else {}),
                **({"stage_weights_network": {"subnets": self._subnets(inside)}} if inside else {}),
            },
        )
        build = facts.build()
        variables = [{"name": "STAGE_BUCKET", "value": storage.model_bucket.name}]
        if staging.token_secret:
            variables.append({"name": "HUB_TOKEN", "type": "SECRETS_MANAGER", "value": staging.token_secret})
        codebuild.CfnProject(
            self,
            "Project",
            name=project_name,
            description="Copies the weights of a model into the model bucket: dpd stage-model",
            service_role=made.attr_arn,
            artifacts={"type": "NO_ARTIFACTS"},
            source={"type": "S3", "location": f"{program.s3_bucket_name}/{program.s3_object_key}", "buildSpec": _BUILD_SPEC},
            environment={
                "type": "LINUX_CONTAINER", "image": build.image, "computeType": build.compute_type, "privilegedMode": False,
                "environmentVariables": variables,
            },
            encryption_key=storage.key_arn,
            timeout_in_minutes=build.longest_minutes,
            logs_config={"cloudWatchLogs": {"status": "ENABLED", "groupName": log_group.log_group_name}},
            vpc_config=self._vpc(inside) if inside else None,
        )  # fmt: skip

    def _sources(self, staging: Staging) -> dict[str, Any]:
        if not staging.source_buckets:
            return {}
        buckets = [f"arn:{self.partition}:s3:::{name}" for name in sorted(set(staging.source_buckets))]
        return {"stage_weights_sources": {"buckets": buckets, "files": [f"{bucket}/*" for bucket in buckets]}}

    def _subnets(self, inside: NetworkValues) -> list[str]:
        return [f"arn:{self.partition}:ec2:{self.region}:{self.account}:subnet/{id}" for id in inside.control_plane_subnet_ids]

    def _vpc(self, inside: NetworkValues) -> dict[str, Any]:
        out = {"ipProtocol": "tcp", "fromPort": _HTTPS, "toPort": _HTTPS, "cidrIp": "0.0.0.0/0", "description": "S3 and CloudWatch Logs"}
        group = ec2.CfnSecurityGroup(
            self, "SecurityGroup", group_description="Copy of weights: HTTPS to AWS", vpc_id=inside.vpc_id, security_group_egress=[out]
        )
        return {"vpcId": inside.vpc_id, "subnets": list(inside.control_plane_subnet_ids), "securityGroupIds": [group.attr_group_id]}
