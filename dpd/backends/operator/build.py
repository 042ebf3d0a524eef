"""From an endpoint to its InferenceEndpointConfig."""

from typing import Any, Final, cast

from dpd.backends.operator import resource as r
from dpd.backends.scaling import signals
from dpd.backends.site import Site
from dpd.backends.workload import HEALTH_PATH, METRICS_PATH, MODELS_PATH, RoleWorkload, Workload, amounts, arguments, workload
from dpd.catalog.operator import operator
from dpd.environment.endpoint import Autoscaling, Endpoint
from dpd.environment.model import SecretKey
from dpd.environment.names import EndpointNames, sagemaker_model_name
from dpd.scaling.policy import down_window_seconds

PROBE_PERIOD_SECONDS: Final = 10


def build(endpoint: Endpoint, site: Site) -> dict[str, Any]:
    """The object that the operator reads, with the file's ``raw.spec`` merged in last.

    Raises ``ValueError`` for what the checks would have refused (an unknown group or instance type, no Lustre).
    """
    names = EndpointNames.of(endpoint)
    return {
        "apiVersion": r.API_VERSION,
        "kind": r.KIND,
        "metadata": {"name": names.resource, "namespace": endpoint.namespace, "labels": names.labels()},
        "spec": merged(spec(endpoint, site).body(), endpoint.raw.spec),
    }


