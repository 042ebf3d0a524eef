"""An endpoint: one model, served by a prefill role and a decode role behind a router."""

import re
from typing import Annotated, Final, Literal

from pydantic import Field

from dpd.environment.model import Model, SecretKey
from dpd.environment.types import Arn, ByShape, DnsLabel, ImageDigest, ImageRepository, Many, Part, Positive, Raw, Text, matching

SharedTier = Annotated[
    Text,
    matching(
        re.compile(
            r"none|tiered_storage|(?:rediss?|mooncake)://(?!localhost:|127\.|0\.)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
            r":(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
        ),
        "must be none, tiered_storage, or redis://host:port or mooncake://host:port with the host that all pods share",
        "redis://cache.example.internal:6379",
    ),
]
_WORKSPACE: Final = r"https://aps-workspaces\.[a-z0-9-]+\.amazonaws\.com/workspaces/ws-[A-Za-z0-9-]+"
RoutingStrategy = Literal["prefix_aware", "kv_aware", "session", "round_robin", "load"]
EnvironmentVariables = dict[
    Annotated[Text, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)],
    Annotated[Annotated[str, Field(max_length=4096)] | SecretKey, ByShape()],
]


class CloudWatchTrigger(Part):
    """A CloudWatch metric that scales a role."""

    namespace: Text
    """Metric namespace."""
    metric: Text
    """Metric name."""
    target: Annotated[float, Field(gt=0)]
    """Value per replica to hold."""
    statistic: Literal["Average", "Sum", "Maximum", "Minimum", "SampleCount"] = "Average"
    """Statistic of the metric."""
    period_seconds: Annotated[int, Field(ge=1, le=86400)] = 300
    """Period of one data point: 1, 5, 10, 30 or a multiple of 60."""
    dimensions: Annotated[dict[Text, Text], Field(max_length=30)] = {}
    """Metric dimensions."""


class PrometheusTrigger(Part):
    """A query against Amazon Managed Prometheus that scales a role."""

    workspace_url: Annotated[Text, Field(pattern=rf"^{_WORKSPACE}$")]
    """Workspace URL, with nothing after the workspace id: the operator accepts no other Prometheus."""
    query: Text
    """PromQL expression with a scalar result."""
    target: Annotated[float, Field(gt=0)]
    """Value per replica to hold."""


class TokenScaling(Part):
    """Scale a role by tokens, against what one pod does in a second: those that wait, and those that come."""

    prometheus: Annotated[
        Text,
        Field(
            pattern=r"^https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[1-9][0-9]{0,4})?(?:/[A-Za-z0-9._~/-]*[A-Za-z0-9])?$",
            max_length=512,
            examples=["http://prometheus.monitoring.svc.cluster.local:9090"],
        ),
    ]
    """Where the metrics of the engines are: a workspace of Amazon Managed Prometheus, or (`llm-d`) a Prometheus in the cluster."""
    tokens_per_second: Annotated[float, Field(gt=0, le=10_000_000)] | None = None
    """Token velocity of one pod, measured: prompt tokens that a prefiller reads, or answer tokens that a decoder writes within the
    inter-token objective. Default: an estimate for this model and GPU, which `dpd replay` prints."""
    utilization: Annotated[float, Field(ge=0.3, le=0.95)] = 0.7
    """Share of that velocity, and of a decoder's KV cache, at which a pod counts as full. The rest is for what comes while a pod starts."""
    backlog_seconds: Annotated[float, Field(gt=0, le=3600)] | None = None
    """Prefill: seconds of reading that may wait for each pod. Default: two thirds of what the TTFT objective leaves beside reading."""


