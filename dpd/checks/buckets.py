"""Rules about buckets and the keys that encrypt them."""

import ipaddress
from collections.abc import Iterator
from typing import Final

from dpd.catalog import limits
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.environment.names import LIFECYCLE_BUCKET_PREFIX, TLS_BUCKET_PREFIX, Names
from dpd.environment.storage import ExistingKey
from dpd.finding import Level

_NAMES: Final = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"
_BEGINNINGS: Final = {"storage.certificates.bucket": TLS_BUCKET_PREFIX, "storage.node_scripts.bucket": LIFECYCLE_BUCKET_PREFIX}


@check(
    "BKT001",
    "Adopted buckets are in the environment's Region",
    why="The S3 driver does not follow S3 to another Region: the mount ends in PermanentRedirect while the nodes are billed. Lustre links "
    "and the free S3 gateway endpoint also stop at the Region's border.",
    link="https://docs.aws.amazon.com/AmazonS3/latest/userguide/Redirects.html",
    seen_in=("https://github.com/awslabs/mountpoint-s3-csi-driver/issues/375",),
)
def same_region(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the Regions of adopted buckets with the environment's."""
    for path, bucket in environment.storage.adopted_buckets.items():
        if bucket.region != environment.region:
            yield Problem(
                path=f"{path}.region",
                message=f"the environment is in {environment.region}",
                value=bucket.region,
                limit=environment.region,
                fix="adopt a bucket in this Region; copy what it holds first",
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
    for path, bucket in environment.storage.adopted_buckets.items():
        if "." in bucket.existing:
            yield Problem(
                path=f"{path}.existing",
                message="has dots, which S3's certificate does not cover",
                value=bucket.existing,
                fix="adopt a bucket without dots in its name, or acknowledge this after it was read over HTTPS",
            )


def _made(environment: Environment) -> tuple[str, ...]:
    """Names of the buckets that this environment makes."""
    names, adopted = Names.of(environment), environment.storage.adopted_buckets
    places = {
        "storage.models.bucket": names.model_bucket,
        **dict(zip(_BEGINNINGS, (names.tls_bucket, names.lifecycle_bucket), strict=True)),
    }
    return (*(name for path, name in places.items() if path not in adopted), names.log_bucket)


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
    adopted = [(f"{path}.existing", bucket.existing) for path, bucket in environment.storage.adopted_buckets.items()]
    for path, name in [("app", name) for name in _made(environment)] + adopted:
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
    """Compare adopted buckets with the names that this environment makes."""
    made = _made(environment)
    for path, bucket in environment.storage.adopted_buckets.items():
        if bucket.existing in made:
            yield Problem(
                path=f"{path}.existing",
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
    encryption, buckets = environment.storage.encryption_key, environment.storage.adopted_buckets
    arns = [(f"{path}.kms_key_arn", bucket.kms_key_arn) for path, bucket in buckets.items() if bucket.kms_key_arn]
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


@check(
    "BKT006",
    "Adopted buckets of certificates and node scripts have the beginnings that AWS's policies name",
    why="AWS's managed policies let the operator write to hyperpod-tls* alone, and nodes read from sagemaker-* alone: the load balancer "
    "gets no certificate, or no node passes its lifecycle script, and the logs are empty.",
    link="https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonSageMakerHyperPodInferenceAccess.html",
)
def beginnings(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the names of adopted buckets with what the managed policies allow."""
    for path, bucket in environment.storage.adopted_buckets.items():
        beginning = _BEGINNINGS.get(path, "")
        if not bucket.existing.startswith(beginning):
            yield Problem(
                path=f"{path}.existing",
                message=f"does not begin with {beginning}, the only beginning that AWS's managed policy allows",
                value=bucket.existing,
                limit=f"{beginning}…",
                fix="write bucket: create, or adopt a bucket with such a name",
            )
