"""Both roles as one DisaggregatedSet of LeaderWorkerSet 0.10: they are rolled out together, and scale apart."""

from collections.abc import Mapping
from typing import Any

from dpd.backends.llmd.rollout import rolling
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.names import LlmdNames

API_VERSION = "disaggregatedset.x-k8s.io/v1"
KIND = "DisaggregatedSet"


def disaggregated_set(endpoint: Endpoint, specs: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The set, of the ``spec`` of a LeaderWorkerSet for each role.

    One slice: the router pairs any prefiller with any decoder of the pool, so slices would not be what they promise.
    ``groupIdentity``, which newer guides set, is not in the schema of 0.10 and would be dropped without a word
    (https://github.com/kubernetes-sigs/lws/tree/v0.10.0/config/crd/bases).
    """
    names = LlmdNames.of(endpoint)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": names.workload_set, "namespace": endpoint.namespace, "labels": names.labels()},
        "spec": {"slices": 1, "roles": [_role(name, role, specs[name]) for name, role in endpoint.roles]},
    }


def _role(name: str, role: Role, spec: dict[str, Any]) -> dict[str, Any]:
    """A role. One that is scaled from outside gets an object of its own for that, and keeps no number here."""
    if role.autoscaling is None:
        return {"name": name, "spec": spec}
    return {"name": name, "scaling": {"mode": "External"}, "spec": {key: value for key, value in spec.items() if key != "replicas"}}


def single_pods(role: Role, template: dict[str, Any]) -> dict[str, Any]:
    """The ``spec`` of a LeaderWorkerSet whose groups are single pods.

    A server that ends is restarted in its place: by default its whole pod would be made anew, and wait for its node again.
    """
    return {
        "replicas": role.replicas,
        "leaderWorkerTemplate": {"size": 1, "restartPolicy": "None", "workerTemplate": template},
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rolling(role)},
    }
