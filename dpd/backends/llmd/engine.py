"""vLLM of one role as llm-d runs it: command line, hand-over of KV, environment and ports."""

import json
from dataclasses import dataclass
from typing import Any, Final

from dpd.backends.llmd.tiers import Tiers, tiers
from dpd.backends.site import Site
from dpd.backends.workload import NOT_FOR_NCCL, arguments, managed_flags, model_path
from dpd.catalog.images import default_image
from dpd.catalog.llmd import llmd
from dpd.catalog.runtime_versions import huge_pages
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.model import SecretKey
from dpd.sizing.expert_parallel import local_ranks
from dpd.sizing.pod import PodShape, server_shape

POD_IP: Final = "POD_IP"


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field of the pod itself, such as ``status.podIP``."""

    path: str


Value = str | SecretKey | FieldRef


@dataclass(frozen=True, slots=True)
class Engine:
    """One vLLM server. ``args`` begin with the model; ``ports`` are by the name of the container's port."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: dict[str, Value]
    ports: dict[str, int]


def engine(endpoint: Endpoint, role_name: str, site: Site) -> Engine:
    """The server of a role. Raises ``ValueError`` for a group or an instance type that is not known; the checks report it first."""
    role, shape, ranks = of_role(endpoint, role_name, site)
    tier = tiers(endpoint, role_name, site)
    flags = {**serve_flags(endpoint, role_name), "--kv-transfer-config": _json(transfer_config(endpoint, role_name, tier))}
    return Engine(
        command=tier.command or ("vllm", "serve"),
        args=(model(endpoint), *arguments(flags), *switches(endpoint), *role.extra_args),
        env={**derived_environment(endpoint, role_name, shape, ranks), **tier.env, **dict(sorted(endpoint.environment.items()))},
        ports={
            "modelserver": server_port(role_name),
            "nixl": llmd().ports["side_channel"],
            **({"kv-events": llmd().ports["kv_events"]} if publishes_events(endpoint) else {}),
        },
    )


def of_role(endpoint: Endpoint, role_name: str, site: Site) -> tuple[Role, PodShape, int]:
    """A role, what one of its pods gets, and the data parallel ranks in it. Raises ``ValueError`` as ``engine``."""
    role = dict(endpoint.roles)[role_name]
    instance = site.instance(role.group)
    if instance is None:
        raise ValueError(f"endpoint {endpoint.name!r}: the {role_name} role's group {role.group!r} has no known instance type")
    return role, server_shape(endpoint, role_name, instance), local_ranks(role, instance)


def server_port(role_name: str) -> int:
    """Where vLLM listens: the pod's own port, or on a decoder the one behind the sidecar that has the pod's."""
    return llmd().ports["engine" if role_name == "decode" else "server"]


def block_size(endpoint: Endpoint) -> int:
    """Tokens in a block of the KV cache. Router and engine must count in the same."""
    return endpoint.kv.block_size or int(_facts()["block_size_tokens"])


def model(endpoint: Endpoint) -> str:
    """What to serve: a directory of the container, or a repository of the hub."""
    hub = endpoint.model.source.hub
    return hub.model_id if hub else model_path(endpoint)


def publishes_events(endpoint: Endpoint) -> bool:
    """Whether engines tell the router which blocks they hold."""
    return endpoint.routing.strategy == "kv_aware"


def serve_flags(endpoint: Endpoint, role_name: str) -> dict[str, str]:
    """Flags with a value that follow from the file, the hand-over left aside; they may not be repeated in ``extra_args``."""
    hub = endpoint.model.source.hub
    flags = managed_flags(endpoint, role_name, dict(endpoint.roles)[role_name], server_port(role_name))
    del flags["--model"]  # `vllm serve` takes it without a flag
    return {
        **flags,
        "--block-size": str(block_size(endpoint)),
        **({"--revision": hub.revision} if hub else {}),
        "--shutdown-timeout": str(drain_seconds(endpoint, role_name)),
        "--disable-access-log-for-endpoints": ",".join(_facts()["quiet_paths"]),
        **({"--kv-events-config": _json(_events(endpoint))} if publishes_events(endpoint) else {}),
    }


