"""Where a stack is deployed, asked once: every question to CDK crosses to Node and back."""

from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from aws_cdk import Stack
from constructs import Construct


@dataclass(frozen=True, slots=True)
class Place:
    """Partition, Region and account of a stack."""

    partition: str
    region: str
    account: str


_KNOWN: Final[WeakKeyDictionary[Stack, Place]] = WeakKeyDictionary()


def place_of(scope: Construct) -> Place:
    """The place of the stack that a construct is in."""
    stack = Stack.of(scope)
    if stack not in _KNOWN:
        _KNOWN[stack] = Place(stack.partition, stack.region, stack.account)
    return _KNOWN[stack]
