"""Everything that outlives a deployment: key, buckets, Lustre. Deleting the stack deletes none of it."""

from collections.abc import Mapping
from typing import Any, Final

from aws_cdk import Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from dpd.environment.names import STORAGE, Names
from dpd.environment.storage import ExistingBucket, ExistingKey, Lustre, Storage
from stacks.constructs.encryption_key import EncryptionKey
from stacks.constructs.lustre import AdoptedLustre, LustreFileSystem, LustreLink
from stacks.constructs.private_bucket import PrivateBucket
from stacks.constructs.text_upload import TextUpload
from stacks.values import NetworkValues, StorageValues

LIFECYCLE_PREFIX: Final = "lifecycle/"


class StorageStack(Stack):
    """Key, model bucket, TLS bucket, lifecycle scripts in their bucket, and optionally Lustre linked to the model bucket."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        storage: Storage,
        names: Names,
        network: NetworkValues,
        lifecycle_scripts: Mapping[str, str],
        **stack: Any,
    ) -> None:
        """``lifecycle_scripts`` are texts by file name; ``stack`` are properties of the stack."""
        super().__init__(scope, id_, **stack)
        adopted = storage.models.bucket if isinstance(storage.models.bucket, ExistingBucket) else None
        key_arn = self._key(storage, names, adopted)
        key = kms.Key.from_key_arn(self, "Key", key_arn)
        made = [names.tls_bucket, names.lifecycle_bucket, *([] if adopted else [names.model_bucket])]
        logs = PrivateBucket(self, "LogBucket", name=names.log_bucket, key_arn=None, logs_of=sorted(made))
        # SSE-S3, as AWS sets it up: the operator's managed policy has no permission on any key, and SageMaker reads here too.
        PrivateBucket(self, "TlsBucket", name=names.tls_bucket, key_arn=None, log_bucket=logs)
        lifecycle = PrivateBucket(self, "LifecycleBucket", name=names.lifecycle_bucket, key_arn=key_arn, log_bucket=logs)
        models = None if adopted else PrivateBucket(self, "ModelBucket", name=names.model_bucket, key_arn=key_arn, log_bucket=logs)
        bucket_key = key if adopted is None else self._adopted_key(adopted)
        model_bucket = self._bucket("Models", adopted.existing if adopted else names.model_bucket, bucket_key)
        lustre = self._lustre(storage.lustre, network, key_arn, names.prefix) if storage.lustre else None
        slow: list[Construct] = [lustre] if lustre else []
        if storage.lustre and storage.lustre.link and lustre:
            link = LustreLink(
                self,
                "LustreLink",
                link=storage.lustre.link,
                file_system_id=lustre.values.file_system_id,
                bucket_name=model_bucket.bucket_name,
                after=[models.policy] if models else [],
            )
            slow.append(link)
        upload = TextUpload(
            self,
            "LifecycleScripts",
            bucket_name=lifecycle.resource.ref,
            bucket_arn=lifecycle.arn,
            key_arn=key_arn,
            prefix=LIFECYCLE_PREFIX,
            files=lifecycle_scripts,
        ).resource
        # Last of all: when Lustre fails in a first deployment, the bucket must still be empty to be taken back.
        upload.node.add_dependency(*slow)
        self.values: Final = StorageValues(
            key=key,
            model_bucket=model_bucket,
            tls_bucket_name=names.tls_bucket,
            lifecycle_bucket_name=names.lifecycle_bucket,
            lifecycle_bucket=self._bucket("Lifecycle", names.lifecycle_bucket, key),
            lifecycle_uri=f"s3://{names.lifecycle_bucket}/{LIFECYCLE_PREFIX.rstrip('/')}",
            lifecycle_upload=upload,
            lustre=lustre.values if lustre else None,
        )

    def _key(self, storage: Storage, names: Names, adopted: ExistingBucket | None) -> str:
        if isinstance(storage.encryption_key, ExistingKey):
            return storage.encryption_key.existing
        linked = storage.lustre is not None and storage.lustre.link is not None and adopted is None
        return EncryptionKey(
            self,
            "EncryptionKey",
            alias=names.key_alias(STORAGE),
            description=f"{names.prefix}: buckets, Lustre, logs, Kubernetes secrets",
            # Every log group of the environment has its name in it: those of stacks begin with it, EKS and HyperPod put it second.
            log_groups=f"*{names.prefix}*",
            linked_buckets=[names.model_bucket] if linked else [],
            alarms=names.alarms,
        ).arn

    def _bucket(self, id_: str, name: str, key: kms.IKey | None) -> s3.IBucket:
        """A bucket by name, whose grants go to the reader's role alone: no stack changes the policy of another's bucket."""
        return s3.Bucket.from_bucket_attributes(self, id_, bucket_name=name, encryption_key=key)

    def _adopted_key(self, bucket: ExistingBucket) -> kms.IKey | None:
        return kms.Key.from_key_arn(self, "ModelBucketKey", bucket.kms_key_arn) if bucket.kms_key_arn else None

    def _lustre(self, lustre: Lustre, network: NetworkValues, key_arn: str, name: str) -> AdoptedLustre | LustreFileSystem:
        group = network.efa_security_group_id
        if lustre.existing:
            return AdoptedLustre(self, "AdoptedLustre", existing=lustre.existing, efa=lustre.efa, security_group_id=group)
        return LustreFileSystem(
            self, "LustreFileSystem", lustre=lustre, subnet_id=network.gpu_subnet_id, security_group_id=group, key_arn=key_arn, name=name
        )
