"""The InferenceEndpointConfig, against AWS's example and option by option."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.backends.operator.build import build, merged
from dpd.backends.operator.resource import faults
from dpd.backends.site import Site
from dpd.environment.names import sagemaker_model_name
from tests.support import REMOVE, environment

# The manifest of https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html, field by field.
GPUS = {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}
AWS_EXAMPLE: dict[str, Any] = {
    "apiVersion": "inference.sagemaker.aws.amazon.com/v1",
    "kind": "InferenceEndpointConfig",
    "metadata": {"name": "dpd-test", "namespace": "default"},
    "spec": {
        "endpointName": "dpd-test",
        "instanceType": "ml.p5.48xlarge",
        "invocationEndpoint": "v1/chat/completions",
        "modelName": "Llama-3.3-70B-Instruct",
        "modelSourceConfig": {
            "modelSourceType": "s3",
            "modelLocation": "Llama-3.3-70B-Instruct",
            "s3Storage": {"bucketName": "amzn-weights", "region": "us-east-2"},
        },
        "loadBalancer": {"healthCheckPath": "/health"},
        "metrics": {"enabled": True},
        "kvCacheSpec": {"enableL1Cache": True},
        "intelligentRoutingSpec": {"enabled": True, "routingStrategy": "prefixaware"},
        "pdSpec": {
            "prefillSpec": {"replicas": 1, "resources": GPUS},
            "decodingSpec": {"replicas": 1, "resources": GPUS},
            "routingThreshold": 4096,
        },
        "worker": {
            "image": "public.ecr.aws/deep-learning-containers/vllm:server-hyperpod-cuda-v1.1",
            "args": [
                "--model", "/opt/ml/model", "--host", "0.0.0.0", "--port", "8000", "--tensor-parallel-size", "8",
                "--max-model-len", "16384", "--gpu-memory-utilization", "0.75",
            ],
            "modelInvocationPort": {"containerPort": 8000, "name": "http"},
            "modelVolumeMount": {"name": "model-weights", "mountPath": "/opt/ml/model"},
            "resources": {
                "requests": {"cpu": "96", "memory": "1024Gi", "nvidia.com/gpu": "8"},
                "limits": {"cpu": "96", "memory": "1024Gi", "nvidia.com/gpu": "8"},
            },
            "environmentVariables": [
                {"name": "HF_HOME", "value": "/tmp/hf_home"},
                {"name": "PD_BUFFER_SIZE", "value": "8589934592"},
                {"name": "LMCACHE_SAVE_DECODE_CACHE", "value": "False"},
                {"name": "PYTHONHASHSEED", "value": "0"},
            ],
        },
    },
}  # fmt: skip

AS_IN_THE_EXAMPLE = {
    "storage.models.bucket": {"existing": "amzn-weights", "region": "us-east-2"},
    "endpoints[0].name": "dpd-test",
    "endpoints[0].namespace": "default",
    "endpoints[0].model.served_name": "Llama-3.3-70B-Instruct",
    "endpoints[0].exposure": {"sagemaker_endpoint": "dpd-test"},
    **{f"endpoints[0].{role}.{field}": value for role in ("prefill", "decode") for field, value in (("cpus", 96), ("memory_gib", 1024))},
}

DIFFERENCES: dict[str, tuple[Any, Any]] = {
    # The schema's pattern lacks its end, so dots pass it; SageMaker refuses them in a model name.
    "spec.modelName": ("Llama-3.3-70B-Instruct", "Llama-3-3-70B-Instruct"),
    "metadata.labels": (
        None,
        {"app.kubernetes.io/name": "dpd-test", "app.kubernetes.io/part-of": "default", "app.kubernetes.io/managed-by": "hyperpod-dpd"},
    ),
    # Without a port the operator scrapes 8080, where nothing listens.
    "spec.metrics.modelMetrics": (None, {"path": "/metrics", "port": 8000}),
    # Written out, since operator 3.2 ignored an absent or false value in one case.
    "spec.kvCacheSpec.enableL2Cache": (None, False),
    # The schema's default, written out so that the file says it.
    "spec.pdSpec.topologySpec": (None, {"sameAZ": True}),
    "spec.maxDeployTimeInSeconds": (None, 3600),
    "spec.tags": (
        None,
        [
            {"name": "app", "value": "llama-dpd"}, {"name": "cost-center", "value": "4711"},
            {"name": "environment", "value": "dev"}, {"name": "owner", "value": "ml-platform"},
        ],
    ),
    # Clients call the model by a name, not by its path in the container.
    "spec.worker.args": (
        AWS_EXAMPLE["spec"]["worker"]["args"],
        [
            "--model", "/opt/ml/model", "--served-model-name", "Llama-3.3-70B-Instruct", "--host", "0.0.0.0", "--port", "8000",
            "--tensor-parallel-size", "8", "--max-model-len", "16384", "--gpu-memory-utilization", "0.75",
        ],
    ),
    # AWS's tuning table: 16 for prefillers, 32 for decoders.
    "spec.pdSpec.prefillSpec.args": (None, ["--max-num-seqs", "16"]),
    "spec.pdSpec.decodingSpec.args": (None, ["--max-num-seqs", "32"]),
    "spec.pdSpec.prefillSpec.nodeSelector": (None, {"sagemaker.amazonaws.com/instance-group-name": "prefill"}),
    "spec.pdSpec.decodingSpec.nodeSelector": (None, {"sagemaker.amazonaws.com/instance-group-name": "decode"}),
    # Resources under worker do nothing with pdSpec, so CPUs and memory stand in the roles; EFA devices in both.
    **{
        f"spec.{block}.resources.{kind}": (
            AWS_EXAMPLE["spec"]["worker"]["resources"][kind] if block == "worker" else GPUS[kind],
            {"cpu": "96", "memory": "1024Gi", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"},
        )
        for block in ("worker", "pdSpec.prefillSpec", "pdSpec.decodingSpec")
        for kind in ("requests", "limits")
    },
    # LMCache's CPU tier as stated, NCCL off Pod Identity's link, libfabric on EFA or not at all.
    "spec.worker.environmentVariables": (
        AWS_EXAMPLE["spec"]["worker"]["environmentVariables"],
        [
            *AWS_EXAMPLE["spec"]["worker"]["environmentVariables"],
            {"name": "LMCACHE_MAX_LOCAL_CPU_SIZE", "value": "5"},
            {"name": "NCCL_SOCKET_IFNAME", "value": "^lo,docker,veth,pod-id-link"},
            {"name": "FI_PROVIDER", "value": "efa"},
            {"name": "FI_EFA_USE_DEVICE_RDMA", "value": "1"},
        ],
    ),
    # The weights may take their time; a server that says nothing for a minute may not.
    "spec.worker.probes": (
        None,
        {
            "startupProbe": {
                "httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 90,
            },
            "readinessProbe": {
                "httpGet": {"path": "/v1/models", "port": 8000}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3,
            },
            "livenessProbe": {
                "httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6,
            },
        },
    ),
}  # fmt: skip


def differences(aws: Any, ours: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    if isinstance(aws, dict) and isinstance(ours, dict):
        if path in DIFFERENCES or path.endswith((".requests", ".limits")):
            return {} if aws == ours else {path: (aws, ours)}
        return {
            place: pair
            for key in aws.keys() | ours.keys()
            for place, pair in differences(aws.get(key), ours.get(key), f"{path}.{key}" if path else key).items()
        }
    return {} if aws == ours else {path: (aws, ours)}


def object_of(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    made = environment(changes)
    return build(made.endpoints[0], Site.of(made))


def spec_of(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    spec = object_of(changes)["spec"]
    assert isinstance(spec, dict)
    assert faults(spec) == []
    return spec


def test_awss_example_comes_out_but_for_stated_differences() -> None:
    assert differences(AWS_EXAMPLE, object_of(AS_IN_THE_EXAMPLE)) == DIFFERENCES


SOURCES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]] = [
    (
        {"lustre": {"path": "/checkpoints/llama"}},
        {
            "modelSourceType": "fsx", "modelLocation": "checkpoints/llama",
            "fsxStorage": {
                "fileSystemId": "${LUSTRE_FILE_SYSTEM_ID}", "dnsName": "${LUSTRE_DNS_NAME}", "mountName": "${LUSTRE_MOUNT_NAME}",
            },
        },
        None,
    ),
    (
        {"hub": {"model_id": "meta-llama/Llama-3.3-70B-Instruct", "revision": "a" * 40, "token": {"secret": "hub", "key": "token"}}},
        {
            "modelSourceType": "huggingface",
            "huggingFaceModel": {
                "modelId": "meta-llama/Llama-3.3-70B-Instruct", "commitSHA": "a" * 40, "tokenSecretRef": {"name": "hub", "key": "token"},
            },
        },
        None,
    ),
    (
        {"hub": {"model_id": "Qwen/Qwen3-8B", "revision": "b" * 40}},
        {"modelSourceType": "huggingface", "huggingFaceModel": {"modelId": "Qwen/Qwen3-8B", "commitSHA": "b" * 40}},
        None,
    ),
    (
        {"volume": {"claim": "weights"}},
        {"modelSourceType": "kubernetesVolume"},
        {"volumes": [{"name": "model-weights", "persistentVolumeClaim": {"claimName": "weights"}}]},
    ),
    (
        {"volume": {"host_path": "/opt/dlami/nvme/llama"}},
        {"modelSourceType": "kubernetesVolume"},
        {"volumes": [{"name": "model-weights", "hostPath": {"path": "/opt/dlami/nvme/llama", "type": "Directory"}}]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "config", "kubernetes"), SOURCES)
def test_sources(source: dict[str, Any], config: dict[str, Any], kubernetes: dict[str, Any] | None) -> None:
    spec = spec_of({"endpoints[0].model.source": source})
    assert spec["modelSourceConfig"] == config
    assert spec.get("kubernetes") == kubernetes


def test_lustre_source_needs_lustre() -> None:
    with pytest.raises(ValueError, match="the environment has none"):
        object_of({"endpoints[0].model.source": {"lustre": {"path": "/a"}}, "storage.lustre": REMOVE})


CLOUDWATCH = {
    "namespace": "AWS/SageMaker",
    "metric": "Invocations",
    "target": 10,
    "period_seconds": 600,
    "dimensions": {"EndpointName": "x"},
}
PROMETHEUS = {"workspace_url": "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1", "query": "up", "target": 2.5}
SCALED = {"min_replicas": 1, "max_replicas": 3, "cloudwatch": [CLOUDWATCH], "prometheus": [PROMETHEUS]}


def test_autoscaling_of_each_role() -> None:
    scaling = spec_of({"endpoints[0].prefill.autoscaling": SCALED})["pdSpec"]["autoScalingSpec"]
    assert scaling == {
        "prefillAutoScaling": {
            "minReplicaCount": 1,
            "maxReplicaCount": 3,
            "scaleDownStabilizationTime": 900,
            "cloudWatchTriggerList": [
                {
                    "name": "cloudwatch-0", "namespace": "AWS/SageMaker", "metricName": "Invocations", "targetValue": 10.0,
                    "metricStat": "Average", "metricCollectionPeriod": 600, "metricCollectionStartTime": 600,
                    "dimensions": [{"name": "EndpointName", "value": "x"}],
                }
            ],
            "prometheusTriggerList": [
                {
                    "name": "prometheus-0", "serverAddress": PROMETHEUS["workspace_url"], "query": "up", "targetValue": 2.5,
                }
            ],
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        ("none", {"enableL1Cache": True, "enableL2Cache": False}),
        ("tiered_storage", {"enableL1Cache": True, "enableL2Cache": True, "l2CacheSpec": {"l2CacheBackend": "tieredstorage"}}),
        (
            "rediss://cache:6379",
            {
                "enableL1Cache": True, "enableL2Cache": True,
                "l2CacheSpec": {"l2CacheBackend": "redis", "l2CacheLocalUrl": "rediss://cache:6379"},
            },
        ),
    ],
)  # fmt: skip
def test_kv_tiers(tier: str, expected: dict[str, Any]) -> None:
    assert spec_of({"endpoints[0].kv.shared_tier": tier})["kvCacheSpec"] == expected


def test_certificate_and_zone() -> None:
    arn = "arn:aws:acm:us-east-2:111122223333:certificate/12345678-1234-1234-1234-123456789012"
    spec = spec_of({"endpoints[0].exposure": {"certificate": {"acm_arn": arn, "domain_name": "llm.example.com", "hosted_zone_id": "Z1"}}})
    assert spec["tlsConfig"] == {"customCertificateConfig": {"acmArn": arn, "domainName": "llm.example.com"}}
    assert spec["dnsConfig"] == {"hostedZoneId": "Z1"}


def test_no_sagemaker_endpoint_unless_asked_for() -> None:
    assert "endpointName" not in spec_of()


def test_two_instance_types_are_listed() -> None:
    spec = spec_of({"cluster.groups.decode.instance_type": "ml.p5e.48xlarge"})
    assert "instanceType" not in spec
    assert spec["instanceTypes"] == ["ml.p5.48xlarge", "ml.p5e.48xlarge"]


@pytest.mark.parametrize("strategy", ["prefix_aware", "kv_aware", "session", "round_robin"])
@pytest.mark.parametrize(("api", "path"), [("chat_completions", "v1/chat/completions"), ("completions", "v1/completions")])
def test_routing(strategy: str, api: str, path: str) -> None:
    spec = spec_of({"endpoints[0].routing": {"threshold_tokens": 0, "strategy": strategy, "api": api}})
    assert spec["invocationEndpoint"] == path
    assert spec["intelligentRoutingSpec"] == {"enabled": True, "routingStrategy": strategy.replace("_", "")}
    assert spec["pdSpec"]["routingThreshold"] == 0


def test_no_efa_request_when_the_knob_is_zero() -> None:
    resources = spec_of({"endpoints[0].prefill.efa_devices": 0})["pdSpec"]["prefillSpec"]["resources"]
    assert "vpc.amazonaws.com/efa" not in resources["requests"] | resources["limits"]


def test_secrets_are_references() -> None:
    variables = spec_of({"endpoints[0].environment": {"HF_TOKEN": {"secret": "hub", "key": "token"}}})["worker"]["environmentVariables"]
    assert variables[-1] == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}


def test_readiness_asks_for_the_model_unless_a_key_hides_it() -> None:
    key = {"endpoints[0].environment": {"VLLM_API_KEY": {"secret": "vllm", "key": "api"}}}
    for changes, path in (({}, "/v1/models"), (key, "/health")):
        assert spec_of(changes)["worker"]["probes"]["readinessProbe"]["httpGet"]["path"] == path


def test_role_arguments_end_with_the_users() -> None:
    extra = ["--enforce-eager", "--seed", "7"]
    assert spec_of({"endpoints[0].prefill.extra_args": extra})["pdSpec"]["prefillSpec"]["args"] == ["--max-num-seqs", "16", *extra]


def test_raw_fields_are_merged_last() -> None:
    raw = {"loadBalancer": {"idleTimeoutSeconds": 600}, "worker": {"requestLimits": {"maxConcurrentRequests": 64}}}
    spec = spec_of({"endpoints[0].raw.spec": raw})
    assert spec["loadBalancer"] == {"healthCheckPath": "/health", "idleTimeoutSeconds": 600}
    assert spec["worker"]["requestLimits"] == {"maxConcurrentRequests": 64}
    assert spec["worker"]["image"]


def test_merge_keeps_its_inputs() -> None:
    base, extra = {"a": {"b": 1}, "l": [1]}, {"a": {"c": 2}, "l": [2]}
    assert merged(base, extra) == {"a": {"b": 1, "c": 2}, "l": [2]}
    assert base == {"a": {"b": 1}, "l": [1]}


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}", fullmatch=True))
def test_any_served_name_gives_a_legal_model_name(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", sagemaker_model_name(name))
