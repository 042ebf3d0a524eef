"""The network part of an environment file: a VPC to make, or one to adopt."""

from typing import Annotated

from pydantic import Field

from dpd.environment.types import AvailabilityZoneId, Cidr, Many, Part, RawProperties, Text

VpcId = Annotated[Text, Field(pattern=r"^vpc-[0-9a-f]{8,17}$")]
SubnetId = Annotated[Text, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")]
SecurityGroupId = Annotated[Text, Field(pattern=r"^sg-[0-9a-f]{8,17}$")]
RouteTableId = Annotated[Text, Field(pattern=r"^rtb-[0-9a-f]{8,17}$")]


class GpuSubnet(Part):
    """The one subnet in which every node and the Lustre file system live. EFA traffic cannot leave it."""

    availability_zone_id: AvailabilityZoneId
    """AZ id (not name) in which the capacity is."""
    cidr: Cidr
    """IPv4 network of the subnet. Outside `vpc_cidr` it becomes a secondary CIDR of the VPC. It cannot be changed later."""


class Egress(Part):
    """How private subnets reach what lies outside the VPC. Both ways cost money, so neither has a default."""

    nat_gateways: Annotated[int, Field(ge=0, le=2)]
    """NAT gateways to make: 0 (closed network), 1, or 2 (one for each control-plane AZ)."""
    interface_endpoints: bool
    """Whether to make interface endpoints for the AWS services the cluster calls. Needed in a closed network."""


class SecurityGroupRule(Part):
    """One rule of an adopted security group, as `aws ec2 describe-security-group-rules` prints it."""

    direction: Annotated[str, Field(pattern="^(ingress|egress)$")]
    """`ingress` or `egress`."""
    protocol: Text
    """IP protocol; `-1` is all."""
    peer: Text
    """Security group id, CIDR or prefix list id on the other side."""


class ExistingSecurityGroup(Part):
    """A security group that is attached to the nodes and was not made by this tool."""

    id: SecurityGroupId
    """Security group id."""
    rules: Many[SecurityGroupRule]
    """All its rules. They are part of the file so that a check can see them without an AWS account."""


class ExistingSubnet(Part):
    """A subnet to adopt."""

    id: SubnetId
    """Subnet id."""
    availability_zone_id: AvailabilityZoneId
    """AZ id (not name) of the subnet."""
    cidr: Cidr
    """IPv4 network of the subnet."""


class ExistingNetwork(Part):
    """A VPC to adopt instead of making one."""

    vpc_id: VpcId
    """VPC id."""
    vpc_cidr: Cidr
    """Primary IPv4 network of the VPC."""
    gpu_subnet: ExistingSubnet
    """The private subnet for all nodes and for Lustre."""
    control_plane_subnets: Annotated[Many[ExistingSubnet], Field(min_length=2, max_length=16)]
    """Private subnets, in two or more AZs, for the EKS control plane and the Lambda functions."""
    route_table_ids: Annotated[Many[RouteTableId], Field(min_length=1)]
    """Route tables of the private subnets: the S3 gateway endpoint is added to them when asked for."""
    s3_gateway_endpoint: Annotated[str, Field(pattern="^(create|exists)$")]
    """`exists` when the route tables already lead to S3 through a gateway endpoint, else `create`."""
    security_groups: Many[ExistingSecurityGroup] = ()
    """Security groups to attach to the nodes besides the EFA group that this tool makes."""


class Network(Part):
    """Either a VPC to make (`vpc_cidr`, `gpu_subnet`, `control_plane_availability_zone_ids`, `egress`), or `existing`."""

    vpc_cidr: Cidr | None = None
    """Primary IPv4 network of the VPC."""
    gpu_subnet: GpuSubnet | None = None
    """The subnet of all nodes."""
    control_plane_availability_zone_ids: Annotated[Many[AvailabilityZoneId], Field(max_length=2)] = ()
    """The two AZ ids for the EKS control plane. EKS wants two; GPU nodes want one, so they are kept apart."""
    egress: Egress | None = None
    """How private subnets reach the internet and AWS services."""
    flow_logs: bool = True
    """Whether VPC flow logs are kept (encrypted, in CloudWatch Logs)."""
    existing: ExistingNetwork | None = None
    """A VPC to adopt."""
    raw: RawProperties = {}
    """`AWS::EC2::VPC` properties to set last, by dotted path."""
