"""The workers of an endpoint: what owns the pods of each role, who may call them, and how many may be missing."""

from typing import Any

from dpd.backends.llmd.disaggregated_set import disaggregated_set, single_pods
from dpd.backends.llmd.network_policy import network_policy
from dpd.backends.llmd.pod import template
from dpd.backends.llmd.rollout import rolling
from dpd.backends.llmd.tiers import tiers
from dpd.backends.llmd.weights import weights
from dpd.backends.llmd.wide_ep import wide_ep
from dpd.backends.site import Site
from dpd.environment.endpoint import Endpoint
from dpd.environment.names import LlmdNames
from dpd.sizing.startup import deploy_timeout_seconds


def objects(endpoint: Endpoint, site: Site) -> tuple[dict[str, Any], ...]:
    """Every object of the workers, in the order in which they are applied. Raises ``ValueError`` for what the checks refuse."""
    stored = [body for name, _ in endpoint.roles for body in tiers(endpoint, name, site).objects]
    guards = [part(endpoint, name, site) for name, _ in endpoint.roles for part in (network_policy, disruption_budget)]
    return (*weights(endpoint, site).objects, *stored, _account(LlmdNames.of(endpoint)), *guards, *_owners(endpoint, site))


def _owners(endpoint: Endpoint, site: Site) -> tuple[dict[str, Any], ...]:
    """The Deployments, or the set, in whose place a role over several nodes has a LeaderWorkerSet."""
    pods = {name: template(endpoint, name, site) for name, _ in endpoint.roles}
    groups = {name: wide_ep(endpoint, name, site, pods[name]) for name, role in endpoint.roles if role.expert_parallel}
    if endpoint.workload == "disaggregated_set":
        single = {name: single_pods(role, pods[name]) for name, role in endpoint.roles if name not in groups}
        return (disaggregated_set(endpoint, {**single, **{name: group["spec"] for name, group in groups.items()}}),)
    return tuple(groups.get(name) or deployment(endpoint, name, pods[name]) for name, _ in endpoint.roles)


def deployment(endpoint: Endpoint, role_name: str, pod: dict[str, Any]) -> dict[str, Any]:
    """A Deployment with the pods of a role.

    The number of pods is left to the autoscaler where there is one. Kubernetes gives up on a Deployment after ten minutes
    without progress, in which large weights are not even loaded.
    """
    names, role = LlmdNames.of(endpoint), dict(endpoint.roles)[role_name]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(names, role_name),
        "spec": {
            **({} if role.autoscaling else {"replicas": role.replicas}),
            "selector": {"matchLabels": names.role_labels(role_name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling(role)},
            "progressDeadlineSeconds": endpoint.deploy_timeout_seconds or deploy_timeout_seconds(endpoint.model.shape),
            "template": pod,
        },
    }


def disruption_budget(endpoint: Endpoint, role_name: str, site: Site) -> dict[str, Any]:  # noqa: ARG001
    """One pod of a role at a time leaves its node when somebody drains it. One that does not serve keeps no node from its repair."""
    names = LlmdNames.of(endpoint)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(names, role_name),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": names.role_labels(role_name)},
        },
    }


def _account(names: LlmdNames) -> dict[str, Any]:
    """Workers call no API of the cluster, and their account has no rights and no token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": names.service_account, "namespace": names.namespace, "labels": names.labels()},
        "automountServiceAccountToken": False,
    }


def _metadata(names: LlmdNames, role_name: str) -> dict[str, Any]:
    return {"name": names.workload(role_name), "namespace": names.namespace, "labels": names.labels(role_name)}
