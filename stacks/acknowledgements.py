"""How a finding of the policy checkers is accepted: at one construct, for one rule, with a reason.

https://github.com/cdklabs/cdk-nag
"""

from collections.abc import Mapping
from typing import Final

from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct

_PACK: Final = "AwsSolutions"


def accept(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    """Accept findings of AwsSolutions at a construct and below it. ``reasons`` maps a rule, such as ``SF1`` or the id that
    ``wildcard`` and ``managed_policy`` make, to why it does not fit here.
    """
    if reasons:
        rules = [Acknowledgment(id=f"{_PACK}::{_PACK}-{rule}", reason=reason) for rule, reason in reasons.items()]
        Validations.of(construct).acknowledge(*rules)


def wildcard(resource: str) -> str:
    """Rule of a resource with a wildcard in a policy."""
    return f"IAM5[Resource::{resource}]"


def managed_policy(name: str, partition: str) -> str:
    """Rule of an AWS managed policy."""
    return f"IAM4[Policy::arn:{partition}:iam::aws:policy/{name}]"


def accept_provider(provider: IConstruct, *functions: IConstruct) -> None:
    """Accept what CDK's provider framework brings, which takes no other roles than those it makes.

    ``functions`` are those that it may call: CDK grants each with all its versions.
    """
    stack = Stack.of(provider)
    why = "CDK's provider framework attaches it to functions of its own"
    roles = {
        managed_policy(f"service-role/{policy}", "<AWS::Partition>"): why
        for policy in ("AWSLambdaBasicExecutionRole", "AWSLambdaVPCAccessExecutionRole")
    }
    ids = [stack.resolve(stack.get_logical_id(function.node.default_child)) for function in functions]  # type: ignore[arg-type]
    accept(
        provider,
        {**roles, **{wildcard(f"<{id_}.Arn>:*"): "versions of one function, which CDK's provider framework may call" for id_ in ids}},
    )