def switches(endpoint: Endpoint) -> tuple[str, ...]:
    """Flags without a value. Sliding windows need a cache manager that vLLM turns off beside a connector unless it is told not to."""
    return ("--no-disable-hybrid-kv-cache-manager",) if endpoint.model.shape.window_layers else ()


def drain_seconds(endpoint: Endpoint, role_name: str) -> int:
    """Seconds in which running requests may finish before vLLM exits: on a decoder as long as its longest answer takes."""
    limits = _facts()["drain_seconds"]
    if role_name == "prefill":
        return int(limits["least"])
    longest = -(-endpoint.model.max_model_len * endpoint.objectives.itl_p99_ms // 1000)
    return int(min(limits["most"], max(limits["least"], longest)))


def transfer_config(endpoint: Endpoint, role_name: str, tier: Tiers) -> dict[str, Any]:
    """``--kv-transfer-config``: NIXL over libfabric, with the tiers' connector beside it where a role has tiers.

    NIXL's own default is UCX, which has no way to EFA's RDMA, and no environment variable changes it
    (https://github.com/vllm-project/vllm/issues/41814). The policy is written out: what a decoder does without its KV
    must be somebody's decision. A prefiller loads from its tiers alone, which may miss.
    """
    facts = _facts()["kv"]
    role = {"kv_role": facts["roles"][role_name]}
    policy = {"kv_load_failure_policy": tier.load_failure if tier.connector else endpoint.kv.load_failure}
    nixl = {
        "kv_connector": facts["connector"],
        **role,
        "kv_buffer_device": facts["buffer_device"],
        "kv_connector_extra_config": {"backends": list(facts["backends"])},
    }
    if tier.connector is None:
        return {**nixl, **policy}
    return {"kv_connector": facts["tiered"], **role, **policy, "kv_connector_extra_config": {"connectors": [nixl, tier.connector]}}


def derived_environment(endpoint: Endpoint, role_name: str, shape: PodShape, ranks: int) -> dict[str, Value]:
    """Environment variables that the tool owns, by name.

    A peer fetches KV where it is told to, so the address is the pod's own and no text
    (https://github.com/vllm-project/vllm/issues/27083). EFA's path through shared memory copies GPU memory with the CPU
    and crashes (https://github.com/ofiwg/libfabric/issues/12328). libfabric may only choose EFA where the pod has devices:
    otherwise it would fall back to TCP in silence.
    """
    facts, hub = _facts(), endpoint.model.source.hub
    return {
        "USER": facts["user"],
        "HF_HOME": f"{facts['caches']['cache']}/huggingface",
        **({"HF_TOKEN": hub.token} if hub and hub.token else {}),
        "PYTHONHASHSEED": "0",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": FieldRef("status.podIP"),
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(llmd().ports["side_channel"]),
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(facts["keep_alive_seconds"]),
        "NCCL_SOCKET_IFNAME": NOT_FOR_NCCL,
        **({POD_IP: FieldRef("status.podIP")} if publishes_events(endpoint) else {}),
        **(_efa(endpoint, role_name, shape, ranks) if shape.efa_devices else {}),
    }


def _efa(endpoint: Endpoint, role_name: str, shape: PodShape, ranks: int) -> dict[str, Value]:
    """libfabric's settings. Huge pages are asked for here and in the pod's requests, or in neither."""
    role = dict(endpoint.roles)[role_name]
    rails = shape.efa_devices // max(1, role.tensor_parallel * ranks)
    posting, image = _facts()["posting_threads"], endpoint.image or default_image(endpoint.backend)
    return {
        "FI_PROVIDER": "efa",
        "FI_EFA_USE_DEVICE_RDMA": "1",
        "FI_EFA_ENABLE_SHM_TRANSFER": "0",
        **({huge_pages()["variable"]: "1"} if shape.hugepages_mib else {}),
        **({posting["variable"]: str(rails)} if rails > 1 and _numbers(image.nixl) >= _numbers(posting["nixl"]) else {}),
    }


def _events(endpoint: Endpoint) -> dict[str, Any]:
    """Where the router subscribes to block events. The topic names the pod as the router knows it, and the model."""
    ports = llmd().ports
    return {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{ports['kv_events']}",
        "topic": f"kv@$({POD_IP}):{ports['server']}@{endpoint.served_name}",
    }


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = llmd().more["workers"]
    return facts


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
