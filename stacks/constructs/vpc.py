"""A VPC by AZ id, made of plain CloudFormation resources.

CDK's own Vpc takes AZ names, which mean another place in another account, and looks them up: without credentials it
fails, or fills in `dummy1a`. https://github.com/aws/aws-cdk/issues/9226
"""

from collections.abc import Mapping
from typing import Any, Final

from aws_cdk import CfnTag
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from dpd.sizing.subnets import PlannedSubnet, SubnetPlan

PRIVATE: Final = {"kubernetes.io/role/internal-elb": "1"}
"""Where internal load balancers go. The GPU subnet has it too: a load balancer sends nothing to AZs that it is not in."""
PUBLIC: Final = {"kubernetes.io/role/elb": "1"}


class PlannedVpc(Construct):
    """The subnets of a plan, one route table for each private subnet, and a NAT gateway for each of the first ``nat_gateways`` AZs."""

    def __init__(
        self, scope: Construct, id_: str, *, cidr: str, plan: SubnetPlan, nat_gateways: int, name: str, raw: Mapping[str, Any]
    ) -> None:
        super().__init__(scope, id_)
        self._name = name
        vpc = ec2.CfnVPC(self, "Vpc", cidr_block=cidr, enable_dns_hostnames=True, enable_dns_support=True, tags=self._tags("", {}))
        vpc.override_logical_id(id_)
        for path, value in raw.items():
            vpc.add_property_override(path, value)
        self.id: Final = vpc.attr_vpc_id
        self.cidrs: Final = (cidr, plan.secondary_cidr) if plan.secondary_cidr else (cidr,)
        gpu = self._subnet("Gpu", plan.gpu, PRIVATE)
        if plan.secondary_cidr:
            gpu.add_resource_dependency(ec2.CfnVPCCidrBlock(self, "SecondaryCidr", vpc_id=self.id, cidr_block=plan.secondary_cidr))
        control = [self._subnet(f"ControlPlane{index}", planned, PRIVATE) for index, planned in enumerate(plan.control_plane)]
        self.gpu_subnet_id: Final = gpu.attr_subnet_id
        self.control_plane_subnet_ids: Final = tuple(subnet.attr_subnet_id for subnet in control)
        gateways = self._nat(plan.public, nat_gateways) if nat_gateways else []
        # The GPU subnet and the first control-plane subnet share a NAT gateway.
        private = {"Gpu": self.gpu_subnet_id} | {f"ControlPlane{index}": id_ for index, id_ in enumerate(self.control_plane_subnet_ids)}
        shares = (0, *range(len(control)))
        tables = []
        for (part, subnet_id), share in zip(private.items(), shares, strict=True):
            tables.append(self._table(part, subnet_id))
            if gateways:
                self._default_route(part, tables[-1], nat_gateway_id=gateways[share % len(gateways)])
        self.control_plane_route_table_ids: Final = tuple(tables[1:])
        self.private_route_table_ids: Final = tuple(tables)

    def _subnet(self, part: str, planned: PlannedSubnet, tags: Mapping[str, str]) -> ec2.CfnSubnet:
        subnet = ec2.CfnSubnet(
            self,
            f"{part}Subnet",
            vpc_id=self.id,
            availability_zone_id=planned.availability_zone_id,
            cidr_block=planned.cidr,
            map_public_ip_on_launch=False,
            tags=self._tags(part, tags),
        )
        subnet.override_logical_id(f"{part}Subnet")
        return subnet

    def _table(self, part: str, *subnet_ids: str) -> str:
        table = ec2.CfnRouteTable(self, f"{part}Routes", vpc_id=self.id, tags=self._tags(part, {})).attr_route_table_id
        for index, subnet_id in enumerate(subnet_ids):
            ec2.CfnSubnetRouteTableAssociation(self, f"{part}Association{index}", route_table_id=table, subnet_id=subnet_id)
        return table

    def _default_route(self, part: str, table: str, **target: str) -> ec2.CfnRoute:
        return ec2.CfnRoute(self, f"{part}DefaultRoute", route_table_id=table, destination_cidr_block="0.0.0.0/0", **target)

    def _nat(self, planned: tuple[PlannedSubnet, ...], count: int) -> list[str]:
        """Public subnets, the way out, and NAT gateways; returns the ids of the latter."""
        gateway = ec2.CfnInternetGateway(self, "InternetGateway", tags=self._tags("", {}))
        attached = ec2.CfnVPCGatewayAttachment(
            self, "InternetGatewayAttachment", vpc_id=self.id, internet_gateway_id=gateway.attr_internet_gateway_id
        )
        public = [self._subnet(f"Public{index}", subnet, PUBLIC).attr_subnet_id for index, subnet in enumerate(planned)]
        route = self._default_route("Public", self._table("Public", *public), gateway_id=gateway.attr_internet_gateway_id)
        # CloudFormation does not see that a route through a gateway, or a public address, needs the gateway attached.
        route.add_resource_dependency(attached)
        gateways = []
        for index, subnet_id in enumerate(public[:count]):
            address = ec2.CfnEIP(self, f"NatAddress{index}", domain="vpc", tags=self._tags(f"Nat{index}", {}))
            address.add_resource_dependency(attached)
            nat = ec2.CfnNatGateway(
                self, f"Nat{index}", subnet_id=subnet_id, allocation_id=address.attr_allocation_id, tags=self._tags(f"Nat{index}", {})
            )
            nat.add_resource_dependency(route)
            gateways.append(nat.attr_nat_gateway_id)
        return gateways

    def _tags(self, part: str, tags: Mapping[str, str]) -> list[CfnTag]:
        name = f"{self._name}-{part.lower()}" if part else self._name
        return [CfnTag(key=key, value=value) for key, value in {"Name": name, **tags}.items()]
