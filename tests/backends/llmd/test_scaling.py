"""What scales a role: KEDA's object, the target that has the replicas, and the triggers in KEDA's words."""

from pathlib import Path
from typing import Any

import pytest

from dpd.backends.llmd.build import build
from dpd.backends.llmd.scaling import objects
from dpd.backends.site import Site
from tests.backends.llmd.objects import Body, E
from tests.schemas import check
from tests.support import LLMD_EXAMPLE, environment

WORKSPACE = "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1"
CLOUDWATCH = {"namespace": "Llm", "metric": "Waiting", "target": 2.5, "period_seconds": 600, "dimensions": {"b": "2", "a": "1"}}
PROMETHEUS = {"workspace_url": WORKSPACE, "query": "sum(up)", "target": 0.8}
SCALED = {"min_replicas": 1, "max_replicas": 4, "cloudwatch": [CLOUDWATCH], "prometheus": [PROMETHEUS]}
BOTH: dict[str, Any] = {f"{E}prefill.autoscaling": SCALED, f"{E}decode.autoscaling": {**SCALED, "max_replicas": 2}}


def made(changes: dict[str, Any]) -> tuple[Body, ...]:
    known = environment(changes, example=LLMD_EXAMPLE)
    return objects(known.endpoints[0], Site.of(known))


def all_objects(changes: dict[str, Any]) -> tuple[Body, ...]:
    known = environment(changes, example=LLMD_EXAMPLE)
    return build(known.endpoints[0], Site.of(known))


def test_a_role_without_autoscaling_has_no_scaler() -> None:
    assert made({}) == ()
    assert [body["kind"] for body in made({f"{E}prefill.autoscaling": SCALED})] == ["TriggerAuthentication", "ScaledObject"]


def test_roles_scale_apart_within_their_bounds() -> None:
    _, prefill, decode = made(BOTH)
    assert (prefill["spec"]["minReplicaCount"], prefill["spec"]["maxReplicaCount"]) == (1, 4)
    assert (decode["spec"]["minReplicaCount"], decode["spec"]["maxReplicaCount"]) == (1, 2)
    assert prefill["metadata"]["name"] != decode["metadata"]["name"]
    behavior = prefill["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 900


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "Deployment"),
        ({f"{E}prefill.expert_parallel": {"nodes": 1}, f"{E}prefill.tensor_parallel": 1}, "LeaderWorkerSet"),
    ],
)
def test_the_target_is_made_beside_it_and_keeps_no_number_of_its_own(changes: dict[str, Any], kind: str) -> None:
    scaler = next(body for body in made({**BOTH, **changes}) if "prefill" in body["metadata"]["name"])
    target = scaler["spec"]["scaleTargetRef"]
    (found,) = [
        body
        for body in all_objects({**BOTH, **changes})
        if (body["kind"], body["metadata"]["name"], body["apiVersion"]) == (target["kind"], target["name"], target["apiVersion"])
    ]
    assert target["kind"] == kind
    assert "replicas" not in found["spec"]


def test_roles_of_a_set_are_scaled_through_the_set_s_own_scalers() -> None:
    changes = {**BOTH, f"{E}workload": "disaggregated_set"}
    (the_set,) = [body for body in all_objects(changes) if body["kind"] == "DisaggregatedSet"]
    targets = [body["spec"]["scaleTargetRef"] for body in made(changes)[1:]]
    assert {target["kind"] for target in targets} == {"DisaggregatedSetRoleScaler"}
    assert [target["name"] for target in targets] == [f"{the_set['metadata']['name']}-{role}" for role in ("prefill", "decode")]
    assert [role["scaling"] for role in the_set["spec"]["roles"]] == [{"mode": "External"}] * 2


def test_triggers_are_written_in_keda_s_words() -> None:
    identity, prefill, _ = made(BOTH)
    cloudwatch, prometheus = prefill["spec"]["triggers"]
    assert cloudwatch["metadata"] == {
        "namespace": "Llm",
        "metricName": "Waiting",
        "dimensionName": "a;b",
        "dimensionValue": "1;2",
        "targetMetricValue": "2.5",
        "minMetricValue": "0",
        "metricStat": "Average",
        "metricStatPeriod": "600",
        "metricCollectionTime": "600",
        "awsRegion": "us-east-2",
    }
    assert prometheus["metadata"] == {
        "serverAddress": WORKSPACE,
        "query": "sum(up)",
        "threshold": "0.8",
        "ignoreNullValues": "false",
        "awsRegion": "us-east-2",
    }
    assert identity["spec"] == {"podIdentity": {"provider": "aws"}}
    assert {trigger["authenticationRef"]["name"] for trigger in (cloudwatch, prometheus)} == {identity["metadata"]["name"]}


@pytest.mark.parametrize("workload", ["deployments", "disaggregated_set"])
def test_every_object_against_keda_s_schemas(workload: str, crds: Path) -> None:
    for body in made({**BOTH, f"{E}workload": workload}):
        check(body, crds)


CLUSTER = "http://prometheus.monitoring.svc.cluster.local:9090"
BY_TOKENS: dict[str, Any] = {
    f"{E}{role}.autoscaling": {"min_replicas": 1, "max_replicas": 3, "tokens": {"prometheus": CLUSTER}} for role in ("prefill", "decode")
}


def test_tokens_make_three_signals_for_each_role() -> None:
    _, prefill, decode = made(BY_TOKENS)
    assert [trigger["name"] for trigger in prefill["spec"]["triggers"]] == ["prefill-rate", "prefill-spread", "prefill-backlog"]
    assert [trigger["name"] for trigger in decode["spec"]["triggers"]] == ["decode-rate", "decode-kv", "decode-places"]
    assert {trigger["metricType"] for body in (prefill, decode) for trigger in body["spec"]["triggers"]} == {"AverageValue"}
    assert {trigger["metadata"]["ignoreNullValues"] for body in (prefill, decode) for trigger in body["spec"]["triggers"]} == {"false"}


def test_only_a_workspace_of_aws_is_asked_as_a_role_of_aws() -> None:
    (_, inside, _), (_, outside, _) = made(BY_TOKENS), made({**BY_TOKENS, f"{E}prefill.autoscaling.tokens.prometheus": WORKSPACE})
    assert all("authenticationRef" not in trigger and "awsRegion" not in trigger["metadata"] for trigger in inside["spec"]["triggers"])
    assert all("authenticationRef" in trigger and "awsRegion" in trigger["metadata"] for trigger in outside["spec"]["triggers"])


def test_a_pod_is_kept_for_as_long_as_another_takes_to_start_unless_the_file_says_less() -> None:
    def window(changes: dict[str, Any]) -> dict[str, Any]:
        behavior: dict[str, Any] = made({**BY_TOKENS, **changes})[1]["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        found: dict[str, Any] = behavior["scaleDown"]
        return found

    assert window({}) == {"stabilizationWindowSeconds": 900, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}]}
    said = window({f"{E}prefill.autoscaling.scale_down_stabilization_seconds": 1200})
    assert said == {"stabilizationWindowSeconds": 1200, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 400}]}


@pytest.mark.parametrize("workload", ["deployments", "disaggregated_set"])
def test_the_objects_of_the_policy_against_keda_s_schemas(workload: str, crds: Path) -> None:
    for body in made({**BY_TOKENS, f"{E}workload": workload}):
        check(body, crds)
