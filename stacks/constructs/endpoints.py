"""VPC endpoints: how private subnets reach AWS without the internet."""

from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from dpd.catalog.vpc_endpoints import interface_endpoints
from stacks.constructs.realm import realm_of

_NOWHERE: Final = {
    "cidrIp": "255.255.255.255/32", "ipProtocol": "icmp", "fromPort": 252, "toPort": 86,
    "description": "Nothing: without a rule, everything would be allowed",
}  # fmt: skip


def s3_gateway(scope: Construct, id_: str, *, vpc_id: str, route_table_ids: Sequence[str]) -> None:
    """Lead these route tables to S3. It is free, and lifecycle scripts, weights and image layers all come from there."""
    ec2.CfnVPCEndpoint(
        scope,
        id_,
        vpc_id=vpc_id,
        service_name=f"com.amazonaws.{realm_of(scope).region}.s3",
        vpc_endpoint_type="Gateway",
        route_table_ids=list(route_table_ids),
    )


class InterfaceEndpoints(Construct):
    """An endpoint for every service that a closed network calls, open to the VPC's own networks on port 443."""

    def __init__(self, scope: Construct, id_: str, *, vpc_id: str, vpc_cidrs: Sequence[str], subnet_ids: Sequence[str], name: str) -> None:
        super().__init__(scope, id_)
        group = ec2.CfnSecurityGroup(
            self,
            "Group",
            group_description="Interface endpoints: HTTPS from the VPC",
            vpc_id=vpc_id,
            security_group_ingress=[
                {"cidrIp": cidr, "ipProtocol": "tcp", "fromPort": 443, "toPort": 443, "description": "HTTPS from the VPC"}
                for cidr in vpc_cidrs
            ],
            security_group_egress=[_NOWHERE],
            tags=[{"key": "Name", "value": f"{name}-endpoints"}],
        )
        region = realm_of(self).region
        for endpoint in interface_endpoints():
            ec2.CfnVPCEndpoint(
                self,
                endpoint.service,
                vpc_id=vpc_id,
                service_name=f"com.amazonaws.{region}.{endpoint.service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(subnet_ids),
                security_group_ids=[group.attr_group_id],
            )
