"""How the replicas of a role follow the load: KEDA's objects, for each role of its own."""

from typing import Any, Final

from dpd.backends.llmd.disaggregated_set import API_VERSION as SET_VERSION
from dpd.backends.scaling import Signal, signals
from dpd.backends.site import Site
from dpd.environment.endpoint import Autoscaling, CloudWatchTrigger, Endpoint, PrometheusTrigger, is_workspace
from dpd.environment.names import LlmdNames
from dpd.scaling.policy import DOWN_PODS, UP_PERIOD_SECONDS, UP_PODS, down_period_seconds, down_window_seconds

_KEDA: Final = "keda.sh/v1alpha1"
_NO_ANSWER: Final = {"ignoreNullValues": "false"}
"""No answer is no reason to scale in: KEDA's default takes an empty result for a load of 0."""
Body = dict[str, Any]


def objects(endpoint: Endpoint, site: Site) -> tuple[Body, ...]:
    """A ScaledObject for each role that scales, and how KEDA asks AWS: as itself, with the role that the stacks give it."""
    scaled = [(name, role.autoscaling) for name, role in endpoint.roles if role.autoscaling]
    if not scaled:
        return ()
    names = LlmdNames.of(endpoint)
    identity = _object("TriggerAuthentication", names.scaling_identity, names, {"podIdentity": {"provider": "aws"}})
    return (identity, *(_scaled(endpoint, name, scaling, site) for name, scaling in scaled))


def _scaled(endpoint: Endpoint, role_name: str, scaling: Autoscaling, site: Site) -> Body:
    names = LlmdNames.of(endpoint)
    triggers = [
        *(_trigger("aws-cloudwatch", _cloudwatch(trigger), names, site) for trigger in scaling.cloudwatch),
        *(_trigger("prometheus", _prometheus(trigger), names, site) for trigger in scaling.prometheus),
        *(_token_trigger(signal, scaling, names, site) for signal in signals(endpoint, role_name, site)),
    ]
    window = down_window_seconds(endpoint, scaling)
    behavior = {
        "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [_pods(UP_PODS, UP_PERIOD_SECONDS)]},
        # A decoder holds answers that are being written, a prefiller KV that nobody has fetched: they go one at a time.
        "scaleDown": {"stabilizationWindowSeconds": window, "policies": [_pods(DOWN_PODS, down_period_seconds(window))]},
    }
    spec = {
        "scaleTargetRef": _target(endpoint, role_name),
        "minReplicaCount": scaling.min_replicas,
        "maxReplicaCount": scaling.max_replicas,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
        "triggers": triggers,
    }
    return _object("ScaledObject", names.workload(role_name), names, spec)


def _target(endpoint: Endpoint, role_name: str) -> Body:
    """What has the number of replicas: the role's own object, or the scaler that a set makes for a role that is scaled from outside."""
    names, role = LlmdNames.of(endpoint), dict(endpoint.roles)[role_name]
    if endpoint.workload == "disaggregated_set":
        return {"apiVersion": SET_VERSION, "kind": "DisaggregatedSetRoleScaler", "name": f"{names.workload_set}-{role_name}"}
    if role.expert_parallel:
        return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": names.workload(role_name)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": names.workload(role_name)}


def _pods(count: int, period_seconds: int) -> Body:
    return {"type": "Pods", "value": count, "periodSeconds": period_seconds}


def _token_trigger(signal: Signal, scaling: Autoscaling, names: LlmdNames, site: Site) -> Body:
    """A signal of the policy. Only AWS's own Prometheus is asked as a role of AWS."""
    assert scaling.tokens is not None
    address = scaling.tokens.prometheus
    asked = {"serverAddress": address, "query": signal.query, "threshold": f"{signal.target:g}", **_NO_ANSWER}
    if is_workspace(address):
        return {"name": signal.name, **_trigger("prometheus", asked, names, site), "metricType": "AverageValue"}
    return {"name": signal.name, "type": "prometheus", "metadata": asked, "metricType": "AverageValue"}


def _trigger(kind: str, metadata: dict[str, str], names: LlmdNames, site: Site) -> Body:
    return {
        "type": kind,
        "metadata": {**metadata, "awsRegion": site.region},
        "authenticationRef": {"name": names.scaling_identity},
    }


def _cloudwatch(trigger: CloudWatchTrigger) -> dict[str, str]:
    """KEDA's words are text. It looks back at least one period: with less it finds no data point (derived from its documentation)."""
    dimensions = sorted(trigger.dimensions.items())
    return {
        "namespace": trigger.namespace,
        "metricName": trigger.metric,
        **(
            {"dimensionName": ";".join(name for name, _ in dimensions), "dimensionValue": ";".join(value for _, value in dimensions)}
            if dimensions
            else {}
        ),
        "targetMetricValue": f"{trigger.target:g}",
        "minMetricValue": "0",
        "metricStat": trigger.statistic,
        "metricStatPeriod": str(trigger.period_seconds),
        "metricCollectionTime": str(max(300, trigger.period_seconds)),
    }


def _prometheus(trigger: PrometheusTrigger) -> dict[str, str]:
    return {"serverAddress": trigger.workspace_url, "query": trigger.query, "threshold": f"{trigger.target:g}", **_NO_ANSWER}


def _object(kind: str, name: str, names: LlmdNames, spec: Body) -> Body:
    return {
        "apiVersion": _KEDA,
        "kind": kind,
        "metadata": {"name": name, "namespace": names.namespace, "labels": names.labels()},
        "spec": spec,
    }
