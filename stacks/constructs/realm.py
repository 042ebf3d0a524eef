"""Where a stack is deployed, asked once: every question to CDK crosses to Node and back."""

from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from aws_cdk import Stack
from constructs import Construct


@dataclass(frozen=True, slots=True)
class Realm:
    """Partition, Region and account of a stack."""

    partition: str
    region: str
    account: str


_KNOWN: Final[WeakKeyDictionary[Stack, Realm]] = WeakKeyDictionary()


def realm_of(scope: Construct) -> Realm:
    """The realm of the stack that a construct is in."""
    stack = Stack.of(scope)
    if stack not in _KNOWN:
        _KNOWN[stack] = Realm(stack.partition, stack.region, stack.account)
    return _KNOWN[stack]
