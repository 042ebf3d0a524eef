"""InferenceEndpointConfig ``v1`` as the operator reads it, as types.

Limits and defaults are those of the resource's schema in operator 3.2, the first with ``pdSpec``
(https://github.com/aws/sagemaker-hyperpod-cli/tree/011ca927/helm_chart/HyperPodHelmChart/charts/inference-operator/config/crd),
and of 3.3 where a field says so. The API server prunes what its schema does not have, without an error
(unless ``kubectl --validate=strict``), so unknown fields are refused here. Parts that Kubernetes itself defines
(volumes, containers, affinity) stay as mappings: Kubernetes refuses what is wrong in them.
"""
# ruff: noqa: D101 (the classes carry the names of the schema, which is their documentation)

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator
from pydantic.alias_generators import to_camel

GROUP: Final = "inference.sagemaker.aws.amazon.com"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "InferenceEndpointConfig"
PLURAL: Final = "inferenceendpointconfigs"

_QUANTITY: Final = re.compile(
    r"(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?"
)


def _int_or_string(value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a whole number or a text")
    return value


def _quantity(value: Any) -> str | int:
    if isinstance(_int_or_string(value), str) and not _QUANTITY.fullmatch(value):
        raise ValueError("must be a Kubernetes quantity, such as 500m, 96 or 1024Gi")
    return cast("str | int", value)


Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
NotNegative = Annotated[int, Field(ge=0, lt=2**31)]
Port = Annotated[int, Field(ge=1, le=65535)]
Quantity = Annotated[str | int, PlainValidator(_quantity)]
IntOrString = Annotated[str | int, PlainValidator(_int_or_string)]
DnsSubdomain = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")]
DomainName = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$")]
WorkspaceUrl = Annotated[
    str, Field(pattern=r"^https://aps-workspaces\.[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)*\.amazonaws\.com/workspaces/ws-[a-zA-Z0-9-]+$|^$")
]
RoutingStrategy = Literal["prefixaware", "kvaware", "session", "roundrobin"]
Kubernetes = dict[str, Any]


class Block(BaseModel):
    """A part of the resource: unknown fields are refused, and only what was set is written."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    def body(self) -> dict[str, Any]:
        """The part as Kubernetes reads it."""
        return self.model_dump(by_alias=True, exclude_none=True)


class S3Storage(Block):
    bucket_name: str
    region: str


class FsxStorage(Block):
    file_system_id: str
    dns_name: str | None = None
    mount_name: str | None = None


class SecretKeyRef(Block):
    name: str = ""
    key: str
    optional: bool | None = None


class HuggingFaceModel(Block):
    model_id: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]+/[a-zA-Z0-9_.-]+$")]
    commit_sha: Annotated[str | None, Field(alias="commitSHA", pattern=r"^[0-9a-f]{40}$")] = None
    token_secret_ref: SecretKeyRef | None = None


class ModelSourceConfig(Block):
    model_source_type: Literal["fsx", "s3", "huggingface", "kubernetesVolume"]
    model_location: str | None = None
    prefetch_enabled: bool | None = None
    s3_storage: S3Storage | None = None
    fsx_storage: FsxStorage | None = None
    hugging_face_model: HuggingFaceModel | None = None

    @model_validator(mode="after")
    def _block_of_type(self) -> Self:
        blocks = {"s3": self.s3_storage, "fsx": self.fsx_storage, "huggingface": self.hugging_face_model}
        if blocks.get(self.model_source_type, True) is None:
            raise ValueError(f"modelSourceType {self.model_source_type} needs its own block, which the schema does not ask for")
        return self


class Resources(Block):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None
    claims: list[Kubernetes] | None = None


class EnvVar(Block):
    name: Annotated[str, Field(min_length=1)]
    value: str | None = None
    value_from: Kubernetes | None = None


class HttpGet(Block):
    path: str | None = None
    port: IntOrString
    scheme: str | None = None
    host: str | None = None
    http_headers: list[Kubernetes] | None = None


class Probe(Block):
    http_get: HttpGet | None = None
    exec: Kubernetes | None = None
    grpc: Kubernetes | None = None
    tcp_socket: Kubernetes | None = None
    initial_delay_seconds: Int32 | None = None
    period_seconds: Int32 | None = None
    timeout_seconds: Int32 | None = None
    success_threshold: Int32 | None = None
    failure_threshold: Int32 | None = None
    termination_grace_period_seconds: int | None = None


class Probes(Block):
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None


class RequestLimits(Block):
    max_concurrent_requests: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    max_queue_size: NotNegative | None = None
    overflow_status_code: Annotated[int, Field(ge=400, le=599)] | None = None


class ModelInvocationPort(Block):
    container_port: Port
    name: Literal["http", "grpc"] | None = None


class ModelVolumeMount(Block):
    name: str
    mount_path: str | None = None


class Worker(Block):
    image: str
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    environment_variables: list[EnvVar] | None = None
    model_invocation_port: ModelInvocationPort
    model_volume_mount: ModelVolumeMount
    resources: Resources
    probes: Probes | None = None
    request_limits: RequestLimits | None = None


class RoleSpec(Block):
    replicas: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    args: list[str] | None = None
    node_selector: dict[str, str] | None = None
    resources: Resources | None = None


class TopologySpec(Block):
    same_az: Annotated[bool | None, Field(alias="sameAZ")] = None
    availability_zone: str | None = None
    placement_group: str | None = None


class CloudWatchDimension(Block):
    name: str
    value: str


class CloudWatchTriggerSpec(Block):
    name: str | None = None
    namespace: str | None = None
    metric_name: str | None = None
    target_value: float | None = None
    activation_target_value: float | None = None
    min_value: float | None = None
    metric_stat: str | None = None
    metric_type: Literal["Value", "Average"] | None = None
    metric_collection_period: Int32 | None = None
    metric_collection_start_time: Int32 | None = None
    dimensions: list[CloudWatchDimension] | None = None
    use_cached_metrics: bool | None = None


class PrometheusTriggerSpec(Block):
    name: str | None = None
    namespace: str | None = None
    server_address: WorkspaceUrl | None = None
    query: str | None = None
    target_value: float | None = None
    activation_target_value: float | None = None
    metric_type: Literal["Value", "Average"] | None = None
    custom_headers: str | None = None
    use_cached_metrics: bool | None = None


class AutoScalingSpec(Block):
    min_replica_count: NotNegative | None = None
    max_replica_count: NotNegative | None = None
    polling_interval: NotNegative | None = None
    cooldown_period: NotNegative | None = None
    initial_cooldown_period: NotNegative | None = None
    scale_down_stabilization_time: NotNegative | None = None
    scale_up_stabilization_time: NotNegative | None = None
    cloud_watch_trigger: CloudWatchTriggerSpec | None = None
    cloud_watch_trigger_list: Annotated[list[CloudWatchTriggerSpec] | None, Field(max_length=100)] = None
    prometheus_trigger: PrometheusTriggerSpec | None = None
    prometheus_trigger_list: Annotated[list[PrometheusTriggerSpec] | None, Field(max_length=100)] = None


class RoleAutoScaling(Block):
    prefill_auto_scaling: AutoScalingSpec | None = None
    decoding_auto_scaling: AutoScalingSpec | None = None


class PdSpec(Block):
    prefill_spec: RoleSpec
    decoding_spec: RoleSpec
    routing_threshold: NotNegative | None = None
    topology_spec: TopologySpec | None = None
    auto_scaling_spec: RoleAutoScaling | None = None


class L2CacheSpec(Block):
    l2_cache_backend: Annotated[str | None, Field(pattern=r"(?i)redis|tieredstorage")] = None
    l2_cache_local_url: str | None = None


class KvCacheSpec(Block):
    enable_l1_cache: bool | None = None
    enable_l2_cache: bool | None = None
    l2_cache_spec: L2CacheSpec | None = None
    cache_config_file: str | None = None

    @model_validator(mode="after")
    def _second_tier(self) -> Self:
        backend = self.l2_cache_spec.l2_cache_backend if self.l2_cache_spec else None
        if self.enable_l2_cache and backend is None:
            raise ValueError("enableL2Cache needs l2CacheSpec.l2CacheBackend")
        if backend and backend.lower() == "redis" and not (self.l2_cache_spec and self.l2_cache_spec.l2_cache_local_url):
            raise ValueError("the redis backend needs l2CacheSpec.l2CacheLocalUrl")
        return self


class IntelligentRoutingSpec(Block):
    enabled: bool | None = None
    routing_strategy: RoutingStrategy | None = None
    auto_scaling_spec: AutoScalingSpec | None = None


class CustomCertificateConfig(Block):
    acm_arn: Annotated[str, Field(pattern=r"^arn:aws:acm:[a-z0-9-]+:[0-9]{12}:certificate/[a-fA-F0-9-]+$")]
    domain_name: Annotated[
        str, Field(max_length=253, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$")
    ]


class TlsConfig(Block):
    tls_certificate_output_s3_uri: Annotated[str | None, Field(alias="tlsCertificateOutputS3Uri", pattern=r"^s3://([^/]+)/?(.*)$")] = None
    custom_certificate_config: CustomCertificateConfig | None = None


class DnsConfig(Block):
    hosted_zone_id: Annotated[str, Field(pattern=r"^Z[A-Z0-9]+$")]


class LoadBalancer(Block):
    health_check_path: Annotated[str | None, Field(pattern=r"^/.*")] = None
    routing_algorithm: Literal["least_outstanding_requests", "round_robin"] | None = None
    idle_timeout_seconds: Annotated[int, Field(ge=1, le=4000)] | None = None
    """Since operator 3.3."""


class ModelMetrics(Block):
    path: Annotated[str | None, Field(pattern=r"^/[a-zA-Z0-9\-_./]*$")] = None
    port: Annotated[int, Field(ge=1024, le=65535)] | None = None


class Metrics(Block):
    enabled: bool | None = None
    metrics_scrape_interval_seconds: Annotated[int, Field(ge=5, le=300)] | None = None
    model_metrics: ModelMetrics | None = None


class PodCustomization(Block):
    init_containers: list[Kubernetes] | None = None
    volumes: list[Kubernetes] | None = None
    scheduler_name: DnsSubdomain | None = None
    service_account_name: DnsSubdomain | None = None


class CaptureOption(Block):
    capture_mode: Literal["Input", "Output"]


class ContentTypes(Block):
    csv_content_types: Annotated[list[str] | None, Field(min_length=1, max_length=10)] = None
    json_content_types: Annotated[list[str] | None, Field(min_length=1, max_length=10)] = None


class CaptureSwitch(Block):
    enabled: bool


class SageMakerCapture(Block):
    enabled: bool
    initial_sampling_percentage: Annotated[int, Field(ge=0, le=100)] | None = None
    capture_options: Annotated[list[CaptureOption] | None, Field(min_length=1, max_length=32)] = None
    capture_content_type_header: ContentTypes | None = None
    kms_key_id: Annotated[str | None, Field(max_length=2048, pattern=r"^[a-zA-Z0-9:/_-]*$")] = None


class BufferConfig(Block):
    batch_size: Annotated[int, Field(ge=1, le=1000)] | None = None
    flush_interval_seconds: Annotated[int, Field(ge=10, le=300)] | None = None


class PayloadConfig(Block):
    max_payload_size_kb: Annotated[int | None, Field(alias="maxPayloadSizeKB", ge=0, le=10240)] = None


class PodCapture(SageMakerCapture):
    buffer_config: BufferConfig | None = None
    payload_config: PayloadConfig | None = None


class DataCapture(Block):
    s3_uri: Annotated[str | None, Field(max_length=512, pattern=r"^s3://([^/]+)(/[^,=]*)?$")] = None
    sagemaker_endpoint: SageMakerCapture | None = None
    load_balancer: CaptureSwitch | None = None
    model_pod: PodCapture | None = None


class ImageCache(Block):
    enabled: bool


class WeightsCache(Block):
    enabled: bool | None = None
    host_path: Annotated[str | None, Field(min_length=1, max_length=255)] = None


class ModelCacheConfig(Block):
    """Since operator 3.3."""

    image_cache: ImageCache | None = None
    weights_cache: WeightsCache | None = None


class Tag(Block):
    name: str
    value: str


class Spec(Block):
    """``spec`` of the resource."""

    endpoint_name: Annotated[str | None, Field(max_length=63, pattern=r"^$|^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$")] = None
    instance_type: Annotated[str | None, Field(pattern=r"^ml\..*")] = None
    instance_types: list[str] | None = None
    node_affinity: Kubernetes | None = None
    invocation_endpoint: str | None = None
    model_name: Annotated[str, Field(max_length=63, pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$")]
    model_version: str | None = None
    model_source_config: ModelSourceConfig
    load_balancer: LoadBalancer | None = None
    metrics: Metrics | None = None
    kv_cache_spec: KvCacheSpec | None = None
    intelligent_routing_spec: IntelligentRoutingSpec | None = None
    pd_spec: PdSpec
    worker: Worker
    kubernetes: PodCustomization | None = None
    tls_config: TlsConfig | None = None
    dns_config: DnsConfig | None = None
    data_capture: DataCapture | None = None
    model_cache_config: ModelCacheConfig | None = None
    max_deploy_time_in_seconds: NotNegative | None = None
    tags: list[Tag] | None = None
    replicas: NotNegative | None = None
    initial_replica_count: Annotated[int | None, Field(alias="InitialReplicaCount")] = None
    auto_scaling_spec: AutoScalingSpec | None = None

    @model_validator(mode="after")
    def _exclusive(self) -> Self:
        chosen = [name for name in ("instance_type", "instance_types", "node_affinity") if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(map(to_camel, chosen))} exclude each other")
        if self.dns_config and not (self.tls_config and self.tls_config.custom_certificate_config):
            raise ValueError("dnsConfig needs tlsConfig.customCertificateConfig")
        if self.model_source_config.model_source_type == "kubernetesVolume" and not self._has_model_volume():
            raise ValueError(
                f"kubernetes.volumes needs a volume called {self.worker.model_volume_mount.name!r}, as in worker.modelVolumeMount"
            )
        return self

    def _has_model_volume(self) -> bool:
        volumes = (self.kubernetes.volumes if self.kubernetes else None) or []
        return any(volume.get("name") == self.worker.model_volume_mount.name for volume in volumes)


@dataclass(frozen=True, slots=True)
class SpecFault:
    """One thing that the schema, or the operator behind it, refuses. ``place`` leads to the field inside ``spec``."""

    place: tuple[str | int, ...]
    message: str
    unknown: bool


def faults(body: dict[str, Any]) -> list[SpecFault]:
    """Everything that is wrong with a ``spec`` as Kubernetes would get it."""
    try:
        Spec.model_validate(body, by_alias=True, by_name=False)
    except ValidationError as error:
        return [
            SpecFault(detail["loc"], detail["msg"].removeprefix("Value error, "), detail["type"] == "extra_forbidden")
            for detail in error.errors(include_url=False)
        ]
    return []
