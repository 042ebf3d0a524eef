"""The traffic file and its requests: every kind of mistake has words, and a seed decides everything."""

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dpd.planning.candidate import TRACE_BLOCK_TOKENS
from dpd.planning.requests import Drawn, TraceError, draw, read_trace
from dpd.planning.traffic import Lengths, Lognormal, Traffic, load_traffic
from tests.support import ROOT

GOOD: dict[str, Any] = {
    "version": 1, "arrival": {"rate_per_second": 2.0}, "input_tokens": {"fixed": 8000}, "output_tokens": {"fixed": 256},
}  # fmt: skip


def traffic(**changes: Any) -> Traffic:
    return Traffic.model_validate({**GOOD, **changes})


def drawn(seed: int = 0, **changes: Any) -> Drawn:
    return draw(traffic(**changes), seed=seed)


def test_the_example_is_right() -> None:
    found, findings = load_traffic(ROOT / "docs" / "traffic.yaml")
    assert findings == []
    assert found is not None
    assert found.objectives.percentile == 99


@pytest.mark.parametrize(
    ("changes", "id", "path", "words"),
    [
        ({"arrival": {"rate_per_second": 0}}, "CFG005", "arrival.rate_per_second", "more than 0"),
        ({"arrival": {"rate_per_second": -1.0}}, "CFG005", "arrival.rate_per_second", "more than 0"),
        ({"arrival": {"rate_per_second": "two"}}, "CFG004", "arrival.rate_per_second", "must be a number"),
        ({"arrival": {"rate_per_second": 2, "pattern": "gamma"}}, "CFG005", "arrival.pattern", "'poisson'"),
        ({"arrival": {"rate_per_second": 2, "burst": 3}}, "CFG003", "arrival.burst", "did you mean burst_size"),
        ({"arrival": None}, "CFG005", "", "exactly one of arrival and trace"),
        ({"trace": {"file": "t.jsonl"}}, "CFG005", "", "exactly one of arrival and trace"),
        ({"arrival": None, "trace": {"file": "t.jsonl"}}, "CFG005", "", "remove input_tokens and output_tokens"),
        ({"input_tokens": None}, "CFG005", "", "input_tokens and output_tokens"),
        ({"input_tokens": {}}, "CFG005", "input_tokens", "exactly one of fixed, lognormal and mix"),
        ({"input_tokens": {"fixed": 0}}, "CFG005", "input_tokens.fixed", "at least 1"),
        ({"input_tokens": {"mix": []}}, "CFG005", "input_tokens.mix", "at least 1"),
        ({"input_tokens": {"mix": [{"tokens": 9, "to": 3, "weight": 1}]}}, "CFG005", "input_tokens.mix[0]", "at least tokens"),
        ({"input_tokens": {"lognormal": {"median": 9, "p95": 3}}}, "CFG005", "input_tokens.lognormal", "at least the median"),
        ({"prefix_reuse": {"shared_tokens": 9, "share": 1.5}}, "CFG005", "prefix_reuse.share", "at most 1"),
        ({"objectives": {"percentile": 98}}, "CFG005", "objectives.percentile", "50, 90, 95 or 99"),
        ({"objectives": {"ttft_ms": 0}}, "CFG005", "objectives.ttft_ms", "more than 0"),
        ({"version": None}, "CFG005", "version", "must be 1"),
    ],
)
def test_mistakes(tmp_path: Path, changes: dict[str, Any], id: str, path: str, words: str) -> None:
    file = tmp_path / "traffic.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in {**GOOD, **changes}.items() if value is not None or key == "version"}))
    found, findings = load_traffic(file)
    assert found is None
    (finding,) = findings
    assert (finding.id, finding.path, finding.file) == (id, path, str(file))
    assert words in f"{finding.message} {finding.limit} {finding.fix}"


@pytest.mark.parametrize("text", ["", "a: [", "- 1\n"])
def test_files_that_hold_no_traffic(tmp_path: Path, text: str) -> None:
    file = tmp_path / "traffic.yaml"
    file.write_text(text)
    _, (finding,) = load_traffic(file)
    assert finding.id == "CFG001"
    assert "dpd init" not in finding.fix
    _, (missing,) = load_traffic(tmp_path / "none.yaml")
    assert "docs/traffic.yaml" in missing.fix


@pytest.mark.parametrize("pattern", ["poisson", "bursty", "fixed"])
def test_the_seed_decides_and_the_rate_is_met(pattern: str) -> None:
    arrival = {"rate_per_second": 4.0, "pattern": pattern}
    one, same, other = (drawn(seed, arrival=arrival, requests=4000) for seed in (1, 1, 2))
    assert one == same
    assert (one.requests != other.requests) == (pattern != "fixed")
    rate = (len(one.requests) - 1) / (one.requests[-1].arrival_ms / 1e3)
    assert rate == pytest.approx(4, rel=0.1)
    assert [request.arrival_ms for request in one.requests] == sorted(request.arrival_ms for request in one.requests)


def test_bursts_come_together() -> None:
    found = drawn(arrival={"rate_per_second": 4.0, "pattern": "bursty", "burst_size": 10}, requests=100)
    assert len({request.arrival_ms for request in found.requests}) == 10


