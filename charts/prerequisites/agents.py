"""What runs once on every node of a kind: two device plugins and the agent that watches GPUs."""

from typing import Any, Final

from charts.prerequisites.access import account_subject, granted, meta, service_account
from charts.prerequisites.nodes import Groups, affinity, tolerations
from dpd.environment.names import HYPERPOD_NAMESPACE

_SYSTEM: Final = "kube-system"
_NAME: Final = "app.kubernetes.io/name"
_PLUGINS_FOLDER: Final = "/var/lib/kubelet/device-plugins"


def daemon_set(
    name: str,
    namespace: str,
    labels: dict[str, str],
    pod: dict[str, Any],
    *,
    critical: bool = True,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A DaemonSet. ``labels`` select its pods and can never change; being critical keeps it from being evicted first."""
    metadata = meta(name, namespace)
    about = {"labels": {**metadata["labels"], **labels}, **({"annotations": annotations} if annotations else {})}
    template = {"metadata": about, "spec": {**({"priorityClassName": "system-node-critical"} if critical else {}), **pod}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "updateStrategy": {"type": "RollingUpdate"}, "template": template},
    }


def _host(name: str, path: str, *, kind: str = "", read_only: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """A path of the node as a volume, and its mount at the same place."""
    volume = {"name": name, "hostPath": {"path": path, **({"type": kind} if kind else {})}}
    return volume, {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def nvidia_device_plugin(image: str, groups: Groups) -> dict[str, Any]:
    """Advertises ``nvidia.com/gpu``, shaped as NVIDIA's static manifest: one folder of the node, no rights, no API access.

    https://github.com/NVIDIA/k8s-device-plugin/blob/v0.20.0/deployments/static/nvidia-device-plugin.yml
    The GPUs are visible to it because ``nvidia`` is the default container runtime of HyperPod's GPU nodes.
    """
    name = "nvidia-device-plugin"
    volume, mount = _host("device-plugins", _PLUGINS_FOLDER, kind="Directory")
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [mount],
    }
    pod = {
        "automountServiceAccountToken": False,
        "affinity": affinity(groups),
        "tolerations": tolerations(groups, "nvidia.com/gpu"),
        "containers": [container],
        "volumes": [volume],
    }
    return daemon_set(name, _SYSTEM, {_NAME: name}, pod)


def efa_device_plugin(image: str, groups: Groups) -> dict[str, Any]:
    """Advertises ``vpc.amazonaws.com/efa``, shaped as in AWS's chart, which runs it as root with all rights on the host's network.

    It also bears ``nvidia.com/gpu``, which AWS's chart does not: a node with that taint would have GPUs and no EFA.
    """
    name = "aws-efa-k8s-device-plugin"
    plugins, plugins_mount = _host("device-plugins", _PLUGINS_FOLDER)
    devices, devices_mount = _host("infiniband", "/dev/infiniband/")
    # Means nothing on a node with NVIDIA GPUs, but the plugin is only known to work with it.
    neuron, neuron_mount = _host("neuron", "/opt/aws/neuron/", kind="DirectoryOrCreate")
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}},
        "securityContext": {"allowPrivilegeEscalation": True, "privileged": True, "runAsNonRoot": False, "runAsUser": 0},
        "volumeMounts": [plugins_mount, devices_mount, neuron_mount],
    }
    pod = {
        "automountServiceAccountToken": False,
        "hostNetwork": True,
        "affinity": affinity(groups),
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}, *tolerations(groups, "aws.amazon.com/efa", "nvidia.com/gpu")],
        "containers": [container],
        "volumes": [plugins, devices, neuron],
    }
    return daemon_set(name, _SYSTEM, {_NAME: name}, pod)


def health_monitoring(image: str, groups: Groups) -> tuple[dict[str, Any], ...]:
    """HyperPod's agent that watches GPUs and marks nodes for repair; it must stay on a node whatever its taints.

    Its names are in log streams and runbooks of AWS.
    """
    name = "health-monitoring-agent"
    mounted = [
        _host("log", "/var/log/"),
        _host("kmsg", "/dev/kmsg", read_only=True),
        _host("localtime", "/etc/localtime", read_only=True),
    ]
    amount = {"cpu": "500m", "memory": "512Mi"}
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        ],
        "resources": {"requests": amount, "limits": amount},
        "securityContext": {"runAsUser": 1000, "runAsGroup": 2000},
        "volumeMounts": [mount for _, mount in mounted],
    }
    pod = {
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "affinity": affinity(groups),
        "tolerations": [{"operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")],
        "containers": [container],
        "volumes": [volume for volume, _ in mounted],
    }
    rights = granted(
        name,
        name,
        account_subject(name),
        (
            (("",), ("nodes",), ("get",)),
            (("",), ("nodes", "nodes/status"), ("patch",)),
            (("", "events.k8s.io"), ("events",), ("create", "patch", "update")),
        ),
    )
    return service_account(name), *rights, daemon_set(name, HYPERPOD_NAMESPACE, {"app": name}, pod)
