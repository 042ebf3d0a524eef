"""The signals on recorded series, in the real Prometheus: what counts, what does not, and what no answer is."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dpd.backends.scaling import signals
from dpd.backends.site import Site
from dpd.environment.names import LlmdNames
from dpd.scaling.policy import RATE_SECONDS, SMOOTHING_SECONDS, TREND_SECONDS
from tests.support import EXAMPLE, LLMD_EXAMPLE, environment

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt-get install prometheus)")

WORKSPACE = "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1"
PREFILL_SPEED, DECODE_SPEED = 10_000.0, 2_000.0
SCRAPE = 30
SAMPLES = 120
"""An hour."""
KNOWN = {
    example: environment(
        {
            f"endpoints[0].{role}.autoscaling": {
                "min_replicas": 1, "max_replicas": 4, "tokens": {"prometheus": WORKSPACE, "tokens_per_second": speed}
            }
            for role, speed in (("prefill", PREFILL_SPEED), ("decode", DECODE_SPEED))
        },
        example=example,
    )
    for example in (EXAMPLE, LLMD_EXAMPLE)
}  # fmt: skip
Series = Mapping[str, Sequence[float]]


def query(name: str, example: Path = LLMD_EXAMPLE) -> str:
    known = KNOWN[example]
    role = name.partition("-")[0]
    return next(signal.query for signal in signals(known.endpoints[0], role, Site.of(known)) if signal.name == name)


def pod(role: str, number: int = 0, example: Path = LLMD_EXAMPLE) -> str:
    if example is EXAMPLE:
        return f"{role}-llama-70b-6f9c7d5b8c-x2x4{number}"
    return f"{LlmdNames.of(KNOWN[example].endpoints[0]).workload(role)}-6f9c7d5b8c-x2x4{number}"


def engine(name: str, role: str, number: int = 0, example: Path = LLMD_EXAMPLE, **labels: str) -> str:
    more = "".join(f',{key}="{value}"' for key, value in labels.items())
    return f'vllm:{name}{{namespace="inference",pod="{pod(role, number, example)}"{more}}}'


def counted(number: int, role: str = "prefill") -> str:
    name, producer = f"{pod(role, number)}-rank-0", 'producer_name="inflight-load-producer"'
    return f'llm_d_epp_inflight_tokens{{namespace="inference",{producer},endpoint_name="{name}"}}'


def known_to_picker(number: int, role: str = "prefill") -> str:
    return f'llm_d_epp_per_endpoint_queue_size{{namespace="inference",name="pool",model_server_endpoint="{pod(role, number)}-rank-0"}}'


def level(value: float) -> list[float]:
    return [value] * (SAMPLES + 1)


def counter(per_second: float) -> list[float]:
    return [per_second * SCRAPE * step for step in range(SAMPLES + 1)]


def value(tmp_path: Path, expression: str, series: Series) -> float | None:
    """What Prometheus answers after an hour, or ``None`` when it answers nothing. Asked by bisection: promtool only compares."""
    inputs = [{"series": name, "values": " ".join(f"{each:.6f}" for each in values)} for name, values in series.items()]

    def agrees(asked: str, samples: list[dict[str, Any]]) -> bool:
        test = {
            "rule_files": [],
            "evaluation_interval": f"{SCRAPE}s",
            "tests": [
                {
                    "interval": f"{SCRAPE}s", "input_series": inputs,
                    "promql_expr_test": [{"expr": asked, "eval_time": f"{SCRAPE * SAMPLES}s", "exp_samples": samples}],
                }
            ],
        }  # fmt: skip
        file = tmp_path / "test.yaml"
        file.write_text(json.dumps(test), encoding="utf-8")
        done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False, timeout=60)
        assert "parse error" not in done.stdout + done.stderr, done.stdout + done.stderr
        return done.returncode == 0

    if agrees(expression, []):
        return None
    low, high = -1.0, 1024.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if agrees(f"({expression}) > bool {middle:.9f}", [{"labels": "{}", "value": 1}]) else (low, middle)
    return (low + high) / 2


def test_tokens_of_a_pod_that_is_gone_do_not_count(tmp_path: Path) -> None:
    series = {counted(0): level(5_000), counted(1): level(90_000), known_to_picker(0): level(0)}
    assert value(tmp_path, query("prefill-backlog"), series) == pytest.approx(0.5, abs=1e-3)


def test_tokens_of_decoders_do_not_count(tmp_path: Path) -> None:
    series = {
        counted(0): level(5_000), known_to_picker(0): level(0), counted(0, "decode"): level(70_000), known_to_picker(0, "decode"): level(0),
    }  # fmt: skip
    assert value(tmp_path, query("prefill-backlog"), series) == pytest.approx(0.5, abs=1e-3)


def test_a_prefill_between_two_looks_counts(tmp_path: Path) -> None:
    """Every other sample is 0, the last one too: at this moment nothing is in flight."""
    series = {counted(0): [10_000.0 * (step % 2) for step in range(SAMPLES + 1)], known_to_picker(0): level(0)}
    assert series[counted(0)][-1] == 0
    assert value(tmp_path, query("prefill-backlog"), series) == pytest.approx(0.4, abs=0.11)


@pytest.mark.parametrize(
    ("name", "alive"),
    [
        ("prefill-backlog", {known_to_picker(0): level(0)}),
        *(
            (name, {engine("kv_cache_usage_perc", name.partition("-")[0]): level(0)})
            for name in ("prefill-rate", "prefill-spread", "decode-rate")
        ),
    ],
)
def test_nothing_to_do_is_0_while_somebody_counts_and_no_answer_otherwise(tmp_path: Path, name: str, alive: Series) -> None:
    assert value(tmp_path, query(name), alive) == pytest.approx(0, abs=1e-3)
    assert value(tmp_path, query(name), {'up{job="other"}': level(1)}) is None


def test_an_idle_decoder_whose_mean_is_no_number_is_0(tmp_path: Path) -> None:
    names = ("request_success_total", "request_generation_tokens_sum", "request_generation_tokens_count")
    series = {engine(name, "decode"): level(7) for name in names}
    series |= {engine("request_success_total", "prefill"): level(7), engine("kv_cache_usage_perc", "decode"): level(0)}
    series[engine("prompt_tokens_by_source_total", "decode", source="local_compute")] = level(7)
    assert value(tmp_path, query("decode-rate"), series) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("example", [EXAMPLE, LLMD_EXAMPLE])
def test_tokens_that_are_read_and_not_found_in_a_cache(tmp_path: Path, example: Path) -> None:
    series = {
        engine("prompt_tokens_total", "prefill", number, example): counter(6_000) for number in (0, 1)
    } | {engine("prefix_cache_hits_total", "prefill", 0, example): counter(2_000)}  # fmt: skip
    assert value(tmp_path, query("prefill-rate", example), series) == pytest.approx(1.0, abs=0.01)
    assert value(tmp_path, query("prefill-spread", example), series) == pytest.approx(2.0, abs=0.02)


def test_a_rate_that_rises_counts_as_it_will_be(tmp_path: Path) -> None:
    """From 4,000 tokens a second by 2 a second each second: 900 seconds on it is 1,800 more, and the 300 of the rate's window behind."""
    read, values = 0.0, []
    for step in range(SAMPLES + 1):
        values.append(read)
        read += SCRAPE * (4_000 + 2.0 * SCRAPE * step)
    series: Series = {engine("prompt_tokens_total", "prefill"): values, engine("prefix_cache_hits_total", "prefill"): counter(0)}
    now = 4_000 + 2 * (SCRAPE * SAMPLES - RATE_SECONDS / 2)
    found = value(tmp_path, query("prefill-rate"), series)
    assert found == pytest.approx((now + 2 * TREND_SECONDS) / PREFILL_SPEED, rel=0.03)
    spread = value(tmp_path, query("prefill-spread"), series)
    assert spread == pytest.approx(now / PREFILL_SPEED + (now / PREFILL_SPEED) ** 0.5, rel=0.03)


