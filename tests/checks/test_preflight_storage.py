"""Rules about what must lie in the account."""

from typing import Any

import pytest

from dpd.finding import Level
from dpd.preflight.facts import Bucket, FileSystem, Folder, Key, Named
from tests.checks.answers import Told, said
from tests.checks.cases import ADOPTED_BUCKET
from tests.support import environment

KEY = "arn:aws:kms:us-east-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
MADE = "llama-dpd-dev-models-111122223333-us-east-2"
FOLDER = f"{MADE}/Llama-3.3-70B-Instruct/"
STACK = "llama-dpd-dev-storage"
PREFIX = "endpoints[0].model.source.s3.prefix"
SIZE = int(environment().endpoints[0].model.shape.weight_bytes)
KEYED: dict[str, Any] = {"storage.encryption_key": {"existing": KEY}}
OURS = {"existing": "our-weights", "region": "us-east-2"}
LUSTRE: dict[str, Any] = {
    "storage.lustre": {
        "existing": {
            "file_system_id": "fs-0123456789abcdef0", "dns_name": "fs.example", "mount_name": "abcd1234",
            "availability_zone_id": "use2-az1", "capacity_gib": 4800, "security_group_id": "sg-0123456789abcdef0",
        }
    }
}  # fmt: skip
STAGED: dict[str, Any] = {"storage.staging": {"token_secret": "hub-token"}}


def bucket(**given: Any) -> dict[tuple[str, str], Any]:
    return {("bucket", "our-weights"): Bucket(**{"region": "us-east-2", **given})}


def folder(**given: Any) -> dict[tuple[str, str], Any]:
    fit = {"objects": 40, "bytes": SIZE, "weights_bytes": SIZE, "weight_files": 30, "config": True}
    return {("folder", FOLDER): Folder(**{**fit, **given})}


def key(**given: Any) -> dict[tuple[str, str], Any]:
    return {("key", KEY): Key(**{"state": "Enabled", "usage": "ENCRYPT_DECRYPT", "spec": "SYMMETRIC_DEFAULT", **given})}


def lustre(**given: Any) -> dict[tuple[str, str], Any]:
    fit = {"lifecycle": "AVAILABLE", "dns_name": "fs.example", "mount_name": "abcd1234", "capacity_gib": 4800}
    return {("file_system", "fs-0123456789abcdef0"): FileSystem(**{**fit, **given})}


def secret(value: Named | None) -> dict[tuple[str, str], Any]:
    return {("secret", "hub-token"): value}


