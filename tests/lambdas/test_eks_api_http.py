"""Connections that are kept, and what happens when the other side has closed them."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from eks_api.http import Failed, Server

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def server(answers: list[bytes], a_connection: int = 1) -> Iterator[tuple[str, list[bytes]]]:
    """Gives some answers on each connection, then closes it without having said so."""
    asked: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while answers:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                for _ in range(a_connection):
                    received = connection.recv(65536)
                    if not received or not answers:
                        break
                    asked.append(received)
                    connection.sendall(answers.pop(0))

    Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        listener.close()


def soon() -> float:
    return time.monotonic() + 5


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_connection_that_was_closed_meanwhile_is_no_failure(method: str) -> None:
    """Servers close idle connections after a few seconds; a prompt sent into one must not look like an outage."""
    with server([ANSWER] * 3) as (url, asked):
        client = Server(url)
        for _ in range(3):
            assert client.send(method, "/", body=b"x" if method == "POST" else None, deadline=soon()).body == b"ok"
            time.sleep(0.02)
    assert len(asked) == 3


def test_a_prompt_is_never_sent_twice() -> None:
    with server([b"", ANSWER]) as (url, asked):
        with pytest.raises(Failed):
            Server(url).send("POST", "/", body=b"x", deadline=soon())
        assert len(asked) == 1


def test_a_connection_is_kept() -> None:
    with server([ANSWER] * 2, a_connection=2) as (url, asked):
        client = Server(url)
        ports = []
        for _ in range(2):
            client.send("GET", "/", deadline=soon())
            ports.append(client._idle[0].sock.getsockname()[1])
        client.close()
    assert ports[0] == ports[1]
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed connection"),
        (b"nonsense\r\n\r\n", "nonsense"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3000000, "larger than 1 MiB"),
    ],
)
def test_no_whole_answer(answer: bytes, words: str) -> None:
    with server([answer]) as (url, _), pytest.raises(Failed, match=words):
        Server(url).send("GET", "/", deadline=soon(), limit=1 << 20)


def test_no_time_is_no_request() -> None:
    with server([ANSWER]) as (url, asked):
        with pytest.raises(Failed, match="timed out"):
            Server(url).send("GET", "/", deadline=time.monotonic())
        assert asked == []


def test_redirects_are_answers_and_not_followed() -> None:
    with server([b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"]) as (url, _):
        assert Server(url).send("GET", "/", headers={"Authorization": "Bearer t"}, deadline=soon()).status == 302
