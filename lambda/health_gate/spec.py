"""What the gate must prove, as one JSON document.

Whatever differs between backends (names, labels, ports, log texts, series) is in here and nowhere else in the gate.
The defaults are vLLM's own names, which every backend's engine exports.
"""

import json
import re
from dataclasses import dataclass, field, fields, replace
from typing import Any

from health_gate.reading import BadSpec, build

ROLES = PREFILL, DECODE, ROUTER = "prefill", "decode", "router"


@dataclass(frozen=True, slots=True)
class Group:
    """An instance group. ``gpus`` and ``efa`` are what each node must offer; ``hugepages_mib`` what pods ask of 2 MiB pages."""

    instance_type: str
    count: int
    gpus: int = 0
    efa: int = 0
    hugepages_mib: int = 0


@dataclass(frozen=True, slots=True)
class Lustre:
    """A file system; ``associated`` when it must have a data repository association."""

    file_system_id: str
    associated: bool = True


@dataclass(frozen=True, slots=True)
class Weights:
    """Where a model's weights are in S3."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class AddOn:
    """An EKS add-on and the oldest version that will do."""

    name: str
    floor: str


@dataclass(frozen=True, slots=True)
class Role:
    """An IAM role: how its name must begin, the service and the service account (``system:serviceaccount:…``) it must trust."""

    name: str
    prefix: str = ""
    service: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """A custom resource definition, and the fields that the manifests set, as ``spec.a.b``; ``[]`` is an item of a list."""

    name: str
    version: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of a role. ``containers`` is how many a ready pod has, native sidecars among them; ``port`` is the engine's
    own, of other roles their pods'; ``servers`` of them listen in a pod, at ports counted up from it. A pod's name has at most
    ``words`` behind ``name_prefix``. ``service`` and ``service_port`` are the router's.

    ``role_log`` and ``role_settings`` are regular expressions over the pod's log, and over its container's arguments and
    variables as the lines ``arg …`` and ``env NAME=value``; ``role_label`` is a label, ``key=value``. Each shows the pod's side of
    the transfer; empty: the backend has no such sign.
    """

    namespace: str
    name_prefix: str
    container: str
    replicas: int
    containers: int
    port: int
    servers: int = 1
    words: int = 2
    labels: dict[str, str] = field(default_factory=dict)
    service: str = ""
    service_port: int = 0
    gpus: int = 0
    efa: int = 0
    hugepages_mib: int = 0
    role_log: str = ""
    role_settings: str = ""
    role_label: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """An object that says how the endpoint fares: the backend's own, a Deployment, or the like.

    ``state`` and ``message`` are places in it, as ``status.state``; an item of a list is named by its number, or by a field of
    it, as ``status.conditions[type=Available].status``. A state that is neither ``ready`` nor ``failed`` says that the backend is at work.
    """

    group: str
    version: str
    plural: str
    name: str
    state: str
    ready: str
    failed: tuple[str, ...] = ()
    message: str = ""
    must_have: tuple[str, ...] = ()
    """Places that must not be empty in the live object: an older definition drops what it does not know."""
    namespace: str = ""
    """The endpoint's, when empty."""

    @property
    def label(self) -> str:
        """``plural/name``."""
        return f"{self.plural}/{self.name}"


@dataclass(frozen=True, slots=True)
class Logs:
    """Regular expressions of log lines. Empty: the backend writes no such line.

    ``decision`` has the groups ``estimate`` and ``split``, ``retrieved`` the groups ``got``, ``needed`` and optionally
    ``gigabytes`` and ``throughput`` (GB/s).
    """

    decision: str = ""
    decided_yes: str = "True"
    retrieved: str = ""


@dataclass(frozen=True, slots=True)
class Decisions:
    """Counters of whoever decides, prompt by prompt, whether prefill is used: the pods of ``role``, at their port.

    ``split`` and ``whole`` are time series, each a list of alternatives as in ``Series``.
    """

    role: str
    split: tuple[str, ...]
    whole: tuple[str, ...]
    path: str = "/metrics"


@dataclass(frozen=True, slots=True)
class Series:
    """Names of time series, each a list of alternatives of which the first that exists counts; ``name{label="value"}``."""

    requests: tuple[str, ...] = ("vllm:request_success_total",)
    external_tokens: tuple[str, ...] = (
        'vllm:prompt_tokens_by_source_total{source="external_kv_transfer"}',
        "vllm:external_prefix_cache_hits_total",
    )
    cached_tokens: tuple[str, ...] = ('vllm:prompt_tokens_by_source_total{source="local_cache_hit"}', "vllm:prefix_cache_hits_total")
    kv_bytes: tuple[str, ...] = ("vllm:nixl_bytes_transferred_sum",)
    kv_seconds: tuple[str, ...] = ("vllm:nixl_xfer_time_seconds_sum",)
    failures: tuple[str, ...] = (
        "vllm:nixl_num_failed_transfers_total",
        "vllm:nixl_num_failed_notifications_total",
        "vllm:nixl_num_kv_expired_reqs_total",
        "lmcache:get_blocking_failed_count",
        "lmcache:get_blocking_failed_count_total",
        "lmcache:put_failed_count",
        "lmcache:put_failed_count_total",
    )
    """All of these count, not only the first."""

    @property
    def all(self) -> tuple[str, ...]:
        """Every name."""
        return tuple(name for each in fields(self) for name in getattr(self, each.name))


