"""The namespace of endpoints."""

from typing import Any, Final

from dpd.environment.names import cluster_labels

BUILT_IN: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
"""Namespaces that every cluster has; Kubernetes refuses to let them go, so no stack may own them."""


def namespace(name: str) -> dict[str, Any]:
    """A namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**cluster_labels(), "app.kubernetes.io/name": name}},
    }
