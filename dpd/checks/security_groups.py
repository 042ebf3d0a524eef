"""Rules about security groups that are adopted."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from dpd.catalog import limits
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.environment.network import ExistingSecurityGroup, SecurityGroupRule
from dpd.finding import Level

_EFA: Final = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html#efa-start-security"
_RULES: Final = "https://docs.aws.amazon.com/cli/latest/reference/ec2/describe-security-group-rules.html"
_ALL: Final = "-1"
_PROTOCOL: Final = re.compile(r"-1|tcp|udp|icmp|icmpv6|[0-9]{1,3}")
_REFERENCE: Final = re.compile(r"(?:sg|pl)-[0-9a-f]{8,17}")
_OWN_GROUPS: Final = 1
"""Groups that this tool attaches to the nodes itself."""


def _groups(environment: Environment) -> Iterator[tuple[str, ExistingSecurityGroup]]:
    existing = environment.network.existing
    for index, group in enumerate(existing.security_groups if existing else ()):
        yield f"network.existing.security_groups[{index}]", group


@check(
    "SGR001",
    "Every adopted security group lets EFA through to itself, both ways",
    why="EFA bypasses the operating system and only passes rules whose peer is the group itself. Without them the EFA health check fails "
    "with empty logs, or transfers time out. Egress to 0.0.0.0/0 does not count, and one good group does not make up for another.",
    link=_EFA,
    seen_in=(
        "https://github.com/awslabs/awsome-distributed-ai/pull/259",
        "https://github.com/gardener/gardener-extension-provider-aws/issues/1832",
        "https://github.com/aws/aws-parallelcluster/issues/3590",
        "https://github.com/eksctl-io/eksctl/issues/3465",
    ),
)
def self_rules(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask every group for all traffic from and to itself, and name the group and the direction that is missing."""
    for path, group in _groups(environment):
        for direction, word in (("ingress", "from"), ("egress", "to")):
            if any(rule.direction == direction and rule.protocol == _ALL and rule.peer == group.id for rule in group.rules):
                continue
            yield Problem(
                path=f"{path}.rules",
                message=f"{group.id} does not allow all traffic {word} itself{_instead(group, direction)}",
                value=group.id,
                limit=f"an {direction} rule with protocol -1 and peer {group.id}",
                fix=f"add it (aws ec2 authorize-security-group-{direction} --group-id {group.id} --ip-permissions "
                f"'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={group.id}}}]') and write it here",
            )


def _instead(group: ExistingSecurityGroup, direction: str) -> str:
    """What the user may have taken for the rule that is missing."""
    for rule in group.rules:
        if rule.direction == direction and rule.peer == group.id:
            return f", only protocol {rule.protocol[:20]}"
        if rule.direction == direction and rule.peer == "0.0.0.0/0":
            return " (0.0.0.0/0 does not count for EFA)"
    return ""


@check(
    "SGR002",
    "Nodes have few enough security groups, each once",
    why="HyperPod takes a fixed number of security groups, one of which this tool makes.",
    link="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_VpcConfig.html",
)
def few(environment: Environment, _: Context) -> Iterator[Problem]:
    """Count the groups, and look for one that stands twice."""
    groups = list(_groups(environment))
    most = limits.node_security_groups() - _OWN_GROUPS
    if len(groups) > most:
        yield Problem(
            path="network.existing.security_groups",
            message=f"{len(groups)} groups, besides the EFA group that this tool makes",
            value=len(groups),
            limit=f"at most {most}",
            fix="merge some of them",
        )
    seen: dict[str, str] = {}
    for path, group in groups:
        if seen.setdefault(group.id, path) != path:
            yield Problem(path=f"{path}.id", message=f"stands twice, first at {seen[group.id]}", value=group.id, fix="keep one of them")


def _unreadable(rule: SecurityGroupRule) -> tuple[str, str, str] | None:
    """Field, value and limit of the part of a rule that EC2 does not print so."""
    if not _PROTOCOL.fullmatch(rule.protocol):
        return "protocol", rule.protocol, '"-1" (all), tcp, udp, icmp, icmpv6 or a protocol number, in quotes'
    if not _REFERENCE.fullmatch(rule.peer):
        try:
            ipaddress.ip_network(rule.peer)
        except ValueError:
            return "peer", rule.peer, "a security group id (sg-…), a prefix list id (pl-…) or a network"
    return None


@check(
    "SGR003",
    "Rules are written as EC2 prints them",
    why="A rule that cannot be read cannot be checked: a group that looks right would pass and fail on the nodes.",
    link=_RULES,
)
def readable(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse protocols and peers of another form."""
    for path, group in _groups(environment):
        for index, rule in enumerate(group.rules):
            wrong = _unreadable(rule)
            if wrong:
                field, value, limit = wrong
                yield Problem(
                    path=f"{path}.rules[{index}].{field}",
                    message=f"is not a {field} as EC2 prints it",
                    value=value,
                    limit=limit,
                    fix=f"copy it from: aws ec2 describe-security-group-rules --filters Name=group-id,Values={group.id}",
                )


@check(
    "SGR004",
    "No adopted security group lets the whole internet in",
    why="Nodes hold model weights and instance credentials. They sit in private subnets today; a route or load balancer added later "
    "opens them.",
    link="https://docs.aws.amazon.com/vpc/latest/userguide/vpc-security-best-practices.html",
    level=Level.WARNING,
)
def closed(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of ingress from everywhere, IPv4 or IPv6."""
    for path, group in _groups(environment):
        for index, rule in enumerate(group.rules):
            if rule.direction == "ingress" and rule.peer in ("0.0.0.0/0", "::/0"):
                yield Problem(
                    path=f"{path}.rules[{index}].peer",
                    message=f"{group.id} accepts traffic from everywhere",
                    value=rule.peer,
                    fix="name the networks that need it",
                )
