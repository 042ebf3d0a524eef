"""Stands in for the endpoint's router, which cannot run without its image: long prompts to a prefiller and then a decoder, short
ones to a decoder alone, with the endpoint's own threshold. Used in the rehearsal and nowhere else.

It streams, passes errors on, counts and logs its decisions as the real ones do, and keeps a record of every request.
"""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

OK, BAD_REQUEST, BAD_GATEWAY, UNAVAILABLE = 200, 400, 502, 503
_SECONDS: Final = 600.0
_CHUNK: Final = 1 << 16
_ASK: Final = {
    "do_remote_decode": True, "do_remote_prefill": False,
    "remote_engine_id": None, "remote_block_ids": None, "remote_host": None, "remote_port": None,
}  # fmt: skip
"""What vLLM's NIXL connector is told at the prefiller: https://github.com/vllm-project/vllm/blob/main/docs/features/nixl_connector_usage.md"""
_OF_THE_ANSWER: Final = (
    "stream_options",
    "logprobs",
    "top_logprobs",
    "return_token_ids",
    "ignore_eos",
    "min_tokens",
    "max_completion_tokens",
)
"""What concerns an answer that nobody reads."""


@dataclass(slots=True)
class Trip:
    """A request and its way. Times in seconds of ``time.monotonic``."""

    estimate: int
    split: bool
    began: float
    request: str = ""
    prefill_seconds: float = 0.0
    ended: float = 0.0
    status: int = 0


@dataclass(slots=True)
class Routes:
    """Where requests go; may be changed while it serves. ``router`` takes the requests for both roles instead of the workers.

    ``handover``: ``nixl`` sends the prefiller's transfer parameters on to the decoder, ``shared`` relies on what both share.
    """

    prefill: list[str]
    decode: list[str]
    threshold_tokens: int
    characters_per_token: int
    no_prefiller: str = "fail"
    router: str = ""
    handover: str = "nixl"


@dataclass(slots=True)
class Counted:
    """Names of the series in which the real router counts its decisions."""

    split: str = ""
    whole: str = ""


class Front:
    """A server for an endpoint. A context: it serves inside."""

    def __init__(self, routes: Routes, places: list[tuple[str, int]], counted: Counted | None = None) -> None:
        self.routes, self.counted = routes, counted or Counted()
        self.trips: list[Trip] = []
        self.lines: list[tuple[float, str]] = []
        self._turns, self._lock = {"prefill": count(), "decode": count()}, threading.Lock()
        self._servers = [_Server(place, self) for place in places]
        self.url = f"http://{places[0][0]}:{self._servers[0].server_address[1]}"

    def __enter__(self) -> "Front":
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def log(self, since: float) -> str:
        """The lines since a time, in seconds of the epoch."""
        return "\n".join(line for at, line in self.lines if at >= since - 1)

    def metrics(self) -> str:
        """Decisions as Prometheus text."""
        both = ((self.counted.split, True), (self.counted.whole, False))
        return "".join(f"{name} {sum(trip.split is way for trip in self.trips)}\n" for name, way in both if name)

    def decide(self, body: Mapping[str, Any]) -> Trip:
        """Whether a request goes through a prefiller: the prompt's estimated tokens reach the threshold."""
        estimate = characters(body) // self.routes.characters_per_token
        split = estimate >= self.routes.threshold_tokens
        if split and self.routes.no_prefiller == "fallback" and not any(map(_listens, self.routes.prefill)):
            split = False
        trip = Trip(estimate, split, time.monotonic())
        said = f"Conditional routing: estimated_tokens={estimate}, threshold={self.routes.threshold_tokens}, disaggregate={split}"
        with self._lock:
            self.trips.append(trip)
            self.lines.append((time.time(), said))
        return trip

    def prefiller(self) -> str:
        """The next prefiller in turn."""
        return self.routes.prefill[next(self._turns["prefill"]) % len(self.routes.prefill)]

    def decoder(self) -> str:
        """The next decoder in turn."""
        return self.routes.decode[next(self._turns["decode"]) % len(self.routes.decode)]


