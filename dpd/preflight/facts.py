"""The answers of a preflight: typed, dated, and without anything that is secret."""

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, ConfigDict

from dpd.environment.types import Many, Part

VERSION: Final = 1
"""Version of the file. A file of another one is not read."""

Reason = Literal["denied", "throttled", "unreachable", "refused", "no_call"]
"""Why a question has no answer. ``no_call``: AWS has no call that answers it from outside."""


class Fact(Part):
    """A part of the file. Unlike an environment file it may be read by an older tool, so unknown keys are passed over."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


class Caller(Fact):
    """Who asked."""

    account: str
    arn: str


class Quota(Fact):
    """A service quota. ``limit`` is what the account has now."""

    name: str
    code: str
    limit: float
    adjustable: bool = True


class Nodes(Fact):
    """Nodes of HyperPod clusters by instance type: of this environment's cluster, and of all others in the Region."""

    own: dict[str, int] = {}
    others: dict[str, int] = {}


class Offering(Fact):
    """AZ ids of the Region in which EC2 offers a type."""

    zones: Many[str] = ()


class Zone(Fact):
    """An AZ of the account."""

    name: str
    state: str


class Reserved(Fact):
    """A piece of a training plan: nodes of one type in one AZ."""

    instance_type: str
    count: int
    zone_id: str = ""
    zone_name: str = ""


class TrainingPlan(Fact):
    """A training plan."""

    status: str
    start: datetime | None = None
    end: datetime | None = None
    total: int = 0
    in_use: int = 0
    targets: Many[str] = ()
    reserved: Many[Reserved] = ()


class Subnet(Fact):
    """A subnet. AWS has taken its own addresses off ``free`` already."""

    vpc_id: str
    zone_id: str
    cidr: str
    free: int


class Bucket(Fact):
    """A bucket. ``key_arn`` is of its default encryption with a customer-managed key."""

    region: str
    key_arn: str = ""


class Folder(Fact):
    """What lies below a prefix of a bucket. ``weights_bytes`` is that of the safetensors files of the folder itself."""

    objects: int
    bytes: int
    weights_bytes: int = 0
    weight_files: int = 0
    config: bool = False
    index_missing: Many[str] = ()
    """Shards that the index of the safetensors files names and that are not there."""
    incomplete: bool = False
    """Whether `dpd stage-model` began to fill the folder and has not ended."""


class Key(Fact):
    """A KMS key."""

    state: str
    usage: str = ""
    spec: str = ""


class AddOnVersions(Fact):
    """Versions of an EKS add-on that the Region offers for a Kubernetes version, newest first."""

    versions: Many[str] = ()


class Kubernetes(Fact):
    """A Kubernetes version of EKS."""

    status: str


class Image(Fact):
    """An image in a private registry."""

    digest: str
    pushed: datetime | None = None


class Named(Fact):
    """Something that is there; nothing else of it is kept."""

    name: str
    deleted: bool = False
    """Whether it is about to be deleted."""


class Stack(Fact):
    """A CloudFormation stack."""

    status: str


class Bootstrap(Fact):
    """CDK's bootstrap stack."""

    version: int


class Decisions(Fact):
    """What IAM says of a principal, by action: `allowed`, `implicitDeny` or `explicitDeny`."""

    principal: str
    denied: dict[str, str] = {}
    allowed: Many[str] = ()


class SecurityGroup(Fact):
    """Rules of a security group, each as direction, protocol and peer."""

    vpc_id: str = ""
    rules: Many[Many[str]] = ()


class EksCluster(Fact):
    """An EKS cluster."""

    status: str
    version: str
    authentication_mode: str = ""
    oidc_issuer: str = ""
    security_group_id: str = ""
    vpc_id: str = ""


class FileSystem(Fact):
    """An FSx for Lustre file system."""

    lifecycle: str
    dns_name: str = ""
    mount_name: str = ""
    capacity_gib: int = 0
    subnet_ids: Many[str] = ()


class Certificate(Fact):
    """An ACM certificate."""

    status: str
    expires: datetime | None = None


class Answers(Fact):
    """Every answer by kind of question and by what it is about. ``None``: AWS was asked, and there is no such thing."""

    caller: dict[str, Caller | None] = {}
    quota: dict[str, Quota | None] = {}
    nodes: dict[str, Nodes | None] = {}
    offering: dict[str, Offering | None] = {}
    zone: dict[str, Zone | None] = {}
    training_plan: dict[str, TrainingPlan | None] = {}
    subnet: dict[str, Subnet | None] = {}
    security_group: dict[str, SecurityGroup | None] = {}
    bucket: dict[str, Bucket | None] = {}
    folder: dict[str, Folder | None] = {}
    key: dict[str, Key | None] = {}
    file_system: dict[str, FileSystem | None] = {}
    kubernetes: dict[str, Kubernetes | None] = {}
    add_on: dict[str, AddOnVersions | None] = {}
    eks_cluster: dict[str, EksCluster | None] = {}
    image: dict[str, Image | None] = {}
    secret: dict[str, Named | None] = {}
    kubernetes_secret: dict[str, Named | None] = {}
    certificate: dict[str, Certificate | None] = {}
    service_linked_role: dict[str, Named | None] = {}
    bootstrap: dict[str, Bootstrap | None] = {}
    stack: dict[str, Stack | None] = {}
    permissions: dict[str, Decisions | None] = {}


class Unanswered(Fact):
    """A question that AWS did not answer, and the IAM action that would have."""

    kind: str
    subject: str
    action: str
    reason: Reason
    said: str = ""


def _utc(when: datetime) -> datetime:
    if when.tzinfo is None:
        raise ValueError("must have a time zone")
    return when


class Facts(Fact):
    """All that a preflight of one environment found out."""

    version: Literal[1]
    environment: str
    account: str
    region: str
    taken_at: Annotated[datetime, AfterValidator(_utc)]
    answers: Answers = Answers.model_construct()
    unanswered: Many[Unanswered] = ()

    def text(self) -> str:
        """The file: the same facts are the same bytes."""
        return self.model_dump_json(indent=2, exclude_unset=True) + "\n"