PLACE = "storage.models.bucket"
CASES = [
    Told("PRE030", {("bucket", "our-weights"): None}, f"{PLACE}.existing", "no such bucket", bucket(), ADOPTED_BUCKET),
    Told("PRE030", bucket(region="eu-west-1"), f"{PLACE}.region", "eu-west-1", bucket(), ADOPTED_BUCKET),
    Told("PRE030", bucket(key_arn=KEY), f"{PLACE}.kms_key_arn", "is encrypted with a key", bucket(), ADOPTED_BUCKET),
    Told("PRE030", bucket(), f"{PLACE}.kms_key_arn", "leave kms_key_arn out", bucket(key_arn=KEY), {PLACE: {**OURS, "kms_key_arn": KEY}}),
    Told("PRE032", folder(objects=0, weight_files=0), PREFIX, f"nothing lies in s3://{FOLDER}", folder()),
    Told("PRE032", folder(config=False), PREFIX, "no config.json", folder()),
    Told("PRE032", folder(weight_files=0), PREFIX, "no safetensors files", folder()),
    Told("PRE032", folder(index_missing=("model-00003.safetensors",)), PREFIX, "model-00003.safetensors", folder()),
    Told("PRE032", folder(incomplete=True), PREFIX, "dpd stage-model has not ended", folder()),
    Told("PRE032", {("folder", FOLDER): None}, PREFIX, "dpd stage-model -e dev --endpoint llama-70b", folder()),
    Told("PRE033", folder(weights_bytes=int(SIZE * 0.96)), PREFIX, "copy it again", folder(weights_bytes=int(SIZE * 0.98))),
    Told(
        "PRE033", folder(weights_bytes=int(SIZE * 1.6)), PREFIX, "the folder of one model alone", folder(weights_bytes=int(SIZE * 1.4)),
        level=Level.WARNING,
    ),
    Told("PRE034", {("key", KEY): None}, "storage.encryption_key.existing", "no such key", key(), KEYED),
    *(
        Told("PRE034", key(state=state), "storage.encryption_key.existing", f"the key is {state}", key(), KEYED)
        for state in ("Disabled", "PendingDeletion", "PendingImport", "Unavailable")
    ),
    Told("PRE034", key(usage="SIGN_VERIFY", spec="RSA_2048"), "storage.encryption_key.existing", "RSA_2048, for SIGN_VERIFY", key(), KEYED),
    Told("PRE034", key(spec="HMAC_256", usage="GENERATE_VERIFY_MAC"), "storage.encryption_key.existing", "HMAC_256", key(), KEYED),
    Told("PRE035", {("file_system", "fs-0123456789abcdef0"): None}, "storage.lustre.existing.file_system_id", "no such", lustre(), LUSTRE),
    Told("PRE035", lustre(lifecycle="FAILED"), "storage.lustre.existing.file_system_id", "is FAILED", lustre(lifecycle="UPDATING"), LUSTRE),
    Told("PRE035", lustre(dns_name="other"), "storage.lustre.existing.dns_name", "has other", lustre(), LUSTRE),
    Told("PRE035", lustre(mount_name="other"), "storage.lustre.existing.mount_name", "has other", lustre(), LUSTRE),
    Told("PRE035", lustre(capacity_gib=2400), "storage.lustre.existing.capacity_gib", "has 2400", lustre(), LUSTRE),
    Told("PRE036", secret(None), "storage.staging.token_secret", "no such secret in us-east-2", secret(Named(name="hub-token")), STAGED),
    Told(
        "PRE036", secret(Named(name="hub-token", deleted=True)), "storage.staging.token_secret", "restore-secret",
        secret(Named(name="hub-token")), STAGED,
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_smallest_wrong_and_nearest_right(case: Told) -> None:
    case.verify()


def test_buckets_of_an_earlier_deployment() -> None:
    buckets = {("bucket", "hyperpod-tls-llama-dpd-dev-111122223333-us-east-2"): None}
    found = said({}, {("stack", STACK): None, **buckets})
    assert {one.id for one in found} == {"PRE031"}
    assert sorted(one.path for one in found) == ["storage", "storage.models.bucket", "storage.node_scripts.bucket"]
    assert MADE in {one.value for one in found}
    # the deployment's own buckets, and buckets of which nobody knows whether their stack is there
    assert not said({})
    assert {one.id for one in said({}, {("stack", STACK): ...})} == {"PRE005"}


def test_an_adopted_bucket_is_not_in_the_way() -> None:
    others = ("hyperpod-tls-llama-dpd-dev-", "sagemaker-llama-dpd-dev-", "llama-dpd-dev-logs-")
    made = {("bucket", f"{name}111122223333-us-east-2"): None for name in others}
    assert not said(ADOPTED_BUCKET, {("stack", STACK): None, **made})


def test_the_weights_of_a_first_deployment_can_only_follow() -> None:
    (found,) = said({}, {("bucket", MADE): None, ("folder", FOLDER): None})
    assert (found.id, found.level) == ("PRE032", Level.WARNING)
    assert "the bucket is yet to be made" in found.message


def test_weights_elsewhere_are_not_looked_for() -> None:
    assert not said({"endpoints[0].model.source": {"lustre": {"path": "/checkpoints/llama"}}})
