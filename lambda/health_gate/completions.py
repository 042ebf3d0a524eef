"""One request to an OpenAI-compatible server, and what really came back.

Once an answer has begun its status is sent, so a router puts a decoder's error into a body with status 200
(https://github.com/vllm-project/production-stack/pull/890): the body decides, never the status.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from eks_api.http import MEBIBYTE, OK, Failed

from health_gate.kubernetes import Way

_LIMIT: Final = 8 * MEBIBYTE
_TOP: Final = 5
_WORD: Final = 60


@dataclass(slots=True)
class Answer:
    """An answer. ``error`` is empty when it is a good one; texts are never shown."""

    status: int = 0
    error: str = ""
    text: str = field(default="", repr=False)
    token_ids: list[int] = field(default_factory=list, repr=False)
    tokens: list[str] = field(default_factory=list, repr=False)
    logprobs: list[float] = field(default_factory=list, repr=False)
    candidates: list[dict[str, float]] = field(default_factory=list, repr=False)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: str = ""
    chunk_times: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ttft_ms(self) -> float:
        """Time to the first piece of text."""
        return self.chunk_times[0] * 1000 if self.chunk_times else 0.0

    @property
    def itl_ms(self) -> float:
        """Mean time between pieces of text."""
        times = self.chunk_times
        return (times[-1] - times[0]) * 1000 / (len(times) - 1) if len(times) > 1 else 0.0


def is_chat(path: str) -> bool:
    """Whether a path takes messages and not a prompt."""
    return path.rstrip("/").endswith("chat/completions")


def ask(
    way: Way,
    path: str,
    model: str,
    prompt: str,
    deadline: float,
    *,
    max_tokens: int = 8,
    stream: bool = False,
    salt: str = "",
    request_id: str = "",
) -> Answer:
    """Send a prompt at temperature 0. ``salt`` keeps its KV cache apart from that of the same prompt without it.

    Never raises: what went wrong is the answer's ``error``.
    """
    chat = is_chat(path)
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens,
        "temperature": 0,
        "seed": 0,
        "stream": stream,
        **({"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}),
        **({"logprobs": True, "top_logprobs": _TOP} if chat else {"logprobs": _TOP}),
        "return_token_ids": True,
        **({"stream_options": {"include_usage": True}, "ignore_eos": True} if stream else {}),
        **({"cache_salt": salt} if salt else {}),
    }
    headers = {"Content-Type": "application/json", **({"X-Request-Id": request_id} if request_id else {}), **way.headers()}
    answer, begin = Answer(), time.monotonic()
    try:
        with way.server.stream(
            "POST", way.prefix + "/" + path.lstrip("/"), headers=headers, body=json.dumps(body).encode(), deadline=deadline
        ) as reply:
            answer.status = reply.status
            _read(answer, reply.chunks, begin)
    except Failed as error:
        answer.error = f"no answer ({error})"
    except (AttributeError, KeyError, TypeError, ValueError):
        answer.error = "the body has a form that no such server gives"
    answer.seconds = time.monotonic() - begin
    if answer.status != OK and not answer.error:
        answer.error = f"status {answer.status}"
    if not answer.error and not answer.completion_tokens:
        answer.error = "status 200 without a single token"
    return answer


def _read(answer: Answer, chunks: Iterator[bytes], begin: float) -> None:
    """Read a whole JSON body or server-sent events, whichever it is: errors come as either."""
    kept, line, size = bytearray(), bytearray(), 0
    events = 0
    for chunk in chunks:
        size += len(chunk)
        if size > _LIMIT:
            raise Failed(f"the answer is larger than {_LIMIT // MEBIBYTE} MiB")
        kept += chunk
        line += chunk
        # What came in one piece has one time, or a lump would look like a stream.
        at = time.monotonic() - begin
        while b"\n" in line:
            first, _, rest = bytes(line).partition(b"\n")
            line = bytearray(rest)
            events += _event(answer, first, at)
    events += _event(answer, bytes(line), time.monotonic() - begin)
    if not events:
        _object(answer, _json(bytes(kept)), time.monotonic() - begin)


def _event(answer: Answer, line: bytes, at: float) -> int:
    if not line.startswith(b"data:"):
        return 0
    data = line[5:].strip()
    if data != b"[DONE]":
        _object(answer, _json(data), at)
    return 1


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _object(answer: Answer, value: Any, at: float) -> None:
    if not isinstance(value, dict):
        answer.error = answer.error or "the body is not JSON"
        return
    error = value.get("error")
    if error or value.get("object") == "error":
        kind = error.get("type") or error.get("code") if isinstance(error, dict) else value.get("type")
        answer.error = answer.error or f"an error in the body: {_plain(kind)}"
        return
    usage = value.get("usage") or {}
    answer.prompt_tokens = int(usage.get("prompt_tokens") or answer.prompt_tokens)
    answer.completion_tokens = int(usage.get("completion_tokens") or answer.completion_tokens)
    for choice in (value.get("choices") or [])[:1]:
        _choice(answer, choice, at)


def _plain(kind: Any) -> str:
    """A short word for an error; its message may quote the prompt."""
    text = str(kind or "unnamed")[:_WORD]
    return "".join(each if each.isalnum() or each in "_-. " else "?" for each in text)


def _choice(answer: Answer, choice: dict[str, Any], at: float) -> None:
    said = choice.get("message") or choice.get("delta") or {}
    text = choice.get("text") or said.get("content") or said.get("reasoning_content") or said.get("reasoning") or ""
    if text:
        answer.text += text
        answer.chunk_times.append(at)
        if not answer.completion_tokens or len(answer.chunk_times) > answer.completion_tokens:
            answer.completion_tokens = len(answer.chunk_times)
    answer.finish = choice.get("finish_reason") or answer.finish
    answer.token_ids.extend(each for each in choice.get("token_ids") or () if isinstance(each, int))
    _logprobs(answer, choice.get("logprobs") or {})


def _logprobs(answer: Answer, given: dict[str, Any]) -> None:
    if given.get("content"):
        for each in given["content"]:
            answer.tokens.append(each["token"])
            answer.logprobs.append(float(each["logprob"]))
            answer.candidates.append({top["token"]: float(top["logprob"]) for top in each.get("top_logprobs") or ()})
    elif given.get("tokens"):
        answer.tokens.extend(given["tokens"])
        answer.logprobs.extend(float(each or 0) for each in given.get("token_logprobs") or ())
        answer.candidates.extend({key: float(value) for key, value in (each or {}).items()} for each in given.get("top_logprobs") or ())
