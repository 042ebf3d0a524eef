"""What is emitted is what the software knows: every example as it is, and one fault at a time."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd.backends.backend import backend
from dpd.backends.emitted import Container, Versions, containers, program, unknown, unknown_series, unknown_variable
from dpd.backends.site import Site
from dpd.catalog.engines import lists
from dpd.catalog.images import default_image
from dpd.environment.environment import Environment
from tests.support import EXAMPLE, LLMD_EXAMPLE, ROOT, environment

WIDE = ROOT / "docs" / "example-wide-ep.yaml"
EXAMPLES = sorted((ROOT / "docs").glob("example*.yaml"))


def objects(path: Path) -> Iterator[dict[str, Any]]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    known = Environment.model_validate(content, context={"folder": path.parent}).named("dev")
    site = Site.of(known)
    for endpoint in known.endpoints:
        yield from backend(endpoint.backend).objects(endpoint, site)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_nothing_that_an_example_emits_is_unknown(path: Path) -> None:
    bodies = list(objects(path))
    assert [found for body in bodies for found in unknown(body)] == []
    programs = [program(container)[0] for body in bodies for container in containers(body)]
    assert programs.count("vllm") >= 2


def test_the_router_of_llm_d_is_looked_at_too() -> None:
    bodies = list(objects(ROOT / "docs" / "example-llm-d.yaml"))
    assert {program(container)[0] for body in bodies for container in containers(body)} >= {"vllm", "llm-d-picker", "llm-d-sidecar"}


IMAGE = next(f"{image.repository}@{image.digest}" for image in [default_image("llm-d")])
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"backends": ["LIBFABRIC"]}}
OFFLOAD = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"cpu_bytes_to_use": 1}}


def pod(*arguments: str, image: str = IMAGE, command: tuple[str, ...] = ("vllm", "serve"), **env: str) -> dict[str, Any]:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    container = {"name": "server", "image": image, "command": list(command), "args": list(arguments), "env": variables}
    return {"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": [container]}}}}


def transfer(change: Any = None, **fields: Any) -> dict[str, Any]:
    config = copy.deepcopy(NIXL) | fields
    if change:
        config["kv_connector_extra_config"] = change
    return pod("model", "--kv-transfer-config", json.dumps(config))


def query(text: str) -> dict[str, Any]:
    return {"kind": "ScaledObject", "spec": {"triggers": [{"metadata": {"query": text}}]}}


CLEARED = 'find /dev/shm -delete; exec vllm serve "$@"'
PICKER = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0"
SIDECAR = "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.10.0"

WRONG: list[tuple[dict[str, Any], str]] = [
    (pod("model", "--disable-log-requests"), "--disable-log-requests"),
    (pod("model", "--no-seed", "1"), "--no-seed"),
    (pod("model", "--dtype", "bf16"), "bf16"),
    (pod("model", "--block-size", "many"), "many"),
    (pod("model", "--enforce-eager", "yes"), "yes"),
    (pod("model", "--kv-transfer-config.kv_rool", "kv_both"), "--kv-transfer-config.kv_rool"),
    (pod("model", "--kv-transfer-config", "{"), "{"),
    (transfer(kv_buffer_devise="cuda"), "kv_buffer_devise"),
    (transfer(kv_role="kv_prefill"), "kv_prefill"),
    (transfer(kv_load_failure_policy="ignore"), "ignore"),
    (transfer(kv_connector="P2pNccl"), "P2pNccl"),
    (transfer({"backend": ["LIBFABRIC"]}), "backend"),
    (transfer({"connectors": [NIXL, OFFLOAD]}), "connectors"),
    (transfer({"connectors": [NIXL, OFFLOAD | {"kv_role": "x"}]}, kv_connector="MultiConnector"), "x"),
    (transfer({"connectors": [NIXL, {"kv_connector": "Offloading"}]}, kv_connector="MultiConnector"), "Offloading"),
    (transfer({"cpu_bytes": 1}, kv_connector="OffloadingConnector"), "cpu_bytes"),
    (transfer({"secondary_tiers": [{"type": "nfs"}]}, kv_connector="OffloadingConnector"), "nfs"),
    (transfer({"secondary_tiers": [{"type": "fs", "root": "/a"}]}, kv_connector="OffloadingConnector"), "root"),
    (transfer({"lmcache.chunk": 1}, kv_connector="LMCacheConnectorV1"), "lmcache.chunk"),
    (pod("model", VLLM_NIXL_SIDECHANNEL_HOST="a"), "VLLM_NIXL_SIDECHANNEL_HOST"),
    (pod("model", LMCACHE_MAX_CPU_SIZE="1"), "LMCACHE_MAX_CPU_SIZE"),
    (pod("model", NIXL_LIBFABRIC_THREADS="4"), "NIXL_LIBFABRIC_THREADS"),
    (pod("exec vllm serve model --enforce-eagr", command=("/bin/bash", "-c")), "--enforce-eagr"),
    (pod(CLEARED, "serve", "model", "--enforce-eagr", command=("/bin/bash", "-c")), "--enforce-eagr"),
    (pod("--polic", "random", "--prefill", "a", "b", image="example.com/r:1", command=("vllm-router",)), "--polic"),
    (pod("--connector=nixlv2", image=SIDECAR, command=()), "--connector"),
    (pod("--kv-connector=nixl", image=SIDECAR, command=()), "nixl"),
    (pod("--secure-proxy=no", image=SIDECAR, command=()), "no"),
    (pod("--pool", "a", image=PICKER, command=()), "--pool"),
    (pod("--grpc-port=x", image=PICKER, command=()), "x"),
    (query("sum(vllm:gpu_cache_usage_perc) or vector(0)"), "vllm:gpu_cache_usage_perc"),
    ({"kind": "PrometheusRule", "rules": [{"expr": "llm_d_epp_pd_decision_total > 0"}]}, "llm_d_epp_pd_decision_total"),
]  # fmt: skip

RIGHT: list[dict[str, Any]] = [
    pod("model", "--no-enable-prefix-caching", "--block-size=128", "-tp", "8", "--max-num-batched-tokens", "8k"),
    pod("model", "--served-model-name", "a", "b", "--kv-transfer-config.kv_role", "kv_both"),
    transfer(kv_load_failure_policy="fail"),
    transfer(kv_connector="Ours", kv_connector_module_path="our.module"),
    transfer({"connectors": [NIXL, OFFLOAD]}, kv_connector="MultiConnector"),
    transfer({"secondary_tiers": [{"type": "fs", "root_dir": "/a", "n_read_threads": 4}]}, kv_connector="OffloadingConnector"),
    transfer({"secondary_tiers": [{"type": "x", "module_path": "our.module"}]}, kv_connector="OffloadingConnector"),
    transfer({"lmcache.chunk_size": 1, "discard_partial_chunks": False}, kv_connector="LMCacheConnectorV1"),
    pod("exec vllm serve model --data-parallel-start-rank ${RANK} --port $((8000 + RANK))", command=("/bin/bash", "-c")),
    pod("--secure-proxy=false", "--kv-connector=nixlv2", "--enable-tls=prefiller,decoder", image=SIDECAR, command=()),
    pod("--pool-name", "a", "--v=2", "--tracing=false", "-v", "2", image=PICKER, command=()),
    pod("--policy", "random", "--service-discovery", image="example.com/r:1", command=("vllm-router",)),
    pod("--anything", image="example.com/other:1", command=("serve",)),
    pod("model", LMCACHE_CONFIG_FILE="/a", VLLM_LOGGING_LEVEL="DEBUG", HF_HOME="/a"),
    query("sum(rate(vllm:time_to_first_token_seconds_bucket[1m]))"),
    {"kind": "ConfigMap", "data": {"note": "vllm:not_a_metric"}},
]


@pytest.mark.parametrize(("body", "value"), WRONG, ids=[value for _, value in WRONG])
def test_one_fault(body: dict[str, Any], value: str) -> None:
    found = list(unknown(body))
    assert [item.value for item in found] == [value]
    assert found[0].fix
    assert found[0].message


@pytest.mark.parametrize("body", RIGHT)
def test_nearest_right(body: dict[str, Any]) -> None:
    assert list(unknown(body)) == []


def test_without_a_version_a_name_is_unknown_when_no_version_has_it() -> None:
    image = "example.com/team/serve:7"
    found = list(unknown(pod("model", "--swap-spice", "1", "--numa-bind", "--dtype", "bf16", image=image)))
    assert [(item.value, item.certain) for item in found] == [("--swap-spice", False)]


@pytest.mark.parametrize(
    ("name", "versions", "fix"),
    [
        ("VLLM_NIXL_ABORT_REQUEST_TIMEOUT", Versions(vllm="0.23.0"), "remove it: vLLM dropped it in 0.22.0"),
        ("VLLM_P2P_SIDE_CHANNEL_PORT", Versions(vllm="0.19.0"), "vLLM has it since"),
        ("LMCACHE_NIXL_PEER_HOST", Versions(lmcache="0.4.3"), "write LMCACHE_PD_PEER_HOST"),
        ("LMCACHE_PD_BACKEND_MODE", Versions(lmcache="0.4.3"), "LMCache has it since"),
    ],
)
def test_variables_say_what_to_write(name: str, versions: Versions, fix: str) -> None:
    (found,) = unknown_variable("here", name, versions)
    assert found.fix.startswith(fix)


FILES = [
    *(ROOT / "dpd" / "catalog" / "data").glob("*.yaml"),
    *(path for folder in ("dpd/backends", "dpd/gate", "charts", "stacks", "lambda") for path in (ROOT / folder).rglob("*.py")),
]
NAMED = re.compile(r"(?<![\w:])(?:vllm:|lmcache:|llm_d_epp_)[a-z][a-z0-9_]*[a-z0-9](?![\w*]|\{\w*\})")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_metric_that_the_project_names_is_exported_by_an_image_of_its_own(path: Path) -> None:
    ours = [Versions(image.vllm, image.lmcache or "") for image in (default_image(), default_image("llm-d"))]
    for name in set(NAMED.findall(path.read_text(encoding="utf-8"))):
        assert any(not list(unknown_series(path.name, name, versions)) for versions in ours), name


def test_words_of_a_script() -> None:
    body = pod("echo a\nexport B=1\nexec vllm serve m '--x={\"a\":'$((1 + B))'}'", command=("/bin/sh", "-c"))
    (found,) = containers(body)
    assert found == Container("Deployment a: container server", IMAGE, ("vllm", "serve", "m", '--x={"a":0}'), {})


def test_lists_of_hand() -> None:
    assert lists("llm-d-picker", "0.10.0").exact
    assert not lists("llm-d-sidecar", "0.11.0").exact


E = "endpoints[0]."
CPU = {E + "kv.cpu_tier": True, E + "kv.cpu_tier_gib": 100}
NVME = {E + "kv.disk_tier": {"medium": "nvme", "path": "kv", "capacity_gib": 800}}
SCALED = {"min_replicas": 1, "max_replicas": 2}
BOTH: list[dict[str, Any]] = [
    *({E + "kv.dtype": value} for value in ("auto", "fp8", "fp8_e4m3", "fp8_e5m2")),
    *({E + "kv.block_size": value} for value in (16, 32, 64, 128)),
    *({E + "routing.strategy": value} for value in ("prefix_aware", "session", "round_robin")),
    {E + "routing.strategy": "kv_aware", E + "routing.api": "completions"},
    CPU,
]
OF_LLMD: list[dict[str, Any]] = [
    *BOTH,
    *({E + "kv.load_failure": value} for value in ("fail", "recompute")),
    *(
        CPU | {E + "kv.tier_engine": engine, E + "kv.eviction": policy}
        for engine, policy in (("native", "lru"), ("lmcache", "lru"), ("lmcache", "lfu"))
    ),
    *(CPU | NVME | {E + "kv.tier_engine": engine} for engine in ("native", "lmcache")),
    # No image that the catalog knows has Mooncake, and vLLM 0.23 does not read a key that it needs.
    CPU
    | {E + "kv.shared_tier": "mooncake://store:50051", E + "image": {"repository": "a/b", "tag": "1", "vllm": "0.24.0", "nixl": "1.2.0"}},
    {E + "routing.strategy": "load"},
    {E + "routing.no_prefiller": "fallback"},
    {E + "routing.gateway": {}},
    {E + "workload": "disaggregated_set"},
    *({E + f"{role}.autoscaling": SCALED} for role in ("prefill", "decode")),
]
OF_WIDE: list[dict[str, Any]] = [
    {},
    *({E + f"{role}.expert_parallel.all2all": "allgather_reducescatter"} for role in ("prefill", "decode")),
]


def made(example: Path, changes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    known = environment(changes, example=example)
    for endpoint in known.endpoints:
        yield from backend(endpoint.backend).objects(endpoint, Site.of(known))


@pytest.mark.parametrize(
    ("example", "changes"),
    [*((EXAMPLE, item) for item in BOTH), *((LLMD_EXAMPLE, item) for item in OF_LLMD), *((WIDE, item) for item in OF_WIDE)],
    ids=repr,
)
def test_nothing_that_a_setting_emits_is_unknown(example: Path, changes: dict[str, Any]) -> None:
    assert [found for body in made(example, changes) for found in unknown(body)] == []
