"""The front, between a client and workers that speak HTTP: who is asked, with what, and what comes back."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rehearsal.front import Counted, Front, Routes

LONG, SHORT = "x" * 400, "x" * 396
GIVEN = {"remote_engine_id": "one", "remote_block_ids": [1, 2]}


@dataclass
class Worker:
    """A worker that remembers what it was asked. ``pieces`` come one by one."""

    url: str = ""
    status: int = 200
    pieces: tuple[str, ...] = ('{"choices": []}',)
    pause: threading.Event | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def worker(**options: Any) -> Iterator[Worker]:
    made = Worker(**options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            made.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(made.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number, piece in enumerate(made.pieces):
                if number and made.pause:
                    made.pause.wait(20)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece.encode()))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Scene:
    front: Front
    prefill: Worker
    decode: Worker

    def ask(self, prompt: str | None, **more: Any) -> tuple[int, Any]:
        body = json.dumps({"prompt": prompt, "max_tokens": 9, **more}).encode()
        request = urllib.request.Request(f"{self.front.url}/v1/completions", body, {"X-Request-Id": "mine"})
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        prefill = stack.enter_context(worker(pieces=(json.dumps({"kv_transfer_params": GIVEN}),)))
        decode = stack.enter_context(worker())
        routes = Routes([prefill.url], [decode.url], threshold_tokens=100, characters_per_token=4)
        front = stack.enter_context(Front(routes, [("127.0.0.1", 0)], Counted('split{way="both"}', 'split{way="one"}')))
        yield Scene(front, prefill, decode)


def test_a_prompt_below_the_threshold_goes_to_the_decoder_alone(scene: Scene) -> None:
    assert scene.ask(SHORT)[0] == 200
    assert (len(scene.prefill.asked), len(scene.decode.asked)) == (0, 1)
    assert "kv_transfer_params" not in scene.decode.asked[0]
    assert not scene.front.trips[0].split


def test_a_prompt_at_the_threshold_goes_through_a_prefiller_and_its_word_to_the_decoder(scene: Scene) -> None:
    assert scene.ask(LONG, logprobs=5, min_tokens=3)[0] == 200
    (prefill,), (decode,) = scene.prefill.asked, scene.decode.asked
    assert prefill["max_tokens"] == 1
    assert prefill["kv_transfer_params"]["do_remote_decode"] is True
    assert not {"logprobs", "min_tokens"} & prefill.keys()
    assert decode["kv_transfer_params"] == GIVEN
    assert (decode["max_tokens"], decode["logprobs"]) == (9, 5)
    assert (scene.front.trips[0].split, scene.front.trips[0].request) == (True, "mine")


def test_messages_count_as_their_texts(scene: Scene) -> None:
    two = {"role": "user", "content": [{"type": "text", "text": "x" * 200}]}, {"role": "user", "content": "x" * 200}
    scene.ask(None, messages=two)
    assert scene.front.trips[0].estimate == 100


def test_pieces_pass_while_the_answer_is_still_made(scene: Scene) -> None:
    scene.decode.pieces, scene.decode.pause = ("data: 1\n\n", "data: 2\n\n"), threading.Event()
    request = urllib.request.Request(f"{scene.front.url}/v1/completions", json.dumps({"prompt": SHORT, "stream": True}).encode())
    with urllib.request.urlopen(request, timeout=20) as reply:
        assert reply.readline() == b"data: 1\n"
        scene.decode.pause.set()
        assert reply.read() == b"\ndata: 2\n\n"


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_an_error_passes_on_as_it_is(scene: Scene, role: str) -> None:
    broken = getattr(scene, role)
    broken.status, broken.pieces = 418, ('{"error": {"type": "teapot"}}',)
    assert scene.ask(LONG) == (418, {"error": {"type": "teapot"}})
    trip, deadline = scene.front.trips[0], time.monotonic() + 20
    while not trip.ended and time.monotonic() < deadline:  # the client has its answer a moment before the front is done
        time.sleep(0.01)
    assert trip.status == 418


@pytest.mark.parametrize(("policy", "status", "split"), [("fail", 503, True), ("fallback", 200, False)])
def test_without_a_prefiller_the_endpoint_decides(scene: Scene, policy: str, status: int, split: bool) -> None:
    with worker() as gone:
        url = gone.url
    scene.front.routes.prefill, scene.front.routes.no_prefiller = [url], policy
    assert scene.ask(LONG)[0] == status
    assert scene.front.trips[0].split is split


def test_a_router_takes_what_both_roles_work_on(scene: Scene) -> None:
    with worker() as router:
        scene.front.routes.router = router.url
        scene.ask(LONG)
        scene.ask(SHORT)
        assert (len(router.asked), len(scene.prefill.asked), len(scene.decode.asked)) == (1, 0, 1)


def test_what_both_share_needs_no_word_between_them(scene: Scene) -> None:
    scene.front.routes.handover = "shared"
    scene.ask(LONG)
    assert all("kv_transfer_params" not in body for body in (*scene.prefill.asked, *scene.decode.asked[:0]))


def test_workers_take_turns(scene: Scene) -> None:
    with worker() as second:
        scene.front.routes.decode.append(second.url)
        for _ in range(4):
            scene.ask(LONG)
        assert (len(scene.decode.asked), len(second.asked)) == (2, 2)


def test_decisions_are_counted_and_logged_as_the_gate_reads_them(scene: Scene) -> None:
    begin = time.time()
    for prompt in (LONG, SHORT, SHORT):
        scene.ask(prompt)
    assert scene.front.metrics() == 'split{way="both"} 1\nsplit{way="one"} 2\n'
    assert scene.front.log(begin).splitlines() == [
        "Conditional routing: estimated_tokens=100, threshold=100, disaggregate=True",
        *["Conditional routing: estimated_tokens=99, threshold=100, disaggregate=False"] * 2,
    ]
    assert scene.front.log(begin + 60) == ""


def test_a_body_that_is_no_object_is_refused(scene: Scene) -> None:
    request = urllib.request.Request(f"{scene.front.url}/v1/completions", b"[]")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    assert refused.value.code == 400
    refused.value.close()
