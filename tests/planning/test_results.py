"""Results of every tool are read, and what is none is refused in words."""

from pathlib import Path
from typing import Any

import pytest

from dpd.planning.results import Result, ResultError, Transfer, read
from tests.planning.results import aiperf, gate, guidellm, stored, vllm


def test_vllm(tmp_path: Path) -> None:
    (found,) = read(stored(tmp_path, vllm()))
    assert found == Result("vllm bench serve", "2026-11-20", 200, 1.98, 8000.0, 256.0, 850.0, 1900.0, 13.0, 19.9, None)


def test_vllm_with_a_fixed_number_of_users(tmp_path: Path) -> None:
    (found,) = read(stored(tmp_path, vllm(max_concurrency=8, request_rate="inf")))
    assert isinstance(found, Result)
    assert found.concurrency == 8


def test_aiperf(tmp_path: Path) -> None:
    (found,) = read(stored(tmp_path, aiperf()))
    assert found == Result("aiperf", "2026-11-21", 150, 1.5, 8000.0, 256.0, 700.0, 1500.0, 12.0)


def test_guidellm(tmp_path: Path) -> None:
    first, second = read(stored(tmp_path, guidellm()))
    assert first == Result("guidellm", "2026-11-22", 120, 1.0, 4000.0, 200.0, 450.0, 900.0, 11.5)
    assert isinstance(second, Result)
    assert (second.rate_per_second, second.ttft_p50_ms) == (2.0, 520.0)


def test_guidellm_before_it_counted_requests_in_its_metrics(tmp_path: Path) -> None:
    """Until 0.3 the totals stand beside the metrics."""
    content = guidellm()
    for run in content["benchmarks"]:
        run["request_totals"] = run["metrics"].pop("request_totals") | {"successful": 119}
    found = read(stored(tmp_path, content))
    assert [one.requests for one in found if isinstance(one, Result)] == [119, 119]


def test_the_health_gate(tmp_path: Path) -> None:
    assert read(stored(tmp_path, gate(21.5))) == [Transfer("2026-11-22", "inference/llama-70b", 21.5)]


WRONG: dict[str, tuple[Any, str]] = {
    "no JSON": ("TTFT 800 ms", "is no JSON"),
    "one object a line": ('{"a": 1}\n{"a": 2}', "One file holds one JSON document"),
    "another JSON": ({"architectures": ["LlamaForCausalLM"]}, "is of no tool that is known"),
    "a list": ([1, 2], "is of no tool that is known"),
    "nothing finished": (vllm(completed=0), "too few"),
    "few requests": (vllm(completed=3), "3 finished requests are too few"),
    "no medians": ({key: value for key, value in vllm().items() if key != "median_tpot_ms"}, "has no number median_tpot_ms"),
    "a word for a number": (vllm(median_ttft_ms="fast"), "has no number median_ttft_ms"),
    "a truth value for a number": (vllm(median_ttft_ms=True), "has no number median_ttft_ms"),
    "time runs backwards": (vllm(median_ttft_ms=-3.0), "which cannot be"),
    "no rate": (vllm(request_throughput=0.0), "request_throughput is 0, which cannot be"),
    "a number that no clock shows": (vllm(median_ttft_ms=1e300), "which cannot be"),
    "not a number": ('{"completed": 200, "request_throughput": NaN}', "has no number request_throughput"),
    "another unit": (aiperf(time_to_first_token={"unit": "sec", "p50": 1.0}), "is in sec"),
    "not streamed": (
        {key: value for key, value in aiperf().items() if key != "inter_token_latency"},
        "has no number inter_token_latency.p50",
    ),
    "cancelled": (aiperf(was_cancelled=True), "was cancelled"),
    "empty report": (guidellm(benchmarks=[]), "holds no finished run"),
    "broken report": (guidellm(benchmarks=[{"metrics": None}]), "has no number"),
    "a gate that saw no hand-over": ({"outcome": "PASS", "results": []}, "holds no finished run"),
    "deep": ("[" * 200_000, "no JSON|too deeply"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_result_is_refused(name: str, tmp_path: Path) -> None:
    content, said = WRONG[name]
    with pytest.raises(ResultError, match=said):
        read(stored(tmp_path, content))


def test_bytes_are_no_result(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ResultError, match="is no text"):
        read(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="cannot be read: No such file"):
        read(tmp_path / "missing.json")