class Autoscaling(Part):
    """How the replicas of a role follow the load."""

    min_replicas: Annotated[int, Field(ge=0, le=6758)]
    """Fewest replicas."""
    max_replicas: Annotated[int, Field(ge=1, le=6758)]
    """Most replicas. GPUs and addresses are reserved for them."""
    cloudwatch: Annotated[Many[CloudWatchTrigger], Field(max_length=100)] = ()
    """CloudWatch triggers."""
    prometheus: Annotated[Many[PrometheusTrigger], Field(max_length=100)] = ()
    """Prometheus triggers."""
    tokens: TokenScaling | None = None
    """Scale by tokens, with the signals of this tool's policy. Beside other triggers the one that asks for most replicas counts."""
    scale_down_stabilization_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """How long the load must be lower before a replica goes. Default: as long as a pod may take to start."""

    @property
    def triggered(self) -> bool:
        """Whether anything scales it."""
        return bool(self.cloudwatch or self.prometheus or self.tokens)

    @property
    def workspaces(self) -> tuple[str, ...]:
        """Addresses of the Amazon Managed Prometheus workspaces that its triggers ask."""
        said = [trigger.workspace_url for trigger in self.prometheus] + ([self.tokens.prometheus] if self.tokens else [])
        return tuple(url for url in said if is_workspace(url))


def is_workspace(url: str) -> bool:
    """Whether an address is that of an Amazon Managed Prometheus workspace, with nothing behind its id."""
    return re.fullmatch(_WORKSPACE, url) is not None


class ExpertParallel(Part):
    """Experts of a mixture-of-experts model spread over several nodes. Every pod of a replica then takes a whole node."""

    nodes: Annotated[int, Field(ge=1, le=64)]
    """Nodes, and pods, of one replica. Its data parallel ranks are all their GPUs over `tensor_parallel`."""
    all2all: Literal["allgather_reducescatter", "deepep_v2", "deepep_high_throughput", "deepep_low_latency"] = "allgather_reducescatter"
    """vLLM `--all2all-backend`: how tokens travel to their experts and back."""


