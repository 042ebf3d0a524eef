"""The whole environment file."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr

from dpd.environment.cluster import Cluster
from dpd.environment.endpoint import Endpoint
from dpd.environment.gate import Gate
from dpd.environment.network import Network
from dpd.environment.observe import Observe
from dpd.environment.promotion import Promotion
from dpd.environment.storage import Storage
from dpd.environment.types import AccountId, DnsLabel, Many, Part, Region, Text


def _not_aws(text: str) -> str:
    if text.lower().startswith("aws:"):
        raise ValueError("starts with aws:, which AWS keeps for itself")
    return text


TagKey = Annotated[Text, Field(pattern=r"^[A-Za-z0-9 _.:/=+@-]+$", max_length=128), AfterValidator(_not_aws)]
TagValue = Annotated[str, Field(pattern=r"^[A-Za-z0-9 _.:/=+@-]*$", max_length=256)]


class Acknowledgement(Part):
    """A finding that was read and accepted."""

    id: Text
    """Check id."""
    reason: Annotated[Text, Field(min_length=8)]
    """Why it is accepted."""
    path: Text | None = None
    """Accept it only at this place, such as `endpoints[0].decode.replicas`. Default: everywhere in the file."""


class Environment(Part):
    """One environment: an account, a Region, a cluster and its endpoints. The file's name is the environment's name."""

    version: Literal[1]
    """Version of the file format."""
    app: DnsLabel
    """Application name; stacks are called `<app>-<environment>-<part>`."""
    account: AccountId
    """AWS account id, in quotes."""
    region: Region
    """AWS Region."""
    tags: Annotated[dict[TagKey, TagValue], Field(max_length=45)]
    """Tags on every resource. `app` and `environment` are added."""
    termination_protection: bool = True
    """Whether the stacks with state (network, storage, eks, hyperpod) refuse to be deleted."""
    bootstrap_qualifier: Annotated[Text, Field(pattern=r"^[a-z0-9]{1,10}$")] | None = None
    """Qualifier that the account was bootstrapped with (`cdk bootstrap --qualifier`). Default: CDK's own."""
    network: Network
    """VPC and subnets."""
    cluster: Cluster
    """EKS and HyperPod."""
    storage: Storage
    """Buckets, Lustre, encryption key."""
    endpoints: Many[Endpoint]
    """Endpoints. An empty list makes the cluster alone."""
    gate: Gate = Field(default={}, validate_default=True)
    """What proves a deployment."""
    observe: Observe = Field(default={}, validate_default=True)
    """Metrics, dashboards and alarms."""
    promotion: Promotion = Field(default={}, validate_default=True)
    """How it may differ from the environment that a release passes before it."""
    acknowledge: Many[Acknowledgement] = ()
    """Findings that were read and accepted."""

    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        """The environment's name: that of its file, without `.yaml`."""
        return self._name

    def named(self, name: str) -> "Environment":
        """Set the name once, right after reading, and return the environment."""
        self._name = name
        return self
