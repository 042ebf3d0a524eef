"""The signals by which a role is scaled, as PromQL, of any backend: series, guards, and what each is divided by.

A query is whole in itself: it reads what engines and router export, no rule that somebody must have installed. Absence is never
taken for no load: 0 is only said while whoever counts is there to be scraped, and otherwise there is no answer, with which
Kubernetes adds pods for other signals but takes none away.
"""

from dataclasses import dataclass
from typing import Final

from dpd.backends.llmd.picker_config import PickerConfig
from dpd.backends.llmd.strategies import picking
from dpd.backends.site import Site
from dpd.environment.endpoint import Autoscaling, Endpoint, Role
from dpd.environment.names import EndpointNames, LlmdNames
from dpd.scaling import policy as policies
from dpd.scaling.policy import RATE_SECONDS, SMOOTHING_SECONDS, TREND_SECONDS, TREND_STEP_SECONDS, Policy
from dpd.scaling.velocity import local_velocity, most_sequences
from dpd.scaling.velocity import of_role as velocity_of
from dpd.sizing.expert_parallel import data_parallel_size

LOAD_PRODUCER: Final = "inflight-load-producer"
"""The picker's plugin that counts the tokens of each prefiller."""
_MEAN_SECONDS: Final = 1800
"""Over which mean lengths are taken: how long requests are changes slower than how many."""
VELOCITY: Final = "dpd:token_velocity"
WANTED: Final = "dpd:replicas_wanted"


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal: what it counts, the query, and the value of one pod to hold."""

    name: str
    counts: str
    query: str
    target: float


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """A series that Prometheus computes: for dashboards and alarms; nothing that scales depends on it."""

    record: str
    expression: str
    labels: dict[str, str]


class NoVelocityError(ValueError):
    """A role whose token velocity neither the file nor an estimate says."""


def signals(endpoint: Endpoint, role_name: str, site: Site) -> tuple[Signal, ...]:
    """The signals of a role with ``autoscaling.tokens``; none without. Raises ``NoVelocityError``, ``ValueError`` for an unknown group."""
    role = dict(endpoint.roles)[role_name]
    scaling = role.autoscaling
    if scaling is None or scaling.tokens is None:
        return ()
    return _signals(endpoint, role_name, role, scaling, site)


def _signals(endpoint: Endpoint, role_name: str, role: Role, scaling: Autoscaling, site: Site) -> tuple[Signal, ...]:
    instance = site.instance(role.group)
    if instance is None:
        raise ValueError(f"endpoint {endpoint.name!r}: the {role_name} role's group {role.group!r} has no known instance type")
    velocity = velocity_of(endpoint, role_name, instance)
    if velocity is None:
        raise NoVelocityError(f"endpoint {endpoint.name!r}: no token velocity is known of the {role_name} role")
    chosen = policies.of_role(endpoint, role_name, scaling, velocity)
    if role_name == "prefill":
        read, idle = _tokens_read(endpoint), _idle(endpoint, "prefill")
        load = _per(read, velocity)
        backlog = _per(_backlog_tokens(endpoint, site), velocity)
        soon = f"{_per(_soon(read, chosen), velocity)} > 0 or {idle}"
        return (
            Signal("prefill-rate", "pods busy reading when a new pod will be ready", soon, chosen.full),
            Signal("prefill-spread", "pods busy reading, and the square root of them", f"({load} + sqrt({load})) > 0 or {idle}", 1.0),
            Signal("prefill-backlog", "seconds of prompt tokens that wait", backlog, chosen.backlog_seconds),
        )
    idle, engines = _idle(endpoint, "decode"), data_parallel_size(role, instance)
    local = _per(_tokens_read_locally(endpoint), reading) if (reading := local_velocity(endpoint, instance)) else "0"
    due = f"{_per(f'{_soon(_arrivals(endpoint), chosen)} * {_mean_answer(endpoint)}', velocity)} + {local}"
    kv = f"sum({_smooth('vllm:kv_cache_usage_perc', endpoint, 'decode')})"
    held = _held(endpoint, "decode")
    places = engines * most_sequences(role_name, role)
    return (
        Signal("decode-rate", "pods busy writing when a new pod will be ready", f"({due}) > 0 or {idle}", chosen.full),
        Signal("decode-kv", "full KV caches", _per(kv, engines) if engines > 1 else kv, chosen.full),
        Signal("decode-places", "pods whose batch is full, with what waits", _per(held, places), chosen.full),
    )


def recording_rules(endpoint: Endpoint, site: Site) -> tuple[RecordingRule, ...]:
    """For dashboards: pods that each role wants by each signal, and the velocity that its pods show while requests wait for them.

    The measured velocity is not fed back into the policy, whose set point would then move with what it controls. Where it differs
    from ``tokens_per_second`` for long, the file is to be corrected.
    """
    labels = {"endpoint": endpoint.name}
    rules = [
        RecordingRule(WANTED, f"ceil(({signal.query}) / {signal.target:g})", {**labels, "role": name, "signal": signal.name})
        for name, _role in endpoint.roles
        for signal in signals(endpoint, name, site)
    ]
    for name, series in (("prefill", "vllm:prompt_tokens_total"), ("decode", "vllm:generation_tokens_total")):
        pods = _pods(endpoint, name)
        busy = f"min_over_time(vllm:num_requests_waiting{pods}[{SMOOTHING_SECONDS}s]) > 0"
        by_pod = f"sum by (namespace, pod) (rate({series}{pods}[{SMOOTHING_SECONDS}s]))"
        rules.append(RecordingRule(VELOCITY, f"avg({by_pod} and on (namespace, pod) ({busy}))", {**labels, "role": name}))
    return tuple(rules)


def _per(query: str, unit: float) -> str:
    return f"({query}) / {unit:.6g}"


def _pods(endpoint: Endpoint, role_name: str, label: str = "pod") -> str:
    """The matcher of a role's pods. Series carry the labels ``namespace`` and ``pod`` of the pod that was scraped."""
    return f'{{namespace="{endpoint.namespace}",{label}=~"{_pod_names(endpoint, role_name)}"}}'


