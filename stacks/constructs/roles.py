"""IAM roles, with their policies inside: what a role may do exists the moment the role does, so nothing can use it too early."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from aws_cdk import Fn
from aws_cdk import aws_iam as iam
from constructs import Construct

from dpd.catalog import iam_policies
from dpd.catalog.iam_policies import Values
from stacks.acknowledgements import accept, managed_policy, wildcard
from stacks.constructs.realm import realm_of

_VERSION: Final = "2012-10-17"
POD_IDENTITY: Final = "pods.eks.amazonaws.com"


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
    grants: Mapping[str, Values] | None = None,
    documents: Mapping[str, dict[str, Any]] | None = None,
    managed: Mapping[str, str] | None = None,
    name: str | None = None,
) -> iam.CfnRole:
    """Make a role.

    ``grants`` are policies of the catalog by name, each with its values; partition, Region and account are filled in.
    ``documents`` are other policies. ``managed`` maps AWS managed policies to the reason why no own policy does. A role
    has a ``name`` only where a service looks at it. Wildcards of the catalog are accepted with the catalog's reasons.
    """
    realm = realm_of(scope)
    filled = {policy: {**asdict(realm), **values} for policy, values in (grants or {}).items()}
    granted = {policy: iam_policies.find(policy).document(values) for policy, values in filled.items()}
    made = iam.CfnRole(
        scope,
        id_,
        assume_role_policy_document=trust,
        description=description,
        role_name=name,
        managed_policy_arns=[f"arn:{realm.partition}:iam::aws:policy/{policy}" for policy in managed or ()] or None,
        policies=[{"policyName": policy, "policyDocument": document} for policy, document in {**granted, **(documents or {})}.items()]
        or None,
    )
    reasons: dict[str, str] = {managed_policy(policy, realm.partition): why for policy, why in (managed or {}).items()}
    for policy, values in filled.items():
        for resource, why in iam_policies.find(policy).wildcards(values):
            before = reasons.get(wildcard(resource), "")
            if why not in before:
                reasons[wildcard(resource)] = f"{before}; {why}" if before else why
    accept(made, reasons)
    return made


def fixed(scope: Construct, id_: str, made: iam.CfnRole) -> iam.IRole:
    """A role for constructs that would add permissions of their own to it: they cannot, it stays as it was made."""
    return iam.Role.from_role_arn(scope, id_, made.attr_arn, mutable=False)
