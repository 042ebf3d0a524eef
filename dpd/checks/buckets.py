"""Rules about buckets and the keys that encrypt them."""

import ipaddress
from collections.abc import Iterator
from typing import Final

from dpd.catalog import limits
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.environment.names import Names
from dpd.environment.storage import ExistingBucket, ExistingKey
from dpd.finding import Level

_NAMES: Final = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"
_PATH: Final = "storage.models.bucket"


def _adopted(environment: Environment) -> ExistingBucket | None:
    bucket = environment.storage.models.bucket
    return bucket if isinstance(bucket, ExistingBucket) else None


@check(
    "BKT001",
    "The model bucket is in the environment's Region",
    why="The S3 driver does not follow S3 to another Region: the mount ends in PermanentRedirect while the nodes are billed. Lustre links "
    "and the free S3 gateway endpoint also stop at the Region's border.",
    link="https://docs.aws.amazon.com/AmazonS3/latest/userguide/Redirects.html",
    seen_in=("https://github.com/awslabs/mountpoint-s3-csi-driver/issues/375",),
)
def same_region(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the Region of an adopted bucket with the environment's."""
    bucket = _adopted(environment)
    if bucket and bucket.region != environment.region:
        yield Problem(
            path=f"{_PATH}.region",
            message=f"the environment is in {environment.region}",
            value=bucket.region,
            limit=environment.region,
            fix="copy the weights to a bucket in this Region and adopt that one",
        )


@check(
    "BKT002",
    "The bucket's name has no dots",
    why="S3's certificate covers one label before its domain, so HTTPS to my.models.s3.… fails; clients fall back to a path style that not "
    "every one of them has.",
    link=_NAMES,
    level=Level.WARNING,
)
def no_dots(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of adopted buckets with dots in their names."""
    bucket = _adopted(environment)
    if bucket and "." in bucket.existing:
        yield Problem(
            path=f"{_PATH}.existing",
            message="has dots, which S3's certificate does not cover",
            value=bucket.existing,
            fix="adopt a bucket without dots in its name, or acknowledge this after a pod has mounted it",
        )


def _fault(name: str) -> str:
    """What S3 refuses about a bucket name of the right characters; empty when nothing."""
    begins = next((text for text in limits.words("bucket_beginnings") if name.startswith(text)), "")
    ends = next((text for text in limits.words("bucket_ends") if name.endswith(text)), "")
    if begins or ends:
        return f"{'begins' if begins else 'ends'} with {begins or ends}, which S3 keeps for itself"
    if any(pair in name for pair in ("..", ".-", "-.")):
        return "has a dot beside a dot or a dash"
    try:
        ipaddress.IPv4Address(name)
    except ValueError:
        return ""
    return "has the form of an IP address"


@check(
    "BKT003",
    "Bucket names are ones that S3 accepts",
    why="S3 refuses the name when the bucket is made, in the middle of a deployment; an adopted name that it refuses belongs to no general "
    "purpose bucket (directory buckets, access point aliases).",
    link=_NAMES,
    binding=True,
)
def accepted_names(environment: Environment, _: Context) -> Iterator[Problem]:
    """Check adopted and made bucket names against S3's naming rules."""
    adopted = _adopted(environment)
    places = [("app", name) for name in Names.of(environment).buckets] + ([(f"{_PATH}.existing", adopted.existing)] if adopted else [])
    for path, name in places:
        fault = _fault(name)
        if fault:
            yield Problem(
                path=path,
                message=f"{f'the bucket {name[:80]} ' if path == 'app' else ''}{fault}",
                value=environment.app if path == "app" else name,
                fix="choose another name" if path == "app" else "adopt a general purpose bucket, by its own name",
            )


@check(
    "BKT004",
    "An adopted bucket is not one that this tool makes",
    why="The lifecycle, certificate and log buckets are made by name. Adopting one of them fails the first deployment, "
    "or mixes weights with logs.",
    link=_NAMES,
)
def not_own(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare an adopted bucket with the names that this environment makes."""
    bucket = _adopted(environment)
    if bucket and bucket.existing in Names.of(environment).buckets:
        yield Problem(
            path=f"{_PATH}.existing",
            message="is the name of a bucket that this environment makes itself",
            value=bucket.existing,
            fix="write bucket: create, or adopt another bucket",
        )


@check(
    "BKT005",
    "Adopted keys are KMS keys of the environment's Region",
    why="A KMS key works in its own Region only, and policies that name an alias instead of a key match nothing: every read is denied.",
    link="https://docs.aws.amazon.com/kms/latest/developerguide/concepts.html",
)
def keys(environment: Environment, _: Context) -> Iterator[Problem]:
    """Check service, Region and kind of every adopted key's ARN."""
    bucket, encryption = _adopted(environment), environment.storage.encryption_key
    arns = [(f"{_PATH}.kms_key_arn", bucket.kms_key_arn)] if bucket and bucket.kms_key_arn else []
    if isinstance(encryption, ExistingKey):
        arns.append(("storage.encryption_key.existing", encryption.existing))
    for path, arn in arns:
        service, region, resource = (arn.split(":", 5)[part] for part in (2, 3, 5))
        if service != "kms" or not resource.startswith("key/"):
            yield Problem(
                path=path, message="is not the ARN of a KMS key", value=arn, limit="arn:aws:kms:…:key/…", fix="write the key's ARN"
            )
        elif region != environment.region:
            yield Problem(
                path=path,
                message=f"is a key of {region}",
                value=arn,
                limit=environment.region,
                fix="adopt a key of this Region, or a multi-Region replica in it",
            )
