"""The execution role of HyperPod nodes."""

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from constructs import Construct

from dpd.catalog.iam_policies import Values
from stacks.constructs.realm import realm_of
from stacks.constructs.roles import role, service_trust


def node_role(
    scope: Construct,
    id_: str,
    *,
    cluster_arn: str,
    vpc_id: str,
    subnet_ids: Sequence[str],
    security_group_ids: Sequence[str],
    lifecycle_bucket_name: str,
    key_arn: str,
    lifecycle_key_arn: str | None,
    lustre: bool,
) -> iam.CfnRole:
    """Make the role. It can read Lustre file systems only where there is one.

    ``key_arn`` encrypts volumes, ``lifecycle_key_arn`` the lifecycle scripts (``None``: a key that S3 holds).
    """
    realm = realm_of(scope)
    ec2 = f"arn:{realm.partition}:ec2:{realm.region}:{realm.account}"
    values: dict[str, Values] = {
        "node": {
            "vpc": f"{ec2}:vpc/{vpc_id}",
            "subnets": [f"{ec2}:subnet/{id_}" for id_ in subnet_ids],
            "security_groups": [f"{ec2}:security-group/{id_}" for id_ in security_group_ids],
            "cluster": cluster_arn,
            "lifecycle_bucket": f"arn:{realm.partition}:s3:::{lifecycle_bucket_name}",
        },
        "node_volumes": {"key": key_arn},
        "decrypt": {"key": [key_arn, *([lifecycle_key_arn] if lifecycle_key_arn not in (None, key_arn) else [])]},
    }
    if lustre:
        values["node_lustre"] = {}
    return role(
        scope,
        id_,
        trust=service_trust("sagemaker.amazonaws.com"),
        description="HyperPod nodes",
        grants=values,
        managed={"AmazonSageMakerClusterInstanceRolePolicy": "HyperPod asks for this policy by name and extends it with the service"},
    )