class Role(Part):
    """The prefill or the decode side of an endpoint."""

    group: Annotated[DnsLabel, Field(examples=["prefill"])]
    """Instance group the pods run on."""
    replicas: Annotated[int, Field(ge=1, le=6758)]
    """Pods."""
    tensor_parallel: Annotated[int, Field(ge=1, le=64)]
    """GPUs per pod, and the vLLM tensor parallel size. With `expert_parallel` the size of one data parallel rank."""
    expert_parallel: ExpertParallel | None = None
    """Experts over several nodes (`llm-d`). Default: each pod is a replica of its own."""
    efa_devices: Annotated[int, Field(ge=0, le=64)] | None = None
    """EFA devices per pod. Default: the share that belongs to the pod's GPUs."""
    cpus: Annotated[int, Field(ge=1, le=448)] | None = None
    """CPUs per pod. Default: the share that belongs to the pod's GPUs, less a reserve for the node."""
    memory_gib: Annotated[int, Field(ge=1, le=32768)] | None = None
    """Memory per pod. Default: the share that belongs to the pod's GPUs, less a reserve for the node."""
    hugepages_mib: Annotated[int, Field(ge=2, le=1_048_576, multiple_of=2)] | None = None
    """2 MiB huge pages per pod for EFA's buffers (`llm-d`); the nodes must have them. AWS's amount is 5120. Default: none."""
    privileged: bool = False
    """Whether the server's container is privileged (`llm-d`). EFA asks for `IPC_LOCK` only, which it always has."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """Share of GPU memory for weights and KV cache. The decode role also holds the PD buffer, outside this share."""
    max_concurrent_sequences: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """vLLM `--max-num-seqs`. Default: 16 for prefill, 32 for decode (AWS's tuning table)."""
    max_surge: Annotated[int, Field(ge=0, le=6758)] = 0
    """Extra pods during a rolling update. More than 0 needs that many spare GPUs."""
    autoscaling: Autoscaling | None = None
    """Autoscaling of the role. Default: none."""
    extra_args: Many[Annotated[str, Field(max_length=4096)]] = ()
    """More vLLM arguments. Flags that the tool derives may not be repeated here."""
    node_selector: Annotated[dict[str, str], Field(max_length=50)] = {}
    """More node labels to select. The group is always selected."""


class Gateway(Part):
    """A Gateway in front of the endpoint's router, with a load balancer inside the VPC."""

    gateway_class: Literal["istio"] = "istio"
    """Gateway implementation, installed on the cluster when an endpoint asks for it."""
    request_timeout_seconds: Annotated[int, Field(ge=0, le=86400)] = 0
    """Longest request, with its whole answer; 0 is no limit."""
    idle_timeout_seconds: Annotated[int, Field(ge=60, le=6000)] = 900
    """How long a connection may be silent, on the load balancer as well: longer than the longest time to first token."""


class Routing(Part):
    """Which requests go through a prefiller, and to which pod."""

    threshold_tokens: Annotated[int, Field(ge=0, le=100_000_000)]
    """Estimated prompt length (characters // 4) from which a request goes through a prefiller; 0 is always."""
    threshold_counts: Literal["prompt", "non_cached"] = "prompt"
    """What is compared with the threshold: the whole prompt, or what the chosen decoder has not cached (`llm-d`)."""
    no_prefiller: Literal["fail", "fallback"] = "fail"
    """What becomes of such a request while no prefiller is ready: an error, or a decoder alone (`llm-d`)."""
    strategy: RoutingStrategy
    """How the router picks a pod; `load` looks at queues alone (`llm-d`)."""
    api: Literal["chat_completions", "completions"] = "chat_completions"
    """The OpenAI path that the endpoint is invoked on."""
    inference_gateway: bool = False
    """Whether the operator's Inference Gateway fronts the endpoint. It cannot front a disaggregated one."""
    gateway: Gateway | None = None
    """A Gateway with an InferencePool (`llm-d`). Default: a proxy beside the router, without a Gateway."""


class DiskTier(Part):
    """A tier on disk, behind GPU and CPU memory."""

    medium: Literal["nvme", "lustre"]
    """The node's instance store, or the Lustre file system that all nodes share."""
    path: Annotated[Text, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$", examples=["kv-cache"])]
    """Directory below the root of the medium."""
    capacity_gib: Annotated[int, Field(ge=1, le=1_000_000)]
    """Space for KV: per pod on `nvme`, for the endpoint on `lustre`."""


class KvCache(Part):
    """KV cache: the hand-over buffer and the tiers behind GPU memory."""

    buffer_gib: Annotated[int, Field(ge=1, le=1024)] | None = None
    """GPU memory per tensor parallel rank of a decoder in which incoming KV waits (`PD_BUFFER_SIZE`). The operator needs it; with
    `llm-d` decoders pull KV straight into their cache."""
    load_failure: Literal["fail", "recompute"] = "fail"
    """What a decoder does when KV does not arrive: fail the request, or read the prompt itself, which hides trouble. The operator's
    decoders always do the latter."""
    cpu_tier: bool
    """Whether KV that leaves the GPU is kept in the pod's CPU memory."""
    cpu_tier_gib: Annotated[int, Field(ge=1, le=4096)] = 5
    """CPU memory per tensor parallel rank for that tier; 5 is LMCache's own default."""
    shared_tier: SharedTier = "none"
    """A tier that all pods share: `tiered_storage` (HyperPod managed), or a `redis://host:port` or `mooncake://host:port` in the VPC."""
    tier_engine: Literal["native", "lmcache"] | None = None
    """What moves KV between the tiers (`llm-d`): vLLM itself (the default), or LMCache. The operator's is always LMCache."""
    disk_tier: DiskTier | None = None
    """A tier on disk (`llm-d`). Default: none."""
    eviction: Literal["lru", "arc", "lfu", "fifo", "mru"] | None = None
    """Which KV leaves a full CPU tier first (`llm-d`). Default: the engine's, least recently used."""
    dtype: Literal["auto", "fp8", "fp8_e4m3", "fp8_e5m2"] = "auto"
    """KV cache data type of both roles; `auto` is the model's."""
    block_size: Literal[16, 32, 64, 128] | None = None
    """KV cache block size in tokens of both roles. Default: vLLM's own."""


class Objectives(Part):
    """What the endpoint promises. One place: gate, alarms and planner read it."""

    ttft_p99_ms: Positive
    """Time to first token, 99th percentile, in milliseconds."""
    itl_p99_ms: Positive
    """Inter-token latency, 99th percentile, in milliseconds."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    """Which requests go first when all pods are busy (`llm-d`): higher before lower, below 0 may be shed. Default: 0 for all."""


class Image(Part):
    """The serving image of both roles."""

    repository: ImageRepository
    """Registry and repository, without tag or digest."""
    tag: Annotated[Text, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
    """Tag."""
    digest: ImageDigest | None = None
    """Digest. With it the tag cannot move underneath."""
    lmcache: Annotated[Text, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] | None = None
    """LMCache version in the image, when it has one. The operator needs it."""
    vllm: Annotated[Text, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    """vLLM version in the image."""
    nixl: Annotated[Text, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    """NIXL version in the image."""
    mooncake_efa: Annotated[Text, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] | None = None
    """Version of `mooncake-transfer-engine-efa` in the image, when it has one; the package without `-efa` cannot use EFA."""


class CustomCertificate(Part):
    """A certificate of your own for the load balancer."""

    acm_arn: Annotated[
        Arn,
        Field(
            pattern=r"^arn:aws:acm:[a-z0-9-]+:[0-9]{12}:certificate/[a-fA-F0-9-]+$",
            examples=["arn:aws:acm:us-east-2:111122223333:certificate/12345678-1234-1234-1234-123456789012"],
        ),
    ]
    """ACM certificate with its chain, in the environment's Region."""
    domain_name: Annotated[
        Text, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$", max_length=253)
    ]
    """Domain name, lower case, no wildcard."""
    hosted_zone_id: Annotated[Text, Field(pattern=r"^Z[A-Z0-9]+$")] | None = None
    """Route 53 zone in which the operator makes the record."""


class Exposure(Part):
    """How clients outside the cluster reach the endpoint. The in-cluster Service always exists."""

    sagemaker_endpoint: Annotated[Text, Field(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$", max_length=63)] | None = None
    """Name of a SageMaker endpoint to register. Default: none."""
    certificate: CustomCertificate | None = None
    """Certificate of the load balancer. Default: one that the operator signs itself."""


class RawFields(Part):
    """A way out: fields of the backend's own resource that this file has no word for."""

    spec: Raw = {}
    """Merged into the resource's `spec` last. Known fields are checked; unknown ones need a reason."""
    unknown_fields_reason: Text | None = None
    """Why fields that the known schema does not have are expected to exist on the cluster."""


class Endpoint(Part):
    """One model behind one router."""

    name: DnsLabel
    """Name of the endpoint; objects, Services and the SageMaker resources derive theirs from it."""
    namespace: Annotated[DnsLabel, Field(examples=["inference"])]
    """Kubernetes namespace."""
    backend: Literal["operator", "llm-d"]
    """What runs the roles: `operator` is the HyperPod inference operator (`pdSpec`), `llm-d` is vLLM with the llm-d router."""
    workload: Literal["deployments", "disaggregated_set"] = "deployments"
    """Kind of the pods' owner (`llm-d`): two Deployments, or one DisaggregatedSet."""
    model: Model
    """The model."""
    image: Image | None = None
    """Serving image. Default: the one that AWS (`operator`) or llm-d (`llm-d`) names for disaggregated serving on EFA."""
    prefill: Role
    """The role that reads prompts."""
    decode: Role
    """The role that writes answers."""
    routing: Routing
    """Routing between the roles."""
    kv: KvCache
    """KV cache and hand-over."""
    objectives: Objectives
    """Latency objectives."""
    environment: Annotated[EnvironmentVariables, Field(max_length=200)] = {}
    """More environment variables for both roles: text, or a reference to a Secret."""
    exposure: Exposure = Field(default={}, validate_default=True)
    """How clients outside the cluster reach it."""
    deploy_timeout_seconds: Annotated[int, Field(ge=60, le=86400)] | None = None
    """How long to wait for the endpoint. Default: derived from the weights, at least 3600."""
    raw: RawFields = Field(default={}, validate_default=True)
    """Fields of the InferenceEndpointConfig that this file has no word for."""

    @property
    def roles(self) -> tuple[tuple[str, Role], tuple[str, Role]]:
        """Both roles with their names, prefill first."""
        return ("prefill", self.prefill), ("decode", self.decode)

    @property
    def uses_lustre(self) -> bool:
        """Whether its pods mount the Lustre file system, for weights or for KV."""
        return self.model.source.lustre is not None or (self.kv.disk_tier is not None and self.kv.disk_tier.medium == "lustre")

    @property
    def served_name(self) -> str:
        """The `model` that clients name in requests."""
        return self.model.served_name or self.name
