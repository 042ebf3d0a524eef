"""The security group between the nodes of one EFA network."""

from typing import Any, Final

from aws_cdk import aws_ec2 as ec2
from constructs import Construct


class EfaSecurityGroup(Construct):
    """Lets its members send everything to each other, and anything out.

    EFA bypasses the operating system, and its traffic matches only rules whose peer is a security group: the egress rule
    to itself is needed although 0.0.0.0/0 is open. CDK's own SecurityGroup drops that rule with a mere warning when all
    outbound traffic is allowed, so every rule here is a resource of its own.
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html#efa-start-security
    """

    def __init__(self, scope: Construct, id_: str, *, vpc_id: str, name: str) -> None:
        super().__init__(scope, id_)
        group = ec2.CfnSecurityGroup(
            self,
            "Group",
            group_description="EFA: all traffic between members, and out",
            vpc_id=vpc_id,
            security_group_egress=[{"cidrIp": "0.0.0.0/0", "ipProtocol": "-1", "description": "Images, model hubs, AWS services"}],
            tags=[{"key": "Name", "value": name}],
        )
        group.override_logical_id(id_)
        self.id: Final = group.attr_group_id
        every: dict[str, Any] = {"group_id": self.id, "ip_protocol": "-1"}
        ec2.CfnSecurityGroupIngress(
            self, "FromItself", source_security_group_id=self.id, description="Everything from members", **every
        ).override_logical_id(f"{id_}FromItself")
        ec2.CfnSecurityGroupEgress(
            self, "ToItself", destination_security_group_id=self.id, description="Everything to members", **every
        ).override_logical_id(f"{id_}ToItself")
