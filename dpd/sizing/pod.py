"""What one pod of a role gets of its node: GPUs, EFA devices, CPUs, memory."""

import math
from dataclasses import dataclass, replace
from typing import Final

from dpd.catalog.instances import Instance
from dpd.catalog.llmd import llmd
from dpd.environment.endpoint import Endpoint, Role
from dpd.sizing.expert_parallel import pod_gpus

NODE_RESERVE: Final = 8
"""One part in so many of a node's CPUs and memory is left to the system, the kubelet, device plugins, CSI and Mountpoint
pods, agents, and the sidecars that the operator adds to our pods. Our choice: AWS publishes no figure, and a pod that asks
for too much stays Pending on a billed node. It is well above the kubelet's own reserve and the kernel's share."""


_SHARED_MEMORY_GIB: Final = 8
_RANK_SHARED_MEMORY_GIB: Final = 2


@dataclass(frozen=True, slots=True)
class PodShape:
    """Requests of one pod; requests equal limits."""

    gpus: int
    efa_devices: int
    cpus: int
    memory_gib: int
    hugepages_mib: int = 0


def efa_share(instance: Instance, gpus: int) -> int:
    """EFA devices that belong to ``gpus`` GPUs of a node: ``EFA per node x GPUs / GPUs per node``, rounded down.

    A node of p5.48xlarge has 32 devices for 8 GPUs, so 4 for each GPU. Returns 0 where the catalog knows no EFA or
    the share is less than one device; the checks say so.
    """
    if not instance.efa or not instance.gpus:
        return 0
    return instance.efa * min(gpus, instance.gpus) // instance.gpus


def usable_cpus(instance: Instance) -> int:
    """CPUs of a node that pods of the roles may ask for."""
    return max(1, instance.vcpus - math.ceil(instance.vcpus / NODE_RESERVE))


def usable_memory_gib(instance: Instance) -> int:
    """Memory of a node that pods of the roles may ask for, in whole GiB."""
    return math.floor(instance.memory_gib * (NODE_RESERVE - 1) / NODE_RESERVE)


def beside_tiered_storage(instance: Instance, percent: int | None) -> Instance:
    """A node as pods find it where HyperPod's managed tiered storage keeps ``percent`` of its memory: the rest of the memory."""
    return replace(instance, memory_gib=instance.memory_gib * (100 - percent) / 100) if percent else instance


def cpu_share(instance: Instance, gpus: int) -> int:
    """CPUs of a pod with ``gpus`` GPUs, after the reserve of the node; at least 1."""
    return max(1, usable_cpus(instance) * gpus // max(1, instance.gpus))


def memory_share_gib(instance: Instance, gpus: int) -> int:
    """Memory of a pod with ``gpus`` GPUs in GiB, after the reserve of the node; at least 1."""
    return max(1, usable_memory_gib(instance) * gpus // max(1, instance.gpus))


def pod_shape(role: Role, instance: Instance) -> PodShape:
    """Requests of a role's pods on an instance type: what the file says, else the GPU share of the node."""
    gpus = pod_gpus(role, instance)
    return PodShape(
        gpus=gpus,
        efa_devices=efa_share(instance, gpus) if role.efa_devices is None else role.efa_devices,
        cpus=role.cpus or cpu_share(instance, gpus),
        memory_gib=role.memory_gib or memory_share_gib(instance, gpus),
        hugepages_mib=role.hugepages_mib or 0,
    )


def _sidecar(endpoint: Endpoint, role_name: str) -> tuple[int, int]:
    """CPUs and GiB of the container in front of a server: llm-d's decoders have one."""
    if endpoint.backend != "llm-d" or role_name != "decode":
        return 0, 0
    known = llmd().more["workers"]["sidecar"]
    return int(known["cpus"]), int(known["memory_gib"])


def server_shape(endpoint: Endpoint, role_name: str, instance: Instance) -> PodShape:
    """Requests of a role's server. Where the file says nothing, a sidecar's are taken off the pod's share of the node."""
    role = dict(endpoint.roles)[role_name]
    shape, (cpus, memory_gib) = pod_shape(role, instance), _sidecar(endpoint, role_name)
    return replace(
        shape,
        cpus=role.cpus or max(1, shape.cpus - cpus),
        memory_gib=role.memory_gib or max(1, shape.memory_gib - memory_gib),
    )


def whole_shape(endpoint: Endpoint, role_name: str, instance: Instance) -> PodShape:
    """Requests of a role's pods as the scheduler adds them up: the server's and the sidecar's."""
    shape, (cpus, memory_gib) = server_shape(endpoint, role_name, instance), _sidecar(endpoint, role_name)
    return replace(shape, cpus=shape.cpus + cpus, memory_gib=shape.memory_gib + memory_gib)


def shared_memory_gib(gpus: int) -> int:
    """Size of ``/dev/shm``: 2 GiB for each GPU, and 8 for what a server that crashed has left behind in it.

    NCCL and vLLM's queues take less than 1 GiB for each rank. A container has 64 MiB by itself, and a restart in the same pod
    does not empty it (https://github.com/llm-d/llm-d/issues/352).
    """
    return _SHARED_MEMORY_GIB + _RANK_SHARED_MEMORY_GIB * gpus


def host_memory_floor_gib(gpus: int, *, tier_gib: float, weight_gib: float) -> int:
    """Least host memory of a pod in GiB, for the ranks on ``gpus`` GPUs.

    The KV tiers of the pod, the share of the weights that one rank reads, 2 GiB of shared memory and 4 GiB of process
    memory for each rank, and 8 GiB for the server and sidecars. A container below it is killed, and its peers report a
    network fault. The page cache of the weights is charged to the pod as well, but the kernel takes it back before it kills
    anything, so it is left out: with little more than this, a second start reads the weights from afar again.
    """
    return math.ceil(tier_gib + weight_gib + 6 * gpus + 8)
