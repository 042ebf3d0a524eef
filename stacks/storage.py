"""Everything that outlives a deployment: key, buckets, Lustre. Deleting the stack deletes none of it."""

from collections.abc import Mapping
from typing import Any, Final

from aws_cdk import Stack
from aws_cdk import aws_kms as kms
from constructs import Construct

from dpd.environment.names import STORAGE, Names
from dpd.environment.storage import ExistingKey, Lustre, Storage
from stacks.constructs.encryption_key import EncryptionKey
from stacks.constructs.lustre import AdoptedLustre, LustreFileSystem, LustreLink
from stacks.constructs.private_bucket import PrivateBucket
from stacks.constructs.realm import realm_of
from stacks.constructs.text_upload import TextUpload
from stacks.values import Bucket, NetworkValues, StorageValues

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
        adopted = {path.split(".")[1]: bucket for path, bucket in storage.adopted_buckets.items()}
        key_arn = self._key(storage, names, linked="models" not in adopted)
        key = kms.Key.from_key_arn(self, "Key", key_arn)
        # SSE-S3 for certificates, as AWS sets it up: the operator's managed policy has no permission on any key.
        wanted = {
            "certificates": ("TlsBucket", names.tls_bucket, None, storage.certificates.raw),
            "node_scripts": ("LifecycleBucket", names.lifecycle_bucket, key_arn, storage.node_scripts.raw),
            "models": ("ModelBucket", names.model_bucket, key_arn, storage.models.raw),
        }
        made_names = sorted(name for place, (_, name, *_) in wanted.items() if place not in adopted)
        logs = PrivateBucket(self, "LogBucket", name=names.log_bucket, key_arn=None, logs_of=made_names)
        made = {
            place: PrivateBucket(self, id_, name=name, key_arn=encryption, log_bucket=logs, raw=raw)
            for place, (id_, name, encryption, raw) in wanted.items()
            if place not in adopted
        }
        buckets = {
            place: self._bucket(adopted[place].existing, adopted[place].kms_key_arn) if place in adopted else self._bucket(name, encryption)
            for place, (_, name, encryption, _) in wanted.items()
        }
        lustre = self._lustre(storage.lustre, network, key_arn, names.prefix) if storage.lustre else None
        slow: list[Construct] = [lustre] if lustre else []
        if storage.lustre and storage.lustre.link and lustre:
            link = LustreLink(
                self,
                "LustreLink",
                link=storage.lustre.link,
                file_system_id=lustre.values.file_system_id,
                bucket_name=buckets["models"].name,
                after=[made["models"].policy] if "models" in made else [],
            )
            slow.append(link)
        scripts = buckets["node_scripts"]
        # An adopted bucket may hold the scripts of other environments too.
        prefix = f"{names.prefix}/{LIFECYCLE_PREFIX}" if "node_scripts" in adopted else LIFECYCLE_PREFIX
        upload = TextUpload(
            self,
            "LifecycleScripts",
            bucket_name=made["node_scripts"].resource.ref if "node_scripts" in made else scripts.name,
            bucket_arn=scripts.arn,
            key_arn=scripts.key_arn,
            prefix=prefix,
            files=lifecycle_scripts,
        ).resource
        # Last of all: when Lustre fails in a first deployment, the bucket must still be empty to be taken back.
        upload.node.add_dependency(*slow)
        self.values: Final = StorageValues(
            key=key,
            key_arn=key_arn,
            model_bucket=buckets["models"],
            tls_bucket_name=buckets["certificates"].name,
            lifecycle_bucket=scripts,
            lifecycle_uri=f"s3://{scripts.name}/{prefix.rstrip('/')}",
            lifecycle_upload=upload,
            lustre=lustre.values if lustre else None,
        )

    def _key(self, storage: Storage, names: Names, *, linked: bool) -> str:
        if isinstance(storage.encryption_key, ExistingKey):
            return storage.encryption_key.existing
        return EncryptionKey(
            self,
            "EncryptionKey",
            alias=names.key_alias(STORAGE),
            description=f"{names.prefix}: buckets, Lustre, logs, Kubernetes secrets",
            # Every log group of the environment has its name in it: those of stacks begin with it, EKS and HyperPod put it second.
            log_groups=f"*{names.prefix}*",
            linked_buckets=[names.model_bucket] if linked and storage.lustre and storage.lustre.link else [],
            alarms=names.alarms,
            raw=storage.raw,
        ).arn

    def _bucket(self, name: str, key_arn: str | None) -> Bucket:
        """A bucket by name alone: no stack changes the policy of another's bucket."""
        return Bucket(name, f"arn:{realm_of(self).partition}:s3:::{name}", key_arn)

    def _lustre(self, lustre: Lustre, network: NetworkValues, key_arn: str, name: str) -> AdoptedLustre | LustreFileSystem:
        group = network.efa_security_group_id
        if lustre.existing:
            return AdoptedLustre(self, "AdoptedLustre", existing=lustre.existing, efa=lustre.efa, security_group_id=group)
        return LustreFileSystem(
            self, "LustreFileSystem", lustre=lustre, subnet_id=network.gpu_subnet_id, security_group_id=group, key_arn=key_arn, name=name
        )
