"""Files as load generators and the health gate write them, with numbers to choose."""

import json
from pathlib import Path
from typing import Any


def vllm(**changes: Any) -> dict[str, Any]:
    """``vllm bench serve --save-result``."""
    return {
        "date": "20261120-101112", "endpoint_type": "openai", "backend": "openai", "label": None, "model_id": "llama",
        "tokenizer_id": "llama", "num_prompts": 200, "request_rate": 2.0, "burstiness": 1.0, "max_concurrency": None, "duration": 101.0,
        "completed": 200,
        "failed": 0, "total_input_tokens": 1_600_000, "total_output_tokens": 51_200, "request_throughput": 1.98, "request_goodput": None,
        "output_throughput": 507.0, "total_token_throughput": 16_347.0, "max_output_tokens_per_s": 700.0, "max_concurrent_requests": 12,
        "mean_ttft_ms": 900.0, "median_ttft_ms": 850.0, "std_ttft_ms": 90.0, "p99_ttft_ms": 1900.0,
        "mean_tpot_ms": 13.1, "median_tpot_ms": 13.0, "std_tpot_ms": 1.0, "p99_tpot_ms": 15.0,
        "mean_itl_ms": 13.0, "median_itl_ms": 12.9, "std_itl_ms": 2.0, "p99_itl_ms": 19.9,
    } | changes  # fmt: skip


def aiperf(**changes: Any) -> dict[str, Any]:
    """``profile_export_aiperf.json``, schema 1.4."""

    def spread(unit: str, p50: float, p99: float) -> dict[str, Any]:
        return {
            "unit": unit,
            "avg": p50,
            "min": p50 / 2,
            "max": p99,
            "p50": p50,
            "p90": p99,
            "p95": p99,
            "p99": p99,
            "std": 1.0,
            "count": 150,
        }

    return {
        "schema_version": "1.4", "aiperf_version": "0.13.0", "benchmark_id": "b",
        "request_throughput": {"unit": "requests/sec", "avg": 1.5}, "request_count": {"unit": "requests", "avg": 150.0},
        "time_to_first_token": spread("ms", 700.0, 1500.0), "inter_token_latency": spread("ms", 12.0, 14.0),
        "request_latency": spread("ms", 4000.0, 6000.0), "input_sequence_length": spread("tokens", 8000.0, 8000.0),
        "output_sequence_length": spread("tokens", 256.0, 256.0), "was_cancelled": False,
        "start_time": "2026-11-21T09:00:00", "end_time": "2026-11-21T09:02:00",
    } | changes  # fmt: skip


def guidellm(**changes: Any) -> dict[str, Any]:
    """``benchmarks.json``, as guidellm 0.8 writes it, of two rates."""

    def spread(median: float) -> dict[str, Any]:
        one = {
            "mean": median,
            "median": median,
            "std_dev": 1.0,
            "min": median,
            "max": median,
            "count": 120,
            "percentiles": {"p50": median, "p99": 2 * median},
        }
        return {"successful": one, "incomplete": one, "errored": one, "total": one}

    def run(rate: float, first: float) -> dict[str, Any]:
        return {
            "type_": "generative_benchmark", "start_time": 1_795_340_000.0, "end_time": 1_795_340_060.0,
            "metrics": {
                "request_totals": {"successful": 120, "incomplete": 0, "errored": 1, "total": 121},
                "requests_per_second": spread(rate), "prompt_token_count": spread(4000.0), "output_token_count": spread(200.0),
                "time_to_first_token_ms": spread(first), "inter_token_latency_ms": spread(11.5), "time_per_output_token_ms": spread(14.0),
            },
        }  # fmt: skip

    return {"metadata": {"version": 1, "guidellm_version": "0.8.1"}, "benchmarks": [run(1.0, 450.0), run(2.0, 520.0)]} | changes


def gate(rate: float = 20.0, endpoint: str = "inference/llama-70b") -> dict[str, Any]:
    """``dpd doctor --json``."""
    return {
        "environment": "dev", "outcome": "PASS", "started": 1_795_340_000.0, "seconds": 12.0, "counts": {"PASS": 2}, "causes": [],
        "results": [
            {"id": "traffic.latency", "endpoint": endpoint, "outcome": "PASS", "evidence": {"ttft_ms": 300.0, "itl_ms": 10.0}},
            {"id": "kv.throughput", "endpoint": endpoint, "outcome": "PASS", "evidence": {"gb_per_second": rate, "lines": 3}},
        ],
    }  # fmt: skip


def stored(folder: Path, content: Any, name: str = "results.json") -> Path:
    """Write a result."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
