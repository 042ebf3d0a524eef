"""What a release may look at in the account of an environment, and what it may become there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from constructs import Construct

from dpd.catalog.iam_policies import Values
from stacks.constructs.realm import realm_of

DEFAULT_QUALIFIER: Final = "hnb659fds"
_BOOTSTRAP_ROLES: Final = ("deploy", "file-publishing", "image-publishing", "lookup")


@dataclass(frozen=True, slots=True)
class Seen:
    """The environment as a release sees it."""

    prefix: str
    eks_cluster: str
    qualifier: str
    model_bucket: str
    buckets: tuple[str, ...]
    log_bucket: str
    key_arn: str | None
    """Adopted key of the reports; ``None``: the key that the storage stack makes, known by its alias."""
    key_alias: str


def reading(scope: Construct, seen: Seen, reader: str) -> Mapping[str, Values]:
    """Policies of the catalog with their values, for the role named ``reader``."""
    realm = realm_of(scope)
    bucket = f"arn:{realm.partition}:s3:::"
    return {
        "release_reader": {
            "eks_cluster": f"arn:{realm.partition}:eks:{realm.region}:{realm.account}:cluster/{seen.eks_cluster}",
            "qualifier": seen.qualifier,
            "prefix": seen.prefix,
            "reader": reader,
            "buckets": [f"{bucket}{name}" for name in seen.buckets],
            "model_bucket": f"{bucket}{seen.model_bucket}",
        },
        "release_alarms": {"prefix": seen.prefix, "log_bucket": seen.log_bucket},
    }


def decrypting(scope: Construct, seen: Seen) -> dict[str, Any]:
    """Reports can be read: with the environment's key, through S3 alone."""
    realm = realm_of(scope)
    through = {"StringEquals": {"kms:ViaService": f"s3.{realm.region}.amazonaws.com"}}
    if seen.key_arn:
        statement = {"Resource": seen.key_arn, "Condition": through}
    else:
        # The key's id is known only when the storage stack stands, which this stack must not wait for.
        named = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": seen.key_alias}}
        statement = {"Resource": f"arn:{realm.partition}:kms:{realm.region}:{realm.account}:key/*", "Condition": {**through, **named}}
    return _document({"Sid": "ReportKey", "Effect": "Allow", "Action": "kms:Decrypt", **statement})


def any_key(scope: Construct) -> dict[str, str]:
    """Why a resource of ``decrypting`` is a wildcard."""
    realm = realm_of(scope)
    resource = f"arn:{realm.partition}:kms:{realm.region}:{realm.account}:key/*"
    return {resource: "a key's id is not known before its stack stands; the condition names its alias, and S3 as the only way"}


def deploying(scope: Construct, qualifier: str) -> dict[str, Any]:
    """Become the roles of CDK's bootstrap, which do all of the deploying, and nothing else."""
    realm = realm_of(scope)
    roles = [
        f"arn:{realm.partition}:iam::{realm.account}:role/cdk-{qualifier}-{name}-role-{realm.account}-{realm.region}"
        for name in _BOOTSTRAP_ROLES
    ]
    return _document({"Sid": "BootstrapRoles", "Effect": "Allow", "Action": "sts:AssumeRole", "Resource": roles})


def _document(statement: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [statement]}