def _pod_names(endpoint: Endpoint, role_name: str) -> str:
    """Names of a role's pods, as an expression that PromQL anchors on both sides."""
    if endpoint.backend == "operator":
        # A Deployment adds two parts without dashes; another endpoint's name may begin with this one's.
        return f"{EndpointNames.of(endpoint).workload(role_name)}-[^-]+-[^-]+"
    names = LlmdNames.of(endpoint)
    return f"{names.workload_set}-0-.*-{role_name}-.*" if endpoint.workload == "disaggregated_set" else f"{names.workload(role_name)}-.*"


def _rate(series: str, endpoint: Endpoint, role_name: str, seconds: int = RATE_SECONDS) -> str:
    return f"sum(rate({series}{_pods(endpoint, role_name)}[{seconds}s]))"


def _smooth(series: str, endpoint: Endpoint, role_name: str) -> str:
    return f"avg_over_time({series}{_pods(endpoint, role_name)}[{SMOOTHING_SECONDS}s])"


def _held(endpoint: Endpoint, role_name: str) -> str:
    """Requests that a role's pods work at or have waiting."""
    both = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    return " + ".join(f"sum({_smooth(series, endpoint, role_name)})" for series in both)


def _idle(endpoint: Endpoint, role_name: str) -> str:
    """0 while the role's pods are scraped: without a request some series do not exist, and a mean is no number."""
    return f"(0 * sum(vllm:kv_cache_usage_perc{_pods(endpoint, role_name)}))"


def _soon(rate: str, policy: Policy) -> str:
    """A rate when a pod that is asked for now will be ready, if it goes on as in the last quarter of an hour; never less than now."""
    return f"clamp_min(predict_linear(({rate})[{TREND_SECONDS}s:{TREND_STEP_SECONDS}s], {policy.lead_seconds}), scalar({rate}))"


def _tokens_read(endpoint: Endpoint) -> str:
    """Prompt tokens a second that prefillers compute: those that they find in their cache cost nothing."""
    found = f"({_rate('vllm:prefix_cache_hits_total', endpoint, 'prefill')} or {_idle(endpoint, 'prefill')})"
    return f"{_rate('vllm:prompt_tokens_total', endpoint, 'prefill')} - {found}"


def _tokens_read_locally(endpoint: Endpoint) -> str:
    """Prompt tokens a second that decoders read themselves: of prompts below the threshold."""
    matcher = _pods(endpoint, "decode").replace("{", '{source="local_compute",', 1)
    return f"sum(rate(vllm:prompt_tokens_by_source_total{matcher}[{RATE_SECONDS}s])) or {_idle(endpoint, 'decode')}"


def _arrivals(endpoint: Endpoint) -> str:
    """Requests a second that decoders get: what prefill has finished counts before decode has begun with it."""
    finished = _rate("vllm:request_success_total", endpoint, "decode")
    return f"clamp_min({finished}, scalar({_rate('vllm:request_success_total', endpoint, 'prefill')}))"


def _mean_answer(endpoint: Endpoint) -> str:
    total = _rate("vllm:request_generation_tokens_sum", endpoint, "decode", _MEAN_SECONDS)
    return f"({total} / {_rate('vllm:request_generation_tokens_count', endpoint, 'decode', _MEAN_SECONDS)})"


def _backlog_tokens(endpoint: Endpoint, site: Site) -> str:
    """Uncached prompt tokens that wait for prefillers or are in them."""
    if endpoint.backend == "llm-d" and counts_tokens(picking(endpoint, site).config):
        return _counted_by_picker(endpoint)
    # Without the picker's count: requests that wait or run, each as long as the mean prompt.
    held = _held(endpoint, "prefill")
    total = _rate("vllm:request_prompt_tokens_sum", endpoint, "prefill", _MEAN_SECONDS)
    count = _rate("vllm:request_prompt_tokens_count", endpoint, "prefill", _MEAN_SECONDS)
    return f"(({held}) * ({total} / {count})) > 0 or {_idle(endpoint, 'prefill')}"


def counts_tokens(config: PickerConfig) -> bool:
    """Whether a picker counts the tokens that it has sent to each pod."""
    return any(plugin.type == LOAD_PRODUCER for plugin in config.plugins)


def _counted_by_picker(endpoint: Endpoint) -> str:
    """The picker's count, of pods that it still knows.

    Up to v0.10.0 it keeps the last value of a pod that is gone, for ever, so that prefill would never scale down
    (https://github.com/llm-d/llm-d-router/pull/2577). Sizes of queues are made anew of living pods at each scrape. The series begin with
    the first request; until then the queues say that there is nothing.
    """
    names = _pod_names(endpoint, "prefill")
    space = f'namespace="{endpoint.namespace}"'
    counted = f'llm_d_epp_inflight_tokens{{{space},producer_name="{LOAD_PRODUCER}",endpoint_name=~"{names}"}}'
    alive = f'llm_d_epp_per_endpoint_queue_size{{{space},model_server_endpoint=~"{names}"}}'
    mean = f"avg_over_time({counted}[{SMOOTHING_SECONDS}s])"
    guarded = (
        f'label_replace({mean}, "target_pod", "$1", "endpoint_name", "(.+)") and on (target_pod) '
        f'label_replace({alive}, "target_pod", "$1", "model_server_endpoint", "(.+)")'
    )
    return f"sum({guarded}) or (0 * sum({alive}))"
