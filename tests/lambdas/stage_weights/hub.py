"""A hub on loopback: a tree in pages, files behind a redirect to another server, and every way in which they fail."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

MODEL, REVISION, TOKEN = "owner/model", "0123456789abcdef0123456789abcdef01234567", "hub-token-of-the-test"
LARGE = 1000
"""From this size on a file is stored beside Git."""


@dataclass
class Hub:
    """What the hub holds and does; a test changes it."""

    files: dict[str, bytes]
    url: str = ""
    gated: bool = False
    page: int = 2
    breaks: dict[str, list[int]] = field(default_factory=dict)
    """After how many bytes the connection ends, by file, for one request after the other."""
    wrong: dict[str, int] = field(default_factory=dict)
    """How often a file's bytes are not what the tree states."""
    errors: list[int] = field(default_factory=list)
    """Status of the next answers."""
    ranges: bool = True
    holds: dict[str, threading.Event] = field(default_factory=dict)
    """Files whose last byte is held back until the event."""
    held: threading.Event = field(default_factory=threading.Event)
    """Set when a file is held back."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Path and range of every download."""
    tokens: dict[str, set[str]] = field(default_factory=lambda: {"hub": set(), "storage": set()})
    """Authorization headers that each server has seen."""

    def entry(self, path: str) -> dict[str, Any]:
        content = self.files[path]
        git = hashlib.sha1(f"blob {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()
        large = {"lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}}
        return {"type": "file", "path": path, "size": len(content), "oid": git, **(large if len(content) >= LARGE else {})}


class _Answers(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    storage: ClassVar[str] = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub, side = self.hub, "hub" if self.storage else "storage"
        hub.tokens[side].add(self.headers.get("Authorization", ""))
        if self.storage and hub.errors:
            self._send(hub.errors.pop(0), b"")
        elif self.storage and hub.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, b"")
        elif self.path.startswith("/api/models/"):
            self._tree()
        elif self.storage:
            self._send(302, b"", {"Location": f"{self.storage}{self.path}?signature=1"})
        else:
            self._file(re.sub(r".*/resolve/[0-9a-f]+/", "", self.path.partition("?")[0]).replace("%20", " "))

    def _tree(self) -> None:
        if f"/{MODEL}/tree/{REVISION}" not in self.path:
            return self._send(404, b"")
        start = int(self.path.rpartition("cursor=")[2]) if "cursor=" in self.path else 0
        paths = list(self.hub.files)
        following = start + self.hub.page
        more = (
            {"Link": f'<{self.hub.url}{self.path.partition("&cursor")[0]}&cursor={following}>; rel="next"'}
            if following < len(paths)
            else {}
        )
        entries = [{"type": "directory", "path": "original", "oid": "0", "size": 0}] if start == 0 else []
        return self._send(200, json.dumps([*entries, *map(self.hub.entry, paths[start:following])]).encode(), more)

    def _file(self, path: str) -> None:
        content = self.hub.files[path]
        if self.hub.wrong.get(path, 0) > 0:
            self.hub.wrong[path] -= 1
            content = bytes(len(content))
        asked = self.headers.get("Range", "")
        self.hub.asked.append((path, asked))
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.hub.ranges else 0
        body = content[start:]
        cut = self.hub.breaks.get(path) or [len(body)]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: min(cut[0], len(body) - 1 if path in self.hub.holds else len(body))])
        if path in self.hub.holds:
            self.wfile.flush()
            self.hub.held.set()
            self.hub.holds[path].wait(30)
        if self.hub.breaks.get(path):
            self.hub.breaks[path].pop(0)
            self.close_connection = True

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def running(files: dict[str, bytes]) -> Iterator[Hub]:
    """A hub with these files, and the server that they lie on."""
    hub = Hub(files)
    storage = ThreadingHTTPServer(("127.0.0.1", 0), type("Storage", (_Answers,), {"hub": hub}))
    place = f"http://127.0.0.1:{storage.server_address[1]}"
    front = ThreadingHTTPServer(("127.0.0.1", 0), type("Front", (_Answers,), {"hub": hub, "storage": place}))
    hub.url = f"http://127.0.0.1:{front.server_address[1]}"
    for server in (storage, front):
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield hub
    finally:
        for server in (storage, front):
            server.shutdown()
            server.server_close()
