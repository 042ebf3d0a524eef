"""On which nodes an agent runs, and which taints it must bear."""

from collections.abc import Callable, Mapping
from typing import Any

from dpd.catalog import instances
from dpd.catalog.instances import Instance
from dpd.environment.cluster import InstanceGroup
from dpd.environment.names import INSTANCE_TYPE_LABEL, NODE_HEALTH_TAINT

Groups = Mapping[str, InstanceGroup]


def with_nvidia(groups: Groups) -> dict[str, InstanceGroup]:
    """The groups whose nodes have NVIDIA GPUs (every GPU in the catalog is one)."""
    return _with(groups, lambda instance: instance.gpus > 0)


def with_efa(groups: Groups) -> dict[str, InstanceGroup]:
    """The groups whose nodes have EFA. A node without it would start the plugin over and over; an unknown number is not none."""
    return _with(groups, lambda instance: instance.efa != 0)


def _with(groups: Groups, has_it: Callable[[Instance], bool]) -> dict[str, InstanceGroup]:
    return {name: group for name, group in groups.items() if has_it(_instance(group.instance_type))}


def _instance(instance_type: str) -> Instance:
    found = instances.find(instance_type)
    if found is None:
        raise LookupError(f"the instance type {instance_type!r} is not in the catalog")
    return found


def affinity(groups: Groups) -> dict[str, Any]:
    """Only nodes of these groups' instance types.

    Types and not group names: a group that is added with a known type must find the plugin before this is applied again.
    """
    types = sorted({group.instance_type for group in groups.values()})
    expression = {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": types}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


def tolerations(groups: Groups, *device_keys: str) -> list[dict[str, str]]:
    """Bear HyperPod's mark of an unhealthy node, the customary taints of the device, and every taint of the groups.

    Without the first a node that is under repair loses its devices: https://github.com/aws/sagemaker-hyperpod-cli/pull/449
    Only agents of a node may bear it, never a pod that serves.
    """
    taints = sorted({(taint.key, taint.value, taint.effect) for group in groups.values() for taint in group.taints})
    customary = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in device_keys]
    ours = [_toleration(*taint) for taint in taints]
    return [_toleration(NODE_HEALTH_TAINT, "Unschedulable", "NoSchedule"), *customary, *(one for one in ours if one not in customary)]


def _toleration(key: str, value: str, effect: str) -> dict[str, str]:
    return {"key": key, "operator": "Equal", "value": value, "effect": effect}