def characters(body: Mapping[str, Any]) -> int:
    """The length of a prompt, or of all messages of a chat."""
    said = body.get("prompt")
    if isinstance(said, str):
        return len(said)
    return sum(len(text) for message in body.get("messages") or () for text in _texts(message.get("content")))


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (str(part.get("text", "")) for part in content if isinstance(part, Mapping))


def _listens(url: str) -> bool:
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname or "", address.port or 80), timeout=1).close()
    except OSError:
        return False
    return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: tuple[str, int], front: Front) -> None:
        super().__init__(place, _Handler)
        self.front = front


class _Refused(Exception):  # noqa: N818 - an answer, not a fault
    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status, self.body = status, body


def _error(status: int, text: str) -> _Refused:
    return _Refused(status, json.dumps({"error": {"message": text, "type": "front", "code": status}}).encode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are kept as trips."""

    def do_GET(self) -> None:
        """Counters, health, and everything else from a decoder."""
        front = self.server.front
        if self.path in ("/metrics", "/health"):
            self._whole(OK, front.metrics().encode() if self.path == "/metrics" else b"", "text/plain")
            return
        try:
            with closing(_connect(front.decoder())) as connection:
                self._pass_on(_sent(connection, "GET", self.path, None, {}))
        except _Refused as refused:
            self._whole(refused.status, refused.body)

    def do_POST(self) -> None:
        """A request for an answer."""
        front, trip = self.server.front, None
        try:
            body = self._body()
            trip = front.decide(body)
            trip.request = self.headers.get("X-Request-Id", "")
            trip.status = self._answer(front, trip, body)
        except _Refused as refused:
            # Before the client hears of it, who may ask at once what became of its request.
            if trip:
                trip.status = refused.status
            self._whole(refused.status, refused.body)
        except OSError:
            self.close_connection = True
        finally:
            if trip:
                trip.ended = time.monotonic()

    def _body(self) -> dict[str, Any]:
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise _error(BAD_REQUEST, "the body is no JSON object")
        return body

    def _answer(self, front: Front, trip: Trip, body: dict[str, Any]) -> int:
        routes = front.routes
        headers = {"X-Request-Id": trip.request} if trip.request else {}
        target = front.decoder()
        if trip.split and routes.router:
            target = routes.router
        elif trip.split:
            begin = time.monotonic()
            body = body | self._prefill(front, body, headers)
            trip.prefill_seconds = time.monotonic() - begin
        with closing(_connect(target)) as connection:
            return self._pass_on(_sent(connection, "POST", self.path, body, headers))

    def _prefill(self, front: Front, body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        """Let a prefiller read the prompt; what the decoder must be told."""
        asked = {key: value for key, value in body.items() if key not in _OF_THE_ANSWER}
        asked |= {"max_tokens": 1, "stream": False} | ({"kv_transfer_params": _ASK} if front.routes.handover == "nixl" else {})
        with closing(_connect(front.prefiller())) as connection:
            reply = _sent(connection, "POST", self.path, asked, headers)
            said = reply.read()
        if reply.status != OK:
            raise _Refused(reply.status, said)
        given = json.loads(said).get("kv_transfer_params")
        return {"kv_transfer_params": given} if given else {}

    def _pass_on(self, reply: http.client.HTTPResponse) -> int:
        """Send an answer on as it comes."""
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.getheader("Content-Type") or "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := reply.read1(_CHUNK):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        return reply.status

    def _whole(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _connect(url: str) -> http.client.HTTPConnection:
    address = urlsplit(url)
    return http.client.HTTPConnection(address.hostname or "", address.port, timeout=_SECONDS)


def _sent(
    connection: http.client.HTTPConnection, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    try:
        text = None if body is None else json.dumps(body).encode()
        connection.request(method, path, text, {"Content-Type": "application/json", **headers})
        return connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        status = UNAVAILABLE if isinstance(error, ConnectionRefusedError) else BAD_GATEWAY
        raise _error(status, f"{connection.host}:{connection.port} does not answer ({type(error).__name__})") from None
