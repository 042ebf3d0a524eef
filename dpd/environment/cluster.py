"""The cluster part: EKS, HyperPod and the instance groups."""

from typing import Annotated, Literal

from pydantic import Field

from dpd.catalog.llmd import RouterImageName
from dpd.catalog.node_agents import AgentName
from dpd.environment.network import SecurityGroupId
from dpd.environment.types import (
    Arn,
    AvailabilityZoneId,
    ByShape,
    Count,
    DnsLabel,
    ImageRepository,
    KubernetesVersion,
    Many,
    Part,
    PublicCidr,
    RawProperties,
    Text,
)

DeepHealthCheck = Literal["instance_stress", "instance_connectivity"]


class PublicAccess(Part):
    """A Kubernetes API that some public networks may reach, besides the VPC."""

    public_cidrs: Annotated[Many[PublicCidr], Field(min_length=1, max_length=40)]
    """Networks that may reach the API endpoint. `0.0.0.0/0` is refused."""


class TrainingPlan(Part):
    """Reserved capacity. A plan is bound to one AZ, and nodes vanish when it ends."""

    training_plan_arn: Annotated[Arn, Field(min_length=50, examples=["arn:aws:sagemaker:us-east-2:111122223333:training-plan/llama-plan"])]
    """ARN of a training plan made for HyperPod clusters."""
    availability_zone_id: AvailabilityZoneId
    """AZ id of the plan, as `describe-training-plan` prints it."""


class Taint(Part):
    """A Kubernetes taint on every node of a group."""

    key: Text
    """Taint key."""
    value: Annotated[str, Field(max_length=63)] = ""
    """Taint value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What the taint does to pods that do not tolerate it."""


class InstanceGroup(Part):
    """A group of nodes of one instance type."""

    instance_type: Text
    """HyperPod instance type, with the `ml.` prefix."""
    count: Count
    """Nodes in the group."""
    max_count: Count | None = None
    """The most nodes this group may ever grow to. Addresses are reserved for it. Default: `count`."""
    capacity: Annotated[Literal["on_demand", "spot"] | TrainingPlan, ByShape()] | None = None
    """How the nodes are bought. Required for groups with GPUs, since nothing that costs money has a default."""
    labels: Annotated[dict[str, str], Field(max_length=50)] = {}
    """Extra node labels."""
    taints: Annotated[Many[Taint], Field(max_length=50)] = ()
    """Taints. Default none: the operator below version 3.7 gives its pods no tolerations."""
    deep_health_checks: Annotated[Many[DeepHealthCheck], Field(max_length=2)] = ()
    """Stress tests before a node joins. They add a long start time, which is billed."""
    network_interface: Literal["efa", "efa_only"] | None = None
    """`efa_only`: EFA devices beside the first take no address of the GPU subnet. Default: HyperPod's own."""
    raw: RawProperties = {}
    """Properties of the group in `AWS::SageMaker::Cluster` to set last, by dotted path."""
    data_volume_gib: Annotated[int, Field(ge=1, le=16384)] | None = None
    """Size of an extra EBS volume mounted at `/opt/sagemaker` on each node. Default: none."""

    @property
    def most_nodes(self) -> int:
        """The scale ceiling in nodes."""
        return max(self.count, self.max_count or 0)


class ExistingCluster(Part):
    """An EKS cluster to adopt. The HyperPod cluster is still made by this tool."""

    name: Annotated[Text, Field(max_length=100)]
    """EKS cluster name."""
    security_group_id: SecurityGroupId
    """The security group that EKS made for the cluster."""
    oidc_issuer: Annotated[Text, Field(pattern=r"^https://oidc\.eks\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?/id/[A-F0-9]{16,64}$")]
    """OpenID Connect issuer URL, as `describe-cluster` prints it."""
    oidc_provider_arn: Annotated[
        Arn,
        Field(examples=["arn:aws:iam::111122223333:oidc-provider/oidc.eks.us-east-2.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF"]),
    ]
    """ARN of the IAM OpenID Connect provider of that issuer."""
    authentication_mode: Literal["API", "API_AND_CONFIG_MAP", "CONFIG_MAP"]
    """Authentication mode. HyperPod refuses `CONFIG_MAP`."""
    prerequisites: Literal["install", "exists"]
    """`exists` when the HyperPod Helm chart already runs there; it cannot share objects with ours."""


class AddOn(Part):
    """How one EKS add-on differs from the catalog's version table."""

    version: Text | None = None
    """Add-on version to pin instead of the catalog's."""
    install: bool = True
    """False when the cluster already has it."""


class RawCluster(Part):
    """A way out for cluster settings that this file has no word for."""

    eks: RawProperties = {}
    """`AWS::EKS::Cluster` properties to set last, by dotted path."""
    hyperpod: RawProperties = {}
    """`AWS::SageMaker::Cluster` properties to set last, by dotted path."""


class Cluster(Part):
    """EKS and HyperPod."""

    kubernetes_version: KubernetesVersion
    """Kubernetes minor version of the EKS cluster."""
    api_access: Annotated[Literal["private"] | PublicAccess, ByShape()] = "private"
    """Who may reach the Kubernetes API."""
    admin_role_arns: Many[Arn] = ()
    """IAM roles that become cluster administrators through access entries (not session ARNs)."""
    groups: Annotated[dict[DnsLabel, InstanceGroup], Field(min_length=1, max_length=100)]
    """Instance groups by name. A group without GPUs, two nodes or more, carries the system pods."""
    node_recovery: Literal["automatic", "none"] = "automatic"
    """Whether HyperPod replaces nodes that fail their health checks."""
    tiered_storage_memory_percent: Annotated[int, Field(ge=1, le=100)] | None = None
    """Share of node memory given to managed tiered storage. Needed by `kv.shared_tier: tiered_storage`."""
    image_release_version: Annotated[Text, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] | None = None
    """AMI release to pin. Default: the newest one when a node is made, which differs between days."""
    add_ons: dict[Text, AddOn] = {}
    """Changes to the add-on version table, by add-on name."""
    agent_repositories: dict[AgentName, ImageRepository] = {}
    """Where the images of node agents come from, by agent, without tag: a mirror, which a closed network needs."""
    router_repositories: dict[RouterImageName, ImageRepository] = {}
    """Where the images of llm-d's router come from, by image, without tag: mirrors, which a closed network needs."""
    existing: ExistingCluster | None = None
    """An EKS cluster to adopt."""
    raw: RawCluster = Field(default={}, validate_default=True)
    """CloudFormation properties that this file has no word for."""
