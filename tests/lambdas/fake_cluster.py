"""A server on localhost that answers as the EKS service (plain HTTP) and as a cluster's Kubernetes API (HTTPS)."""

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

CERTIFICATE: Final = Path(__file__).parent / "data" / "localhost.pem"
READY: Final = {"type": "Ready", "status": "True"}


def authority() -> str:
    text = CERTIFICATE.read_text(encoding="ascii")
    end = "-----END CERTIFICATE-----\n"
    return text[text.index("-----BEGIN CERTIFICATE") : text.index(end) + len(end)]


def node(group: str = "system", **changes: Any) -> dict[str, Any]:
    """A schedulable node of a group; ``spec`` and ``status`` replace what a good node has."""
    labels = {"sagemaker.amazonaws.com/instance-group-name": group}
    return {"metadata": {"name": "n", "labels": labels}, "spec": {}, "status": {"conditions": [READY]}, **changes}


@dataclass
class Answer:
    """What the server sends: a status, a body, and what it does before or while it sends the body."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    stall: str = ""


def node_list(*nodes: dict[str, Any], following: str = "") -> Answer:
    return Answer(body=json.dumps({"kind": "NodeList", "metadata": {"continue": following}, "items": list(nodes)}).encode())


@dataclass
class Fake:
    """The two servers, what they answer (by path for EKS, by continue token for Kubernetes), and what they were asked."""

    eks: Answer = field(default_factory=Answer)
    kubernetes: Callable[[str], Answer] = lambda _token: node_list()
    files: dict[str, Answer] = field(default_factory=dict)
    """Answers of the plain server by path, before EKS's."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    patches: list[tuple[str, bytes]] = field(default_factory=list)
    """Path and body of every PATCH."""
    eks_url: str = ""
    endpoint: str = ""
    stop: Event = field(default_factory=Event)

    def cluster(self, **changes: Any) -> Answer:
        """DescribeCluster of an active cluster whose API is this server."""
        content = {
            "name": "c",
            "arn": "arn:aws:eks:us-east-2:111122223333:cluster/c",
            "status": "ACTIVE",
            "endpoint": self.endpoint,
            "certificateAuthority": {"data": b64encode(authority().encode()).decode()},
        }
        return Answer(body=json.dumps({"cluster": {**content, **changes}}).encode(), headers={"Content-Type": "application/json"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        """Clients that hang up are part of the tests."""


def _handler(fake: Fake, answer: Callable[[str], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            fake.requests.append((self.path, dict(self.headers)))
            found = answer(self.path)
            if found.stall == "before":
                fake.stop.wait(30)
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            drip = found.stall == "drip"
            self.send_header("Content-Length", str(10**6 if drip else len(found.body)))
            self.end_headers()
            while drip and not fake.stop.is_set():
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.02)
            self.wfile.write(found.body)

        def do_PATCH(self) -> None:
            fake.patches.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    return Handler


@contextmanager
def running() -> Iterator[Fake]:
    """Both servers, until the block ends."""
    fake = Fake()

    def following(path: str) -> str:
        return parse_qs(urlsplit(path).query).get("continue", [""])[0]

    eks = _Server(("127.0.0.1", 0), _handler(fake, lambda path: fake.files.get(path, fake.eks)))
    api = _Server(("127.0.0.1", 0), _handler(fake, lambda path: fake.kubernetes(following(path))))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    api.socket = context.wrap_socket(api.socket, server_side=True)
    fake.eks_url, fake.endpoint = f"http://127.0.0.1:{eks.server_port}", f"https://localhost:{api.server_port}"
    fake.eks = fake.cluster()
    for server in (eks, api):
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield fake
    finally:
        fake.stop.set()
        for server in (eks, api):
            server.shutdown()
            server.server_close()
