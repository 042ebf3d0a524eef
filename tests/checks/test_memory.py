"""GPU memory and lengths: every sum is printed, and the edge is where the documents put it."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.support import findings

MODEL = "endpoints[0].model"
PREFILL, DECODE = "endpoints[0].prefill", "endpoints[0].decode"
BUFFER, THRESHOLD = "endpoints[0].kv.buffer_gib", "endpoints[0].routing.threshold_tokens"


def ranks(size: int, **more: Any) -> dict[str, Any]:
    both = {f"{role}.{key}": value for role in (PREFILL, DECODE) for key, value in {"tensor_parallel": size, **more}.items()}
    return {**both, "cluster.groups.prefill.count": 1}


def length(tokens: int, **more: Any) -> dict[str, Any]:
    return {f"{MODEL}.max_model_len": tokens, **more}


@pytest.mark.parametrize(
    ("id", "path", "wrong", "right"),
    [
        # 131.4 GiB of weights / 2 + 4 > 0.75 x 80; / 4 fits
        ("MEM001", f"{DECODE}.tensor_parallel", ranks(2), ranks(4)),
        ("MEM001", f"{PREFILL}.tensor_parallel", ranks(1), ranks(8)),
        ("MEM001", f"{DECODE}.tensor_parallel", {f"{DECODE}.gpu_memory_utilization": 0.2}, {f"{DECODE}.gpu_memory_utilization": 0.4}),
        # the two sums of the AWS guide: 0.90 x 80 + 8 does not fit, 0.75 x 80 + 8 does
        ("MEM002", f"{DECODE}.gpu_memory_utilization", {f"{DECODE}.gpu_memory_utilization": 0.90},
         {f"{DECODE}.gpu_memory_utilization": 0.75}),
        ("MEM002", f"{DECODE}.gpu_memory_utilization", {BUFFER: 20}, {BUFFER: 16}),
        ("MEM002", f"{PREFILL}.gpu_memory_utilization", {f"{PREFILL}.gpu_memory_utilization": 0.99}, {}),
        ("MEM003", f"{MODEL}.max_model_len", {**ranks(4), **length(131072), f"{DECODE}.gpu_memory_utilization": 0.5},
         {**ranks(8), **length(131072)}),
        ("MEM003", f"{MODEL}.max_model_len", {**length(16384), f"{DECODE}.gpu_memory_utilization": 0.26},
         {**length(16384), f"{DECODE}.gpu_memory_utilization": 0.3}),
        ("MEM004", BUFFER, length(65536, **{BUFFER: 2}), length(6400, **{BUFFER: 8})),
        ("MEM004", BUFFER, length(131072, **{BUFFER: 4}), length(4096, **{BUFFER: 4})),
        ("MEM005", THRESHOLD, {THRESHOLD: 16384}, {THRESHOLD: 4096}),
        ("MEM005", THRESHOLD, {THRESHOLD: 100_000}, {THRESHOLD: 1}),
        ("MEM006", f"{MODEL}.max_model_len", length(131073), length(131072)),
        ("MEM006", f"{MODEL}.max_model_len", {f"{MODEL}.catalog": "qwen3-32b", **length(65536)},
         {f"{MODEL}.catalog": "qwen3-32b", **length(40960)}),
        ("MEM007", f"{PREFILL}.gpu_memory_utilization", {f"{PREFILL}.gpu_memory_utilization": 0.49},
         {f"{PREFILL}.gpu_memory_utilization": 0.5}),
        ("MEM007", f"{PREFILL}.gpu_memory_utilization", {f"{PREFILL}.gpu_memory_utilization": 0.96},
         {f"{PREFILL}.gpu_memory_utilization": 0.95}),
    ],
)  # fmt: skip
def test_a_wrong_size_and_its_nearest_right_one(id: str, path: str, wrong: dict[str, Any], right: dict[str, Any]) -> None:
    assert path in {finding.path for finding in findings(wrong, id=id)}
    assert not [finding for finding in findings(right, id=id) if finding.path == path]


@pytest.mark.parametrize(
    ("utilization", "level"),
    [(0.75, None), (0.86, None), (0.88, Level.WARNING), (0.89, Level.ERROR), (0.95, Level.ERROR)],
)
def test_a_gpu_of_80_gib_beside_a_buffer_of_8(utilization: float, level: Level | None) -> None:
    found = findings({f"{DECODE}.gpu_memory_utilization": utilization}, id="MEM002")
    assert [finding.level for finding in found] == ([level] if level else [])


def test_the_sender_s_buffer_is_a_doubt_and_no_error() -> None:
    [finding] = findings({f"{PREFILL}.gpu_memory_utilization": 0.92}, id="MEM002")
    assert finding.level is Level.WARNING
    assert "LMCache makes one on the sending side too" in finding.message
    assert "5.4 GiB are left" in finding.message
    assert finding.fix == "lower gpu_memory_utilization to 0.87, or the buffer, or see that the pod starts"


@pytest.mark.parametrize(
    ("tokens", "buffer", "level"),
    [
        (16384, 8, Level.INFO),  # 12 prompts, and a prefiller takes 16 at once
        (8192, 8, None),
        (16384, 2, Level.INFO),  # 3 prompts
        (16384, 1, Level.WARNING),  # one prompt at a time
        (65536, 2, Level.ERROR),  # 2.5 GiB
    ],
)
def test_a_buffer_holds_prompts_in_flight(tokens: int, buffer: int, level: Level | None) -> None:
    found = findings(length(tokens, **{BUFFER: buffer, THRESHOLD: 4096}), id="MEM004")
    assert [finding.level for finding in found] == ([level] if level else [])


def test_more_prefillers_fill_the_buffer_faster() -> None:
    many = {f"{PREFILL}.replicas": 7, "cluster.groups.prefill.count": 7}
    [finding] = findings({**many, BUFFER: 8}, id="MEM004")
    assert finding.level is Level.WARNING
    assert finding.message.endswith("8 GiB hold 12; 2 for each of 7 prefillers = 14 for a decoder")
    assert finding.fix == "set buffer_gib: 9 or more"


def test_the_kv_arithmetic_is_printed() -> None:
    [finding] = findings(length(16384, **{f"{DECODE}.gpu_memory_utilization": 0.26}), id="MEM003")
    assert finding.level is Level.ERROR
    assert finding.message == (
        "decode: 0.26 x 80.0 GiB = 20.8 GiB - weights 131.4 / 8 = 16.4 GiB - 4 GiB for activations = 0.37 GiB, about 9,776 tokens; "
        "one sequence of 16,384 tokens takes 0.62 GiB (40,960 bytes for a token and rank)"
    )


def test_kv_that_hardly_fits_is_a_warning() -> None:
    # 0.75 x 80 - 16.4 - 4 = 39.6 GiB; 131,072 tokens take 5 GiB; at 0.32 x 80 there are 5.2
    [finding] = findings(length(131072, **{f"{DECODE}.gpu_memory_utilization": 0.32, BUFFER: 16}), id="MEM003")
    assert finding.level is Level.WARNING


def test_kv_in_eight_bits_takes_half() -> None:
    tight = length(16384, **{f"{DECODE}.gpu_memory_utilization": 0.26})
    assert findings(tight, id="MEM003")[0].level is Level.ERROR
    assert not findings({**tight, "endpoints[0].kv.dtype": "fp8"}, id="MEM003")


@pytest.mark.parametrize(
    ("threshold", "level"),
    [(0, Level.INFO), (1, None), (4096, None), (4097, Level.INFO), (16383, Level.INFO), (16384, Level.ERROR), (16385, Level.ERROR)],
)
def test_a_threshold_beside_the_longest_sequence(threshold: int, level: Level | None) -> None:
    found = findings({THRESHOLD: threshold}, id="MEM005")
    assert [finding.level for finding in found] == ([level] if level else [])


def test_scaled_positions_are_meant() -> None:
    scaled = {f"{role}.extra_args": ["--hf-overrides", '{"rope_scaling": {}}'] for role in (PREFILL, DECODE)}
    assert findings(length(200_000), id="MEM006")
    assert not findings({**length(200_000), **scaled}, id="MEM006")
    assert findings({**length(200_000), f"{DECODE}.extra_args": scaled[f"{DECODE}.extra_args"]}, id="MEM006")


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        (ranks(1), "set tensor_parallel: 4 for both roles"),
        ({f"{MODEL}.catalog": "llama-3.1-405b-instruct"}, "use ml.p5e.48xlarge or ml.p5en.48xlarge or ml.p6-b200.48xlarge"),
        ({f"{MODEL}.parameters_billion": 5000.0}, "no type that AWS names has the memory"),
    ],
)
def test_what_gives_weights_room(changes: dict[str, Any], fix: str) -> None:
    assert findings(changes, id="MEM001")[0].fix.startswith(fix)


@pytest.mark.parametrize("utilization", [0.88, 0.9, 0.99])
def test_the_advice_on_memory_is_good_advice(utilization: float) -> None:
    [finding] = findings({f"{DECODE}.gpu_memory_utilization": utilization}, id="MEM002")
    assert finding.fix == "lower gpu_memory_utilization to 0.87, or the buffer"
    assert not findings({f"{DECODE}.gpu_memory_utilization": 0.87, f"{PREFILL}.gpu_memory_utilization": 0.87}, id="MEM002")
