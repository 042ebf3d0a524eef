"""The traffic file: how requests arrive, how long they are, what prompts have in common, and what is promised."""

import math
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from dpd.environment.load import typed
from dpd.environment.types import Many, Part, Text
from dpd.environment.yaml_file import YamlError, read
from dpd.finding import Finding, safe

Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
Weight = Annotated[float, Field(gt=0, le=1e9)]
_P95: Final = 1.6448536269514722
FEWEST: Final = 50
"""Requests below which percentiles say nothing."""
_TRACE: Final = ".jsonl"


class Lognormal(Part):
    """Lengths with many short and few long ones."""

    median: Tokens
    """Half of the lengths are below it."""
    p95: Tokens
    """One length in twenty is above it."""
    max: Tokens | None = None
    """Longest length; longer draws are cut to it."""

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.log(self.p95 / self.median) / _P95

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.p95 < self.median or (self.max is not None and self.max < self.median):
            raise ValueError("p95 and max must be at least the median; correct the three")
        return self


class Share(Part):
    """A length, or a range of lengths, with its share of the requests."""

    tokens: Tokens
    """Tokens; with `to`, the shortest of the range."""
    to: Tokens | None = None
    """Longest tokens of a range; lengths between are equally likely."""
    weight: Weight
    """How often, beside the other weights."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.to is not None and self.to < self.tokens:
            raise ValueError("to must be at least tokens; swap the two")
        return self


class Lengths(Part):
    """A distribution of lengths in tokens: exactly one of the kinds."""

    exactly_one: ClassVar[tuple[str, ...]] = ("fixed", "lognormal", "mix")

    fixed: Tokens | None = None
    """Every request has this many."""
    lognormal: Lognormal | None = None
    """Lognormal, by its median and 95th percentile."""
    mix: Annotated[Many[Share], Field(min_length=1, max_length=1000)] | None = None
    """Lengths or ranges with weights: a mix of kinds of requests, or a histogram."""


class Arrival(Part):
    """How requests arrive."""

    rate_per_second: Annotated[float, Field(gt=0, le=100_000)]
    """Requests a second, in the mean, over the whole endpoint."""
    pattern: Literal["poisson", "bursty", "fixed"] = "poisson"
    """`poisson`: independent clients. `fixed`: one after the other. `bursty`: `burst_size` at a time, the bursts independent."""
    burst_size: Annotated[int, Field(ge=2, le=10_000)] = 8
    """Requests of one burst."""


class Trace(Part):
    """A recorded traffic: a file with one JSON object a line, in the format of the Mooncake traces."""

    file: Text
    """Path of the trace, relative to this file. Lines have `timestamp` (ms), `input_length`, `output_length` and `hash_ids`."""
    speed: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """How much faster than recorded the requests arrive."""


class PrefixReuse(Part):
    """What prompts have in common."""

    shared_tokens: Tokens
    """Tokens at the start of a prompt that others start with too (a system prompt, a document)."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the requests that start so."""
    prefixes: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Number of different such starts."""


class Promise(Part):
    """What is promised. What is left out comes from the endpoint's objectives."""

    ttft_ms: Annotated[float, Field(gt=0, le=3_600_000)] | None = None
    """Time to first token, in milliseconds. Default: the endpoint's `ttft_p99_ms`."""
    itl_ms: Annotated[float, Field(gt=0, le=3_600_000)] | None = None
    """Inter-token latency, in milliseconds. Default: the endpoint's `itl_p99_ms`."""
    percentile: Literal[50, 90, 95, 99] = 99
    """Percentile at which both must hold."""
    goodput_share: Annotated[float, Field(gt=0, le=1)] = 0.99
    """Share of the requests that must be within both."""


class Traffic(Part):
    """A traffic: an arrival process with distributions of lengths, or a trace that has both."""

    exactly_one: ClassVar[tuple[str, ...]] = ("arrival", "trace")

    version: Literal[1]
    """Version of the file format."""
    arrival: Arrival | None = None
    """How requests arrive."""
    trace: Trace | None = None
    """A recorded traffic instead."""
    input_tokens: Lengths | None = None
    """Length of the prompts. Not with a trace."""
    output_tokens: Lengths | None = None
    """Length of the answers. Not with a trace."""
    prefix_reuse: PrefixReuse | None = None
    """What prompts have in common. Default: nothing. Not with a trace, whose `hash_ids` say it."""
    requests: Annotated[int, Field(ge=FEWEST, le=20_000)] = 400
    """Requests to draw, or the most to read of a trace. A p99 of 400 requests is the fifth worst."""
    objectives: Promise = Field(default={}, validate_default=True)
    """What is promised."""

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        lengths = [name for name in ("input_tokens", "output_tokens", "prefix_reuse") if getattr(self, name) is not None]
        if self.trace is not None and lengths:
            raise ValueError(f"a trace says how long its requests are; remove {' and '.join(lengths)}")
        if self.trace is None and (self.input_tokens is None or self.output_tokens is None):
            raise ValueError("needs the lengths of prompts and answers; write input_tokens and output_tokens")
        return self


def load_traffic(path: Path) -> tuple[Traffic | None, list[Finding]]:
    """Read a traffic file, or take a trace (``.jsonl``) as it is, with the endpoint's objectives.

    Never raises for what a user may have written: it is in the findings, with path, value, limit and fix.
    """
    from dpd.environment.faults import UNREADABLE  # noqa: PLC0415

    file = safe(str(path))
    if path.suffix == _TRACE:
        return Traffic.model_validate({"version": 1, "trace": {"file": path.name}}), []
    try:
        document = read(path)
    except YamlError as error:
        message = error.message.replace("environment file", "traffic file")
        fix = error.fix or "correct the file"
        if "dpd init" in fix:
            fix = "start from a copy of docs/traffic.yaml; docs/planning.md explains it"
        return None, [UNREADABLE.finding("", message, fix).at(file, error.line)]
    return typed(document, Traffic, file=file, folder=path.parent)
