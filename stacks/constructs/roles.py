"""IAM roles, with their policies inside: what a role may do exists the moment the role does, so nothing can use it too early."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import Fn, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from dpd.catalog import iam_policies
from dpd.catalog.iam_policies import Values

_VERSION: Final = "2012-10-17"
POD_IDENTITY: Final = "pods.eks.amazonaws.com"


def policies(stack: Stack, values: Mapping[str, Values]) -> dict[str, dict[str, Any]]:
    """Policy documents of the catalog by name, filled in with ``values[name]`` and the stack's partition, Region and account."""
    place = {"partition": stack.partition, "region": stack.region, "account": stack.account}
    return {name: iam_policies.find(name).document({**place, **given}) for name, given in values.items()}


def service_trust(*services: str) -> dict[str, Any]:
    """Let AWS services assume a role."""
    return {"Version": _VERSION, "Statement": [_service(service) for service in services]}


def web_identity_trust(*, provider_arn: str, issuer: str, service_account: str, services: Sequence[str] = ()) -> str:
    """Let one Kubernetes service account (``namespace:name``) assume a role, and AWS services besides it.

    The issuer stands in condition *keys*. CDK refuses a reference in a key of an object, and its own way round is one
    more custom resource; IAM's resource type takes the document as text as well, where ``Fn::Sub`` may put it anywhere.
    """
    statement = {
        "Effect": "Allow",
        "Principal": {"Federated": "${Provider}"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {
            "StringEquals": {"${Issuer}:aud": "sts.amazonaws.com", "${Issuer}:sub": f"system:serviceaccount:{service_account}"},
        },
    }
    document = {"Version": _VERSION, "Statement": [*map(_service, services), statement]}
    return Fn.sub(json.dumps(document), {"Provider": provider_arn, "Issuer": issuer})


def _service(service: str) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}


def role(
    scope: Construct,
    id_: str,
    *,
    trust: dict[str, Any] | str,
    description: str,
    documents: Mapping[str, dict[str, Any]] | None = None,
    managed: Sequence[str] = (),
    name: str | None = None,
) -> iam.CfnRole:
    """Make a role. ``managed`` are names of AWS managed policies; ``name`` only where a service looks at it."""
    partition = Stack.of(scope).partition
    return iam.CfnRole(
        scope,
        id_,
        assume_role_policy_document=trust,
        description=description,
        role_name=name,
        managed_policy_arns=[f"arn:{partition}:iam::aws:policy/{policy}" for policy in managed] or None,
        policies=[{"policyName": policy, "policyDocument": document} for policy, document in (documents or {}).items()] or None,
    )


def fixed(scope: Construct, id_: str, made: iam.CfnRole) -> iam.IRole:
    """A role for constructs that would add permissions of their own to it: they cannot, it stays as it was made."""
    return iam.Role.from_role_arn(scope, id_, made.attr_arn, mutable=False)
