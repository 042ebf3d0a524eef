"""What load generators and the health gate measured, in one shape.

Read as their own code writes it: ``vllm bench serve --save-result`` (vllm/benchmarks/serve.py), ``profile_export_aiperf.json`` of aiperf
(schema 1.x), ``benchmarks.json`` of guidellm (0.3 to 0.8), and the report of the health gate. Times are milliseconds.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dpd.finding import safe

_MOST_BYTES: Final = 512 << 20
_MOST: Final = 1e11
"""No number of a run is as large: milliseconds of three years, the year 5138."""
_FEWEST: Final = 10
"""Requests below which a percentile says nothing."""


class ResultError(ValueError):
    """A file that is no usable result, in words for its owner."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a load generator. ``request_gap_ms`` is the median over requests of their mean gap between tokens (TPOT)."""

    tool: str
    day: str
    requests: int
    rate_per_second: float
    input_tokens: float
    output_tokens: float
    ttft_p50_ms: float
    ttft_p99_ms: float | None
    request_gap_ms: float
    gap_p99_ms: float | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Transfer:
    """What the health gate saw of a hand-over: GB/s for each rank."""

    day: str
    endpoint: str
    gb_per_second: float


Measured = Result | Transfer


def read(path: Path) -> list[Measured]:
    """Every run in a file. Raises ``ResultError``: unreadable, of no known tool, without a needed number, or with too few requests."""
    name = safe(str(path))
    content = _content(path, name)
    for tool, (belongs, reader) in _TOOLS.items():
        if isinstance(content, dict) and belongs(content):
            try:
                found = list(reader(content))
            except ResultError as error:
                raise ResultError(f"{name} ({tool}): {error}") from None
            if not found:
                raise ResultError(f"{name} ({tool}): holds no finished run")
            return found
    raise ResultError(
        f"{name} is of no tool that is known. Known are: vllm bench serve --save-result, aiperf (profile_export_aiperf.json), "
        "guidellm (benchmarks.json), and the report of the health gate (dpd doctor --json)"
    )


def _content(path: Path, name: str) -> Any:
    try:
        if path.exists() and not path.is_file():
            raise ResultError(f"{name} is no regular file")
        if path.stat().st_size > _MOST_BYTES:
            raise ResultError(f"{name} is larger than {_MOST_BYTES >> 20} MiB; save it without the texts of each request")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ResultError(f"{name} is no text; the results are JSON files") from None
    except json.JSONDecodeError as error:
        raise ResultError(
            f"{name}:{error.lineno} is no JSON: {error.msg}. One file holds one JSON document (not .jsonl, not .csv)"
        ) from None
    except RecursionError:
        raise ResultError(f"{name} is nested too deeply to be a result") from None


def _number(content: Any, *path: str, least: float = 0.0) -> float:
    """The number at a path. Raises ``ResultError`` where there is none, or one that no measurement gives."""
    value = content
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ResultError(f"has no number {'.'.join(path)}")
    if not least < value < _MOST:
        raise ResultError(f"{'.'.join(path)} is {value:g}, which cannot be")
    return float(value)


def _maybe(content: Any, *path: str) -> float | None:
    try:
        return _number(content, *path)
    except ResultError:
        return None


def _enough(count: float) -> int:
    if count < _FEWEST:
        raise ResultError(f"{count:g} finished requests are too few for a median; at least {_FEWEST} are needed")
    return int(count)


def _vllm(content: dict[str, Any]) -> Iterator[Measured]:
    completed = _enough(_number(content, "completed", least=-1))
    day = str(content.get("date", ""))
    concurrency = content.get("max_concurrency")
    yield Result(
        tool="vllm bench serve",
        day=f"{day[:4]}-{day[4:6]}-{day[6:8]}" if day[:8].isdigit() else "",
        requests=completed,
        rate_per_second=_number(content, "request_throughput"),
        input_tokens=_number(content, "total_input_tokens") / completed,
        output_tokens=_number(content, "total_output_tokens") / completed,
        ttft_p50_ms=_number(content, "median_ttft_ms"),
        ttft_p99_ms=_maybe(content, "p99_ttft_ms"),
        request_gap_ms=_number(content, "median_tpot_ms"),
        gap_p99_ms=_maybe(content, "p99_itl_ms"),
        concurrency=concurrency if isinstance(concurrency, int) else None,
    )


def _aiperf(content: dict[str, Any]) -> Iterator[Measured]:
    def milliseconds(metric: str, statistic: str) -> float:
        unit = content[metric].get("unit") if isinstance(content.get(metric), dict) else None
        if unit not in (None, "ms"):
            raise ResultError(f"{metric} is in {safe(str(unit))}; milliseconds were expected")
        return _number(content, metric, statistic)

    if content.get("was_cancelled"):
        raise ResultError("the run was cancelled; its numbers are of a part of it")
    yield Result(
        tool="aiperf",
        day=str(content.get("start_time") or "")[:10],
        requests=_enough(_number(content, "request_count", "avg", least=-1)),
        rate_per_second=_number(content, "request_throughput", "avg"),
        input_tokens=_number(content, "input_sequence_length", "avg"),
        output_tokens=_number(content, "output_sequence_length", "avg"),
        ttft_p50_ms=milliseconds("time_to_first_token", "p50"),
        ttft_p99_ms=_maybe(content, "time_to_first_token", "p99"),
        request_gap_ms=milliseconds("inter_token_latency", "p50"),
    )


def _guidellm(content: dict[str, Any]) -> Iterator[Measured]:
    for run in content["benchmarks"]:
        metrics = run.get("metrics") if isinstance(run, dict) else None
        totals = _maybe(metrics, "request_totals", "successful") or _maybe(run, "request_totals", "successful")  # the latter until 0.3
        start = _maybe(run, "start_time")
        yield Result(
            tool="guidellm",
            day=datetime.fromtimestamp(start, UTC).date().isoformat() if start else "",
            requests=_enough(_number(metrics, "time_to_first_token_ms", "successful", "count") if totals is None else totals),
            rate_per_second=_number(metrics, "requests_per_second", "successful", "mean"),
            input_tokens=_number(metrics, "prompt_token_count", "successful", "mean"),
            output_tokens=_number(metrics, "output_token_count", "successful", "mean"),
            ttft_p50_ms=_number(metrics, "time_to_first_token_ms", "successful", "median"),
            ttft_p99_ms=_maybe(metrics, "time_to_first_token_ms", "successful", "percentiles", "p99"),
            request_gap_ms=_number(metrics, "inter_token_latency_ms", "successful", "median"),
        )


def _gate(content: dict[str, Any]) -> Iterator[Measured]:
    started = _maybe(content, "started")
    day = datetime.fromtimestamp(started, UTC).date().isoformat() if started else ""
    for result in content["results"]:
        rate = _maybe(result, "evidence", "gb_per_second")
        if result.get("id") == "kv.throughput" and rate:
            yield Transfer(day, str(result.get("endpoint", "")), rate)


_TOOLS: Final[dict[str, tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], Iterator[Measured]]]]] = {
    "vllm bench serve": (lambda content: "request_throughput" in content and "completed" in content, _vllm),
    "aiperf": (lambda content: isinstance(content.get("time_to_first_token"), dict) and "request_throughput" in content, _aiperf),
    "guidellm": (lambda content: isinstance(content.get("benchmarks"), list), _guidellm),
    "health gate": (lambda content: isinstance(content.get("results"), list) and "outcome" in content, _gate),
}