def merged(base: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Merge mappings key by key; anything else, lists included, is replaced by what ``extra`` has."""
    result = dict(base)
    for key, value in extra.items():
        known = result.get(key)
        result[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result


def spec(endpoint: Endpoint, site: Site) -> r.Spec:
    """The typed ``spec``, without the raw escape. Fields follow the order of AWS's example."""
    work = workload(endpoint, site)
    types = list(dict.fromkeys((work.prefill.instance_type, work.decode.instance_type)))
    return r.Spec(
        endpoint_name=endpoint.exposure.sagemaker_endpoint,
        # One type for both roles, or both in order. Each role's node selector is what places its pods.
        instance_type=types[0] if len(types) == 1 else None,
        instance_types=types if len(types) > 1 else None,
        invocation_endpoint=operator().invocation_paths[endpoint.routing.api],
        model_name=sagemaker_model_name(endpoint.served_name),
        model_source_config=_source(endpoint, site),
        load_balancer=r.LoadBalancer(health_check_path=HEALTH_PATH),
        metrics=r.Metrics(enabled=True, model_metrics=r.ModelMetrics(path=METRICS_PATH, port=work.port)),
        kv_cache_spec=_kv_cache(endpoint),
        intelligent_routing_spec=_routing(endpoint),
        pd_spec=_pd(endpoint, work, site),
        worker=_worker(work),
        kubernetes=_pod(endpoint),
        tls_config=_tls(endpoint),
        dns_config=_dns(endpoint),
        max_deploy_time_in_seconds=work.deploy_timeout_seconds,
        tags=[r.Tag(name=key, value=value) for key, value in sorted(site.tags.items())],
    )


def _routing(endpoint: Endpoint) -> r.IntelligentRoutingSpec:
    strategy = cast("r.RoutingStrategy", operator().routing_strategies[endpoint.routing.strategy])
    return r.IntelligentRoutingSpec(enabled=True, routing_strategy=strategy)


def _source(endpoint: Endpoint, site: Site) -> r.ModelSourceConfig:
    source = endpoint.model.source
    if source.s3:
        storage = r.S3Storage(bucket_name=site.model_bucket, region=site.model_bucket_region)
        return r.ModelSourceConfig(model_source_type="s3", model_location=source.s3.prefix.rstrip("/"), s3_storage=storage)
    if source.lustre:
        if site.lustre is None:
            raise ValueError(f"endpoint {endpoint.name!r} reads its weights from Lustre, and the environment has none")
        known = site.lustre
        return r.ModelSourceConfig(
            model_source_type="fsx",
            model_location=source.lustre.path.strip("/"),
            fsx_storage=r.FsxStorage(file_system_id=known.file_system_id, dns_name=known.dns_name, mount_name=known.mount_name),
        )
    if source.hub:
        token = source.hub.token
        reference = r.SecretKeyRef(name=token.secret, key=token.key) if token else None
        model = r.HuggingFaceModel(model_id=source.hub.model_id, commit_sha=source.hub.revision, token_secret_ref=reference)
        return r.ModelSourceConfig(model_source_type="huggingface", hugging_face_model=model)
    return r.ModelSourceConfig(model_source_type="kubernetesVolume")


def _pod(endpoint: Endpoint) -> r.PodCustomization | None:
    """The volume of an existing claim or of instance NVMe. The operator finds it by the name of the worker's mount."""
    volume = endpoint.model.source.volume
    if volume is None:
        return None
    what: dict[str, Any] = (
        {"persistentVolumeClaim": {"claimName": volume.claim}}
        if volume.claim
        else {"hostPath": {"path": volume.host_path, "type": "Directory"}}
    )
    return r.PodCustomization(volumes=[{"name": operator().model_mount["name"], **what}])


def _worker(work: Workload) -> r.Worker:
    mount = operator().model_mount
    return r.Worker(
        image=work.image,
        args=arguments(work.shared_flags()),
        model_invocation_port=r.ModelInvocationPort(container_port=work.port, name="http"),
        model_volume_mount=r.ModelVolumeMount(name=mount["name"], mount_path=mount["path"]),
        # The schema wants it; with pdSpec each role's own resources count and these do not.
        resources=_resources(work.decode),
        environment_variables=[_variable(name, value) for name, value in work.environment.items()],
        probes=_probes(work),
    )


def _variable(name: str, value: str | SecretKey) -> r.EnvVar:
    if isinstance(value, str):
        return r.EnvVar(name=name, value=value)
    return r.EnvVar(name=name, value_from={"secretKeyRef": {"name": value.secret, "key": value.key}})


def _probes(work: Workload) -> r.Probes:
    """Loading weights may take the whole start-up budget; afterwards a minute without health is a fault.

    Ready is who names its model: health alone says nothing about it
    (https://github.com/kubernetes-sigs/gateway-api-inference-extension/pull/550). With an API key vLLM hides the list.
    """
    ready = HEALTH_PATH if "VLLM_API_KEY" in work.environment else MODELS_PATH

    def probe(failures: int, timeout_seconds: int, path: str = HEALTH_PATH) -> r.Probe:
        return r.Probe(
            http_get=r.HttpGet(path=path, port=work.port),
            period_seconds=PROBE_PERIOD_SECONDS,
            timeout_seconds=timeout_seconds,
            failure_threshold=failures,
        )

    return r.Probes(
        startup_probe=probe(-(-work.startup_budget_seconds // PROBE_PERIOD_SECONDS), 5),
        readiness_probe=probe(3, 5, ready),
        liveness_probe=probe(6, 10),
    )


def _resources(role: RoleWorkload) -> r.Resources:
    """Requests and limits are equal: GPUs and EFA devices cannot be overcommitted, and a guaranteed pod is evicted last."""
    return r.Resources(requests={**amounts(role.pod)}, limits={**amounts(role.pod)})


def _pd(endpoint: Endpoint, work: Workload, site: Site) -> r.PdSpec:
    prefill, decode = (_autoscaling(endpoint, name, role.autoscaling, site) for name, role in endpoint.roles)
    scaling = r.RoleAutoScaling(prefill_auto_scaling=prefill, decoding_auto_scaling=decode) if prefill or decode else None
    return r.PdSpec(
        prefill_spec=_role(work, work.prefill),
        decoding_spec=_role(work, work.decode),
        routing_threshold=endpoint.routing.threshold_tokens,
        topology_spec=r.TopologySpec(same_az=True),
        auto_scaling_spec=scaling,
    )


def _role(work: Workload, role: RoleWorkload) -> r.RoleSpec:
    return r.RoleSpec(
        replicas=role.replicas,
        args=[*arguments(work.own_flags(role)), *role.extra_args],
        node_selector=role.node_selector,
        resources=_resources(role),
    )


def _autoscaling(endpoint: Endpoint, role_name: str, scaling: Autoscaling | None, site: Site) -> r.AutoScalingSpec | None:
    if scaling is None:
        return None
    cloudwatch = [
        r.CloudWatchTriggerSpec(
            name=f"cloudwatch-{index}",
            namespace=trigger.namespace,
            metric_name=trigger.metric,
            target_value=trigger.target,
            metric_stat=trigger.statistic,
            metric_collection_period=trigger.period_seconds,
            # The operator asks for a look-back that is at least one period; its default of 300 is too short beyond that.
            metric_collection_start_time=max(300, trigger.period_seconds),
            dimensions=[r.CloudWatchDimension(name=name, value=value) for name, value in sorted(trigger.dimensions.items())],
        )
        for index, trigger in enumerate(scaling.cloudwatch)
    ]
    prometheus = [
        r.PrometheusTriggerSpec(
            name=f"prometheus-{index}", server_address=trigger.workspace_url, query=trigger.query, target_value=trigger.target
        )
        for index, trigger in enumerate(scaling.prometheus)
    ]
    prometheus += [
        r.PrometheusTriggerSpec(
            name=signal.name, server_address=scaling.tokens.prometheus, query=signal.query, target_value=signal.target,
            metric_type="Average",
        )
        for signal in signals(endpoint, role_name, site)
        if scaling.tokens
    ]  # fmt: skip
    return r.AutoScalingSpec(
        min_replica_count=scaling.min_replicas,
        max_replica_count=scaling.max_replicas,
        scale_down_stabilization_time=down_window_seconds(endpoint, scaling),
        cloud_watch_trigger_list=cloudwatch or None,
        prometheus_trigger_list=prometheus or None,
    )


def _kv_cache(endpoint: Endpoint) -> r.KvCacheSpec:
    tier = endpoint.kv.shared_tier
    if tier == "none":
        return r.KvCacheSpec(enable_l1_cache=endpoint.kv.cpu_tier, enable_l2_cache=False)
    shared = (
        r.L2CacheSpec(l2_cache_backend="tieredstorage")
        if tier == "tiered_storage"
        else r.L2CacheSpec(l2_cache_backend="redis", l2_cache_local_url=tier)
    )
    return r.KvCacheSpec(enable_l1_cache=endpoint.kv.cpu_tier, enable_l2_cache=True, l2_cache_spec=shared)


def _tls(endpoint: Endpoint) -> r.TlsConfig | None:
    certificate = endpoint.exposure.certificate
    if certificate is None:
        return None
    return r.TlsConfig(
        custom_certificate_config=r.CustomCertificateConfig(acm_arn=certificate.acm_arn, domain_name=certificate.domain_name)
    )


def _dns(endpoint: Endpoint) -> r.DnsConfig | None:
    certificate = endpoint.exposure.certificate
    return r.DnsConfig(hosted_zone_id=certificate.hosted_zone_id) if certificate and certificate.hosted_zone_id else None
