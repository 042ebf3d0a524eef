"""Wide expert parallelism: pods, data parallel ranks and weights of a role whose experts are spread over nodes."""

from dpd.catalog.instances import Instance
from dpd.catalog.models import ModelShape
from dpd.environment.endpoint import Role


def pod_gpus(role: Role, instance: Instance) -> int:
    """GPUs of one pod: one tensor parallel group, or with expert parallelism the whole node."""
    return instance.gpus if role.expert_parallel else role.tensor_parallel


def pods_per_replica(role: Role) -> int:
    """Pods that start, serve and fail together: the nodes of an expert parallel group, else 1."""
    return role.expert_parallel.nodes if role.expert_parallel else 1


def local_ranks(role: Role, instance: Instance) -> int:
    """Data parallel ranks of one pod, each an engine of ``tensor_parallel`` GPUs with a port of its own; at least 1."""
    return max(1, pod_gpus(role, instance) // role.tensor_parallel)


def data_parallel_size(role: Role, instance: Instance) -> int:
    """Data parallel ranks of one replica, over all of its pods."""
    return local_ranks(role, instance) * pods_per_replica(role)


def expert_parallel_size(role: Role, instance: Instance) -> int:
    """GPUs over which the experts of one replica are spread: vLLM takes data parallel x tensor parallel ranks."""
    return data_parallel_size(role, instance) * role.tensor_parallel


def expert_bytes(model: ModelShape) -> float:
    """Bytes of the routed experts in the checkpoint; 0 for a dense model.

    From the parameters that one token meets: ``all - active = experts x (1 - chosen / experts)``. DeepSeek V3: 654e9.
    """
    if not model.experts or not 0 < model.experts_per_token < model.experts or not model.active_parameters:
        return 0.0
    routed = (model.parameters - model.active_parameters) / (1 - model.experts_per_token / model.experts)
    return min(model.weight_bytes, routed * model.weight_dtype_bytes)


def weight_bytes_per_gpu(model: ModelShape, role: Role, instance: Instance) -> float:
    """Bytes of weights on one GPU of a role.

    Tensor parallelism splits all of them. With expert parallelism each data parallel rank has everything but the routed
    experts for itself, and those are spread over all ranks of the replica.
    """
    if not role.expert_parallel:
        return model.weight_bytes / role.tensor_parallel
    experts = expert_bytes(model)
    return (model.weight_bytes - experts) / role.tensor_parallel + experts / expert_parallel_size(role, instance)
