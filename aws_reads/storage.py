"""Buckets, what lies in them, keys, file systems, secrets (by name alone)."""

import json
from typing import Any, Final

from botocore.exceptions import ClientError

from aws_reads.asking import Ask, missing, pages
from dpd.preflight.facts import Bucket, FileSystem, Folder, Key, Named
from dpd.staging import record_key

_INDEX: Final = "model.safetensors.index.json"
_MOST_INDEX_BYTES: Final = 50_000_000


def bucket(ask: Ask) -> Bucket | None:
    """A bucket by its name. One of another account is denied, like one that the caller may not list."""
    client = ask.clients("s3")
    try:
        answer = client.head_bucket(Bucket=ask.subject)
    except ClientError as error:
        missing(error, "404", "NoSuchBucket", "NotFound")
        return None
    region = answer.get("BucketRegion") or answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", "")
    adopted = ask.question.path in ask.environment.storage.adopted_buckets
    return Bucket(region=region, key_arn=_key_arn(ask, client, region) if adopted else "")


def _key_arn(ask: Ask, client: Any, region: str) -> str:
    """The customer-managed key of a bucket's default encryption."""
    try:
        rules = client.get_bucket_encryption(Bucket=ask.subject)["ServerSideEncryptionConfiguration"]["Rules"]
    except ClientError as error:
        missing(error, "ServerSideEncryptionConfigurationNotFoundError")
        return ""
    default = rules[0].get("ApplyServerSideEncryptionByDefault", {}) if rules else {}
    given: str = default.get("KMSMasterKeyID", "")
    if not given or given.endswith("alias/aws/s3"):
        return ""
    if ":key/" in given:
        return given
    arn: str = ask.clients("kms", region).describe_key(KeyId=given)["KeyMetadata"]["Arn"]
    return arn


def folder(ask: Ask) -> Folder | None:
    """What lies below a prefix, given as bucket and prefix. ``None``: there is no such bucket."""
    name, _, prefix = ask.subject.partition("/")
    client = ask.clients("s3")
    try:
        objects = pages(client, "list_objects_v2", "Contents", Bucket=name, Prefix=prefix)
    except ClientError as error:
        missing(error, "NoSuchBucket", "404")
        return None
    own = {key: one["Size"] for one in objects if "/" not in (key := one["Key"].removeprefix(prefix)) and key}
    weights = {key: size for key, size in own.items() if key.endswith(".safetensors")}
    shards = _shards(client, name, prefix + _INDEX) if 0 < own.get(_INDEX, 0) <= _MOST_INDEX_BYTES else set()
    return Folder(
        objects=len(objects),
        bytes=sum(one["Size"] for one in objects),
        weights_bytes=sum(weights.values()),
        weight_files=len(weights),
        config="config.json" in own,
        index_missing=tuple(sorted(shards - own.keys())),
        incomplete=_incomplete(client, name, prefix),
    )


def _shards(client: Any, bucket: str, key: str) -> set[str]:
    """The files that an index of safetensors names."""
    try:
        content = json.loads(client.get_object(Bucket=bucket, Key=key)["Body"].read())
        return {str(name) for name in content["weight_map"].values()}
    except (ValueError, KeyError, AttributeError, TypeError):
        # An index that cannot be read names no file that is there.
        return {f"{_INDEX} (cannot be read)"}


def _incomplete(client: Any, bucket: str, prefix: str) -> bool:
    try:
        found = json.loads(client.get_object(Bucket=bucket, Key=record_key(prefix))["Body"].read())
    except ClientError as error:
        # Who may not list a bucket is told that a missing object is denied.
        missing(error, "NoSuchKey", "404")
        return False
    except ValueError:
        return True
    return not (isinstance(found, dict) and found.get("complete"))


def key(ask: Ask) -> Key | None:
    """A KMS key by its ARN."""
    try:
        found = ask.clients("kms", ask.subject.split(":")[3]).describe_key(KeyId=ask.subject)["KeyMetadata"]
    except ClientError as error:
        missing(error, "NotFoundException")
        return None
    return Key(state=found["KeyState"], usage=found.get("KeyUsage", ""), spec=found.get("KeySpec", ""))


def file_system(ask: Ask) -> FileSystem | None:
    """An FSx for Lustre file system by its id."""
    try:
        (found,) = ask.clients("fsx").describe_file_systems(FileSystemIds=[ask.subject])["FileSystems"]
    except ClientError as error:
        missing(error, "FileSystemNotFound")
        return None
    return FileSystem(
        lifecycle=found["Lifecycle"],
        dns_name=found.get("DNSName", ""),
        mount_name=found.get("LustreConfiguration", {}).get("MountName", ""),
        capacity_gib=found.get("StorageCapacity", 0),
        subnet_ids=tuple(found.get("SubnetIds", ())),
    )


def secret(ask: Ask) -> Named | None:
    """A secret by its name. Its value is never asked for."""
    try:
        found = ask.clients("secretsmanager").describe_secret(SecretId=ask.subject)
    except ClientError as error:
        missing(error, "ResourceNotFoundException")
        return None
    return Named(name=found["Name"], deleted="DeletedDate" in found)
