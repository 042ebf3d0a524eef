"""Every alarm, run by Prometheus' own rule tests over recorded series: it fires when it must, and not when it must not.

``healthy`` is three quarters of an hour of an endpoint that does well; each case changes a few of its series.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd.observe import rules
from dpd.observe.alarms import KINDS, alarms
from dpd.observe.watched import Watched
from tests.observe.support import one, promtool

STEPS = 45
PODS = {
    ("operator", "prefill"): "prefill-llama-70b-6d4f9c7b5-x2x9z",
    ("operator", "decode"): "decode-llama-70b-6d4f9c7b5-x2x9z",
    ("llm-d", "prefill"): "llama-70b-prefill-0c8d4a3d-6d4f9c7b5-x2x9z",
    ("llm-d", "decode"): "llama-70b-decode-0c8d4a3d-6d4f9c7b5-x2x9z",
}
TTFT_ENDS = ("0.06", "0.25", "0.5", "0.75", "1.0", "2.5", "5.0", "7.5", "10.0", "+Inf")
ITL_ENDS = ("0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "+Inf")
Series = dict[str, str]


def grows(by: float, start: float = 0) -> str:
    """A counter that grows by so much every minute."""
    return f"{start:g}+{by:g}x{STEPS}"


def stays(value: float) -> str:
    return f"{value:g}x{STEPS}"


def healthy(it: Watched) -> Series:
    """A request in a second, half of them long; everything in bounds."""
    found: Series = {}

    def put(role: str, name: str, values: str, **labels: str) -> None:
        more = "".join(f',{key}="{value}"' for key, value in labels.items())
        found[f'{name}{{namespace="inference",pod="{PODS[it.backend, role]}"{more}}}'] = values

    def times(role: str, name: str, ends: tuple[str, ...], count: float, seconds: float) -> None:
        put(role, f"{name}_count", grows(count))
        put(role, f"{name}_sum", grows(count * seconds))
        for end in ends:
            put(role, f"{name}_bucket", grows(count if end == "+Inf" or float(end) >= seconds else 0), le=end)

    times("prefill", "vllm:time_to_first_token_seconds", TTFT_ENDS, 30, 0.3)
    times("decode", "vllm:time_to_first_token_seconds", TTFT_ENDS, 60, 0.05)
    times("decode", "vllm:inter_token_latency_seconds", ITL_ENDS, 6000, 0.02)
    put("prefill", "vllm:e2e_request_latency_seconds_count", grows(30))
    put("decode", "vllm:e2e_request_latency_seconds_count", grows(60))
    put("decode", "vllm:request_prompt_tokens_count", grows(60))
    put("decode", "vllm:request_prompt_tokens_bucket", grows(30), le="5000.0")
    for role, running, used in (("prefill", 1, 0.3), ("decode", 10, 0.5)):
        put(role, "vllm:num_requests_waiting", stays(0))
        put(role, "vllm:num_requests_running", stays(running))
        put(role, "vllm:kv_cache_usage_perc", stays(used))
        put(role, "kube_pod_info", stays(1), node=f"node-{role}")
        put(role, "kube_pod_status_ready", stays(1), condition="true")
        put(role, "kube_pod_container_status_restarts_total", stays(2), container="vllm")
        put(role, "DCGM_FI_DEV_XID_ERRORS", stays(0), gpu="0")
        put(role, "DCGM_FI_DEV_ROW_REMAP_FAILURE", stays(0), gpu="0")
        for counter, by in (("rx_bytes", 50e9), ("tx_bytes", 50e9), ("rx_drops", 0), ("rdma_read_wr_err", 0), ("rdma_write_wr_err", 0)):
            found[f'node_amazonefa_{counter}{{namespace="dpd-gate",node="node-{role}",device="rdmap0s0"}}'] = grows(by)
    if it.backend == "llm-d":
        ranks = 240  # 30 hand-overs of 8 ranks
        put("decode", "vllm:nixl_bytes_transferred_sum", grows(ranks * 168e6))
        put("decode", "vllm:nixl_bytes_transferred_count", grows(ranks))
        put("decode", "vllm:nixl_xfer_time_seconds_sum", grows(ranks * 0.0169))
        put("decode", "vllm:nixl_xfer_time_seconds_count", grows(ranks))
        put("decode", "vllm:nixl_post_time_seconds_sum", grows(ranks * 0.011))
        put("decode", "vllm:nixl_num_descriptors_sum", grows(ranks * 5120))
        put("decode", "vllm:nixl_num_descriptors_count", grows(ranks))
        put("decode", "vllm:nixl_num_failed_transfers_total", stays(0))
        put("decode", "vllm:nixl_num_failed_notifications_total", stays(0))
        put("prefill", "vllm:nixl_num_kv_expired_reqs_total", stays(0))
    else:
        put("decode", "lmcache:num_requested_tokens_total", grows(240 * 4096))
        put("decode", "lmcache:num_hit_tokens_total", grows(240 * 4096))
        put("decode", "lmcache:time_to_retrieve_sum", grows(240 * 0.010))
        put("decode", "lmcache:time_to_retrieve_count", grows(240))
    return found


@dataclass(frozen=True)
class Case:
    """Series to change: by a part of their names and, after a space, a part of their labels. ``None`` takes them away."""

    alarm: str
    changes: Mapping[str, str | None]
    backends: tuple[str, ...] = ("operator", "llm-d")
    fires: bool = True
    because: str = ""


LLMD, OPERATOR = ("llm-d",), ("operator",)
CASES = [
    Case("KvTransfersFailing", {"nixl_num_failed_transfers": grows(1)}, LLMD),
    Case("KvTransfersFailing", {"nixl_num_failed_notifications": grows(1)}, LLMD),
    Case("KvTransfersFailing", {"lmcache:num_hit_tokens": grows(240 * 4000)}, OPERATOR, because="2 % of the tokens do not come"),
    Case(
        "KvTransfersFailing", {"lmcache:num_hit_tokens": grows(240 * 4080)}, OPERATOR, fires=False, because="less than 1 %: unfull chunks"
    ),
    Case("KvTransfersExpiring", {"nixl_num_kv_expired": grows(1)}, LLMD),
    Case("KvThroughputLow", {"nixl_xfer_time_seconds_sum": grows(240 * 0.09)}, LLMD, because="1.9 GB/s for a rank, the floor is 2.5"),
    Case("KvThroughputLow", {"lmcache:time_to_retrieve_sum": grows(240 * 0.09)}, OPERATOR),
    Case("KvThroughputLow", {"nixl_xfer_time_seconds_sum": grows(240 * 0.06)}, LLMD, fires=False, because="2.8 GB/s"),
    Case(
        "KvThroughputLow",
        {"nixl_bytes_transferred_sum": grows(240 * 8e6), "nixl_xfer_time_seconds_sum": grows(240 * 0.005)},
        LLMD,
        fires=False,
        because="1.6 GB/s, but of small transfers, which are all fixed cost",
    ),
    Case("KvPostingBound", {"nixl_post_time_seconds_sum": grows(240 * 0.0165)}, LLMD),
    Case("KvHandoverSlow", {"nixl_xfer_time_seconds_sum": grows(240 * 0.053)}, LLMD, because="3.2 GB/s: above the floor, twice the model"),
    Case("KvHandoverSlow", {"lmcache:time_to_retrieve_sum": grows(240 * 0.016)}, OPERATOR),
    Case("KvHandoverSlow", {"nixl_xfer_time_seconds_sum": grows(240 * 0.03)}, LLMD, fires=False),
    Case("KvFellBackFromEfa", {"nixl_xfer_time_seconds_sum": grows(240 * 0.3)}, LLMD, because="0.56 GB/s is TCP"),
    Case("KvFellBackFromEfa", {"lmcache:time_to_retrieve_sum": grows(240 * 0.3)}, OPERATOR),
    Case("KvFellBackFromEfa", {"rx_bytes node-decode": grows(1e6)}, because="KV is counted that no device has seen"),
    Case("KvFellBackFromEfa", {"rx_bytes node-prefill": grows(0)}, fires=False, because="a prefiller receives next to nothing"),
    Case("PrefillBypassed", {"e2e_request_latency_seconds_count prefill": grows(1)}, because="one of thirty long prompts in a step"),
    Case("PrefillBypassed", {"e2e_request_latency_seconds_count prefill": None}),
    Case(
        "PrefillBypassed",
        {"e2e_request_latency_seconds_count prefill": grows(0), "request_prompt_tokens_bucket": grows(60)},
        fires=False,
        because="no prompt is longer than the threshold",
    ),
    Case("NoReadyPrefiller", {"kube_pod_status_ready prefill": stays(0)}),
    Case("NoReadyPrefiller", {"kube_pod_status_ready prefill": None}, because="the pods are gone, others are still seen"),
    Case("NoReadyPrefiller", {"kube_pod_status_ready": None}, fires=False, because="nobody runs kube-state-metrics; the engine answers"),
    Case("NoReadyPrefiller", {"kube_pod_status_ready": None, "num_requests_running prefill": None}),
    Case("DecodeKvNearlyFull", {"kv_cache_usage_perc decode": stays(0.95)}),
    Case("DecodeKvNearlyFull", {"kv_cache_usage_perc prefill": stays(0.95)}, fires=False, because="a prefiller's cache may be full"),
    Case("PrefillPoolTooSmall", {"num_requests_waiting prefill": stays(8), "kv_cache_usage_perc decode": stays(0.1)}),
    Case("PrefillPoolTooSmall", {"num_requests_waiting prefill": stays(8)}, fires=False, because="decoders are busy too"),
    Case("DecodePoolTooSmall", {"num_requests_waiting decode": stays(8), "num_requests_running prefill": stays(0)}),
    Case("DecodePoolTooSmall", {"num_requests_waiting decode": stays(8)}, fires=False, because="prefillers are busy too"),
    Case("TtftBurnFast", {"time_to_first_token_seconds_bucket decode": grows(30)}, because="half of the first tokens come too late"),
    Case("TtftBurnSlow", {"time_to_first_token_seconds_bucket prefill": grows(24)}, because="a tenth of all requests"),
    Case("TtftBurnFast", {"time_to_first_token_seconds_bucket prefill": grows(24)}, fires=False, because="10 % is below 14.4 %"),
    Case("ItlBurnFast", {"inter_token_latency_seconds_bucket": grows(3000)}),
    Case("ItlBurnSlow", {"inter_token_latency_seconds_bucket": grows(5400)}),
    Case("ItlBurnFast", {"inter_token_latency_seconds_bucket": grows(5400)}, fires=False),
    Case("EngineSeriesAbsent", {"num_requests_running decode": None}),
    Case("EngineSeriesAbsent", {"num_requests_running prefill": None}),
    Case("KvConnectorSeriesAbsent", {"lmcache:": None}, OPERATOR, because="LMCache fails open"),
    Case("KvConnectorSeriesAbsent", {"nixl_": None}, LLMD),
    Case(
        "KvConnectorSeriesAbsent",
        {"lmcache:": None, "nixl_": None, "e2e_request_latency_seconds_count prefill": grows(0)},
        fires=False,
        because="nothing went through prefill yet",
    ),
    Case("GpuErrors", {"DCGM_FI_DEV_XID_ERRORS decode": stays(79)}),
    Case("GpuErrors", {"DCGM_FI_DEV_ROW_REMAP_FAILURE prefill": stays(1)}),
    Case("EfaErrors", {"rx_drops node-prefill": grows(3)}),
    Case("EfaErrors", {"rdma_read_wr_err node-decode": grows(1)}),
    Case("WorkersRestarting", {"restarts_total decode": "2x24 3x20"}, because="it started again twenty minutes ago"),
]
QUIET = Case("", {}, fires=False, because="all is well")


def recorded(it: Watched, case: Case) -> Series:
    series = healthy(it)
    for what, values in case.changes.items():
        part, _, label = what.partition(" ")
        for key in [key for key in series if part in key and label in key and 'le="+Inf"' not in key]:
            if values is None:
                del series[key]
            else:
                series[key] = values
    return series


def test_document(it: Watched, cases: list[Case], folder: Path) -> Path:
    """A file for ``promtool test rules``."""
    known = {rule["alert"]: rule for group in rules.groups(it) for rule in group["rules"] if "alert" in rule}

    def expected(name: str, *, fires: bool) -> dict[str, Any]:
        rule = known[name]
        # What burns says which objective: the recorded series have it.
        more = {"objective": name.partition("Burn")[0].lower()} if "Burn" in name else {}
        alert = {"exp_labels": {**rule["labels"], **more}, "exp_annotations": rule["annotations"]}
        return {"eval_time": "44m", "alertname": name, "exp_alerts": [alert] if fires else []}

    tests = [
        {
            "name": f"{case.alarm or 'nothing'} {case.because}".strip(),
            "interval": "1m",
            "input_series": [{"series": key, "values": values} for key, values in recorded(it, case).items()],
            "alert_rule_test": [expected(case.alarm, fires=case.fires)] if case.alarm else [expected(name, fires=False) for name in known],
        }
        for case in cases
    ]
    (folder / "rules.yml").write_text(rules.text(it), encoding="utf-8")
    file = folder / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}), encoding="utf-8")
    return file


test_document.__test__ = False  # type: ignore[attr-defined]


@promtool
@pytest.mark.parametrize("backend", ["operator", "llm-d"])
def test_alarms_fire_when_they_must_and_only_then(backend: str, tmp_path: Path) -> None:
    it = one(backend)
    cases = [QUIET, *(case for case in CASES if backend in case.backends)]
    ran = subprocess.run(
        ["promtool", "test", "rules", str(test_document(it, cases, tmp_path))], capture_output=True, text=True, timeout=1500, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("backend", ["operator", "llm-d"])
def test_every_alarm_is_seen_to_fire(backend: str) -> None:
    asked = {case.alarm for case in CASES if case.fires and backend in case.backends}
    assert {alarm.kind.name for alarm in alarms(one(backend))} == asked


def test_every_kind_is_an_alarm_somewhere_and_tells_what_to_do() -> None:
    made = {alarm.kind.name for backend in ("operator", "llm-d") for alarm in alarms(one(backend))}
    assert made == {kind.name for kind in KINDS}
    for kind in KINDS:
        assert kind.runbook.means
        assert kind.runbook.check
        assert kind.runbook.change


@promtool
@pytest.mark.parametrize("kind", ["operator", "llm-d", "wide", "tiers"])
def test_rules_are_rules(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(rules.text(one(kind)), encoding="utf-8")
    ran = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
