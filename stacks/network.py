"""The VPC, or what is missing in an adopted one."""

from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import Annotations, CfnOutput, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from dpd.environment.names import NETWORK, Names
from dpd.environment.network import Egress, ExistingNetwork, Network
from dpd.sizing.subnets import subnet_plan
from stacks.acknowledgements import accept
from stacks.constructs.efa_security_group import EfaSecurityGroup
from stacks.constructs.encryption_key import EncryptionKey
from stacks.constructs.endpoints import InterfaceEndpoints, s3_gateway
from stacks.constructs.flow_logs import FlowLogs
from stacks.constructs.vpc import PlannedVpc
from stacks.values import NetworkValues


class NetworkStack(Stack):
    """One GPU subnet in one AZ, control-plane subnets in two, the ways out, and the EFA security group.

    The VPC's default security group keeps the rules AWS gives it (only a custom resource could take them away), and
    nothing is ever attached to it.
    """

    def __init__(self, scope: Construct, id_: str, *, network: Network, names: Names, key_arn: str | None = None, **stack: Any) -> None:
        """``key_arn`` is an adopted key for the flow logs; ``None`` makes one. ``stack`` are properties of the stack."""
        super().__init__(scope, id_, **stack)
        self.values: Final = self._adopted(network.existing, names) if network.existing else self._made(network, names, key_arn)
        CfnOutput(self, "VpcId", value=self.values.vpc_id)
        CfnOutput(self, "GpuSubnetId", value=self.values.gpu_subnet_id)
        CfnOutput(self, "EfaSecurityGroupId", value=self.values.efa_security_group_id)

    def _made(self, network: Network, names: Names, key_arn: str | None) -> NetworkValues:
        plan, egress = subnet_plan(network), network.egress or Egress(nat_gateways=0, interface_endpoints=False)
        vpc = PlannedVpc(
            self, "Vpc", cidr=network.vpc_cidr or "", plan=plan, nat_gateways=egress.nat_gateways, name=names.prefix, raw=network.raw
        )
        s3_gateway(self, "S3Endpoint", vpc_id=vpc.id, route_table_ids=vpc.private_route_table_ids)
        if egress.interface_endpoints:
            InterfaceEndpoints(
                self, "Endpoints", vpc_id=vpc.id, vpc_cidrs=vpc.cidrs, subnet_ids=vpc.control_plane_subnet_ids, name=names.prefix
            )
        if network.flow_logs:
            FlowLogs(self, "FlowLogs", vpc_id=vpc.id, key_arn=key_arn or self._key(names), name=names.prefix)
        else:
            accept(vpc, {"VPC7": "network.flow_logs is false in the environment file"})
        return self._values(
            vpc.id,
            vpc.cidrs,
            gpu=(vpc.gpu_subnet_id, plan.gpu.availability_zone_id),
            subnet_ids=vpc.control_plane_subnet_ids,
            zones=[subnet.availability_zone_id for subnet in plan.control_plane],
            route_table_ids=vpc.control_plane_route_table_ids,
            group=EfaSecurityGroup(self, "EfaSecurityGroup", vpc_id=vpc.id, name=f"{names.prefix}-efa").id,
        )

    def _key(self, names: Names) -> str:
        """A key of its own: storage, with the key for everything else, needs the network first."""
        return EncryptionKey(
            self,
            "FlowLogsKey",
            alias=names.key_alias(NETWORK),
            description=f"{names.prefix}: VPC flow logs",
            log_groups=f"{names.stack(NETWORK)}-*",
        ).arn

    def _adopted(self, existing: ExistingNetwork, names: Names) -> NetworkValues:
        if existing.s3_gateway_endpoint == "create":
            s3_gateway(self, "S3Endpoint", vpc_id=existing.vpc_id, route_table_ids=existing.route_table_ids)
        # CDK warns that these subnets have no route table. Nothing here asks a subnet for it.
        Annotations.of(self).acknowledge_warning("@aws-cdk/aws-ec2:noSubnetRouteTableId")
        return self._values(
            existing.vpc_id,
            (existing.vpc_cidr,),
            gpu=(existing.gpu_subnet.id, existing.gpu_subnet.availability_zone_id),
            subnet_ids=[subnet.id for subnet in existing.control_plane_subnets],
            zones=[subnet.availability_zone_id for subnet in existing.control_plane_subnets],
            route_table_ids=None,
            group=EfaSecurityGroup(self, "EfaSecurityGroup", vpc_id=existing.vpc_id, name=f"{names.prefix}-efa").id,
            more=[group.id for group in existing.security_groups],
        )

    def _values(
        self,
        vpc_id: str,
        cidrs: tuple[str, ...],
        *,
        gpu: tuple[str, str],
        subnet_ids: Sequence[str],
        zones: Sequence[str],
        route_table_ids: Sequence[str] | None,
        group: str,
        more: Sequence[str] = (),
    ) -> NetworkValues:
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Network",
            vpc_id=vpc_id,
            vpc_cidr_block=cidrs[0],
            availability_zones=list(zones),
            private_subnet_ids=list(subnet_ids),
            private_subnet_route_table_ids=list(route_table_ids) if route_table_ids else None,
        )
        return NetworkValues(
            vpc=vpc,
            vpc_id=vpc_id,
            vpc_cidr_blocks=cidrs,
            gpu_subnet_id=gpu[0],
            gpu_availability_zone_id=gpu[1],
            control_plane_subnets=tuple(vpc.private_subnets),
            control_plane_subnet_ids=tuple(subnet_ids),
            efa_security_group_id=group,
            node_security_group_ids=(group, *more),
        )
