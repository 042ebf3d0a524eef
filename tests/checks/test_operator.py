"""Rules of the operator: the smallest wrong input, and the nearest right one."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.support import findings

KV_IMAGE = {"repository": "example.com/vllm", "tag": "1", "lmcache": "0.4.3", "vllm": "0.19.1", "nixl": "1.0.0"}
ARN = "arn:aws:acm:us-east-2:111122223333:certificate/12345678-1234-1234-1234-123456789012"
WORKSPACE = "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1"
CLOUDWATCH = {"namespace": "AWS/SageMaker", "metric": "Invocations", "target": 10}
SCALED = {"min_replicas": 1, "max_replicas": 1, "cloudwatch": [CLOUDWATCH]}
SECOND = {
    "name": "other", "namespace": "tenant", "backend": "operator",
    "model": {"catalog": "llama-3.3-70b-instruct", "source": {"s3": {"prefix": "a/"}}, "max_model_len": 16384},
    "prefill": {"group": "prefill", "replicas": 1, "tensor_parallel": 8},
    "decode": {"group": "decode", "replicas": 1, "tensor_parallel": 8},
    "routing": {"threshold_tokens": 4096, "strategy": "prefix_aware"}, "objectives": {"ttft_p99_ms": 2000, "itl_p99_ms": 50},
    "kv": {"buffer_gib": 8, "cpu_tier": True, "shared_tier": "tiered_storage"},
}  # fmt: skip
E = "endpoints[0]."
HUGE_PAGES = {"hugepages-2Mi": "5120Mi"}
BEHIND_THE_CHECKS: dict[str, dict[str, Any]] = {
    "endpointName": {"endpointName": "other"},
    "instanceType": {"instanceType": "ml.g5.xlarge"},
    "invocationEndpoint": {"invocationEndpoint": "v1/embeddings"},
    "modelSourceConfig.s3Storage": {"modelSourceConfig": {"s3Storage": {"bucketName": "other"}}},
    "loadBalancer.healthCheckPath": {"loadBalancer": {"healthCheckPath": "/ping"}},
    "kvCacheSpec.enableL1Cache": {"kvCacheSpec": {"enableL1Cache": False}},
    "kvCacheSpec.l2CacheSpec": {"kvCacheSpec": {"l2CacheSpec": {"l2CacheBackend": "redis", "l2CacheLocalUrl": "redis://a:1"}}},
    "kvCacheSpec.cacheConfigFile": {"kvCacheSpec": {"cacheConfigFile": "/tmp/lmcache.yaml"}},
    "intelligentRoutingSpec.enabled": {"intelligentRoutingSpec": {"enabled": False}},
    "intelligentRoutingSpec.routingStrategy": {"intelligentRoutingSpec": {"routingStrategy": "kvaware"}},
    "replicas": {"replicas": 0},
    "autoScalingSpec": {"autoScalingSpec": {"maxReplicaCount": 100}},
    "pdSpec.routingThreshold": {"pdSpec": {"routingThreshold": 2147483647}},
    "pdSpec.topologySpec.sameAZ": {"pdSpec": {"topologySpec": {"sameAZ": False}}},
    "pdSpec.topologySpec.availabilityZone": {"pdSpec": {"topologySpec": {"availabilityZone": "us-east-2b"}}},
    "pdSpec.autoScalingSpec.prefillAutoScaling": {"pdSpec": {"autoScalingSpec": {"prefillAutoScaling": {"pollingInterval": 15}}}},
    "pdSpec.autoScalingSpec.decodingAutoScaling": {"pdSpec": {"autoScalingSpec": {"decodingAutoScaling": {"maxReplicaCount": 1000}}}},
    "pdSpec.prefillSpec.replicas": {"pdSpec": {"prefillSpec": {"replicas": 9}}},
    "pdSpec.decodingSpec.args": {"pdSpec": {"decodingSpec": {"args": ["--api-key", "x"]}}},
    "pdSpec.decodingSpec.nodeSelector": {"pdSpec": {"decodingSpec": {"nodeSelector": {"topology.kubernetes.io/zone": "us-east-2b"}}}},
    "pdSpec.decodingSpec.resources.limits.memory": {"pdSpec": {"decodingSpec": {"resources": {"limits": {"memory": "1Gi"}}}}},
    "pdSpec.decodingSpec.resources.limits.vpc.amazonaws.com/efa": {
        "pdSpec": {"decodingSpec": {"resources": {"limits": {"vpc.amazonaws.com/efa": "0"}}}}
    },
    "worker.image": {"worker": {"image": "example.com/vllm:latest"}},
    "worker.command": {"worker": {"command": ["sleep", "infinity"]}},
    "worker.args": {"worker": {"args": []}},
    "worker.environmentVariables": {"worker": {"environmentVariables": []}},
    "tlsConfig.tlsCertificateOutputS3Uri": {"tlsConfig": {"tlsCertificateOutputS3Uri": "s3://other"}},
    "maxDeployTimeInSeconds": {"maxDeployTimeInSeconds": 60},
    "tags": {"tags": []},
}
"""Legal raw fields that make another system than the one that was checked, by the place that is named."""

WRONG: list[tuple[str, dict[str, Any], str, Level]] = [
    ("OPR001", {E + "routing.strategy": "kv_aware"}, E + "routing.strategy", Level.ERROR),
    ("OPR002", {E + "routing.strategy": "kv_aware"}, E + "routing.strategy", Level.ERROR),
    ("OPR002", {E + "routing.strategy": "kv_aware", E + "image": KV_IMAGE | {"lmcache": "0.4.2"}}, E + "routing.strategy", Level.ERROR),
    ("OPR002", {E + "routing.strategy": "kv_aware", E + "image": KV_IMAGE | {"vllm": "0.11.1"}}, E + "routing.strategy", Level.ERROR),
    ("OPR003", {E + "routing.inference_gateway": True}, E + "routing.inference_gateway", Level.ERROR),
    ("OPR003", {E + "raw.spec": {"inferenceGateway": {"enabled": True}}}, E + "raw.spec.inferenceGateway.enabled", Level.ERROR),
    ("OPR004", {E + "decode.replicas": 2}, E + "decode.replicas", Level.WARNING),
    ("OPR004", {E + "decode.autoscaling": SCALED | {"max_replicas": 2}}, E + "decode.autoscaling.max_replicas", Level.WARNING),
    ("OPR005", {E + "prefill.replicas": 2}, E + "routing.strategy", Level.INFO),
    ("OPR005", {E + "prefill.autoscaling": SCALED | {"max_replicas": 2}}, E + "routing.strategy", Level.INFO),
    ("OPR006", {E + "raw.spec": {"loadBalncer": {}}}, E + "raw.spec.loadBalncer", Level.ERROR),
    ("OPR006", {E + "raw.spec": {"pdSpec": {"prefillSpec": {"env": []}}}}, E + "raw.spec.pdSpec.prefillSpec.env", Level.ERROR),
    ("OPR006", {E + "raw.spec": {"tolerations": []}}, E + "raw.spec.tolerations", Level.ERROR),
    ("OPR006", {E + "raw.unknown_fields_reason": "the preview add-on"}, E + "raw.unknown_fields_reason", Level.WARNING),
    (
        "OPR006",
        {E + "raw": {"spec": {"loadBalancer": {"idleTimeoutSeconds": 9}}, "unknown_fields_reason": "x"}},
        E + "raw.unknown_fields_reason", Level.WARNING,
    ),
    ("OPR007", {E + "raw.spec": {"loadBalancer": {"idleTimeoutSeconds": 0}}}, E + "raw.spec.loadBalancer.idleTimeoutSeconds", Level.ERROR),
    ("OPR007", {E + "raw.spec": {"pdSpec": {"prefillSpec": {"replicas": 0}}}}, E + "raw.spec.pdSpec.prefillSpec.replicas", Level.ERROR),
    ("OPR007", {E + "raw.spec": {"nodeAffinity": {}}}, E + "raw.spec", Level.ERROR),
    ("OPR007", {E + "raw.spec": {"kvCacheSpec": {"enableL2Cache": True}}}, E + "raw.spec.kvCacheSpec", Level.ERROR),
    ("OPR007", {E + "raw.spec": {"worker": None}}, E + "raw.spec", Level.ERROR),
    ("OPR008", {E + "raw.spec": {"metrics": {"enabled": False}}}, E + "raw.spec.metrics.enabled", Level.WARNING),
    *(("OPR008", {E + "raw.spec": spec}, f"{E}raw.spec.{place}", Level.ERROR) for place, spec in BEHIND_THE_CHECKS.items()),
    ("OPR009", {E + "decode.autoscaling": SCALED | {"min_replicas": 0}}, E + "decode.autoscaling.min_replicas", Level.ERROR),
    ("OPR009", {E + "prefill.autoscaling": SCALED | {"min_replicas": 0}}, E + "prefill.autoscaling.min_replicas", Level.WARNING),
    ("OPR009", {E + "prefill.autoscaling": {"min_replicas": 1, "max_replicas": 1}}, E + "prefill.autoscaling", Level.ERROR),
    ("OPR009", {E + "prefill.autoscaling": SCALED | {"min_replicas": 2}}, E + "prefill.autoscaling.min_replicas", Level.ERROR),
    ("OPR009", {E + "prefill.autoscaling": SCALED | {"min_replicas": 2, "max_replicas": 3}}, E + "prefill.replicas", Level.WARNING),
    ("OPR015", {E + "deploy_timeout_seconds": 60}, E + "deploy_timeout_seconds", Level.WARNING),
    (
        "OPR010",
        {E + "prefill.autoscaling": SCALED | {"cloudwatch": [CLOUDWATCH | {"period_seconds": 45}]}},
        E + "prefill.autoscaling.cloudwatch[0].period_seconds", Level.ERROR,
    ),
    (
        "OPR011",
        {
            E + "prefill.autoscaling": {
                "min_replicas": 1, "max_replicas": 1,
                "prometheus": [{"workspace_url": WORKSPACE.replace("us-east-2", "us-west-2"), "query": "up", "target": 1}],
            }
        },
        E + "prefill.autoscaling.prometheus[0].workspace_url", Level.WARNING,
    ),
    (
        "OPR012",
        {E + "exposure.certificate": {"acm_arn": ARN.replace("us-east-2", "us-east-1"), "domain_name": "a.example.com"}},
        E + "exposure.certificate.acm_arn", Level.ERROR,
    ),
    (
        "OPR012",
        {E + "exposure.certificate": {"acm_arn": ARN.replace("1111", "9999"), "domain_name": "a.example.com"}},
        E + "exposure.certificate.acm_arn", Level.ERROR,
    ),
    ("OPR013", {E + "kv.shared_tier": "tiered_storage", "endpoints[1]": SECOND}, E + "kv.shared_tier", Level.WARNING),
    ("OPR013", {E + "kv.shared_tier": "redis://cache:6379"}, E + "kv.shared_tier", Level.WARNING),
    ("OPR014", {E + "decode.max_surge": 1, "cluster.groups.decode.count": 2}, E + "decode.max_surge", Level.WARNING),
]  # fmt: skip

RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("OPR001", {E + "routing.strategy": "kv_aware", E + "routing.api": "completions"}),
    ("OPR001", {E + "routing.strategy": "session"}),
    ("OPR002", {E + "routing.strategy": "kv_aware", E + "image": KV_IMAGE}),
    ("OPR002", {E + "routing.strategy": "kv_aware", E + "image": KV_IMAGE | {"vllm": "0.11.1", "lmcache": "0.3.9"}}),
    ("OPR003", {E + "raw": {"spec": {"inferenceGateway": {"enabled": False}}, "unknown_fields_reason": "operator 3.6"}}),
    ("OPR004", {E + "prefill.replicas": 2}),
    ("OPR014", {E + "decode.max_surge": 0}),
    ("OPR004", {E + "decode.autoscaling": SCALED}),
    ("OPR005", {E + "prefill.replicas": 2, E + "routing.strategy": "round_robin"}),
    ("OPR006", {E + "raw.spec": {"loadBalancer": {"routingAlgorithm": "round_robin"}}}),
    ("OPR006", {E + "raw": {"spec": {"tolerations": []}, "unknown_fields_reason": "operator 3.7 is installed"}}),
    ("OPR007", {E + "raw.spec": {"loadBalancer": {"idleTimeoutSeconds": 4000}}}),
    ("OPR007", {E + "raw.spec": {"dataCapture": {"s3Uri": "s3://bucket/x", "modelPod": {"enabled": True}}}}),
    ("OPR008", {E + "raw.spec": {"loadBalancer": {"idleTimeoutSeconds": 600}, "pdSpec": {"routingThreshold": 4096}}}),
    ("OPR008", {E + "raw.spec": {"worker": {"requestLimits": {"maxConcurrentRequests": 64}}}}),
    ("OPR008", {E + "raw.spec": {"modelSourceConfig": {"prefetchEnabled": True}}}),
    ("OPR008", {E + "raw.spec": {"pdSpec": {"prefillSpec": {"resources": {"requests": HUGE_PAGES, "limits": HUGE_PAGES}}}}}),
    (
        "OPR008",
        {
            E + "prefill.autoscaling": SCALED,
            E + "raw.spec": {"pdSpec": {"autoScalingSpec": {"prefillAutoScaling": {"pollingInterval": 15}}}},
        },
    ),
    ("OPR009", {E + "prefill.autoscaling": SCALED}),
    ("OPR015", {E + "deploy_timeout_seconds": 1800}),
    ("OPR010", {E + "prefill.autoscaling": SCALED | {"cloudwatch": [CLOUDWATCH | {"period_seconds": 30}]}}),
    ("OPR010", {E + "prefill.autoscaling": SCALED | {"cloudwatch": [CLOUDWATCH | {"period_seconds": 120}]}}),
    (
        "OPR011",
        {
            E + "prefill.autoscaling": {
                "min_replicas": 1, "max_replicas": 1, "prometheus": [{"workspace_url": WORKSPACE, "query": "up", "target": 1}],
            }
        },
    ),
    ("OPR012", {E + "exposure.certificate": {"acm_arn": ARN, "domain_name": "a.example.com"}}),
    ("OPR013", {E + "kv.shared_tier": "tiered_storage"}),
    ("OPR013", {E + "kv.shared_tier": "tiered_storage", "endpoints[1]": SECOND | {"namespace": "inference"}}),
    ("OPR013", {E + "kv.shared_tier": "rediss://cache:6379"}),
]  # fmt: skip


@pytest.mark.parametrize(("id", "changes", "path", "level"), WRONG)
def test_wrong(id: str, changes: dict[str, Any], path: str, level: Level) -> None:
    found = {(finding.path, finding.level): finding for finding in findings(changes, id=id)}
    assert (path, level) in found
    assert found[path, level].fix


@pytest.mark.parametrize(("id", "changes"), RIGHT)
def test_right(id: str, changes: dict[str, Any]) -> None:
    assert findings(changes, id=id) == []


def test_raw_fields_of_an_endpoint_that_cannot_be_built_are_left_to_other_rules() -> None:
    changes = {E + "raw.spec": {"worker": {"image": "x"}}, E + "decode.group": "nowhere"}
    found = findings(changes)
    assert not [finding for finding in found if finding.id.startswith(("OPR", "MAN"))]
    assert [finding for finding in found if finding.path.endswith("decode.group") and finding.stops]


def test_younger_fields_name_their_operator() -> None:
    (found,) = findings({E + "raw.spec": {"tolerations": []}}, id="OPR006")
    assert "operator 3.7" in found.message


def test_both_of_awss_statements_are_told() -> None:
    (found,) = findings({E + "decode.replicas": 2}, id="OPR004")
    assert "contradict" in found.message
    assert "one" in found.message
    assert "tuning" in found.message
