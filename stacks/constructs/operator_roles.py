"""IAM roles of the inference operator and of what comes with it, each for one Kubernetes service account."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import aws_iam as iam
from constructs import Construct

from dpd.catalog.iam_policies import Values
from dpd.environment.names import KEDA_SERVICE_ACCOUNT, LOAD_BALANCER_SERVICE_ACCOUNT, OPERATOR_NAMESPACE, OPERATOR_SERVICE_ACCOUNT
from stacks.constructs.realm import realm_of
from stacks.constructs.roles import role, web_identity_trust


@dataclass(frozen=True, slots=True)
class Identity:
    """How the cluster proves who a service account is. ``issuer`` is the issuer's URL without ``https://``."""

    provider_arn: str
    issuer: str

    def trust(self, service_account: str, services: Sequence[str] = ()) -> str:
        """Trust for one service account, ``namespace:name``."""
        return web_identity_trust(provider_arn=self.provider_arn, issuer=self.issuer, service_account=service_account, services=services)


def operator_role(
    scope: Construct, id_: str, *, name: str, identity: Identity, certificate_arns: Sequence[str], hosted_zone_ids: Sequence[str]
) -> iam.CfnRole:
    """The operator's execution role. The add-on refuses a name that does not start with ``SageMakerHyperPodInference``."""
    realm = realm_of(scope)
    values: dict[str, Values] = {"operator_network": {}}
    if certificate_arns:
        values["operator_certificates"] = {"certificates": list(certificate_arns)}
    if hosted_zone_ids:
        values["operator_zones"] = {"hosted_zones": [f"arn:{realm.partition}:route53:::hostedzone/{zone}" for zone in hosted_zone_ids]}
    return role(
        scope,
        id_,
        name=name,
        trust=identity.trust(f"{OPERATOR_NAMESPACE}:{OPERATOR_SERVICE_ACCOUNT}", ["sagemaker.amazonaws.com"]),
        description="HyperPod inference operator",
        grants=values,
        managed={
            "AmazonSageMakerHyperPodInferenceAccess": "the operator's documentation asks for this policy, which grows with its versions"
        },
    )


OF_THE_OPERATOR: Final = {
    "load_balancers": f"{OPERATOR_NAMESPACE}:{LOAD_BALANCER_SERVICE_ACCOUNT}",
    "autoscaler": f"{OPERATOR_NAMESPACE}:{KEDA_SERVICE_ACCOUNT}",
}
"""Service accounts of the controllers that the operator's add-on brings."""


def load_balancer_role(scope: Construct, id_: str, *, identity: Identity, service_account: str) -> iam.CfnRole:
    """The role of the load balancer controller, whoever brings it."""
    return role(
        scope,
        id_,
        trust=identity.trust(service_account),
        description="Load balancer controller",
        grants={"load_balancer_controller": {}},
    )


def keda_role(scope: Construct, id_: str, *, identity: Identity, workspace_ids: Sequence[str], service_account: str) -> iam.CfnRole:
    """The role of the autoscaler, whoever brings it. It reads Prometheus only in workspaces that an endpoint names."""
    realm = realm_of(scope)
    values: dict[str, Values] = {"keda": {}}
    if workspace_ids:
        arn = f"arn:{realm.partition}:aps:{realm.region}:{realm.account}:workspace"
        values["keda_prometheus"] = {"workspaces": [f"{arn}/{workspace}" for workspace in workspace_ids]}
    return role(
        scope,
        id_,
        trust=identity.trust(service_account),
        description="Autoscaler",
        grants=values,
    )


def model_reader_role(scope: Construct, id_: str, *, identity: Identity, bucket_arn: str, key_arn: str | None) -> iam.CfnRole:
    """The role with which the S3 CSI driver mounts the model bucket, read-only."""
    values: dict[str, Values] = {"model_reader": {"bucket": bucket_arn}}
    if key_arn:
        values["decrypt"] = {"key": key_arn}
    return role(
        scope,
        id_,
        trust=identity.trust("kube-system:s3-csi-driver-sa"),
        description="S3 CSI driver: reads model weights",
        grants=values,
    )
