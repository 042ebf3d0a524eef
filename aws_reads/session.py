"""Credentials, of a profile or a role, and clients that give up soon."""

import os
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import botocore.session
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

Value = TypeVar("Value")

METADATA_DISABLED: Final = "AWS_EC2_METADATA_DISABLED"
_CONFIG: Final = Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 4, "mode": "standard"}, max_pool_connections=16)


_FIRST: Final = _CONFIG.merge(Config(read_timeout=10, retries={"total_max_attempts": 1}))
"""For the first call of all: a network that is not there is said soon."""
_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
UNREACHABLE: Final = (BotoCoreError, ResponseParserError)
"""What botocore raises when no service answered: a network that is down, or a proxy that answers in its place."""


class CredentialsError(Exception):
    """Nothing can be asked; the text says what to do."""


def open_session(*, profile: str | None, role_arn: str | None, region: str) -> Any:
    """A session with credentials. Raises ``CredentialsError`` at once when there are none.

    A laptop has no instance metadata, and waiting for it would take seconds: on an EC2 instance, whose role is meant,
    ``AWS_EC2_METADATA_DISABLED=false`` says so.
    """
    os.environ.setdefault(METADATA_DISABLED, "true")
    try:
        session = botocore.session.get_session()
        if profile:
            session.set_config_variable("profile", profile)
        session.set_config_variable("region", region)
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise CredentialsError(f"The AWS credentials cannot be used: {error}") from None
    if credentials is None:
        raise CredentialsError(
            f"No AWS credentials. Sign in (aws sso login), name a --profile, or on an EC2 instance set {METADATA_DISABLED}=false "
            "to use its role."
        )
    return _in_role(session, credentials, role_arn, region) if role_arn else session


def _in_role(session: Any, credentials: Any, role_arn: str, region: str) -> Any:
    def client(service: str, **given: Any) -> Any:
        return session.create_client(service, **{"region_name": region, "config": _CONFIG, **given})

    fetcher = AssumeRoleCredentialFetcher(client, credentials, role_arn, extra_args={"RoleSessionName": "dpd"})
    assumed = botocore.session.Session()
    assumed.set_config_variable("region", region)
    assumed._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")  # noqa: SLF001 - botocore has no other way in
    return assumed


class Clients:
    """Clients by service and Region, and answers that several questions share. Safe to use from several threads."""

    def __init__(self, session: Any, region: str) -> None:
        self.session, self.region = session, region
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Any] = {}
        self._shared: dict[str, Any] = {}
        self._sharing: dict[str, threading.Lock] = {}

    def __call__(self, service: str, region: str = "") -> Any:
        """The client of a service, of the environment's Region unless another is named."""
        key = service, region or self.region
        with self._lock:
            if key not in self._known:
                self._known[key] = self.session.create_client(service, region_name=key[1], config=_FIRST if service == "sts" else _CONFIG)
            return self._known[key]

    def once(self, name: str, ask: Callable[[], Value]) -> Value:
        """The answer to what is asked under a name for the first time. A failure is not kept."""
        with self._lock:
            lock = self._sharing.setdefault(name, threading.Lock())
        with lock:
            if name not in self._shared:
                self._shared[name] = ask()
            found: Value = self._shared[name]
            return found


def caller(clients: Clients) -> tuple[str, str]:
    """Account and ARN of the caller. Raises ``CredentialsError`` when AWS does not tell."""
    try:
        answer = clients("sts").get_caller_identity()
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "an error"))[:60]
        hint = " They have expired: sign in again." if code in _EXPIRED else ""
        raise CredentialsError(f"AWS does not accept the credentials ({code}).{hint}") from None
    except UNREACHABLE as error:
        raise CredentialsError(f"AWS cannot be asked who the caller is ({type(error).__name__}).") from None
    return answer["Account"], answer["Arn"]
