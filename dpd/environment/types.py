"""The small types that the environment file is made of, with messages a user can act on."""

import ipaddress
import re
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema

Item = TypeVar("Item")

DNS_LABEL_LENGTH: Final = 63
_DNS_LABEL: Final = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_AZ_ID: Final = re.compile(r"[a-z]{2,4}[0-9]{1,2}-(?:[a-z]{3}[0-9]-)?az[0-9]{1,2}")
_AZ_NAME: Final = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9][a-z]")
_REGION: Final = re.compile(r"[a-z]{2}(?:-[a-z]+){1,2}-[0-9]")
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ARN: Final = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(?:[0-9]{12}|aws)?:\S+")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class Part(BaseModel):
    """A piece of the environment file: unknown keys are refused, nothing is coerced, nothing changes later."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True)


def _dns_label(text: str) -> str:
    if len(text) > DNS_LABEL_LENGTH:
        raise ValueError(f"a name may have at most {DNS_LABEL_LENGTH} characters, this one has {len(text):,}")
    if not _DNS_LABEL.fullmatch(text):
        raise ValueError("must be a DNS label: lower-case letters, digits and '-', starting with a letter and not ending with '-'")
    return text


def _az_id(text: str) -> str:
    if "dummy" in text:
        raise ValueError("is a placeholder that CDK makes when it cannot look up an AZ; write the real AZ id, such as use2-az1")
    if _AZ_NAME.fullmatch(text):
        raise ValueError(
            "is an AZ name, which means another place in another account; write the AZ id, such as use2-az1 "
            "(aws ec2 describe-availability-zones --query 'AvailabilityZones[].[ZoneName,ZoneId]')"
        )
    if not _AZ_ID.fullmatch(text):
        raise ValueError("must be an AZ id, such as use2-az1")
    return text


def _matching(pattern: re.Pattern[str], says: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(says)
        return text

    return AfterValidator(check)


def _network(text: str) -> str:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise ValueError(f"must be an IPv4 network such as 10.1.0.0/16 ({error})") from None
    if not 16 <= network.prefixlen <= 28:
        raise ValueError(f"a VPC or subnet network must be between /16 and /28, this one is /{network.prefixlen}")
    return text


def _public_network(text: str) -> str:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise ValueError(f"must be an IPv4 network such as 203.0.113.0/24 ({error})") from None
    if network.prefixlen == 0:
        raise ValueError("opens the Kubernetes API to the whole internet; name the networks that may reach it")
    return text


def _quoted(example: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise ValueError(f"must be text; put it in quotes, as in {example}")
        return value

    return BeforeValidator(check)


# pydantic-core checks the length first, so that a pattern never runs over a text of absurd size.
Text = Annotated[str, Field(min_length=1, max_length=1024)]
DnsLabel = Annotated[Text, AfterValidator(_dns_label)]
AvailabilityZoneId = Annotated[Text, AfterValidator(_az_id)]
Region = Annotated[Text, _matching(_REGION, "must be an AWS Region, such as us-east-2")]
AccountId = Annotated[
    str, Field(max_length=1024), _matching(_ACCOUNT, "must be a 12-digit AWS account id in quotes"), _quoted('"111122223333"')
]
Arn = Annotated[Text, _matching(_ARN, "must be an Amazon Resource Name (arn:aws:…)")]
BucketName = Annotated[
    Text, _matching(_BUCKET, "must be an S3 bucket name: 3 to 63 lower-case letters, digits, '.' and '-' (no s3:// and no path)")
]
Cidr = Annotated[Text, AfterValidator(_network)]
PublicCidr = Annotated[Text, AfterValidator(_public_network)]
KubernetesVersion = Annotated[
    str,
    Field(max_length=1024),
    _matching(re.compile(r"1\.[0-9]{2}"), 'must be a Kubernetes minor version, such as "1.34"'),
    _quoted('"1.34"'),
]
CommitSha = Annotated[Text, _matching(_COMMIT, "must be a full 40-character commit hash, so that the weights cannot change underneath")]
ImageDigest = Annotated[Text, _matching(_DIGEST, "must be a digest: sha256: and 64 hexadecimal digits")]
Count = Annotated[int, Field(ge=0, le=6758)]
"""A number of nodes; 6758 is the most that an instance group may have (CreateCluster API)."""
Positive = Annotated[int, Field(ge=1, le=1_000_000_000)]
Many = Annotated[tuple[Item, ...], Strict(False)]
"""A list in the file, a tuple in the code."""
Raw = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": True})]
