"""Router, prefill and decode as one HTTP server: which of them is asked, the address it is asked at tells."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Event, Lock
from typing import Any, Final

SECRET: Final = "sentence-of-the-prompt-"
ROUTER_IP, PREFILL_IP, DECODE_IP, PICKER_IP = "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"
CHUNK: Final = 256
BYTES_A_TOKEN: Final = 40_960


@dataclass
class Counters:
    requests: int = 0
    external: int = 0
    cached: int = 0
    kv_bytes: float = 0
    kv_seconds: float = 0
    failed: int | None = 0
    """Absent when it is None."""

    def text(self) -> str:
        labels = 'engine="0",model_name="llama"'
        return "\n".join(
            [
                "# HELP vllm:request_success_total Count of requests.",
                "# TYPE vllm:request_success_total counter",
                f'vllm:request_success_total{{{labels},finished_reason="length"}} {float(self.requests)}',
                f'vllm:request_success_total{{{labels},finished_reason="stop"}} 0.0',
                f'vllm:prompt_tokens_by_source_total{{{labels},source="external_kv_transfer"}} {float(self.external)}',
                f'vllm:prompt_tokens_by_source_total{{{labels},source="local_cache_hit"}} {float(self.cached)}',
                f"vllm:nixl_bytes_transferred_sum{{{labels}}} {self.kv_bytes:e}",
                f"vllm:nixl_xfer_time_seconds_sum{{{labels}}} {self.kv_seconds}",
                *([] if self.failed is None else [f"vllm:nixl_num_failed_transfers_total{{{labels}}} {float(self.failed)}"]),
                "process_cpu_seconds_total 1.0",
                "",
            ]
        )


@dataclass
class Engine:
    """``faults`` names what is broken; see ``_serve`` and ``_move``."""

    threshold: int = 4096
    faults: set[str] = field(default_factory=set)
    counters: dict[str, Counters] = field(default_factory=lambda: {ip: Counters() for ip in (PREFILL_IP, DECODE_IP)})
    logs: dict[str, list[str]] = field(default_factory=lambda: {ip: [] for ip in (ROUTER_IP, PREFILL_IP, DECODE_IP)})
    seen: set[str] = field(default_factory=set)
    decided: dict[str, int] = field(default_factory=dict)
    prompts: list[dict[str, Any]] = field(default_factory=list)
    stop: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)
    rate: float = 176.0
    carry: Callable[[int], None] = lambda _: None
    """What the network does with the bytes of KV."""

    def metrics(self, ip: str) -> str | None:
        hidden = (
            "hidden" in self.faults
            or (ip == PREFILL_IP and "prefill_hidden" in self.faults)
            or (ip == DECODE_IP and "decode_hidden" in self.faults)
        )
        if ip == PICKER_IP:
            return None if "picker_hidden" in self.faults else self._decisions()
        return None if hidden else self.counters[ip].text()

    def _decisions(self) -> str:
        """As a Prometheus client does, a label's child appears with its first increment."""
        return "".join(f'decisions_total{{decision_type="{name}"}} {count}\n' for name, count in sorted(self.decided.items()))

    def serve(self, ip: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], list[str]]:
        """Status, an error or nothing, and the tokens of an answer."""
        with self.lock:
            self.prompts.append(body)
            return self._router(body) if ip == ROUTER_IP else self._decoder(body)

    def _router(self, body: dict[str, Any]) -> tuple[int, dict[str, Any], list[str]]:
        text = body["messages"][0]["content"]
        estimate = len(text) // 4
        split = (estimate >= self.threshold or "always_prefill" in self.faults) and "no_prefill" not in self.faults
        for name in {"prefill-decode" if split else "decode-only"} | ({"prefill-decode"} if "busy_picker" in self.faults else set()):
            self.decided[name] = self.decided.get(name, 0) + 1
        if "silent_router" not in self.faults:
            said = split or "lying_router" in self.faults
            self.logs[ROUTER_IP].append(
                f"Conditional routing: estimated_tokens={estimate}, threshold={self.threshold}, disaggregate={said}"
            )
        for status in (500, 503):
            if str(status) in self.faults:
                return status, {"message": SECRET + text}, []
        if "503_once" in self.faults:
            self.faults.discard("503_once")
            return 503, {}, []
        if "error_in_body" in self.faults:
            return 200, {"error": {"type": "decoder_error", "message": SECRET + text}}, []
        if split:
            self._move(text)
        self.counters[DECODE_IP].requests += 1
        return 200, {}, self._answer(text, corrupt=split)

    def _move(self, text: str) -> None:
        tokens = count(text)
        prefill, decode = self.counters[PREFILL_IP], self.counters[DECODE_IP]
        prefill.requests += 1
        got = 0 if "recompute" in self.faults or text in self.seen else tokens - tokens % CHUNK
        if "partial" in self.faults:
            got = CHUNK
        decode.external += got
        decode.kv_bytes += got * BYTES_A_TOKEN
        decode.kv_seconds += got * BYTES_A_TOKEN / self.rate / 1e9
        if "failed_transfers" in self.faults:
            decode.failed = (decode.failed or 0) + 1
        self.carry(got * BYTES_A_TOKEN)
        if "silent_connector" not in self.faults:
            needed = tokens - tokens % CHUNK
            self.logs[DECODE_IP].extend(
                f"(TP{rank}) Retrieved {got} out of {needed} required tokens (from {tokens} total tokens). size: 0.2344 gb, "
                f"cost 1.3300 ms, throughput: {self.rate:.4f} GB/s;"
                for rank in range(2)
            )

    def _decoder(self, body: dict[str, Any]) -> tuple[int, dict[str, Any], list[str]]:
        text = body["messages"][0]["content"]
        if "salt_ignored" in self.faults or not body.get("cache_salt"):
            self.seen.add(text)
        if "decoder_500" in self.faults:
            return 500, {}, []
        return 200, {}, self._answer(text, corrupt=False)

    def _answer(self, text: str, *, corrupt: bool) -> list[str]:
        if "empty" in self.faults:
            return []
        if "garbage" in self.faults:
            return ["!"] * 8
        words = [f"w{(len(text) + place) % 97} " for place in range(8)]
        if corrupt and self.faults & {"corrupt", "tie"}:
            words[3:] = ["other "] * 5
        return words


