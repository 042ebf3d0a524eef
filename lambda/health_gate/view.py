"""What a check is given: the spec, the clients, its deadline, and what other checks of the run have already read."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Protocol, TypeVar

from health_gate.kubernetes import Kubernetes, Node, Pod
from health_gate.spec import Endpoint, Spec

Value = TypeVar("Value")
_ATTEMPTS: Final = 3


class Clock(Protocol):
    """Time and chance, so that a test may hold them."""

    def now(self) -> float:
        """Seconds of the epoch."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def nonce(self) -> str:
        """A text that nobody has used before."""


class SystemClock:
    """The real ones."""

    def now(self) -> float:
        """Seconds of the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def nonce(self) -> str:
        """Sixteen random hexadecimal digits."""
        return secrets.token_hex(8)


class Aws:
    """AWS clients by service name, made once. ``session`` is botocore's."""

    def __init__(self, session: Any, region: str) -> None:
        self.session = session
        self._region = region
        self._made: dict[str, Any] = {}
        self._lock = Lock()

    def __call__(self, service: str) -> Any:
        """The client of a service."""
        from botocore.config import Config  # noqa: PLC0415 - half of a cold start, and not needed to answer a Delete

        with self._lock:
            if service not in self._made:
                config = Config(connect_timeout=5, read_timeout=15, retries={"mode": "standard", "total_max_attempts": _ATTEMPTS})
                self._made[service] = self.session.create_client(service, region_name=self._region, config=config)
            return self._made[service]


@dataclass(slots=True)
class Clients:
    """The outside world. ``kubernetes`` is called once, when the first check needs it; it may raise as its methods do."""

    aws: Callable[[str], Any]
    kubernetes: Callable[[], Kubernetes]


class Memory:
    """Values that are read once in a run, also when several threads ask."""

    def __init__(self) -> None:
        self._values: dict[object, Any] = {}
        self._locks: dict[object, Lock] = {}
        self._lock = Lock()

    def once(self, key: object, make: Callable[[], Value]) -> Value:
        """The value, made by the first who asks. Nothing is kept when making it raises."""
        with self._lock:
            lock = self._locks.setdefault(key, Lock())
        with lock:
            if key not in self._values:
                self._values[key] = make()
            found: Value = self._values[key]
            return found

    def peek(self, key: object) -> Any:
        """The value if it was made."""
        return self._values.get(key)


@dataclass(slots=True)
class View:
    """For checks of the environment. ``deadline`` is in seconds of ``time.monotonic``."""

    spec: Spec
    clients: Clients
    clock: Clock
    memory: Memory
    deadline: float

    def aws(self, service: str) -> Any:
        """A client of an AWS service."""
        return self.clients.aws(service)

    @property
    def kubernetes(self) -> Kubernetes:
        """The cluster's API."""
        return self.memory.once("kubernetes", self.clients.kubernetes)

    @property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return self.memory.once("nodes", lambda: self.kubernetes.nodes(self.deadline))

    def until(self, seconds: float) -> float:
        """A deadline that is at most so far away and not behind the check's own."""
        return min(self.deadline, time.monotonic() + seconds)

    def wait_for(self, look: Callable[[], Value], good: Callable[[Value], bool], seconds: float) -> Value:
        """Look until it is good or the seconds are over; the last look counts."""
        end = self.until(seconds)
        while True:
            value = look()
            if good(value) or time.monotonic() >= end:
                return value
            self.clock.sleep(min(0.5, max(0.01, end - time.monotonic())))


@dataclass(slots=True)
class EndpointView(View):
    """For checks of one endpoint."""

    endpoint: Endpoint = field(kw_only=True)

    def pods(self, role: str) -> list[Pod]:
        """The pods of a role."""
        wanted = self.endpoint.pods[role]
        return self.memory.once(
            ("pods", self.endpoint.key, role),
            lambda: self.kubernetes.pods(wanted.namespace, wanted.labels, wanted.name_prefix, self.deadline, words=wanted.words),
        )

    @property
    def all_pods(self) -> list[Pod]:
        """The pods of all roles."""
        return [pod for role in self.endpoint.pods for pod in self.pods(role)]
