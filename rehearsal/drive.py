"""Traffic of a rehearsal: requests with what they moved and how long they took, and the cost of the hand-over."""

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from eks_api.http import Server
from health_gate import prompts
from health_gate.answers import compare
from health_gate.completions import Answer, ask
from health_gate.kubernetes import Way
from health_gate.probe import scrape
from health_gate.series import Samples, rise
from health_gate.spec import Endpoint

from rehearsal.front import Front
from rehearsal.model import SHAPE
from rehearsal.say import Broken, Say

_SECONDS: Final = 300.0
_SETTLE_SECONDS: Final = 3.0
_ANSWER_TOKENS: Final = 24
_FAILED_TRANSFERS: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Sample:
    """A request through the front, and the counters of all decoders around it. ``split``: through a prefiller."""

    split: bool
    prompt_tokens: int
    answer_tokens: int
    ttft_ms: float
    itl_ms: float
    seconds: float
    kv_bytes: int
    kv_bytes_computed: int
    external_tokens: int
    transfer_seconds: float
    equal: bool | None

    @property
    def way(self) -> str:
        """Who worked on it."""
        return "prefill, then decode" if self.split else "decode alone"

    @property
    def exact(self) -> bool:
        """Whether exactly the computed bytes were moved."""
        return self.kv_bytes == self.kv_bytes_computed


