"""A prefiller and a decoder that speak HTTP, count as vLLM does, and hand nothing over but a word."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rehearsal.model import SHAPE

BLOCK = 128


@dataclass
class Engine:
    """``deaf``: has no connector. ``weights`` decide its answers."""

    weights: str = "one"
    deaf: bool = False
    url: str = ""
    requests: int = 0
    external: int = 0
    moved: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def metrics(self) -> str:
        return "\n".join(
            [
                f'vllm:request_success_total{{finished_reason="length"}} {self.requests}',
                f'vllm:prompt_tokens_by_source_total{{source="external_kv_transfer"}} {self.external}',
                f"vllm:nixl_bytes_transferred_sum {self.moved}",
                f"vllm:nixl_xfer_time_seconds_sum {self.moved / 1e9}",
                "vllm:nixl_num_failed_transfers_total 0",
                "",
            ]
        )

    def answer(self, body: dict[str, Any]) -> tuple[list[str], int, dict[str, Any]]:
        """Words, tokens of the prompt, and what is said of the transfer."""
        text = "".join(message["content"] for message in body["messages"])
        tokens = len(text) // 4
        given = body.get("kv_transfer_params") or {}
        with self.lock:
            self.requests += 1
            read = self.weights
            if given.get("read_by") and not self.deaf:
                self.external += tokens
                self.moved += SHAPE.kv_bytes(tokens, BLOCK)
                # Keys and values of other weights make other words.
                read = given["read_by"] if given["read_by"] == self.weights else f"{given['read_by']}+{self.weights}"
        seed = hashlib.sha256(f"{read} {text}".encode()).hexdigest()
        words = [f"w{letter} " for letter in seed[: body["max_tokens"]]]
        return words, tokens, {"kv_transfer_params": {"read_by": self.weights}} if given.get("do_remote_decode") else {}


@contextmanager
def serving(engine: Engine, place: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[Engine]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._whole(engine.metrics().encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            words, tokens, more = engine.answer(body)
            usage = {"prompt_tokens": tokens, "completion_tokens": len(words)}
            if not body.get("stream"):
                choice = {"message": {"content": "".join(words)}, "finish_reason": "length"}
                self._whole(json.dumps({"choices": [choice], "usage": usage, **more}).encode())
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in (*({"choices": [{"delta": {"content": word}}]} for word in words), {"choices": [], "usage": usage}):
                piece = f"data: {json.dumps(event)}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def _whole(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(place, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    engine.url = f"http://{place[0]}:{server.server_address[1]}"
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
