"""The storage part: buckets, Lustre and the encryption key."""

from typing import Annotated, Literal

from pydantic import Field

from dpd.environment.network import SecurityGroupId
from dpd.environment.types import Arn, AvailabilityZoneId, BucketName, ByShape, Many, Part, Positive, RawProperties, Region, Text

S3Prefix = Annotated[Text, Field(pattern=r"^[A-Za-z0-9!_.*'()-]+(?:/[A-Za-z0-9!_.*'()-]+)*/?$")]
LustrePath = Annotated[Text, Field(pattern=r"^(?:/[A-Za-z0-9._-]+)+$", max_length=4096)]
KeyArn = Annotated[Arn, Field(examples=["arn:aws:kms:us-east-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"])]


class ExistingBucket(Part):
    """A bucket to adopt."""

    existing: BucketName
    """Bucket name."""
    region: Region
    """Region of the bucket. It must be the environment's."""
    kms_key_arn: KeyArn | None = None
    """Key of its default encryption when that is SSE-KMS with a customer-managed key."""


class ModelStore(Part):
    """Where model weights lie in S3."""

    bucket: Annotated[Literal["create"] | ExistingBucket, ByShape()]
    """`create`, or a bucket to adopt."""
    raw: RawProperties = {}
    """`AWS::S3::Bucket` properties of a made bucket to set last, by dotted path."""


class SideBucket(Part):
    """A bucket that the cluster needs beside the models."""

    bucket: Annotated[Literal["create"] | ExistingBucket, ByShape()] = "create"
    """`create`, or a bucket to adopt."""
    raw: RawProperties = {}
    """`AWS::S3::Bucket` properties of a made bucket to set last, by dotted path."""


class DataRepositoryLink(Part):
    """A link between a prefix of the model bucket and a directory of the Lustre file system."""

    prefix: S3Prefix
    """Prefix in the model bucket."""
    path: LustrePath
    """Directory on the file system. Not the root: `/` would overlap every later link."""
    delete: bool = False
    """Whether deletions on one side are repeated on the other. New and changed files always are."""


class ExistingLustre(Part):
    """A Lustre file system to adopt."""

    file_system_id: Annotated[Text, Field(pattern=r"^fs-[0-9a-f]{8,17}$")]
    """File system id."""
    dns_name: Text
    """DNS name, as `describe-file-systems` prints it."""
    mount_name: Annotated[Text, Field(pattern=r"^[A-Za-z0-9_-]{1,8}$")]
    """Lustre mount name, as `describe-file-systems` prints it."""
    availability_zone_id: AvailabilityZoneId
    """AZ id of its subnet."""
    capacity_gib: Positive
    """Storage capacity."""
    security_group_id: SecurityGroupId
    """Its security group. The tool adds the rules that let the nodes in."""


class Lustre(Part):
    """FSx for Lustre: either `capacity_gib` and `throughput_mbps_per_tib`, or `existing`."""

    capacity_gib: Positive | None = None
    """Storage capacity in GiB."""
    throughput_mbps_per_tib: Positive | None = None
    """Throughput per TiB of storage: 125, 250, 500 or 1000."""
    efa: bool = False
    """Whether clients mount over EFA. Cannot be changed later, and needs larger capacity steps."""
    metadata_iops: Positive | None = None
    """Provisioned metadata operations per second. Default: automatic."""
    link: DataRepositoryLink | None = None
    """Link to the model bucket."""
    existing: ExistingLustre | None = None
    """A file system to adopt."""
    raw: RawProperties = {}
    """`AWS::FSx::FileSystem` properties to set last, by dotted path."""


class Staging(Part):
    """How weights come into the model bucket: a CodeBuild project in a stack of its own, which `dpd stage-model` starts."""

    token_secret: Annotated[Text, Field(pattern=r"^[A-Za-z0-9/_+=.@-]{1,512}$", examples=["hub-token"])] | None = None
    """Name of the secret in AWS Secrets Manager that holds the hub's access token, as it is. Only gated models need one."""
    source_buckets: Annotated[Many[BucketName], Field(max_length=20)] = ()
    """Buckets from which weights may be copied, besides the hub."""


class ExistingKey(Part):
    """A KMS key to adopt."""

    existing: KeyArn
    """Key ARN. Its policy must let CloudWatch Logs of the Region use it, and CloudWatch for alarms."""


class Storage(Part):
    """Everything that outlives a deployment. Made resources are retained when a stack is deleted."""

    models: ModelStore
    """The model bucket."""
    lustre: Lustre | None = None
    """A Lustre file system. Default: none."""
    encryption_key: Annotated[Literal["create"] | ExistingKey, ByShape()] = "create"
    """The customer-managed key for buckets, Lustre, logs and Kubernetes secrets."""
    certificates: SideBucket = Field(default={}, validate_default=True)
    """Where the operator puts certificates of load balancers. An adopted bucket's name must begin with `hyperpod-tls`."""
    node_scripts: SideBucket = Field(default={}, validate_default=True)
    """Where nodes fetch their lifecycle script. An adopted bucket's name must begin with `sagemaker-`."""
    staging: Staging | None = None
    """How weights come into the model bucket. Default: by whatever means you have."""
    raw: RawProperties = {}
    """`AWS::KMS::Key` properties of a made encryption key to set last, by dotted path."""

    @property
    def adopted_buckets(self) -> dict[str, ExistingBucket]:
        """The buckets to adopt, by the place of each in the file."""
        buckets = {"models": self.models.bucket, "certificates": self.certificates.bucket, "node_scripts": self.node_scripts.bucket}
        return {f"storage.{name}.bucket": bucket for name, bucket in buckets.items() if isinstance(bucket, ExistingBucket)}
