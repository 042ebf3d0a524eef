"""The exporter of the nodes' EFA counters: what makes the health gate able to see that bytes crossed EFA.

Inside of a pod the counters are missing, since Linux shows them in the node's own network namespace alone; so the node's
sysfs is mounted, read only. That and a port are all it has: no rights on node or cluster, no token, no user, no writable file.
"""

import hashlib
from pathlib import Path
from typing import Any, Final

from charts.namespace import namespace
from charts.prerequisites.access import meta
from charts.prerequisites.agents import daemon_set
from charts.prerequisites.nodes import Groups, affinity, tolerations
from dpd.environment.names import EFA_COUNTERS, EFA_COUNTERS_LABELS, GATE_NAMESPACE
from dpd.gate.wire import PORT

_CODE: Final = Path(__file__).with_name("efa_counters.py")
_SYSFS: Final = "/node/sys"
_FOLDERS: Final = {"classes": "class/infiniband", "devices": "devices"}
"""The first holds links into the second."""
_NOBODY: Final = 65534


def efa_counters(image: str, groups: Groups) -> tuple[dict[str, Any], ...]:
    """Namespace, code and DaemonSet, on the nodes of ``groups``."""
    code = _CODE.read_text(encoding="utf-8")
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta(EFA_COUNTERS, GATE_NAMESPACE),
        "data": {_CODE.name: code},
    }
    container = {
        "name": EFA_COUNTERS,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-I", "-B", f"/code/{_CODE.name}", str(PORT), _SYSFS],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/metrics", "port": PORT}, "periodSeconds": 10},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsGroup": _NOBODY,
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "code", "mountPath": "/code", "readOnly": True},
            *({"name": name, "mountPath": f"{_SYSFS}/{folder}", "readOnly": True} for name, folder in _FOLDERS.items()),
        ],
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": affinity(groups),
        "tolerations": tolerations(groups, "aws.amazon.com/efa", "nvidia.com/gpu"),
        "containers": [container],
        "volumes": [
            {"name": "code", "configMap": {"name": EFA_COUNTERS}},
            *({"name": name, "hostPath": {"path": f"/sys/{folder}", "type": "Directory"}} for name, folder in _FOLDERS.items()),
        ],
    }
    # A pod reads its code once, so another code needs another pod.
    annotations = {"dpd/code": hashlib.sha256(code.encode()).hexdigest()[:16]}
    made = daemon_set(EFA_COUNTERS, GATE_NAMESPACE, EFA_COUNTERS_LABELS, pod, critical=False, annotations=annotations)
    return _open(namespace(GATE_NAMESPACE)), files, made


def _open(body: dict[str, Any]) -> dict[str, Any]:
    """The namespace with the label that lets a pod mount a path of the node, where a cluster forbids that otherwise."""
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "labels": {**metadata["labels"], "pod-security.kubernetes.io/enforce": "privileged"}}}
