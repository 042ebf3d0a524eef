"""A customer-managed key."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.constructs.alarms import from_alarms, from_workspaces
from stacks.constructs.realm import Realm, realm_of
from stacks.constructs.retained import retained

_USE: Final = ("kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey")
DELETION_WINDOW_DAYS: Final = 30


class EncryptionKey(Construct):
    """A symmetric key that is rotated every year and never deleted with its stack.

    IAM policies of the account decide who may use it. Services that come with no identity of the account's own get a
    statement each, limited to the resources they may use it for.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        alias: str,
        description: str,
        log_groups: str,
        linked_buckets: Sequence[str] = (),
        alarms: str = "",
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        """``log_groups`` and ``alarms`` are patterns of names; ``linked_buckets`` are buckets that FSx for Lustre reads and writes.

        ``raw`` are CloudFormation properties by dotted path, set last.
        """
        super().__init__(scope, id_)
        realm = realm_of(self)
        statements = [
            _account(realm),
            _logs(realm, log_groups),
            *([_alarms(realm, alarms), _workspaces(realm)] if alarms else []),
            *(_lustre(realm, bucket) for bucket in linked_buckets),
        ]
        key = kms.CfnKey(
            self,
            "Key",
            description=description,
            enable_key_rotation=True,
            pending_window_in_days=DELETION_WINDOW_DAYS,
            key_policy={"Version": "2012-10-17", "Statement": statements},
        )
        for path, value in (raw or {}).items():
            key.add_property_override(path, value)
        retained(key, id_)
        kms.CfnAlias(self, "Alias", alias_name=alias, target_key_id=key.ref).override_logical_id(f"{id_}Alias")
        self.arn: Final = key.attr_arn


def _account(realm: Realm) -> dict[str, Any]:
    """Hand the decision to IAM. Without it nobody could change the key any more."""
    root = f"arn:{realm.partition}:iam::{realm.account}:root"
    return {"Sid": "DecidedByIam", "Effect": "Allow", "Principal": {"AWS": root}, "Action": "kms:*", "Resource": "*"}


def _logs(realm: Realm, log_groups: str) -> dict[str, Any]:
    """CloudWatch Logs of this Region, for log groups of this environment alone.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html
    """
    arn = f"arn:{realm.partition}:logs:{realm.region}:{realm.account}:log-group:{log_groups}"
    return {
        "Sid": "LogGroups",
        "Effect": "Allow",
        "Principal": {"Service": f"logs.{realm.region}.amazonaws.com"},
        "Action": list(_USE),
        "Resource": "*",
        "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": arn}},
    }


def _alarms(realm: Realm, alarms: str) -> dict[str, Any]:
    """CloudWatch, so that these alarms can be published to an encrypted topic."""
    return {
        "Sid": "Alarms",
        "Effect": "Allow",
        "Principal": {"Service": "cloudwatch.amazonaws.com"},
        "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
        "Resource": "*",
        "Condition": from_alarms(realm, alarms),
    }


def _workspaces(realm: Realm) -> dict[str, Any]:
    """Prometheus workspaces, so that their alerts can be published to an encrypted topic."""
    return {**from_workspaces(realm), "Sid": "Workspaces", "Action": ["kms:Decrypt", "kms:GenerateDataKey*"], "Resource": "*"}


def _lustre(realm: Realm, bucket: str) -> dict[str, Any]:
    """The role that FSx makes for each file system with a linked bucket. It does not exist before the file system does.

    With S3 Bucket Keys the encryption context is the bucket, not the object.
    https://docs.aws.amazon.com/fsx/latest/LustreGuide/s3-server-side-encryption-support.html
    """
    roles = "role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_fs-*"
    return {
        "Sid": "LustreLink",
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": list(_USE),
        "Resource": "*",
        "Condition": {
            "StringEquals": {"kms:CallerAccount": realm.account, "kms:ViaService": f"s3.{realm.region}.amazonaws.com"},
            "ArnLike": {"aws:PrincipalArn": f"arn:{realm.partition}:iam::{realm.account}:{roles}"},
            "StringLike": {"kms:EncryptionContext:aws:s3:arn": f"arn:{realm.partition}:s3:::{bucket}"},
        },
    }