def test_a_rate_that_falls_counts_as_it_is(tmp_path: Path) -> None:
    read, values = 0.0, []
    for step in range(SAMPLES + 1):
        values.append(read)
        read += SCRAPE * (8_000 - 1.5 * SCRAPE * step)
    series: Series = {engine("prompt_tokens_total", "prefill"): values, engine("prefix_cache_hits_total", "prefill"): counter(0)}
    now = 8_000 - 1.5 * (SCRAPE * SAMPLES - RATE_SECONDS / 2)
    assert value(tmp_path, query("prefill-rate"), series) == pytest.approx(now / PREFILL_SPEED, rel=0.03)


@pytest.mark.parametrize(("prefill", "decode", "due"), [(2.0, 1.0, 2.0), (1.0, 3.0, 3.0)])
def test_decode_follows_what_prefill_hands_over_or_what_it_finishes_itself(
    tmp_path: Path, prefill: float, decode: float, due: float
) -> None:
    series = {
        engine("request_success_total", "prefill"): counter(prefill), engine("request_success_total", "decode"): counter(decode),
        engine("request_generation_tokens_sum", "decode"): counter(300 * decode),
        engine("request_generation_tokens_count", "decode"): counter(decode),
        engine("prompt_tokens_by_source_total", "decode", source="local_compute"): counter(0),
        engine("prompt_tokens_by_source_total", "decode", source="external_kv_transfer"): counter(99_999),
    }  # fmt: skip
    assert value(tmp_path, query("decode-rate"), series) == pytest.approx(due * 300 / DECODE_SPEED, rel=0.01)


