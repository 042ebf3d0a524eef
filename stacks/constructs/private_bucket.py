"""A bucket that only its account can reach, over TLS."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.constructs.realm import realm_of
from stacks.constructs.retained import retained

UPLOAD_DAYS: Final = 7
"""After how many days the parts of an upload that was never finished go; they are billed and invisible."""
OLD_VERSION_DAYS: Final = 30
"""How long an overwritten or deleted object can be brought back."""
LOG_DAYS: Final = 90


class PrivateBucket(Construct):
    """Versioned, encrypted, closed to the public, retained; every access is logged when there is a ``log_bucket``."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        name: str,
        key_arn: str | None,
        log_bucket: "PrivateBucket | None" = None,
        logs_of: Sequence[str] = (),
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        """``key_arn`` encrypts new objects (``None``: the key that S3 holds); ``logs_of`` are buckets that log into this one.

        ``raw`` are CloudFormation properties by dotted path, set last.
        """
        super().__init__(scope, id_)
        self.name: Final = name
        self.arn: Final = f"arn:{realm_of(self).partition}:s3:::{name}"
        expiry = [{"id": "OldLogs", "status": "Enabled", "expirationInDays": LOG_DAYS}] if logs_of else []
        self.resource: Final[s3.CfnBucket] = s3.CfnBucket(
            self,
            "Bucket",
            bucket_name=name,
            bucket_encryption=_encryption(key_arn),
            public_access_block_configuration={
                "blockPublicAcls": True, "blockPublicPolicy": True, "ignorePublicAcls": True, "restrictPublicBuckets": True,
            },
            ownership_controls={"rules": [{"objectOwnership": "BucketOwnerEnforced"}]},
            versioning_configuration={"status": "Enabled"},
            lifecycle_configuration={
                "rules": [
                    {
                        "id": "UnfinishedUploads", "status": "Enabled",
                        "abortIncompleteMultipartUpload": {"daysAfterInitiation": UPLOAD_DAYS},
                    },
                    {"id": "OldVersions", "status": "Enabled", "noncurrentVersionExpiration": {"noncurrentDays": OLD_VERSION_DAYS}},
                    *expiry,
                ]
            },
            logging_configuration=(
                {"destinationBucketName": log_bucket.resource.ref, "logFilePrefix": f"{name}/"} if log_bucket else None
            ),
        )  # fmt: skip
        for path, value in (raw or {}).items():
            self.resource.add_property_override(path, value)
        retained(self.resource, id_)
        statements = [_tls_only(self.resource.attr_arn), *([self._logs(logs_of)] if logs_of else [])]
        self.policy: Final = s3.CfnBucketPolicy(
            self, "Policy", bucket=self.resource.ref, policy_document={"Version": "2012-10-17", "Statement": statements}
        )
        retained(self.policy, f"{id_}Policy")

    def _logs(self, buckets: Sequence[str]) -> dict[str, Any]:
        """Let S3 write access logs of these buckets, and nobody else's (a bucket without ACLs needs a policy for it)."""
        realm = realm_of(self)
        return {
            "Sid": "AccessLogs",
            "Effect": "Allow",
            "Principal": {"Service": "logging.s3.amazonaws.com"},
            "Action": "s3:PutObject",
            "Resource": [f"{self.arn}/{bucket}/*" for bucket in buckets],
            "Condition": {
                "ArnLike": {"aws:SourceArn": [f"arn:{realm.partition}:s3:::{bucket}" for bucket in buckets]},
                "StringEquals": {"aws:SourceAccount": realm.account},
            },
        }


def _encryption(key_arn: str | None) -> dict[str, Any]:
    default = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": key_arn} if key_arn else {"sseAlgorithm": "AES256"}
    # A bucket key spares one request to KMS for every object.
    return {"serverSideEncryptionConfiguration": [{"serverSideEncryptionByDefault": default, "bucketKeyEnabled": key_arn is not None}]}


def _tls_only(arn: str) -> dict[str, Any]:
    return {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": "s3:*",
        "Resource": [arn, f"{arn}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
