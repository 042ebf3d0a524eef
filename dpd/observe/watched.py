"""One endpoint as its watchers see it: where its series are, and the numbers of the cost models that they are held against."""

from dataclasses import dataclass
from typing import Final, Literal

from dpd.backends.emitted import Versions
from dpd.backends.llmd.engine import of_role, server_port
from dpd.backends.site import Site
from dpd.catalog import instances, observability
from dpd.catalog.images import default_image
from dpd.catalog.operator import operator
from dpd.catalog.prices import Price, PriceBook
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.environment import Environment
from dpd.environment.names import Names, pod_pattern
from dpd.environment.observe import MetricsPath
from dpd.sizing.cost import purchase_of
from dpd.sizing.expert_parallel import pods_per_replica
from dpd.sizing.memory import kv_bytes_per_token_per_rank
from dpd.sizing.pod import pod_shape
from dpd.sizing.roofline import Engine
from dpd.sizing.transfer import Link, kv_floor_gb_per_second, kv_link, line_rate_gb_per_second

RoleName = Literal["prefill", "decode"]
ROLES: Final[tuple[RoleName, RoleName]] = ("prefill", "decode")
_PROMPT_TOKENS: Final = 8192
"""Prompt that fills one step of a prefiller; what a token of a prompt costs is taken from it."""


@dataclass(frozen=True, slots=True)
class WatchedRole:
    """The pods of a role. ``ports`` is one for each data parallel rank; ``usd_per_hour`` is of one pod, by its share of the node's GPUs."""

    name: RoleName
    pattern: str
    ports: tuple[int, ...]
    pods: int
    most_sequences: int
    gpus: int
    efa_devices: int
    line_rate_gb_per_second: float
    usd_per_hour: float | None
    price: Price | None


@dataclass(frozen=True, slots=True)
class Watched:
    """An endpoint. Rates are for one tensor parallel rank, as its connector counts them."""

    environment: str
    name: str
    namespace: str
    backend: Literal["operator", "llm-d"]
    pod_label: str
    """Label of the pod on the series of engines: another one where HyperPod's add-on brings them."""
    versions: Versions
    prefill: WatchedRole
    decode: WatchedRole
    picker_pattern: str
    """Empty where the backend has no picker that exports anything."""
    ranks: int
    """Tensor parallel ranks of a decoder; each pulls its own part of the KV."""
    ranks_on_pod: int
    """Ranks that share a decoder's EFA devices: those, of every data parallel rank on the pod."""
    kv_bytes_per_token_per_rank: float
    link: Link
    """What a rank's share of the pod's EFA devices carries."""
    floor_gb_per_second: float
    post_seconds_per_descriptor: float
    efa_counted: bool
    """Whether counters of the EFA devices are read on the nodes."""
    threshold_tokens: int
    counts_cached: bool
    """Whether tokens that a decoder has cached count for the threshold."""
    most_tokens: int
    ttft_seconds: float
    itl_seconds: float
    usd_per_prompt_token: float | None
    sagemaker_endpoint: str

    def pattern(self, role: RoleName | None) -> str:
        """Regular expression of the names of a role's pods, or with ``None`` of both."""
        return self.role(role).pattern if role else "|".join(self.role(each).pattern for each in ROLES)

    def role(self, name: RoleName) -> WatchedRole:
        """One of the roles."""
        return self.prefill if name == "prefill" else self.decode

    @property
    def pulls(self) -> bool:
        """Whether decoders pull KV themselves and count it (NixlConnector); else LMCache brings and counts it."""
        return self.backend == "llm-d"


def watched(environment: Environment, prices: PriceBook | None = None) -> tuple[Watched, ...]:
    """The endpoints of an environment that the checks accept."""
    site, book = Site.of(environment), prices or PriceBook()
    return tuple(_endpoint(environment, endpoint, site, book) for endpoint in environment.endpoints)


def pod_label(path: MetricsPath, backend: str) -> str:
    """Label of the pod on an engine's series. The operator's sidecars send their own to HyperPod's add-on."""
    return str(observability.add_on()["pod_label"]) if path == "hyperpod_add_on" and backend == "operator" else "pod"


def versions(endpoint: Endpoint) -> Versions:
    """Versions of the engines in an endpoint's image."""
    image = endpoint.image or default_image(endpoint.backend)
    return Versions(image.vllm, image.lmcache or "")


