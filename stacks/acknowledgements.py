"""How a finding of the policy checkers is accepted: at one construct, for one rule, with a reason.

https://github.com/cdklabs/cdk-nag
"""

from collections.abc import Mapping
from typing import Final

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk.aws_lambda import Function
from constructs import IConstruct

_PACK: Final = "AwsSolutions"
BUILT_IN: Final = "CloudFormation-Validate::"
"""Begins the ids of the validation that CDK runs by itself; its schemas are older than those of CloudFormation."""


def accept(construct: IConstruct, reasons: Mapping[str, str], *, pack: str = f"{_PACK}::{_PACK}-") -> None:
    """Accept findings at a construct and below it, of cdk-nag's AwsSolutions unless ``pack`` begins another id.

    ``reasons`` maps a rule, such as ``SF1`` or what ``wildcard`` and ``managed_policy`` make, to why it does not fit here.
    """
    if reasons:
        rules = [Acknowledgment(id=f"{pack}{rule}", reason=reason) for rule, reason in reasons.items()]
        Validations.of(construct).acknowledge(*rules)


def accept_newer_properties(construct: IConstruct) -> None:
    """Let a resource have properties that CDK's schemas do not know yet. What the user writes is checked against newer ones."""
    accept(construct, {"F3002": "the property is newer than CDK's copy of the schema; the checks know it"}, pack=BUILT_IN)


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
    ids = [arn["Fn::GetAtt"][0] for arn in stack.resolve([_arn(function) for function in functions])]
    accept(
        provider,
        {**roles, **{wildcard(f"<{id_}.Arn>:*"): "versions of one function, which CDK's provider framework may call" for id_ in ids}},
    )


def _arn(function: IConstruct) -> str:
    assert isinstance(function, Function)
    return function.function_arn