def test_a_source_that_nobody_has_counted_yet_is_none(tmp_path: Path) -> None:
    names = {"request_success_total": 2.0, "request_generation_tokens_sum": 600.0, "request_generation_tokens_count": 2.0}
    series: Series = {engine(name, "decode"): counter(rate) for name, rate in names.items()}
    series = {**series, engine("request_success_total", "prefill"): counter(2.0), engine("kv_cache_usage_perc", "decode"): level(0.1)}
    assert value(tmp_path, query("decode-rate"), series) == pytest.approx(0.3, rel=0.01)
    read: Series = {engine("prompt_tokens_total", "prefill"): counter(5_000), engine("kv_cache_usage_perc", "prefill"): level(0.1)}
    assert value(tmp_path, query("prefill-rate"), read) == pytest.approx(0.5, rel=0.01)


def test_full_caches_and_places_are_summed_over_pods(tmp_path: Path) -> None:
    kv: Series = {engine("kv_cache_usage_perc", "decode", number): level(0.6) for number in (0, 1)}
    assert value(tmp_path, query("decode-kv"), kv) == pytest.approx(1.2, abs=1e-3)
    held: Series = {engine("num_requests_running", "decode", number): level(32) for number in (0, 1)}
    held = {**held, **{engine("num_requests_waiting", "decode", number): level(16) for number in (0, 1)}}
    assert value(tmp_path, query("decode-places"), held) == pytest.approx(3.0, abs=1e-3)


def test_without_the_picker_s_count_the_backlog_is_requests_times_their_mean_prompt(tmp_path: Path) -> None:
    series = {
        engine("num_requests_waiting", "prefill", example=EXAMPLE): level(3),
        engine("num_requests_running", "prefill", example=EXAMPLE): level(1),
        engine("request_prompt_tokens_sum", "prefill", example=EXAMPLE): counter(8_000),
        engine("request_prompt_tokens_count", "prefill", example=EXAMPLE): counter(2),
    }  # fmt: skip
    assert value(tmp_path, query("prefill-backlog", EXAMPLE), series) == pytest.approx(4 * 4_000 / PREFILL_SPEED, rel=0.01)


def test_windows_hold_several_scrapes() -> None:
    assert min(RATE_SECONDS, SMOOTHING_SECONDS) >= 4 * SCRAPE