@dataclass(frozen=True, slots=True)
class Pass:
    """Requests of one kind of serving, medians over several, and answers a second with two at a time."""

    name: str
    requests: int
    ttft_ms: float
    itl_ms: float
    seconds: float
    requests_per_second: float
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Disaggregated against colocated on the same cores."""

    prompt_tokens: int
    answer_tokens: int
    disaggregated: Pass
    colocated: Pass

    @property
    def handover_ms(self) -> float:
        """What the way over a prefiller adds to the first token."""
        return self.disaggregated.ttft_ms - self.colocated.ttft_ms

    @property
    def throughput_ratio(self) -> float:
        """Answers a second, disaggregated over colocated."""
        return self.disaggregated.requests_per_second / self.colocated.requests_per_second


class Driver:
    """Sends requests to a front, or to a worker alone. ``block_size`` is 0 where the connector counts no bytes."""

    def __init__(self, endpoint: Endpoint, front: Front, prefill: Sequence[str], decode: Sequence[str], block_size: int, say: Say) -> None:
        self._endpoint, self._front, self._say = endpoint, front, say
        self._prefill, self._decode, self._block_size = prefill, decode, block_size
        self._numbers = iter(range(1, 1_000_000))
        self._run = f"{time.time_ns():x}"

    def warm(self, urls: Sequence[str] = ()) -> None:
        """A long prompt to each worker alone, or to those given: the first one of an engine pays for what later ones find done."""
        self._say("a first prompt for each worker, which is not measured")
        for url in urls or (*self._prefill, *self._decode):
            self._ask(url, self._text(long=True))

    def samples(self, long: int, short: int) -> list[Sample]:
        """Long and short prompts through the front, one after the other, long ones compared with the decoder alone."""
        found = []
        for number in range(long + short):
            sample = self._sample(self._text(long=number < long), compared=number < long)
            found.append(sample)
            bytes_moved = f"{sample.kv_bytes:,} bytes of KV moved, {sample.kv_bytes_computed:,} computed, " if self._block_size else ""
            moved = f"{bytes_moved}{sample.external_tokens} tokens from prefill"
            same = {True: ", answer equal", False: ", ANSWER DIFFERS", None: ""}[sample.equal]
            tokens = f"{sample.prompt_tokens} + {sample.answer_tokens} tokens"
            self._say(f"{sample.way}: {tokens}, TTFT {sample.ttft_ms:.0f} ms, inter-token {sample.itl_ms:.0f} ms, {moved}{same}")
        return found

    def cost(self, requests: int) -> Cost:
        """The same kind of prompts through the front, and shared out to all workers with each doing everything itself."""
        self._say(f"benchmark: {requests} requests alone and {requests} two at a time, disaggregated and colocated on the same cores")
        whole = [self._front.url], [*self._prefill, *self._decode]
        first = [self._pass(name, urls, requests) for name, urls in zip(("disaggregated", "colocated"), whole, strict=True)]
        (split, prompt, answer), (together, _, _) = first
        return Cost(prompt, answer, split, together)

    def alone(self, text: str, *, salt: str) -> Answer:
        """The answer of a decoder that computes everything itself."""
        return self._ask(self._decode[0], text, salt=salt)

    def _text(self, *, long: bool) -> str:
        nonce, per = f"{self._run} {next(self._numbers)}", self._endpoint.characters_per_token
        if not long:
            return prompts.plain(nonce, per).text
        tokens = max(self._endpoint.threshold_tokens + self._endpoint.threshold_tokens // 10 + 16, 2 * self._endpoint.chunk_tokens)
        return prompts.prompt(nonce, tokens * per, per).text

    def _ask(self, url: str, text: str, *, salt: str = "") -> Answer:
        way = Way(Server(url), "", dict, "rehearsal")
        answer = ask(
            way, self._endpoint.path, self._endpoint.served_name, text, time.monotonic() + _SECONDS,
            max_tokens=_ANSWER_TOKENS, stream=True, salt=salt,
        )  # fmt: skip
        if answer.error:
            raise Broken(f"A request to {url} was not answered: {answer.error}.")
        return answer

    def _counters(self) -> list[Samples | None]:
        names = self._endpoint.series.all
        return [scrape(Way(Server(url), "", dict, ""), "/metrics", names, time.monotonic() + 10) for url in self._decode]

    def _sample(self, text: str, *, compared: bool) -> Sample:
        series = self._endpoint.series
        reference = self.alone(text, salt=f"{self._run} alone") if compared else None
        before, trips = self._counters(), len(self._front.trips)
        answer = self._ask(self._front.url, text)
        split = self._front.trips[trips].split
        after = self._settled(before, wanted=split)

        def rose(names: tuple[str, ...]) -> float:
            return sum(rise(old, new, names) or 0.0 for old, new in zip(before, after, strict=True))

        return Sample(
            split,
            answer.prompt_tokens, answer.completion_tokens, answer.ttft_ms, answer.itl_ms, answer.seconds,
            int(rose(series.kv_bytes)), SHAPE.kv_bytes(answer.prompt_tokens, self._block_size) if split and self._block_size else 0,
            int(rose(series.external_tokens)), rose(series.kv_seconds),
            None if reference is None else not compare(answer, reference, self._endpoint.logprob_tolerance)[0],
        )  # fmt: skip

    def _settled(self, before: list[Samples | None], *, wanted: bool) -> list[Samples | None]:
        """Counters lag behind answers. Where nothing must move, a moment is waited all the same."""
        end = time.monotonic() + (_SETTLE_SECONDS if wanted else 0.5)
        while True:
            after = self._counters()
            moved = any((rise(old, new, self._endpoint.series.external_tokens) or 0) > 0 for old, new in zip(before, after, strict=True))
            if (moved and wanted) or time.monotonic() > end:
                return after
            time.sleep(0.2)

    def _pass(self, name: str, urls: Sequence[str], requests: int) -> tuple[Pass, int, int]:
        turn = cycle(urls)
        one_by_one = [self._ask(next(turn), self._text(long=True)) for _ in range(requests)]
        begin = time.monotonic()
        with ThreadPoolExecutor(2) as both:
            together = list(both.map(lambda url: self._ask(url, self._text(long=True)), [next(turn) for _ in range(requests)]))
        seconds = time.monotonic() - begin
        measured = Pass(
            name, requests,
            statistics.median(answer.ttft_ms for answer in one_by_one),
            statistics.median(answer.itl_ms for answer in one_by_one),
            statistics.median(answer.seconds for answer in one_by_one),
            requests / seconds,
            sum(answer.completion_tokens for answer in together) / seconds,
        )  # fmt: skip
        self._say(
            f"{name}: TTFT {measured.ttft_ms:.0f} ms, inter-token {measured.itl_ms:.0f} ms, {measured.requests_per_second:.2f} requests/s, "
            f"{measured.tokens_per_second:.1f} tokens/s"
        )
        return measured, one_by_one[0].prompt_tokens, one_by_one[0].completion_tokens
