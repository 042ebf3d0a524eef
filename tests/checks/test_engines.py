"""Rules about what the serving software accepts: the smallest wrong input, and the nearest right one."""

from typing import Any

import pytest

from dpd.checks.manifests import run_manifests
from dpd.finding import Level
from tests.support import LLMD_EXAMPLE, findings

E = "endpoints[0]."
ARGS = E + "prefill.extra_args"
ENV = E + "environment"
RAW = E + "raw.spec"
OWN = {"repository": "example.com/team/serve", "tag": "7", "lmcache": "0.4.3", "vllm": "0.19.0", "nixl": "1.0.0"}

WRONG: list[tuple[str, dict[str, Any], str, str, Level]] = [
    ("ENG001", {E + "image": OWN | {"vllm": "0.99.0"}}, E + "image.vllm", "--add vllm=0.99.0", Level.WARNING),
    ("ENG001", {E + "image": OWN | {"vllm": "0.11.2"}}, E + "image.vllm", "--add vllm=0.11.2", Level.WARNING),
    ("ENG001", {E + "image": OWN | {"lmcache": "0.9.0"}}, E + "image.lmcache", "--add lmcache=0.9.0", Level.WARNING),
    ("ENG002", {ARGS: ["--dtype", "bf16"]}, ARGS + "[0]", "choose one of auto, bfloat16", Level.ERROR),
    ("ENG002", {ARGS: ["--seed", "seven"]}, ARGS + "[0]", "write a whole number", Level.ERROR),
    ("ENG002", {ARGS: ["--seed", "0x7"]}, ARGS + "[0]", "write a whole number", Level.ERROR),
    ("ENG002", {ARGS: ["--seed"]}, ARGS + "[0]", "write one behind it", Level.ERROR),
    ("ENG002", {ARGS: ["--seed", "1", "2"]}, ARGS + "[0]", "write one", Level.ERROR),
    ("ENG002", {ARGS: ["--max-num-batched-tokens", "8kb"]}, ARGS + "[0]", "8192 or 8k", Level.ERROR),
    ("ENG002", {ARGS: ["--swap-space-fraction", "1", "--cpu-offload-gb", "ten"]}, ARGS + "[2]", "write a number", Level.ERROR),
    ("ENG002", {ARGS: ["--enforce-eager", "true"]}, ARGS + "[0]", "remove the value", Level.ERROR),
    ("ENG002", {ARGS: ["--enforce-eager=true"]}, ARGS + "[0]", "remove the value", Level.ERROR),
    ("ENG002", {ARGS: ["--compilation-config", "{mode: 3}"]}, ARGS + "[0]", "write a JSON object", Level.ERROR),
    ("ENG002", {ARGS: ["--compilation-config", '{"moed": 3}']}, ARGS + "[0]", "did you mean mode?", Level.ERROR),
    ("ENG002", {ARGS: ["--compilation-config.moed", "3"]}, ARGS + "[0]", "did you mean mode?", Level.ERROR),
    ("ENG002", {ARGS: ["--kv-events-config", '{"publisher": "kafka"}']}, ARGS + "[0]", "choose one of null, zmq", Level.ERROR),
    ("ENG003", {ENV: {"VLLM_LOGING_LEVEL": "DEBUG"}}, ENV + ".VLLM_LOGING_LEVEL", "VLLM_LOGGING_LEVEL", Level.ERROR),
    ("ENG003", {ENV: {"VLLM_NIXL_KVCACHE_BACKEND": "UCX"}}, ENV + ".VLLM_NIXL_KVCACHE_BACKEND", "", Level.ERROR),
    ("ENG003", {ENV: {"LMCACHE_CHUNKSIZE": "256"}}, ENV + ".LMCACHE_CHUNKSIZE", "did you mean LMCACHE_CHUNK_SIZE?", Level.ERROR),
    ("ENG003", {ENV: {"LMCACHE_ENABLE_NIXL": "True"}}, ENV + ".LMCACHE_ENABLE_NIXL", "", Level.ERROR),
    ("ENG003", {ENV: {"LMCACHE_NIXL_ROLE": "sender"}}, ENV + ".LMCACHE_NIXL_ROLE", "write LMCACHE_PD_ROLE", Level.ERROR),
    ("ENG003", {ENV: {"LMCACHE_USE_GDS": "True"}}, ENV + ".LMCACHE_USE_GDS", "LMCache has it since", Level.ERROR),
    ("ENG003", {ENV: {"NIXL_TELEMETRY_ENABLED": "y"}}, ENV + ".NIXL_TELEMETRY_ENABLED", "NIXL_TELEMETRY_ENABLE", Level.WARNING),
    ("ENG004", {RAW: {"worker": {"args": ["--tensor-paralel-size", "8"]}}}, RAW, "--tensor-parallel-size", Level.ERROR),
]

