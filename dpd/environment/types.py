"""The small types that the environment file is made of, with messages a user can act on."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

Item = TypeVar("Item")

DNS_LABEL_LENGTH: Final = 63
_DNS_LABEL: Final = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_AZ_ID: Final = re.compile(r"[a-z]{2,4}[0-9]{1,2}-(?:[a-z]{3}[0-9]-)?az[0-9]{1,2}")
_AZ_NAME: Final = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9][a-z]")
_REGION: Final = re.compile(r"[a-z]{2}(?:-[a-z]+){1,2}-[0-9]")
_LARGEST_PREFIX, _SMALLEST_PREFIX = 16, 28
_NETWORK: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}/[0-9]{1,2}")
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ARN: Final = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(?:[0-9]{12}|aws)?:\S+")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class Part(BaseModel):
    """A piece of the environment file: unknown keys are refused, nothing is coerced, nothing changes later."""

    # Only the whole file is ever validated, so only its validator is built: half of the import time.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    exactly_one: ClassVar[tuple[str, ...]] = ()
    """Keys of which exactly one must be given."""

    @model_validator(mode="after")
    def _one_is_given(self) -> Self:
        if self.exactly_one:
            given = [key for key in self.exactly_one if getattr(self, key) is not None]
            if len(given) != 1:
                *most, last = self.exactly_one
                raise ValueError(f"give exactly one of {', '.join(most)} and {last} (given: {', '.join(given) or 'none'})")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Say ``exactly_one`` to editors as well."""
        result = handler(schema)
        if cls.exactly_one:
            one_of = [{"required": [key], "properties": {key: {"not": {"type": "null"}}}} for key in cls.exactly_one]
            handler.resolve_ref_schema(result)["oneOf"] = one_of
        return result


WORD, MAPPING = "<word>", "<mapping>"


class ByShape:
    """Decides between the two branches of ``text | mapping`` by what stands in the file, so that a mistake is reported once."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Turn a union of a text and a mapping, in this order, into a tagged one."""
        word, mapping = handler(source)["choices"]
        return core_schema.tagged_union_schema({WORD: word, MAPPING: mapping}, self._tag)

    @staticmethod
    def _tag(value: Any) -> str:
        return MAPPING if isinstance(value, dict | BaseModel) else WORD


@dataclass(frozen=True)
class Checked:
    """A rule over a text: a function that says in the user's words what is wrong, and a pattern that editors can use."""

    check: Callable[[str], str]
    pattern: str
    example: str
    max_length: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Run the function after the type's own checks."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add the pattern and an example."""
        longest = {"maxLength": self.max_length} if self.max_length else {}
        return {**handler(schema), **longest, "pattern": f"^(?:{self.pattern})$", "examples": [self.example]}


def dns_label(text: str) -> str:
    """Return a text that is a DNS label (RFC 1123, starting with a letter). Raises ``ValueError`` for any other."""
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


def matching(pattern: re.Pattern[str], says: str, example: str) -> Checked:
    """A rule that a text matches a pattern as a whole, with what to say when it does not."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(says)
        return text

    return Checked(check, pattern.pattern, example)


def _ipv4_network(text: str, example: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        network = None
    if network is None or not _NETWORK.fullmatch(text):
        raise ValueError(f"must be an IPv4 network such as {example}")
    if str(network) != text:
        raise ValueError(f"is an address inside a network; write {network}")
    return network


def _network(text: str) -> str:
    network = _ipv4_network(text, "10.1.0.0/16")
    if not _LARGEST_PREFIX <= network.prefixlen <= _SMALLEST_PREFIX:
        raise ValueError(f"must be between /{_LARGEST_PREFIX} and /{_SMALLEST_PREFIX}; this network is /{network.prefixlen}")
    return text


def _public_network(text: str) -> str:
    network = _ipv4_network(text, "203.0.113.0/24")
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
DnsLabel = Annotated[Text, Checked(dns_label, _DNS_LABEL.pattern, "llama-70b", DNS_LABEL_LENGTH)]
AvailabilityZoneId = Annotated[Text, Checked(_az_id, _AZ_ID.pattern, "use2-az1")]
Region = Annotated[Text, matching(_REGION, "must be an AWS Region, such as us-east-2", "us-east-2")]
AccountId = Annotated[
    str,
    Field(max_length=1024),
    matching(_ACCOUNT, "must be a 12-digit AWS account id in quotes", "111122223333"),
    _quoted('"111122223333"'),
]
Arn = Annotated[Text, matching(_ARN, "must be an Amazon Resource Name (arn:aws:…)", "arn:aws:iam::111122223333:role/ml-platform")]
BucketName = Annotated[
    Text,
    matching(_BUCKET, "must be an S3 bucket name: 3 to 63 lower-case letters, digits, '.' and '-' (no s3:// and no path)", "my-models"),
]
Cidr = Annotated[Text, Checked(_network, _NETWORK.pattern, "10.1.0.0/16")]
PublicCidr = Annotated[Text, Checked(_public_network, _NETWORK.pattern, "203.0.113.0/24")]
KubernetesVersion = Annotated[
    str,
    Field(max_length=1024),
    matching(re.compile(r"1\.[0-9]{2}"), 'must be a Kubernetes minor version, such as "1.34"', "1.34"),
    _quoted('"1.34"'),
]
CommitSha = Annotated[
    Text,
    matching(_COMMIT, "must be a full 40-character commit hash, so that the weights cannot change underneath", "0123456789" * 4),
]
ImageRepository = Annotated[Text, Field(pattern=r"^[a-z0-9.-]+(?::[0-9]+)?(?:/[a-z0-9._-]+)+$", max_length=255)]
ImageDigest = Annotated[Text, matching(_DIGEST, "must be a digest: sha256: and 64 hexadecimal digits", "sha256:" + "0123456789abcdef" * 4)]
Count = Annotated[int, Field(ge=0, le=6758)]
"""A number of nodes; 6758 is the most that an instance group may have (CreateCluster API)."""
Positive = Annotated[int, Field(ge=1, le=1_000_000_000)]
Many = Annotated[tuple[Item, ...], Strict(strict=False)]
"""A list in the file, a tuple in the code."""
Raw = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": True})]
RawProperties = Annotated[
    dict[Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]*(\.[A-Z][A-Za-z0-9]*)*$", max_length=256)], Any], Field(max_length=50)
]
"""CloudFormation properties by dotted path, set last: a way out for what the file has no word for."""
