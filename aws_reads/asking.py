"""What a question may know, how it says that there is no such thing, and what a failure means."""

from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError, ParamValidationError

from aws_reads.session import Clients
from dpd.environment.environment import Environment
from dpd.finding import safe
from dpd.preflight.facts import Reason, Unanswered
from dpd.preflight.questions import Question

_DENIED: Final = frozenset({
    "AccessDenied", "AccessDeniedException", "AccessDeniedFault", "AuthorizationError", "AuthorizationErrorException",
    "UnauthorizedException", "UnauthorizedOperation", "NotAuthorized", "Forbidden", "403",
})  # fmt: skip
_THROTTLED: Final = frozenset({
    "Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException", "RequestLimitExceeded", "RequestThrottled",
    "RequestThrottledException", "SlowDown", "EC2ThrottledException", "503",
})  # fmt: skip
_ACTIONS: Final = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
}
"""Actions of IAM that are not called like their API."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question, who answers it, and for which environment."""

    clients: Clients
    question: Question
    environment: Environment

    @property
    def subject(self) -> str:
        """What is asked about."""
        return self.question.subject


class NoCallError(Exception):
    """AWS has no call that answers the question; the text says why."""


def code(error: ClientError) -> str:
    """AWS's code of an error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def missing(error: ClientError, *codes: str) -> None:
    """Raise the error again, unless its code says that there is no such thing."""
    if code(error) not in codes:
        raise error


def action(service: str, operation: str) -> str:
    """The IAM action of an operation."""
    name = f"{service}:{operation}"
    return _ACTIONS.get(name, name)


def unanswered(question: Question, service: str, error: Exception) -> Unanswered:
    """What a failure says about a question. The service's own words may quote the caller's policies, so they are left out."""
    if isinstance(error, NoCallError):
        return _open(question, "", "no_call", str(error))
    if isinstance(error, ParamValidationError):
        return _open(question, service, "refused", "the file's value is none that the call takes")
    if not isinstance(error, ClientError):
        return _open(question, service, "unreachable", type(error).__name__)
    found, what = code(error), action(service, error.operation_name)
    reason: Reason = "denied" if found in _DENIED else "throttled" if found in _THROTTLED else "refused"
    return _open(question, what, reason, found if reason == "refused" else "")


def _open(question: Question, action: str, reason: Reason, said: str) -> Unanswered:
    return Unanswered(kind=question.kind, subject=question.subject, action=action, reason=reason, said=safe(said, most=200))


def pages(client: Any, operation: str, key: str, **given: Any) -> list[Any]:
    """All items of an answer that comes in pages."""
    return [item for page in client.get_paginator(operation).paginate(**given) for item in page.get(key, ())]
