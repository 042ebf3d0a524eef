"""HTTP with deadlines.

``http.client`` and not ``urllib.request``: it follows no redirect and uses no proxy, so a token only ever goes to the
server it is meant for, and a connection serves more than one request.
"""

import http.client
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from urllib.parse import urlsplit

OK: Final = 200
MEBIBYTE: Final = 1 << 20
_CHUNK: Final = 1 << 16
_REASON: Final = 300
_NO_HEADERS: Final[Mapping[str, str]] = {}


class Failed(Exception):  # noqa: N818 - says what happened, as the other reasons do
    """No whole answer in time. The text is the reason; it never holds a header or a body."""


class Untrusted(Failed):
    """The server's certificate is not signed by the expected authority."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that is still coming."""

    status: int
    chunks: Iterator[bytes] = field(repr=False)


class Server:
    """One server. ``authority`` (PEM) is the only certificate authority that an ``https`` server may have.

    Deadlines are in seconds of ``time.monotonic`` and bound the whole request, answer included. Safe to use from threads.
    """

    def __init__(self, url: str, *, authority: str | None = None, prefix: str = "") -> None:
        self._address = urlsplit(url)
        self._context = ssl.create_default_context(cadata=authority) if self._address.scheme == "https" else None
        self._prefix = prefix
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = Lock()
        self.host = self._address.netloc

    def send(
        self,
        method: str,
        path: str,
        *,
        deadline: float,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes | None = None,
        limit: int = 32 * MEBIBYTE,
    ) -> Reply:
        """Send a request and read the whole answer. Raises ``Failed``, also for an answer of more than ``limit`` bytes."""
        with self.stream(method, path, deadline=deadline, headers=headers, body=body) as stream:
            content = bytearray()
            for chunk in stream.chunks:
                content += chunk
                if len(content) > limit:
                    raise Failed(f"the answer is larger than {limit // MEBIBYTE} MiB")
        return Reply(stream.status, bytes(content))

    @contextmanager
    def stream(
        self, method: str, path: str, *, deadline: float, headers: Mapping[str, str] = _NO_HEADERS, body: bytes | None = None
    ) -> Iterator[Stream]:
        """Send a request and hand over the answer piece by piece, as it arrives. Raises ``Failed``."""
        connection, kept = self._connection(fresh=method != "GET"), False
        try:
            response = self._answer(connection, method, path, headers, body, deadline)
            yield Stream(response.status, _chunks(response, connection, deadline))
            if response.isclosed() and not response.will_close:
                self._keep(connection)
                kept = True
        except ssl.SSLCertVerificationError as error:
            raise Untrusted(error.verify_message) from None
        except (OSError, http.client.HTTPException) as error:
            raise Failed(_why(error)) from None
        finally:
            if not kept:
                connection.close()

    def close(self) -> None:
        """Close what is still open."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _answer(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        deadline: float,
    ) -> http.client.HTTPResponse:
        kept = connection.sock is not None
        _limit(connection, deadline)
        try:
            connection.request(method, self._prefix + path, body=body, headers=dict(headers))
            return connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            if not kept:
                raise
            connection.close()
            _limit(connection, deadline)
            connection.request(method, self._prefix + path, body=body, headers=dict(headers))
            return connection.getresponse()

    def _connection(self, *, fresh: bool) -> http.client.HTTPConnection:
        # A server may close a kept connection at any moment; only a question may be asked again when it does.
        with self._lock:
            if self._idle and not fresh:
                return self._idle.pop()
        if self._context is not None:
            return http.client.HTTPSConnection(self.host, context=self._context)
        return http.client.HTTPConnection(self.host)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append(connection)


def _limit(connection: http.client.HTTPConnection, deadline: float) -> None:
    connection.timeout = left(deadline)
    if connection.sock is not None:
        connection.sock.settimeout(connection.timeout)


def _chunks(response: http.client.HTTPResponse, connection: http.client.HTTPConnection, deadline: float) -> Iterator[bytes]:
    while chunk := response.read1(_CHUNK):
        yield chunk
        _limit(connection, deadline)
    if response.length:
        # `read1` takes an early end for the end.
        raise http.client.IncompleteRead(b"", response.length)
    response.close()


def left(deadline: float) -> float:
    """Seconds until a deadline. Raises ``TimeoutError`` when there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds


def _why(error: Exception) -> str:
    return "timed out" if isinstance(error, TimeoutError) else str(error)[:_REASON] or type(error).__name__
