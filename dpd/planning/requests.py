"""From a traffic to its requests: drawn by a seed, or read from a trace."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dpd.planning.candidate import TRACE_BLOCK_TOKENS, Request
from dpd.planning.traffic import FEWEST, Arrival, Lengths, PrefixReuse, Traffic

_LISTED: Final = 10
"""Broken lines of a trace that are named; of more only the number is said."""
_MOST_LINE_BYTES: Final = 4_000_000
_LONGEST: Final = 10_000_000
_LATEST_MS: Final = 1e12


class TraceError(ValueError):
    """A trace that cannot be used. ``lines`` are the broken lines, 1-based; ``fix`` is what to do."""

    def __init__(self, message: str, fix: str, lines: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.fix, self.lines = fix, lines


@dataclass(frozen=True, slots=True)
class Drawn:
    """Requests in the order of their arrival, and how many a second they are in the mean."""

    requests: tuple[Request, ...]
    rate_per_second: float
    source: str


def draw(traffic: Traffic, *, seed: int = 0, folder: Path = Path()) -> Drawn:
    """The requests of a traffic. The same seed gives the same ones. Raises ``TraceError`` for a trace that cannot be read."""
    if traffic.trace is not None:
        path = folder / traffic.trace.file
        requests = read_trace(path, most=traffic.requests, speed=traffic.trace.speed)
        if len(requests) < FEWEST:
            raise TraceError(f"{len(requests):,} requests say nothing of a percentile; at least {FEWEST} are needed", "record for longer")
        seconds = (requests[-1].arrival_ms - requests[0].arrival_ms) / 1e3
        if seconds <= 0:
            raise TraceError(
                "all requests of the trace arrive at the same time, so that it has no rate", "record the moments too, in milliseconds"
            )
        return Drawn(requests, (len(requests) - 1) / seconds, f"the first {len(requests):,} requests of {traffic.trace.file}")
    assert traffic.arrival is not None
    assert traffic.input_tokens is not None
    assert traffic.output_tokens is not None
    # Streams of their own: another arrival pattern draws the same lengths. No secret depends on them.
    arrivals, inputs, outputs, starts = (random.Random(f"{seed}:{part}") for part in ("arrivals", "inputs", "outputs", "starts"))  # noqa: S311
    times = _times(traffic.arrival, arrivals)
    requests = tuple(
        _request(
            next(times), _length(traffic.input_tokens, inputs), _length(traffic.output_tokens, outputs), traffic.prefix_reuse, starts, at
        )
        for at in range(traffic.requests)
    )
    return Drawn(requests, traffic.arrival.rate_per_second, f"{traffic.requests:,} drawn requests, seed {seed}")


def _times(arrival: Arrival, source: random.Random) -> Iterator[float]:
    rate, now = arrival.rate_per_second / 1e3, 0.0
    together = arrival.burst_size if arrival.pattern == "bursty" else 1
    while True:
        now += together / rate if arrival.pattern == "fixed" else source.expovariate(rate / together)
        for _ in range(together):
            yield round(now, 3)


def _length(lengths: Lengths, source: random.Random) -> int:
    if lengths.fixed is not None:
        return lengths.fixed
    if lengths.lognormal is not None:
        drawn = round(source.lognormvariate(math.log(lengths.lognormal.median), lengths.lognormal.sigma))
        return max(1, min(drawn, lengths.lognormal.max or _LONGEST))
    assert lengths.mix is not None
    (share,) = source.choices(lengths.mix, [share.weight for share in lengths.mix])
    return source.randint(share.tokens, share.to) if share.to is not None else share.tokens


def _request(arrival_ms: float, tokens: int, answer: int, reuse: PrefixReuse | None, source: random.Random, at: int) -> Request:
    """A request whose blocks of 512 tokens are its own, but for those of a shared start. Only whole blocks can be shared."""
    shared = 0
    start = 0
    if reuse is not None and source.random() < reuse.share:
        start = source.randrange(reuse.prefixes)
        shared = min(reuse.shared_tokens, tokens) // TRACE_BLOCK_TOKENS
    blocks = -(-tokens // TRACE_BLOCK_TOKENS)
    return (
        Request(arrival_ms, tokens, answer, (*_ids(2 * start, shared), *_ids(2 * at + 1, blocks - shared)))
        if reuse
        else Request(arrival_ms, tokens, answer)
    )


def _ids(owner: int, count: int) -> range:
    return range(owner << 20, (owner << 20) + count)


def read_trace(path: Path, *, most: int, speed: float = 1.0) -> tuple[Request, ...]:
    """Read a trace in Mooncake's format. Raises ``TraceError``: for broken lines with their number and where the first ones are."""
    requests, broken, number = [], [], 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                request = _of_line(line, speed)
                if request is None:
                    broken.append(number)
                else:
                    requests.append(request)
    except OSError as error:
        raise TraceError(f"the trace cannot be read: {error.strerror or error}", "name a file beside the traffic file") from None
    if broken:
        named = ", ".join(map(str, broken[:_LISTED])) + (", …" if len(broken) > _LISTED else "")
        noun = "line" if len(broken) == 1 else "lines"
        raise TraceError(
            f"{len(broken):,} broken {noun} of {number:,}: {noun} {named}. Each must be a JSON object with timestamp (ms), "
            "input_length and output_length of at least 1, and hash_ids as a list of whole numbers, if at all",
            "correct these lines, or take them out",
            tuple(broken),
        )
    if not requests:
        raise TraceError("the trace is empty", "name a trace with requests")
    return tuple(sorted(requests, key=lambda request: request.arrival_ms)[:most])


def _of_line(line: bytes, speed: float) -> Request | None:
    try:
        row = json.loads(line) if len(line) <= _MOST_LINE_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    when, blocks = row.get("timestamp"), row.get("hash_ids") or []
    timed = type(when) in (int, float) and 0 <= row["timestamp"] <= _LATEST_MS
    long = all(type(row.get(key)) is int and 1 <= row[key] <= _LONGEST for key in ("input_length", "output_length"))
    if not (timed and long and isinstance(blocks, list) and all(type(block) is int for block in blocks)):
        return None
    return Request(float(row["timestamp"]) / speed, row["input_length"], row["output_length"], tuple(blocks))
