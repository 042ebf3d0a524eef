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


_KNOWN: Final[WeakKeyDictionary[Construct, Realm]] = WeakKeyDictionary()


def realm_of(scope: Construct) -> Realm:
    """The realm of the stack that a construct is in."""
    if scope not in _KNOWN:
        stack = scope if isinstance(scope, Stack) else Stack.of(scope)
        if stack not in _KNOWN:
            _KNOWN[stack] = Realm(stack.partition, stack.region, stack.account)
        _KNOWN[scope] = _KNOWN[stack]
    return _KNOWN[scope]