def count(text: str) -> int:
    """Tokens of a text, at the rate of English prose."""
    return max(1, int(len(text) / 4.47))


def handler(at: Callable[[str], tuple[Engine, str]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            engine, ip = at(self.connection.getsockname()[0])
            text = engine.metrics(ip)
            answer(self, 404 if text is None else 200, (text or "").encode(), "text/plain")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            converse(self, *at(self.connection.getsockname()[0]), body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    return Handler


def answer(to: BaseHTTPRequestHandler, status: int, body: bytes, kind: str = "application/json") -> None:
    to.send_response(status)
    to.send_header("Content-Type", kind)
    to.send_header("Content-Length", str(len(body)))
    to.end_headers()
    to.wfile.write(body)


def converse(to: BaseHTTPRequestHandler, engine: Engine, ip: str, body: dict[str, Any]) -> None:
    """Answer a request for a completion, whole or as a stream."""
    if "slow" in engine.faults:
        engine.stop.wait(30)
    if "html" in engine.faults:
        answer(to, 200, b"<html>welcome</html>", "text/html")
        return
    if "odd_form" in engine.faults:
        answer(to, 200, b'{"choices": ["text"]}')
        return
    if "huge" in engine.faults:
        answer(to, 200, b" " * (9 << 20))
        return
    status, error, words = engine.serve(ip, body)
    if status != 200 or error:
        answer(to, status, json.dumps(error).encode())
        return
    usage = {"prompt_tokens": count(body["messages"][0]["content"]), "completion_tokens": len(words)}
    if not body["stream"]:
        choice = {
            "message": {"content": "".join(words)},
            "finish_reason": "length",
            "logprobs": logprobs(engine, words),
            **ids(engine, words),
        }
        answer(to, 200, json.dumps({"choices": [choice], "usage": usage}).encode())
        return
    to.send_response(200)
    to.send_header("Content-Type", "text/event-stream")
    to.send_header("Transfer-Encoding", "chunked")
    to.end_headers()
    events: list[dict[str, Any]] = [{"choices": [{"delta": {"content": word}}]} for word in words] + [{"choices": [], "usage": usage}]
    if "error_in_stream" in engine.faults:
        events = [*events[:1], {"error": {"type": "decoder_error", "message": SECRET}}]
    pieces = [f"data: {json.dumps(event)}\n\n".encode() for event in events] + [b"data: [DONE]\n\n"]
    if "lump" in engine.faults:
        pieces = [b"".join(pieces)]
    for piece in pieces:
        to.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        to.wfile.flush()
        time.sleep(0.02 if "laggard" in engine.faults else 0.002)
    to.wfile.write(b"0\r\n\r\n")


def ids(engine: Engine, words: list[str]) -> dict[str, Any]:
    return {"token_ids": [sum(word.encode()) for word in words]} if "token_ids" in engine.faults else {}


def logprobs(engine: Engine, words: list[str]) -> dict[str, Any] | None:
    """At a tie both candidates are known on both sides and equally likely."""
    if "no_logprobs" in engine.faults:
        return None
    gap = 0.01 if "tie" in engine.faults else 4.0
    content = []
    for word in words:
        others = (
            [{"token": "other ", "logprob": -0.1}]
            if word == "other "
            else [{"token": word, "logprob": -0.1}, {"token": "other ", "logprob": -0.1 - gap}]
        )
        if word == "other " and "tie" in engine.faults:
            others += [{"token": f"w{number} ", "logprob": -0.11} for number in range(97)]
        content.append({"token": word, "logprob": -0.1, "top_logprobs": others})
    return {"content": content}
