"""Groups of servers that share experts: their command as bash reads it, their ports and probes, and llm-d's own guide beside them."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from dpd.backends.arguments import parse
from dpd.backends.llmd.workers import objects
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from tests.schemas import check
from tests.support import ROOT, environment

EXAMPLE: Final = ROOT / "docs" / "example-wide-ep.yaml"
E: Final = "endpoints[0]."
ROLES: Final = ("prefill", "decode")
V2: Final = {
    E + "decode.expert_parallel": {"nodes": 2, "all2all": "deepep_v2"}, E + "decode.hugepages_mib": 5120, E + "decode.privileged": True,
}  # fmt: skip
Body = dict[str, Any]


def group(role: str, changes: Body | None = None) -> Body:
    """The LeaderWorkerSet of a role."""
    known = environment(changes, example=EXAMPLE)
    made = objects(known.endpoints[0], Site.of(known))
    label = llmd().labels["role"]
    (found,) = (body for body in made if body["kind"] == "LeaderWorkerSet" and body["metadata"]["labels"][label] == role)
    return found


def pod(role: str, changes: Body | None = None) -> Body:
    found: Body = group(role, changes)["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    return found


def server(role: str, changes: Body | None = None) -> Body:
    (found,) = pod(role, changes)["containers"]
    assert isinstance(found, dict)
    return found


def variables(role: str, changes: Body | None = None) -> Body:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in server(role, changes)["env"]}


def run(container: Body, folder: Path, worker: int) -> tuple[list[str], dict[str, str]]:
    """What the pod with this place in its group starts: bash runs the real command, and `vllm` writes down how it was called."""
    vllm = folder / "vllm"
    vllm.write_text('#!/bin/bash\nprintf "%s\\0" "$@" > "$OUT/arguments"\nenv -0 > "$OUT/variables"\n')
    vllm.chmod(0o755)
    places = {"LWS_LEADER_ADDRESS": "deepseek-0.deepseek.inference", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(worker)}
    # Only what the command clears is another folder here: the real one is the machine's.
    command = [*container["command"], container["args"][0].replace("/dev/shm", str(folder / "shm"))]
    (folder / "shm").mkdir(exist_ok=True)
    (folder / "shm" / "left-over").touch()
    subprocess.run(command, check=True, env={"PATH": f"{folder}:{os.environ['PATH']}", "OUT": str(folder), **places})
    assert not list((folder / "shm").iterdir())
    read = {name: (folder / name).read_text().split("\0")[:-1] for name in ("arguments", "variables")}
    return read["arguments"], dict(entry.split("=", 1) for entry in read["variables"])


def flags(role: str, folder: Path, worker: int = 0, changes: Body | None = None) -> dict[str, str]:
    arguments, _ = run(server(role, changes), folder, worker)
    assert arguments[0] == "serve"
    return {one.flag: " ".join(one.values) for one in parse(arguments[2:]).known}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("changes", [{}, V2, {E + "routing.strategy": "kv_aware"}], ids=["shipped", "deepep_v2", "kv_aware"])
def test_the_group_against_its_schema(role: str, changes: Body, crds: Path) -> None:
    check(group(role, changes), crds)


def test_both_roles_in_one_set_against_its_schema(crds: Path) -> None:
    known = environment({E + "workload": "disaggregated_set"}, example=EXAMPLE)
    (found,) = (body for body in objects(known.endpoints[0], Site.of(known)) if body["kind"] == "DisaggregatedSet")
    check(found, crds)
    assert [role["spec"]["leaderWorkerTemplate"]["size"] for role in found["spec"]["roles"]] == [2, 2]


@pytest.mark.parametrize("role", ROLES)
def test_a_group_lives_and_dies_together(role: str) -> None:
    spec = group(role)["spec"]
    assert spec["leaderWorkerTemplate"]["size"] == 2
    assert spec["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert spec["rolloutStrategy"]["rollingUpdateConfiguration"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert "annotations" not in group(role)["metadata"], "an exclusive topology would allow one group in the only AZ"


def test_an_autoscaled_group_keeps_no_number() -> None:
    scaled = {E + "decode.autoscaling": {"min_replicas": 1, "max_replicas": 1}}
    assert "replicas" not in group("decode", scaled)["spec"]
    assert group("prefill", scaled)["spec"]["replicas"] == 1


@pytest.mark.parametrize(("worker", "first"), [(0, "0"), (1, "8")])
@pytest.mark.parametrize("role", ROLES)
def test_ranks_follow_from_the_place_in_the_group(role: str, worker: int, first: str, tmp_path: Path) -> None:
    said = flags(role, tmp_path, worker)
    assert said["--data-parallel-start-rank"] == first
    assert (said["--data-parallel-size"], said["--data-parallel-size-local"]) == ("16", "8")
    assert said["--data-parallel-address"] == "deepseek-0.deepseek.inference"


@pytest.mark.parametrize("worker", [0, 1])
def test_ports_are_the_same_in_every_pod(worker: int, tmp_path: Path) -> None:
    """vLLM adds the rank in the whole group: 0 to 7 in the first pod, 8 to 15 in the second."""
    events = {E + "routing.strategy": "kv_aware"}
    arguments, env = run(server("decode", events), tmp_path, worker)
    assert int(env["VLLM_NIXL_SIDE_CHANNEL_PORT"]) + 8 * worker == 5600
    said = json.loads(parse(arguments[2:]).value("--kv-events-config") or "null")
    assert int(said["endpoint"].rpartition(":")[2]) + 8 * worker == 5556
    assert said["topic"].startswith("kv@$(POD_IP):8000@"), "Kubernetes puts the address in before bash sees it"


def test_what_json_and_shell_would_read_differently_arrives(tmp_path: Path) -> None:
    hard = {E + "decode.extra_args": ["--override-generation-config", '{"a": "it\'s $HOME `x`"}']}
    assert flags("decode", tmp_path, 0, hard)["--override-generation-config"] == '{"a": "it\'s $HOME `x`"}'


@pytest.mark.parametrize(("role", "first", "supervisor"), [("prefill", 8000, 8008), ("decode", 8200, 8208)])
def test_one_port_for_each_rank_and_one_for_their_supervisor(role: str, first: int, supervisor: int, tmp_path: Path) -> None:
    ports = {port["name"]: port["containerPort"] for port in server(role)["ports"]}
    assert [ports["modelserver" if not rank else f"modelserver-{rank}"] for rank in range(8)] == list(range(first, first + 8))
    assert ports["supervisor"] == supervisor
    assert len(set(ports.values())) == len(ports)
    assert flags(role, tmp_path)["--data-parallel-supervisor-port"] == str(supervisor)
    for probe, path in (("startupProbe", "/health"), ("livenessProbe", "/health"), ("readinessProbe", "/readyz")):
        assert server(role)[probe]["httpGet"] == {"path": path, "port": "supervisor"}


def test_the_sidecar_stands_before_every_rank() -> None:
    (sidecar,) = pod("decode")["initContainers"]
    assert {"--data-parallel-size=8", "--enable-prefiller-sampling", "--secure-proxy=false"} <= set(sidecar["args"])
    assert [port["containerPort"] for port in sidecar["ports"]] == list(range(8000, 8008))
    assert "initContainers" not in pod("prefill")


@pytest.mark.parametrize(("size", "ranks"), [(1, 8), (2, 4), (4, 2)])
def test_larger_ranks_are_fewer(size: int, ranks: int, tmp_path: Path) -> None:
    said = flags("decode", tmp_path, 1, {E + "decode.tensor_parallel": size, E + "prefill.tensor_parallel": size})
    assert (said["--data-parallel-size-local"], said["--data-parallel-start-rank"]) == (str(ranks), str(ranks))
    assert said["--tensor-parallel-size"] == str(size)


def test_a_single_rank_has_no_supervisor(tmp_path: Path) -> None:
    """vLLM's supervisor wants two ranks of a pod at least; a pod that is one rank says which."""
    whole = {E + "decode.tensor_parallel": 8, E + "prefill.tensor_parallel": 8}
    said = flags("decode", tmp_path, 1, whole)
    assert (said["--data-parallel-size"], said["--data-parallel-rank"]) == ("2", "1")
    several = ("multi-port-external-lb", "supervisor-port", "size-local", "start-rank")
    assert not said.keys() & {f"--data-parallel-{name}" for name in several}
    container = server("decode", whole)
    assert {port["name"] for port in container["ports"]} == {"modelserver", "nixl"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/v1/models"


def test_a_group_of_one_rank_is_no_group_of_ranks(tmp_path: Path) -> None:
    single = {E + f"{role}.{key}": value for role in ROLES for key, value in (("tensor_parallel", 8), ("expert_parallel", {"nodes": 1}))}
    said = flags("decode", tmp_path, 0, single)
    assert not [flag for flag in said if flag.startswith("--data-parallel")]
    assert "--enable-expert-parallel" in said


def test_experts_travel_by_nccl_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    assert flags("decode", tmp_path)["--all2all-backend"] == "allgather_reducescatter"
    assert not [name for name in variables("decode") if name.startswith(("NVSHMEM", "NCCL_GIN"))]


def test_deepep_v2_gets_all_that_it_wants(tmp_path: Path) -> None:
    assert flags("decode", tmp_path, 0, V2)["--all2all-backend"] == "deepep_v2"
    said = variables("decode", V2)
    wanted = {"NCCL_GIN_ENABLE": "1", "NCCL_GIN_TYPE": "2", "OFI_NCCL_GIN_GDAKI": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_CUMEM_ENABLE": "1"}
    assert wanted.items() <= said.items()
    container = server("decode", V2)
    assert container["securityContext"] == {"privileged": True}
    assert container["resources"]["requests"]["hugepages-2Mi"] == "5120Mi"
    assert container["resources"]["requests"] == container["resources"]["limits"]
    (shm,) = (one for one in pod("decode", V2)["volumes"] if one["emptyDir"].get("medium") == "Memory")
    assert shm["emptyDir"]["sizeLimit"] == "128Gi"


def test_a_variable_of_the_file_wins() -> None:
    assert variables("decode", {E + "environment": {"GLOO_SOCKET_IFNAME": "ens5"}})["GLOO_SOCKET_IFNAME"] == "ens5"


# llm-d's guide to wide expert parallelism, v0.8 (guides/wide-ep-lws: vllm-deepseek-r1-0528, base), as facts: what bash makes of its
# command in the second pod of a group of two, and the rest of its pod, by place.
GUIDE: Final[dict[str, dict[str, Any]]] = {
    "both": {
        "model": "deepseek-ai/DeepSeek-R1-0528", "--tensor-parallel-size": "1", "--data-parallel-size": "16",
        "--data-parallel-size-local": "8",
        "--data-parallel-start-rank": "8", "--data-parallel-rpc-port": "5555", "--data-parallel-address": "leader",
        "--data-parallel-multi-port-external-lb": "", "--enable-expert-parallel": "", "--moe-backend": "deep_gemm",
        "--disable-access-log-for-endpoints": "/health,/metrics", "kv.kv_connector": "NixlConnector", "kv.kv_role": "kv_both",
        "kv.kv_load_failure_policy": "fail", "env.VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1", "env.VLLM_RANDOMIZE_DP_DUMMY_INPUTS": "1",
        "env.VLLM_SKIP_P2P_CHECK": "1", "env.TRITON_LIBCUDA_PATH": "/usr/lib64", "env.NVIDIA_GDRCOPY": "enabled",
        "env.NVSHMEM_REMOTE_TRANSPORT": "ibgda", "env.NVSHMEM_IB_ENABLE_IBGDA": "true", "env.NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "eth0",
        "env.GLOO_SOCKET_IFNAME": "eth0", "env.NCCL_SOCKET_IFNAME": "eth0", "env.VLLM_LOGGING_LEVEL": "INFO",
        "env.VLLM_NIXL_SIDE_CHANNEL_HOST": "status.podIP", "env.CUDA_CACHE_PATH": "/var/cache/vllm/cuda",
        "env.CCACHE_DIR": "/var/cache/vllm/ccache", "env.VLLM_CACHE_ROOT": "/var/cache/vllm/vllm",
        "env.FLASHINFER_WORKSPACE_BASE": "/var/cache/vllm/flashinfer", "env.HF_HUB_CACHE": "/var/cache/huggingface",
        "env.HF_TOKEN": "llm-d-hf-token/HF_TOKEN", "size": 2, "replicas": 1, "gpus": "8", "cpus": "32", "memory": "512Gi",
        "ephemeral-storage": "1Ti", "shm": "2Gi", "capabilities": ["IPC_LOCK", "SYS_RAWIO"], "user": 0, "pull": "Always",
        "startup": ("/health", "supervisor", 1, 2700), "liveness": ("/health", "supervisor", 30, 3),
        "readiness": ("/readyz", "supervisor", 10, 3),
    },
    "prefill": {
        "--port": "8000", "--data-parallel-supervisor-port": "8008", "--all2all-backend": "deepep_high_throughput",
        "--gpu-memory-utilization": "0.8", "env.VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "120", "env.VLLM_ENGINE_READY_TIMEOUT_S": "3000",
        "ports": list(range(8000, 8009)),
    },
    "decode": {
        "--port": "8200", "--data-parallel-supervisor-port": "8208", "--all2all-backend": "deepep_low_latency", "--enable-dbo": "",
        "--dbo-decode-token-threshold": "32", "--max-num-seqs": "256", "--max-num-batched-tokens": "256", "env.VLLM_USE_DEEP_GEMM": "1",
        "env.NVSHMEM_SYMMETRIC_SIZE": "16G", "ports": list(range(8200, 8209)),
        "sidecar": ["--data-parallel-size=8", "--enable-prefiller-sampling", "--kv-connector=nixlv2", "--port=8000", "--secure-proxy=false",
                    "--zap-log-level=1"],
        "sidecar.ports": list(range(8000, 8008)),
    },
}  # fmt: skip

PAGE: Final = (ROOT / "docs" / "llm-d-wide-ep-and-tiers.md").read_text(encoding="utf-8")
_TABLE: Final = PAGE.partition("| Place | Why |")[2].partition("\n\n")[0]
DIFFERENCES: Final = {
    place: reason
    for row in _TABLE.splitlines()[2:]
    for places, reason in [row.strip("| ").split(" | ")]
    for place in re.findall(r"`([^`]+)`", places)
}
"""The places that the page names, with their reasons."""


def ours(role: str, folder: Path) -> dict[str, Any]:
    """The same places of our own object, for the second pod."""
    body, container, spec = group(role), server(role), pod(role)
    arguments, env = run(container, folder, 1)
    said = {one.flag: " ".join(one.values) for one in parse(arguments[2:]).known}
    kv = json.loads(said.pop("--kv-transfer-config"))
    asked = container["resources"]["requests"]
    (shm,) = (one["emptyDir"]["sizeLimit"] for one in spec["volumes"] if one["name"] == "shm")
    security = container["securityContext"]
    place = {"--data-parallel-address": "leader"} if said["--data-parallel-address"] == env["LWS_LEADER_ADDRESS"] else {}
    probes = {
        name: (probe["httpGet"]["path"], probe["httpGet"]["port"], probe["periodSeconds"], probe["failureThreshold"])
        for name, probe in (
            ("startup", container["startupProbe"]),
            ("liveness", container["livenessProbe"]),
            ("readiness", container["readinessProbe"]),
        )
    }
    beside = {
        "sidecar": sorted(spec["initContainers"][0]["args"]),
        "sidecar.ports": [one["containerPort"] for one in spec["initContainers"][0]["ports"]],
    } if role == "decode" else {}  # fmt: skip
    return {
        **said, **place, **probes, **beside, **{f"kv.{key}": value for key, value in kv.items()},
        **{f"env.{name}": _value(value) for name, value in variables(role).items()},
        "model": arguments[1], "size": body["spec"]["leaderWorkerTemplate"]["size"], "replicas": body["spec"]["replicas"],
        "gpus": asked["nvidia.com/gpu"], "efa": asked["vpc.amazonaws.com/efa"], "cpus": asked["cpu"], "memory": asked["memory"], "shm": shm,
        "capabilities": security["capabilities"]["add"], "pull": container["imagePullPolicy"],
        "ports": sorted(port["containerPort"] for port in container["ports"]),
    }  # fmt: skip


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    field, secret = value.get("fieldRef"), value.get("secretKeyRef")
    return str(field["fieldPath"]) if field else f"{secret['name']}/{secret['key']}"


@pytest.mark.parametrize("role", ROLES)
def test_the_guide_field_by_field(role: str, tmp_path: Path) -> None:
    guide, here = {**GUIDE["both"], **GUIDE[role]}, ours(role, tmp_path)
    different = {key for key in guide.keys() | here.keys() if guide.get(key) != here.get(key)}
    assert different - DIFFERENCES.keys() == set()
    assert len(guide.keys() - different) >= 20, "most of the guide is here as it stands"


def test_every_stated_difference_is_one(tmp_path: Path) -> None:
    found = set()
    for role in ROLES:
        guide, here = {**GUIDE["both"], **GUIDE[role]}, ours(role, tmp_path)
        found |= {key for key in guide.keys() | here.keys() if guide.get(key) != here.get(key)}
    assert found == set(DIFFERENCES)
