"""Who may do what on the cluster: HyperPod's services, and our own readers of nodes."""

from typing import Any, Final

from dpd.environment.names import HYPERPOD_NAMESPACE, NODE_READER_GROUP, cluster_labels

_RBAC: Final = "rbac.authorization.k8s.io"
_SERVICE_USER: Final = "hyperpod-service-linked-role"
"""The Kubernetes user that HyperPod's service-linked role acts as, through an access entry that HyperPod makes itself."""

Rule = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] | tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""API groups, resources, verbs, and the names of objects when not all are meant."""


def meta(name: str, namespace: str = "") -> dict[str, Any]:
    """Metadata of an object of the cluster."""
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": cluster_labels()}


def named(body: dict[str, Any]) -> dict[str, Any]:
    """An object with the label by which AWS's chart knows its namespace."""
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "labels": {**metadata["labels"], "name": metadata["name"]}}}


def service_account(name: str) -> dict[str, Any]:
    """A service account in HyperPod's namespace. Pods that need its token ask for it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": meta(name, HYPERPOD_NAMESPACE),
        "automountServiceAccountToken": False,
    }


def account_subject(name: str) -> dict[str, str]:
    """A service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, "namespace": HYPERPOD_NAMESPACE}


def granted(role: str, binding: str, subject: dict[str, str], rules: tuple[Rule, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A cluster role and its binding."""
    return _granted("Cluster", meta(role), meta(binding), subject, rules)


def granted_in(namespace: str, role: str, subject: dict[str, str], rules: tuple[Rule, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A role in a namespace and its binding."""
    return _granted("", meta(role, namespace), meta(role, namespace), subject, rules)


def _granted(
    scope: str, role: dict[str, Any], binding: dict[str, Any], subject: dict[str, str], rules: tuple[Rule, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {"apiVersion": f"{_RBAC}/v1", "kind": f"{scope}Role", "metadata": role, "rules": [_rule(*rule) for rule in rules]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{scope}RoleBinding",
            "metadata": binding,
            "roleRef": {"apiGroup": _RBAC, "kind": f"{scope}Role", "name": role["name"]},
            "subjects": [subject],
        },
    )


def _rule(groups: tuple[str, ...], resources: tuple[str, ...], verbs: tuple[str, ...], names: tuple[str, ...] = ()) -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": list(groups), "resources": list(resources), **named, "verbs": list(verbs)}


def deep_health_check() -> tuple[dict[str, Any], ...]:
    """The account under which HyperPod starts the pods of a deep health check; AWS's chart names it.

    HyperPod makes those pods, so unlike our own the account leaves its token on.
    """
    name = "deep-health-check-service-account"
    account = {key: value for key, value in service_account(name).items() if key != "automountServiceAccountToken"}
    rules: tuple[Rule, ...] = ((("",), ("nodes",), ("get", "list")), (("",), ("pods",), ("get", "list", "patch")))
    return account, *granted(f"{name}-role", f"{name}-role-binding", account_subject(name), rules)


def patching() -> tuple[dict[str, Any], ...]:
    """What a rolling update of the nodes' software needs: find pods and evict them, so that disruption budgets hold."""
    name = "hyperpod-patching"
    subject = {"apiGroup": _RBAC, "kind": "User", "name": _SERVICE_USER}
    return granted(name, name, subject, ((("",), ("pods",), ("list",)), (("",), ("pods/eviction",), ("create",))))


def node_readers() -> tuple[dict[str, Any], ...]:
    """Read nodes and nothing else, for the group that access entries of our functions name."""
    name = "dpd-node-readers"
    subject = {"apiGroup": _RBAC, "kind": "Group", "name": NODE_READER_GROUP}
    return granted(name, name, subject, ((("",), ("nodes",), ("get", "list")),))
