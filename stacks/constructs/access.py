"""Who may call the Kubernetes API, as EKS access entries."""

from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_eks as eks
from constructs import Construct

from stacks.constructs.realm import realm_of

_ADMINISTRATOR: Final = "AmazonEKSClusterAdminPolicy"


def administrator(scope: Construct, id_: str, *, cluster_name: str, role_arn: str) -> eks.CfnAccessEntry:
    """Make an IAM role (never a session of it) an administrator of the cluster."""
    policy = f"arn:{realm_of(scope).partition}:eks::aws:cluster-access-policy/{_ADMINISTRATOR}"
    return eks.CfnAccessEntry(
        scope,
        id_,
        cluster_name=cluster_name,
        principal_arn=role_arn,
        type="STANDARD",
        access_policies=[{"policyArn": policy, "accessScope": {"type": "cluster"}}],
    )


def member(scope: Construct, id_: str, *, cluster_name: str, role_arn: str, groups: Sequence[str]) -> eks.CfnAccessEntry:
    """Put an IAM role into Kubernetes groups; what they may do is RBAC's business."""
    return eks.CfnAccessEntry(
        scope, id_, cluster_name=cluster_name, principal_arn=role_arn, type="STANDARD", kubernetes_groups=list(groups)
    )
