"""Rules about arguments, variables and images: the smallest wrong input, and the nearest right one."""

from typing import Any

import pytest

from dpd.catalog import vllm_flags
from dpd.finding import HIDDEN, Level
from tests.support import findings

E = "endpoints[0]."
ARGS = E + "prefill.extra_args"
ENV = E + "environment"
IMAGE = {"repository": "lmcache/vllm-openai", "tag": "v0.4.3", "lmcache": "0.4.3", "vllm": "0.19.0", "nixl": "1.0.0"}
OWN = IMAGE | {"repository": "example.com/team/serve", "tag": "7"}

WRONG: list[tuple[str, dict[str, Any], str, Level]] = [
    ("RUN001", {ARGS: ["7"]}, ARGS + "[0]", Level.ERROR),
    ("RUN001", {ARGS: ["--seed 7"]}, ARGS + "[0]", Level.ERROR),
    ("RUN001", {ARGS: ["seed", "7"]}, ARGS + "[0]", Level.ERROR),
    ("RUN001", {ARGS: ["-tp 8"]}, ARGS + "[0]", Level.ERROR),
    ("RUN002", {ARGS: ["-tp", "8"]}, ARGS + "[0]", Level.ERROR),
    ("RUN002", {ARGS: ["--tensor_parallel_size", "8"]}, ARGS + "[0]", Level.ERROR),
    ("RUN002", {ARGS: ["--seed", "1", "--port=8000"]}, ARGS + "[2]", Level.ERROR),
    ("RUN003", {ARGS: ["--kv-transfer-config", "{}"]}, ARGS + "[0]", Level.ERROR),
    ("RUN003", {ARGS: ["--kv-transfer-config.kv_role", "kv_both"]}, ARGS + "[0]", Level.ERROR),
    ("RUN003", {ARGS: ["--config", "a.yaml"]}, ARGS + "[0]", Level.ERROR),
    ("RUN003", {ARGS: ["--api-key", "k"]}, ARGS + "[0]", Level.ERROR),
    ("RUN004", {ARGS: ["--enforce-eagr"]}, ARGS + "[0]", Level.ERROR),
    ("RUN004", {ARGS: ["--disable-log-requests"]}, ARGS + "[0]", Level.ERROR),
    ("RUN004", {ARGS: ["--swap-space", "4"]}, ARGS + "[0]", Level.ERROR),
    ("RUN004", {ARGS: ["--numa-bind"]}, ARGS + "[0]", Level.ERROR),
    ("RUN004", {ARGS: ["--no-seed"]}, ARGS + "[0]", Level.ERROR),
    ("RUN004", {ARGS: ["--disable-prefix-caching"], E + "image": OWN | {"vllm": "0.32.0"}}, ARGS + "[0]", Level.ERROR),
    ("RUN006", {ARGS: ["--disable-lora"], E + "image": OWN | {"vllm": "0.33.0"}}, ARGS + "[0]", Level.ERROR),
    ("RUN004", {ARGS: ["--brand-new"], E + "image": OWN | {"vllm": "0.33.0"}}, ARGS + "[0]", Level.ERROR),
    ("RUN004", {ARGS: ["--brand-new"], E + "image": OWN | {"vllm": "0.99.0"}}, ARGS + "[0]", Level.WARNING),
    ("RUN005", {ARGS: ["--pipeline-parallel-size", "2"]}, ARGS + "[0]", Level.ERROR),
    ("RUN005", {ARGS: ["-dp=2"]}, ARGS + "[0]", Level.ERROR),
    ("RUN006", {ARGS: ["--dtype", "half"]}, ARGS + "[0]", Level.ERROR),
    ("RUN006", {ARGS: ["--dtype", "half"], E + "decode.extra_args": ["--dtype", "bfloat16"]}, ARGS + "[0]", Level.ERROR),
    ("RUN006", {E + "decode.extra_args": ["--seed", "1", "-q", "fp8"]}, E + "decode.extra_args[2]", Level.ERROR),
    ("RUN002", {ARGS: ["--num-gpu-blocks-override", "1"]}, ARGS + "[0]", Level.ERROR),
    ("RUN002", {ARGS: ["--kv-cache-memory-bytes=1"]}, ARGS + "[0]", Level.ERROR),
    ("RUN003", {ARGS: ["--kv_offloading_size", "10"]}, ARGS + "[0]", Level.ERROR),
    ("RUN003", {ARGS: ["--skip-tokenizer-init"]}, ARGS + "[0]", Level.ERROR),
    ("RUN003", {ARGS: ["--load-format", "dummy"]}, ARGS + "[0]", Level.ERROR),
    ("RUN003", {ARGS: ["--load-format=dummy"]}, ARGS + "[0]", Level.ERROR),
    ("RUN003", {ARGS: ["--runner", "pooling"]}, ARGS + "[0]", Level.ERROR),
    ("RUN003", {ARGS: ["--dtype", "float32"]}, ARGS + "[0]", Level.ERROR),
    ("RUN003", {ARGS: ["--distributed-executor-backend", "ray"]}, ARGS + "[0]", Level.ERROR),
    ("RUN007", {ENV: {"CUDA_VISIBLE_DEVICES": "0"}}, ENV + ".CUDA_VISIBLE_DEVICES", Level.ERROR),
    ("RUN007", {ENV: {"LMCACHE_SAVE_UNFULL_CHUNK": "False"}}, ENV + ".LMCACHE_SAVE_UNFULL_CHUNK", Level.ERROR),
    ("RUN007", {ENV: {"LMCACHE_NIXL_BUFFER_DEVICE": "cpu"}}, ENV + ".LMCACHE_NIXL_BUFFER_DEVICE", Level.ERROR),
    ("RUN007", {ENV: {"LMCACHE_REMOTE_URL": "redis://a:1"}}, ENV + ".LMCACHE_REMOTE_URL", Level.ERROR),
    *(
        ("RUN008", {ENV: {name: value}}, f"{ENV}.{name}", Level.ERROR)
        for name, value in (
            ("FI_PROVIDER", "^efa"),
            ("FI_PROVIDER", "efa,tcp"),
            ("FI_PROVIDER", "efa;ofi_rxm"),
            ("FI_PROVIDER", "verbs"),
            ("FI_PROVIDER", ""),
            ("FI_EFA_USE_DEVICE_RDMA", "0"),
            ("FI_EFA_USE_DEVICE_RDMA", "false"),
            ("NCCL_P2P_DISABLE", "1"),
            ("LMCACHE_NIXL_BACKENDS", "POSIX"),
            ("LMCACHE_NIXL_BACKENDS", ""),
        )
    ),
    ("RUN007", {ENV: {"PYTHONHASHSEED": "1"}}, ENV + ".PYTHONHASHSEED", Level.ERROR),
    ("RUN007", {ENV: {"PD_BUFFER_SIZE": "1"}}, ENV + ".PD_BUFFER_SIZE", Level.ERROR),
    ("RUN007", {ENV: {"PYTHONHASHSEED": {"secret": "a", "key": "b"}}}, ENV + ".PYTHONHASHSEED", Level.ERROR),
    ("RUN007", {ENV: {"LMCACHE_PD_ROLE": "sender"}}, ENV + ".LMCACHE_PD_ROLE", Level.ERROR),
    ("RUN007", {ENV: {"LMCACHE_CONFIG_FILE": "/a.yaml"}}, ENV + ".LMCACHE_CONFIG_FILE", Level.ERROR),
    ("RUN007", {ENV: {"LMCACHE_NIXL_ROLE": "sender"}}, ENV + ".LMCACHE_NIXL_ROLE", Level.ERROR),
    ("RUN008", {ENV: {"FI_PROVIDER": "efa"}, E + "decode.efa_devices": 0}, ENV + ".FI_PROVIDER", Level.ERROR),
    ("RUN008", {ENV: {"FI_LOG_LEVEL": "info"}, E + "prefill.efa_devices": 0}, ENV + ".FI_LOG_LEVEL", Level.ERROR),
    ("RUN008", {ENV: {"FI_PROVIDER": "tcp"}}, ENV + ".FI_PROVIDER", Level.ERROR),
    ("RUN008", {ENV: {"FI_EFA_USE_HUGE_PAGE": "1"}}, ENV + ".FI_EFA_USE_HUGE_PAGE", Level.ERROR),
    ("RUN008", {ENV: {"NCCL_SOCKET_IFNAME": "^lo,eth"}}, ENV + ".NCCL_SOCKET_IFNAME", Level.ERROR),
    ("RUN008", {ENV: {"NCCL_SOCKET_IFNAME": "^lo,docker"}}, ENV + ".NCCL_SOCKET_IFNAME", Level.ERROR),
    ("RUN008", {ENV: {"NCCL_SOCKET_IFNAME": "ens"}}, ENV + ".NCCL_SOCKET_IFNAME", Level.ERROR),
    ("RUN008", {ENV: {"LMCACHE_NIXL_BACKENDS": "UCX"}}, ENV + ".LMCACHE_NIXL_BACKENDS", Level.ERROR),
    ("RUN008", {ENV: {"VLLM_NIXL_SIDE_CHANNEL_HOST": "0.0.0.0"}}, ENV + ".VLLM_NIXL_SIDE_CHANNEL_HOST", Level.ERROR),
    ("RUN008", {ENV: {"VLLM_HOST_IP": "10.1.0.7"}}, ENV + ".VLLM_HOST_IP", Level.ERROR),
    ("RUN009", {E + "image": IMAGE | {"repository": "vllm/vllm-openai", "tag": "v0.19.0"}}, E + "image.repository", Level.ERROR),
    ("RUN009", {E + "image": IMAGE | {"repository": "docker.io/vllm/vllm-openai"}}, E + "image.repository", Level.ERROR),
    ("RUN009", {E + "image": OWN}, E + "image.repository", Level.WARNING),
    ("RUN010", {E + "image": IMAGE | {"nixl": "0.9.0"}}, E + "image.nixl", Level.ERROR),
    ("RUN010", {E + "image": OWN | {"vllm": "0.11.2", "nixl": "0.6.1"}}, E + "image", Level.ERROR),
    ("RUN010", {E + "image": OWN | {"vllm": "0.20.0"}}, E + "image", Level.WARNING),
    ("RUN011", {}, E + "image", Level.INFO),
    ("RUN011", {E + "image": OWN | {"tag": "latest"}}, E + "image", Level.WARNING),
]

RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("RUN001", {ARGS: ["--seed", "7", "--enforce-eager", "--hf-overrides={}", "--lora-modules", "a=b", "c=d"]}),
    ("RUN001", {ARGS: ['--override-generation-config={"a": 1}']}),
    ("RUN002", {ARGS: ["--seed", "8"]}),
    ("RUN003", {ARGS: ["--config-format", "auto"]}),
    ("RUN004", {ARGS: ["--enforce-eager", "--no-enable-prefix-caching", "--override-generation-config.top_p", "0.9", "-sc", "{}"]}),
    ("RUN004", {ARGS: ["--numa-bind"], E + "image": OWN | {"vllm": "0.33.0"}}),
    ("RUN004", {ARGS: ["--disable-log-requests", "--no-enable-lora"], E + "image": OWN | {"vllm": "0.33.0"}}),
    ("RUN005", {ARGS: ["--pipeline-parallel-size", "1"]}),
    ("RUN006", {ARGS: ["--dtype", "half"], E + "decode.extra_args": ["--dtype=half"]}),
    ("RUN006", {ARGS: ["--enforce-eager"]}),
    ("RUN007", {ENV: {"PYTHONHASHSEED": "0", "LMCACHE_CHUNK_SIZE": "256", "VLLM_LOGGING_LEVEL": "DEBUG"}}),
    ("RUN008", {ENV: {"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0", "NCCL_DEBUG": "INFO"}}),
    ("RUN008", {ENV: {"FI_PROVIDER": "EFA", "FI_EFA_USE_DEVICE_RDMA": "1", "NCCL_P2P_DISABLE": "0"}}),
    ("RUN003", {ARGS: ["--load-format", "safetensors", "--dtype", "bfloat16", "--runner", "generate"]}),
    (
        "RUN008",
        {
            ENV: {"FI_EFA_USE_HUGE_PAGE": "1"},
            E + "raw.spec": {
                "pdSpec": {
                    role: {"resources": {"limits": {"hugepages-2Mi": "5120Mi"}}} for role in ("prefillSpec", "decodingSpec")
                }
            },
        },
    ),
    ("RUN008", {ENV: {"NCCL_SOCKET_IFNAME": "eth"}}),
    ("RUN008", {ENV: {"NCCL_SOCKET_IFNAME": "=eth0"}}),
    ("RUN008", {ENV: {"NCCL_SOCKET_IFNAME": "^lo,docker,veth,pod-id-link0"}}),
    ("RUN008", {ENV: {"LMCACHE_NIXL_BACKENDS": "LIBFABRIC"}}),
    ("RUN008", {ENV: {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}}),
    ("RUN008", {ENV: {"FI_PROVIDER": {"secret": "a", "key": "b"}}, E + "decode.efa_devices": 0}),
    ("RUN009", {}),
    ("RUN009", {E + "image": IMAGE}),
    ("RUN009", {E + "image": IMAGE | {"repository": "docker.io/lmcache/vllm-openai"}}),
    ("RUN009", {E + "image": IMAGE | {"repository": "111122223333.dkr.ecr.us-east-2.amazonaws.com/mirror/vllm"}}),
    ("RUN010", {E + "image": IMAGE}),
    ("RUN010", {E + "image": OWN}),
    ("RUN011", {E + "image": IMAGE | {"digest": "sha256:" + "0" * 64}}),
]  # fmt: skip