def _endpoint(environment: Environment, endpoint: Endpoint, site: Site, prices: PriceBook) -> Watched:
    roles = {name: _role(endpoint, name, role, site, prices) for name, role in zip(ROLES, (r for _, r in endpoint.roles), strict=True)}
    prefill, decode = roles["prefill"], roles["decode"]
    ranks, on_pod = endpoint.decode.tensor_parallel, max(1, decode.gpus)
    instance = site.instance(endpoint.decode.group)
    devices = min(prefill.efa_devices, decode.efa_devices)
    whole = kv_link(instance, devices) if instance else Link(0.0, 0.0)
    llm_d = endpoint.backend == "llm-d"
    return Watched(
        environment=Names.of(environment).prefix,
        name=endpoint.name,
        namespace=endpoint.namespace,
        backend=endpoint.backend,
        pod_label=pod_label(environment.observe.metrics, endpoint.backend),
        versions=versions(endpoint),
        prefill=prefill,
        decode=decode,
        picker_pattern=pod_pattern(endpoint, "picker") if llm_d else "",
        ranks=ranks,
        ranks_on_pod=on_pod,
        kv_bytes_per_token_per_rank=kv_bytes_per_token_per_rank(endpoint.model.shape, ranks, endpoint.kv.dtype),
        link=Link(whole.gb_per_second / on_pod, whole.fixed_seconds),
        floor_gb_per_second=kv_floor_gb_per_second(instance, efa_devices=decode.efa_devices, ranks=on_pod),
        post_seconds_per_descriptor=observability.post_seconds_per_descriptor(),
        efa_counted=environment.gate.deploy and environment.gate.efa_counters and decode.efa_devices > 0,
        threshold_tokens=endpoint.routing.threshold_tokens,
        counts_cached=endpoint.routing.threshold_counts == "non_cached",
        most_tokens=endpoint.model.max_model_len,
        ttft_seconds=endpoint.objectives.ttft_p99_ms / 1000,
        itl_seconds=endpoint.objectives.itl_p99_ms / 1000,
        usd_per_prompt_token=_prompt_token_usd(environment, endpoint, site, prefill),
        sagemaker_endpoint=endpoint.exposure.sagemaker_endpoint or "",
    )


def _role(endpoint: Endpoint, name: RoleName, role: Role, site: Site, prices: PriceBook) -> WatchedRole:
    group, instance = site.groups.get(role.group), site.instance(role.group)
    if group is None or instance is None:
        raise ValueError(f"endpoint {endpoint.name!r}: the {name} role's group {role.group!r} has no known instance type")
    shape = pod_shape(role, instance)
    whole = instances.find(group.instance_type)
    price = prices.find("instance", group.instance_type, purchase_of(group))
    share = shape.gpus / whole.gpus if whole and whole.gpus else 0.0
    llm_d = endpoint.backend == "llm-d"
    first, ranks = (server_port(name), of_role(endpoint, name, site)[2]) if llm_d else (operator().ports["server"], 1)
    return WatchedRole(
        name=name,
        pattern=pod_pattern(endpoint, name),
        ports=tuple(range(first, first + ranks)),
        pods=role.replicas * pods_per_replica(role),
        most_sequences=role.max_concurrent_sequences or operator().default_max_sequences[name],
        gpus=shape.gpus,
        efa_devices=shape.efa_devices,
        line_rate_gb_per_second=line_rate_gb_per_second(instance, shape.efa_devices),
        usd_per_hour=price.usd_per_hour * share if price else None,
        price=price,
    )


def _prompt_token_usd(environment: Environment, endpoint: Endpoint, site: Site, prefill: WatchedRole) -> float | None:
    """What a prompt's token costs that a prefiller reads: said by the file, else the pod's time for it at the modelled speed."""
    if (said := environment.observe.prefill_input_usd_per_million_tokens) is not None:
        return said / 1e6
    instance = site.instance(endpoint.prefill.group)
    engine = Engine.of(endpoint.model.shape, instance.gpu, endpoint.prefill.tensor_parallel, endpoint.kv.dtype) if instance else None
    if engine is None or prefill.usd_per_hour is None:
        return None
    tokens = min(_PROMPT_TOKENS, endpoint.model.max_model_len)
    return prefill.usd_per_hour / 3600 * engine.prefill_seconds(tokens) / tokens
