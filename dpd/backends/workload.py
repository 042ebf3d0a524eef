"""An endpoint as any backend sees it: two roles with their vLLM flags, resources and environment."""

from dataclasses import dataclass
from typing import Final

from dpd.backends.site import Site
from dpd.catalog.images import default_image
from dpd.catalog.operator import operator
from dpd.catalog.runtime_versions import huge_pages
from dpd.environment.endpoint import Autoscaling, Endpoint, Role
from dpd.environment.model import SecretKey
from dpd.environment.names import INSTANCE_GROUP_LABEL
from dpd.sizing.memory import GIB
from dpd.sizing.pod import PodShape, pod_shape
from dpd.sizing.startup import deploy_timeout_seconds, startup_budget_seconds

GPU: Final = "nvidia.com/gpu"
EFA: Final = "vpc.amazonaws.com/efa"
HEALTH_PATH: Final = "/health"
METRICS_PATH: Final = "/metrics"
MODELS_PATH: Final = "/v1/models"

NOT_FOR_NCCL: Final = "^lo,docker,veth,pod-id-link"
"""Interfaces on which NCCL must not listen: EKS Pod Identity's link is not routable
(https://github.com/aws-samples/aws-do-eks/issues/54). The pod's own eth0 must never be in this list."""


@dataclass(frozen=True, slots=True)
class RoleWorkload:
    """The pods of one role. ``flags`` maps vLLM flags that the tool derives to their values, in writing order."""

    name: str
    instance_type: str
    replicas: int
    pod: PodShape
    flags: dict[str, str]
    extra_args: tuple[str, ...]
    node_selector: dict[str, str]
    autoscaling: Autoscaling | None


@dataclass(frozen=True, slots=True)
class Workload:
    """An endpoint, ready for a backend. ``environment`` is the same for both roles: KV keys must agree between them."""

    image: str
    model_path: str
    served_name: str
    port: int
    prefill: RoleWorkload
    decode: RoleWorkload
    environment: dict[str, str | SecretKey]
    startup_budget_seconds: int
    deploy_timeout_seconds: int

    def shared_flags(self) -> dict[str, str]:
        """Flags with one value for both roles."""
        return {flag: value for flag, value in self.prefill.flags.items() if self.decode.flags.get(flag) == value}

    def own_flags(self, role: RoleWorkload) -> dict[str, str]:
        """Flags whose value differs between the roles."""
        return {flag: value for flag, value in role.flags.items() if flag not in self.shared_flags()}


def arguments(flags: dict[str, str]) -> list[str]:
    """Flags as a command line: ``--flag value``."""
    return [part for flag, value in flags.items() for part in (flag, value)]


def amounts(pod: PodShape) -> dict[str, str]:
    """What a pod asks for, as Kubernetes writes it. Devices that it has none of are left out."""
    return {
        "cpu": str(pod.cpus),
        "memory": f"{pod.memory_gib}Gi",
        GPU: str(pod.gpus),
        **({EFA: str(pod.efa_devices)} if pod.efa_devices else {}),
        **({huge_pages()["resource"]: f"{pod.hugepages_mib}Mi"} if pod.hugepages_mib else {}),
    }


def image_reference(endpoint: Endpoint) -> str:
    """The image to pull: ``repository@digest`` when the digest is known, else ``repository:tag``."""
    image = endpoint.image or default_image(endpoint.backend)
    return f"{image.repository}@{image.digest}" if image.digest else f"{image.repository}:{image.tag}"


def model_path(endpoint: Endpoint) -> str:
    """Directory of the weights inside the container."""
    mount = operator().model_mount["path"]
    volume = endpoint.model.source.volume
    return f"{mount}/{volume.path}" if volume and volume.path else mount


def derived_environment(endpoint: Endpoint, *, efa: bool) -> dict[str, str]:
    """Environment variables that the tool owns with the operator, by name.

    The first four are those of AWS's example. Python's string hash is part of LMCache's keys, so it must be the same
    in every process (https://github.com/LMCache/LMCache/issues/2979). libfabric may only choose EFA where the pod has
    EFA devices; without that setting it falls back to TCP in silence.
    """
    kv = endpoint.kv
    return {
        "HF_HOME": "/tmp/hf_home",  # noqa: S108 (a path in the container, which is thrown away with it)
        **({"PD_BUFFER_SIZE": str(kv.buffer_gib * GIB)} if kv.buffer_gib else {}),
        "LMCACHE_SAVE_DECODE_CACHE": "False",
        "PYTHONHASHSEED": "0",
        **({"LMCACHE_MAX_LOCAL_CPU_SIZE": str(kv.cpu_tier_gib)} if kv.cpu_tier else {}),
        "NCCL_SOCKET_IFNAME": NOT_FOR_NCCL,
        **({"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"} if efa else {}),
    }


def workload(endpoint: Endpoint, site: Site) -> Workload:
    """Derive everything that a backend writes down.

    Raises ``ValueError`` for a group or an instance type that the catalog does not know; the checks report it first.
    """
    port = operator().ports["server"]
    prefill, decode = (_role(endpoint, name, role, site, port) for name, role in endpoint.roles)
    budget = startup_budget_seconds(endpoint.model.shape)
    efa = prefill.pod.efa_devices > 0 and decode.pod.efa_devices > 0
    user = dict(sorted(endpoint.environment.items()))
    return Workload(
        image=image_reference(endpoint),
        model_path=model_path(endpoint),
        served_name=endpoint.served_name,
        port=port,
        prefill=prefill,
        decode=decode,
        environment={**derived_environment(endpoint, efa=efa), **user},
        startup_budget_seconds=budget,
        deploy_timeout_seconds=endpoint.deploy_timeout_seconds or deploy_timeout_seconds(endpoint.model.shape),
    )


def managed_flags(endpoint: Endpoint, name: str, role: Role, port: int) -> dict[str, str]:
    """vLLM flags of a role that follow from the file. They may not be repeated in ``extra_args``.

    ``--enforce-eager`` is not one of them, although AWS's benchmark ran its prefillers with it: the documented manifest
    has it not, and besides CUDA graphs it turns torch.compile off, from which long prompts gain. It can be added there.
    """
    kv = endpoint.kv
    return {
        "--model": model_path(endpoint),
        "--served-model-name": endpoint.served_name,
        "--host": "0.0.0.0",  # noqa: S104 (the proxy and the other role reach the server through the pod's address)
        "--port": str(port),
        "--tensor-parallel-size": str(role.tensor_parallel),
        "--max-model-len": str(endpoint.model.max_model_len),
        "--gpu-memory-utilization": f"{role.gpu_memory_utilization:g}",
        "--max-num-seqs": str(role.max_concurrent_sequences or operator().default_max_sequences[name]),
        **({"--kv-cache-dtype": kv.dtype} if kv.dtype != "auto" else {}),
        **({"--block-size": str(kv.block_size)} if kv.block_size else {}),
    }


def _role(endpoint: Endpoint, name: str, role: Role, site: Site, port: int) -> RoleWorkload:
    instance = site.instance(role.group)
    if instance is None:
        raise ValueError(f"endpoint {endpoint.name!r}: the {name} role's group {role.group!r} has no known instance type")
    return RoleWorkload(
        name=name,
        instance_type=instance.type,
        replicas=role.replicas,
        pod=pod_shape(role, instance),
        flags=managed_flags(endpoint, name, role, port),
        extra_args=role.extra_args,
        node_selector={INSTANCE_GROUP_LABEL: role.group, **dict(sorted(role.node_selector.items()))},
        autoscaling=role.autoscaling,
    )
