"""What the stacks hand to each other: typed values, the same whether a resource is made here or was adopted."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from constructs import Construct

if TYPE_CHECKING:
    # The kubectl layer is large, and the stacks before the cluster do not need it.
    from stacks.constructs.kubectl import Kubectl


@dataclass(frozen=True, slots=True)
class NetworkValues:
    """The VPC, its subnets and the security groups of the nodes."""

    vpc: ec2.IVpc
    """The VPC. Its private subnets are the control-plane subnets; the GPU subnet is left out, so that nothing lands there by accident.

    Its availability zones are AZ ids, not names: they only tell subnets apart and must not reach a template.
    """
    vpc_id: str
    vpc_cidr_blocks: tuple[str, ...]
    """All IPv4 networks of the VPC: what may reach an endpoint or the Kubernetes API from inside."""
    gpu_subnet_id: str
    """The one subnet of all HyperPod groups and of Lustre."""
    gpu_availability_zone_id: str
    control_plane_subnets: tuple[ec2.ISubnet, ...]
    """Private subnets in two AZs: EKS control plane, VpcConfig of the HyperPod cluster, Lambda functions."""
    control_plane_subnet_ids: tuple[str, ...]
    efa_security_group_id: str
    """All traffic from and to itself, both ways explicit, and out to anywhere.

    Attach it to the nodes, to Lustre and to the EKS control plane, whose calls to kubelets and webhooks it then admits.
    """
    node_security_group_ids: tuple[str, ...]
    """Every security group of the nodes: the EFA group first, then the adopted ones."""


@dataclass(frozen=True, slots=True)
class LustreValues:
    """What a PersistentVolume of an FSx for Lustre file system needs."""

    file_system_id: str
    dns_name: str
    mount_name: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket by its name. A reader also needs `kms:Decrypt` on `key_arn`; `None` is a key that S3 holds."""

    name: str
    arn: str
    key_arn: str | None


@dataclass(frozen=True, slots=True)
class StorageValues:
    """Everything that outlives a deployment. Bucket names are plain text, known at synthesis; the rest may be references."""

    key: kms.IKey
    """Customer-managed key."""
    key_arn: str
    model_bucket: Bucket
    """Bucket of weights and checkpoints."""
    tls_bucket_name: str
    lifecycle_bucket: Bucket
    """Bucket of the lifecycle scripts. The managed node policy does not include its key."""
    lifecycle_uri: str
    """`s3://sagemaker-…/…`: the folder of the scripts, as `LifeCycleConfig.SourceS3Uri` wants it."""
    lifecycle_upload: Construct
    """The upload of the scripts; the HyperPod cluster must depend on it."""
    lustre: LustreValues | None
    """`None` when the environment has no Lustre file system."""


@dataclass(frozen=True, slots=True)
class EksValues:
    """The EKS cluster and the way to apply manifests to it."""

    name: str
    arn: str
    security_group_id: str
    """The group that EKS made for the cluster; a function that is in it reaches the private API."""
    oidc_issuer: str
    """URL of the OpenID Connect issuer, without `https://`, as trust policies name it."""
    oidc_provider_arn: str
    kubectl: "Kubectl"