def test_another_pattern_draws_the_same_lengths() -> None:
    lengths = {"lognormal": {"median": 1000, "p95": 4000}}
    both = [drawn(arrival={"rate_per_second": 1.0, "pattern": pattern}, input_tokens=lengths) for pattern in ("poisson", "fixed")]
    assert len({tuple(request.input_tokens for request in one.requests) for one in both}) == 1


def test_lognormal_lengths_have_their_median_and_percentile() -> None:
    found = drawn(input_tokens={"lognormal": {"median": 1000, "p95": 4000, "max": 6000}}, requests=20_000)
    lengths = sorted(request.input_tokens for request in found.requests)
    assert statistics.median(lengths) == pytest.approx(1000, rel=0.03)
    assert lengths[int(0.95 * len(lengths))] == pytest.approx(4000, rel=0.05)
    assert lengths[-1] == 6000


def test_a_mix_keeps_its_weights() -> None:
    found = drawn(input_tokens={"mix": [{"tokens": 10, "to": 20, "weight": 3}, {"tokens": 500, "weight": 1}]}, requests=4000)
    lengths = [request.input_tokens for request in found.requests]
    assert set(lengths) == {*range(10, 21), 500}
    assert lengths.count(500) / len(lengths) == pytest.approx(0.25, abs=0.03)


@given(share=st.sampled_from([0.25, 0.5, 1.0]), prefixes=st.integers(1, 4), shared=st.integers(1, 9000))
def test_shared_starts_are_whole_blocks(share: float, prefixes: int, shared: int) -> None:
    found = drawn(prefix_reuse={"shared_tokens": shared, "share": share, "prefixes": prefixes}, requests=200)
    starts = {request.prompt_blocks[: min(shared, 8000) // TRACE_BLOCK_TOKENS] for request in found.requests}
    assert all(len(request.prompt_blocks) == -(-8000 // TRACE_BLOCK_TOKENS) for request in found.requests)
    uses = Counter(block for request in found.requests for block in set(request.prompt_blocks))
    common = {block for block, count in uses.items() if count > 1}
    assert len(common) <= prefixes * (min(shared, 8000) // TRACE_BLOCK_TOKENS)
    assert len(starts) >= 1


def test_nothing_is_shared_unasked() -> None:
    assert all(not request.prompt_blocks for request in drawn().requests)


def line(**changes: Any) -> str:
    return json.dumps({"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1], **changes})


@pytest.mark.parametrize(
    "bad",
    [
        "{", "[]", "1", "null", "\x00", line(timestamp="0"), line(timestamp=-1), line(timestamp=True), line(input_length=0),
        line(input_length=1.5), line(output_length=None), line(hash_ids="a"), line(hash_ids=["a"]), line(hash_ids=[True]),
        '{"timestamp": NaN}',
        '{"timestamp": 1, "input_length": 2}', "[" * 100_000,
    ],
)  # fmt: skip
def test_broken_lines_are_counted_and_named(tmp_path: Path, bad: str) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join([line(), bad, line(timestamp=5), "", bad]) + "\n")
    with pytest.raises(TraceError, match=r"2 broken lines of 5: lines 2, 5") as caught:
        read_trace(file, most=10)
    assert caught.value.lines == (2, 5)


def test_only_the_first_broken_lines_are_named(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text("x\n" * 5000)
    with pytest.raises(TraceError, match=r"5,000 broken lines of 5,000: lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …") as caught:
        read_trace(file, most=10)
    assert len(str(caught.value)) < 400


def test_a_trace_is_read_in_the_order_of_arrival(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(line(timestamp=1000 * when, input_length=when + 1) for when in (59, *range(59))))
    found = draw(Traffic.model_validate({"version": 1, "trace": {"file": "trace.jsonl", "speed": 2.0}}), folder=tmp_path)
    assert [request.arrival_ms for request in found.requests] == [500 * at for at in range(60)]
    assert [request.input_tokens for request in found.requests] == list(range(1, 61))
    assert found.rate_per_second == 2
    assert found.requests[0].prompt_blocks == (0, 1)


@pytest.mark.parametrize(
    ("text", "words"), [("", "empty"), ("\n\n", "empty"), (f"{line()}\n" * 49, "49 requests say nothing"), (f"{line()}\n" * 50, "no rate")]
)
def test_traces_without_a_rate(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "trace.jsonl").write_text(text)
    with pytest.raises(TraceError, match=words):
        draw(Traffic.model_validate({"version": 1, "trace": {"file": "trace.jsonl"}}), folder=tmp_path)


def test_a_trace_is_a_traffic_too(tmp_path: Path) -> None:
    traffic, findings = load_traffic(tmp_path / "trace.jsonl")
    assert findings == []
    assert traffic is not None
    assert traffic.trace is not None
    assert traffic.trace.file == "trace.jsonl"


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.jsonl", most=10)


def test_sigma_of_equal_percentiles_is_nothing() -> None:
    lengths = Lengths.model_validate({"lognormal": {"median": 100, "p95": 100}})
    assert lengths.lognormal == Lognormal.model_validate({"median": 100, "p95": 100})
    assert lengths.lognormal is not None
    assert lengths.lognormal.sigma == 0
