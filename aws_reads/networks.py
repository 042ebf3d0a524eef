"""Subnets and security groups that are adopted."""

from typing import Any

from botocore.exceptions import ClientError

from aws_reads.asking import Ask, missing, pages
from dpd.preflight.facts import SecurityGroup, Subnet


def subnet(ask: Ask) -> Subnet | None:
    """A subnet by its id."""
    try:
        (found,) = ask.clients("ec2").describe_subnets(SubnetIds=[ask.subject])["Subnets"]
    except ClientError as error:
        missing(error, "InvalidSubnetID.NotFound")
        return None
    return Subnet(
        vpc_id=found["VpcId"], zone_id=found["AvailabilityZoneId"], cidr=found["CidrBlock"], free=found["AvailableIpAddressCount"]
    )


def security_group(ask: Ask) -> SecurityGroup | None:
    """A security group by its id, with all its rules."""
    client = ask.clients("ec2")
    try:
        (found,) = client.describe_security_groups(GroupIds=[ask.subject])["SecurityGroups"]
    except ClientError as error:
        missing(error, "InvalidGroup.NotFound", "InvalidGroupId.Malformed")
        return None
    rules = pages(client, "describe_security_group_rules", "SecurityGroupRules", Filters=[{"Name": "group-id", "Values": [ask.subject]}])
    return SecurityGroup(vpc_id=found.get("VpcId", ""), rules=tuple(sorted({_rule(one) for one in rules})))


def _rule(rule: dict[str, Any]) -> tuple[str, str, str]:
    peer = (
        rule.get("ReferencedGroupInfo", {}).get("GroupId") or rule.get("CidrIpv4") or rule.get("CidrIpv6") or rule.get("PrefixListId") or ""
    )
    return "egress" if rule["IsEgress"] else "ingress", str(rule["IpProtocol"]), peer