LLMD_IMAGE = {"repository": "example.com/team/serve", "tag": "7", "nixl": "1.2.0"}
STORE = {E + "kv.cpu_tier": True, E + "kv.cpu_tier_gib": 100, E + "kv.shared_tier": "mooncake://store:50051"}
OF_LLMD: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({E + "image": LLMD_IMAGE | {"vllm": "0.23.0"}}, []),
    ({E + "image": LLMD_IMAGE | {"vllm": "0.23.0"}, **STORE}, ["vLLM has it since 0.24.0"]),
    ({E + "image": LLMD_IMAGE | {"vllm": "0.24.0"}, **STORE}, []),
    ({E + "prefill.extra_args": ["--brand-new"], E + "environment": {"VLLM_BRAND_NEW": "1"}}, []),
]

RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("ENG001", {}),
    ("ENG001", {E + "image": OWN | {"vllm": "0.33.0", "lmcache": "0.5.6"}}),
    ("ENG002", {ARGS: ["--dtype", "bfloat16", "--seed", "7", "--max-num-batched-tokens", "8k", "--no-enforce-eager"]}),
    ("ENG002", {ARGS: ["--compilation-config", '{"mode": 3}', "--lora-modules", "a=b", "c=d"]}),
    ("ENG002", {ARGS: ["--kv-events-config", '{"enable_kv_cache_events": true, "publisher": "zmq"}']}),
    ("ENG002", {ARGS: ["--quantization", "None"]}),
    ("ENG002", {ARGS: ["--brand-new", "1"], E + "image": OWN | {"vllm": "0.99.0"}}),
    ("ENG002", {ARGS: ["--dtype", "bf16"], E + "image": OWN | {"vllm": "0.99.0"}}),
    ("ENG003", {ENV: {"VLLM_LOGGING_LEVEL": "DEBUG", "LMCACHE_CHUNK_SIZE": "256", "LMCACHE_LOG_LEVEL": "DEBUG", "NCCL_DEBUG": "INFO"}}),
    ("ENG003", {ENV: {"LMCACHE_USE_GDS": "True"}, E + "image": OWN | {"lmcache": "0.5.6"}}),
    ("ENG003", {ENV: {"NIXL_TELEMETRY_ENABLE": "y", "NIXL_LOG_LEVEL": "debug"}}),
    ("ENG004", {}),
    ("ENG005", {}),
]  # fmt: skip


@pytest.mark.parametrize(("id", "changes", "path", "fix", "level"), WRONG)
def test_wrong(id: str, changes: dict[str, Any], path: str, fix: str, level: Level) -> None:
    found = [finding for finding in findings(changes, id=id) if (finding.path, finding.level) == (path, level)]
    assert found
    assert any(fix in finding.fix and finding.fix for finding in found)


@pytest.mark.parametrize(("id", "changes"), RIGHT)
def test_right(id: str, changes: dict[str, Any]) -> None:
    assert findings(changes, id=id) == []


@pytest.mark.parametrize(("changes", "fixes"), OF_LLMD)
def test_what_the_tool_says_itself(changes: dict[str, Any], fixes: list[str]) -> None:
    assert [finding.fix for finding in findings(changes, id="ENG005", example=LLMD_EXAMPLE)] == fixes


def test_rendered_objects_are_checked_too() -> None:
    trigger = {"metadata": {"query": "sum(vllm:num_request_waiting)"}}
    scaler = {"kind": "ScaledObject", "metadata": {"name": "a"}, "spec": {"triggers": [trigger]}}
    assert [finding.fix for finding in run_manifests([scaler], {}) if finding.id == "ENG004"] == ["did you mean vllm:num_requests_waiting?"]
