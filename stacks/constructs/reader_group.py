"""A security group of something outside of the cluster that reads what pods say."""

from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.values import EksValues, NetworkValues

_HTTPS: Final = 443


def reader_group(
    scope: Construct, *, who: str, network: NetworkValues, eks: EksValues, ports: Sequence[int]
) -> tuple[ec2.CfnSecurityGroup, list[ec2.CfnSecurityGroupIngress]]:
    """The group, to the Kubernetes API, to these ports of the nodes' pods, and to AWS; and the rules that let it in."""
    made = ec2.CfnSecurityGroup(
        scope,
        "SecurityGroup",
        group_description=f"{who}: to the Kubernetes API, to pods and to AWS",
        vpc_id=network.vpc_id,
        security_group_egress=[
            {"ipProtocol": "tcp", "fromPort": _HTTPS, "toPort": _HTTPS, "cidrIp": "0.0.0.0/0", "description": "Kubernetes API and AWS"},
            *(
                {
                    "ipProtocol": "tcp",
                    "fromPort": port,
                    "toPort": port,
                    "destinationSecurityGroupId": network.efa_security_group_id,
                    "description": "Pods",
                }
                for port in ports
            ),
        ],
    )
    into = [("Api", eks.security_group_id, _HTTPS), *((f"Pods{port}", network.efa_security_group_id, port) for port in ports)]
    rules = [
        ec2.CfnSecurityGroupIngress(
            scope,
            f"Into{what}",
            group_id=group_id,
            source_security_group_id=made.attr_group_id,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            description=who,
        )
        for what, group_id, port in into
    ]
    return made, rules