@pytest.mark.parametrize(("id", "changes", "path", "level"), WRONG)
def test_wrong(id: str, changes: dict[str, Any], path: str, level: Level) -> None:
    found = {(finding.path, finding.level): finding for finding in findings(changes, id=id)}
    assert (path, level) in found
    assert found[path, level].fix


@pytest.mark.parametrize(("id", "changes"), RIGHT)
def test_right(id: str, changes: dict[str, Any]) -> None:
    assert findings(changes, id=id) == []


@pytest.mark.parametrize("flag", sorted(vllm_flags.reasons("managed")))
@pytest.mark.parametrize("spelling", ["{0}", "{0}=1", "{1}", "{1}=1"])
def test_every_managed_flag_in_every_spelling(flag: str, spelling: str) -> None:
    text = spelling.format(flag, "--" + flag[2:].replace("-", "_"))
    assert findings({ARGS: [text] if "=" in text else [text, "1"]}, id="RUN002")


def test_misspelt_flag_is_named() -> None:
    (found,) = findings({ARGS: ["--enforce-eagr"]}, id="RUN004")
    assert "--enforce-eager" in found.fix


def test_credentials_in_arguments_are_hidden() -> None:
    assert all("hf_" not in finding.value + finding.message for finding in findings({ARGS: ["hf_abcdefghijkl"]}))
    assert findings({ARGS: ["hf_abcdefghijkl"]}, id="RUN001")[0].value == HIDDEN