@dataclass(frozen=True, slots=True)
class Wire:
    """An exporter of EFA's hardware counters, one pod a node."""

    namespace: str
    labels: dict[str, str]
    port: int
    sent: str
    received: str
    rdma_written: str = ""
    path: str = "/metrics"


@dataclass(frozen=True, slots=True)
class Objectives:
    """Latency that the endpoint promises, in milliseconds."""

    ttft_ms: float
    itl_ms: float


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text in events or logs of this backend, and what it means."""

    text: str
    remedy: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint and how its backend shows itself."""

    name: str
    namespace: str
    path: str
    served_name: str
    threshold_tokens: int
    max_model_len: int
    pods: dict[str, Pods]
    kv_floor_gb_per_second: float
    objectives: Objectives | None = None
    resources: tuple[Resource, ...] = ()
    sagemaker_endpoint: str = ""
    characters_per_token: int = 4
    """How the router estimates a prompt's tokens: characters divided by this, rounded down."""
    chunk_tokens: int = 256
    """KV moves in chunks of this many tokens; the last, unfinished one may be computed again."""
    logprob_tolerance: float = 0.2
    """Two answers may part where both candidates' log-probabilities are this close: batch shapes change the last bits."""
    logs: Logs = Logs()
    decisions: Decisions | None = None
    series: Series = Series()
    wire: Wire | None = None
    patterns: tuple[Pattern, ...] = ()
    remedies: dict[str, str] = field(default_factory=dict)
    """What this backend advises when a check fails, by the check's id."""

    def __post_init__(self) -> None:
        if missing := set(ROLES) - set(self.pods):
            raise BadSpec(f"endpoint {self.name} lacks pods.{min(missing)}")
        if self.decisions and self.decisions.role not in self.pods:
            raise BadSpec(f"endpoint {self.name}: decisions.role is none of its pods")
        expressions = {f"logs.{name}": getattr(self.logs, name) for name in ("decision", "retrieved")}
        for role, pods in self.pods.items():
            expressions |= {f"pods.{role}.{name}": getattr(pods, name) for name in ("role_log", "role_settings")}
        for name, expression in expressions.items():
            try:
                re.compile(expression)
            except re.error as error:
                raise BadSpec(f"endpoint {self.name}: {name} is not a regular expression ({error})") from None
        for name, groups in {"decision": {"estimate", "split"}, "retrieved": {"got", "needed"}}.items():
            pattern = getattr(self.logs, name)
            if pattern and (missing := groups - set(re.compile(pattern).groupindex)):
                raise BadSpec(f"endpoint {self.name}: logs.{name} lacks the group {min(missing)}")

    @property
    def key(self) -> str:
        """``namespace/name``, which is unlike any other endpoint's."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Reports:
    """Where results go. ``key_arn`` encrypts the reports."""

    bucket: str = ""
    prefix: str = "health-gate"
    key_arn: str = ""
    topic_arn: str = ""
    namespace: str = "HyperPodDPD"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """``run_seconds`` for one run; ``wait_seconds`` until a deployment gives up; ``checks`` overrides seconds by check id."""

    run_seconds: float = 780
    wait_seconds: float = 5400
    settle_seconds: float = 5
    """How long counters and logs may lag behind an answer."""
    checks: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything that the gate must prove of one environment."""

    environment: str
    region: str
    hyperpod_cluster: str
    eks_cluster: str
    eks_cluster_arn: str
    zone_id: str
    groups: dict[str, Group]
    security_groups: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    lustre: Lustre | None = None
    weights: tuple[Weights, ...] = ()
    add_ons: tuple[AddOn, ...] = ()
    roles: tuple[Role, ...] = ()
    definitions: tuple[Definition, ...] = ()
    webhook_namespaces: tuple[str, ...] = ()
    reports: Reports = Reports()
    deadlines: Deadlines = Deadlines()

    @classmethod
    def parse(cls, text: str | bytes) -> "Spec":
        """Read a spec. Raises ``BadSpec``."""
        try:
            value: Any = json.loads(text)
        except ValueError:
            raise BadSpec("the spec is not JSON") from None
        return build(cls, value)

    @property
    def accelerated(self) -> dict[str, Group]:
        """Groups with GPUs."""
        return {name: group for name, group in self.groups.items() if group.gpus}

    def only(self, endpoint: str) -> "Spec":
        """The same with one endpoint. Raises ``BadSpec`` when there is none of that name."""
        found = tuple(each for each in self.endpoints if endpoint in {each.name, each.key})
        if not found:
            raise BadSpec(f"there is no endpoint {endpoint[:63]!r}; known: {', '.join(each.name for each in self.endpoints) or 'none'}")
        return replace(self, endpoints=found)
