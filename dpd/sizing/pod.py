"""What one pod of a role gets of its node: GPUs, EFA devices, CPUs, memory."""

import math
from dataclasses import dataclass, replace
from typing import Final

from dpd.catalog.instances import Instance
from dpd.environment.endpoint import KvCache, Role

NODE_RESERVE: Final = 8
"""One part in so many of a node's CPUs and memory is left to the system, the kubelet, device plugins, CSI and Mountpoint
pods, agents, and the sidecars that the operator adds to our pods. Our choice: AWS publishes no figure, and a pod that asks
for too much stays Pending on a billed node. It is well above the kubelet's own reserve and the kernel's share."""


@dataclass(frozen=True, slots=True)
class PodShape:
    """Requests of one pod; requests equal limits."""

    gpus: int
    efa_devices: int
    cpus: int
    memory_gib: int


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
    gpus = role.tensor_parallel
    return PodShape(
        gpus=gpus,
        efa_devices=efa_share(instance, gpus) if role.efa_devices is None else role.efa_devices,
        cpus=role.cpus or cpu_share(instance, gpus),
        memory_gib=role.memory_gib or memory_share_gib(instance, gpus),
    )


def host_memory_floor_gib(role: Role, kv: KvCache, *, weight_gib: float) -> int:
    """Least host memory of a pod in GiB.

    The CPU tier of every rank, the largest share of the weights that is read at once (one rank's), 2 GiB of shared
    memory and 4 GiB of process memory for each rank, and 8 GiB for the server and sidecars. A container below it is
    killed, and its peers report a network fault.
    """
    ranks = role.tensor_parallel
    tier = kv.cpu_tier_gib * ranks if kv.cpu_tier else 0
    return math.ceil(tier + weight_gib / ranks + 6 * ranks + 8)
