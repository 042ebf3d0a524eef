"""One endpoint as it runs now: pods of each role, and what their own counters say, through the health gate's client. Nothing is sent."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from eks_api.reasons import Waiting
from health_gate import probe
from health_gate.kubernetes import Kubernetes, Pod
from health_gate.series import Samples, merged, rise, total
from health_gate.spec import Endpoint

ROLES: Final = ("prefill", "decode")
_RUNNING, _WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_KV: Final = "vllm:kv_cache_usage_perc"
_READ, _WRITTEN = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
_ASKED, _FOUND = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
_POSTED: Final = "vllm:nixl_post_time_seconds_sum"
_NAMES: Final = (_RUNNING, _WAITING, _KV, _READ, _WRITTEN, _ASKED, _FOUND, _POSTED)
_GIGA: Final = 1e9
_SCRAPE_SECONDS: Final = 10.0
Readings = dict[str, Samples | None]


@dataclass(frozen=True, slots=True)
class RoleState:
    """A role. Rates are of the moment, ``None`` where no pod says; ``blind`` are pods whose metrics cannot be read."""

    name: str
    wanted: int
    ready: int
    pods: tuple[str, ...]
    restarts: int
    troubles: tuple[str, ...]
    running: float | None = None
    waiting: float | None = None
    kv_use: float | None = None
    tokens_per_second: float | None = None
    cached_share: float | None = None
    requests: float | None = None
    """Requests finished since the pods began."""
    requests_per_second: float | None = None
    blind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Crossing:
    """KV between the roles: GB/s for each rank, since the pods began and of the moment; ``failures`` by series."""

    total_gb_per_second: float | None
    now_gb_per_second: float | None
    moved_gb: float | None
    posting_share: float | None
    """Of the transfer time, what goes into posting it."""
    failures: dict[str, float]


@dataclass(frozen=True, slots=True)
class State:
    """An endpoint. ``through_prefill`` is the share of the finished requests whose prompt a prefiller read, ``None`` while nobody says."""

    endpoint: Endpoint
    roles: tuple[RoleState, ...]
    router: RoleState
    through_prefill: float | None
    through_prefill_now: float | None
    crossing: Crossing

    @property
    def serves(self) -> bool:
        """Whether both roles and the router have a ready pod."""
        return all(role.ready for role in (*self.roles, self.router))


def read(kubernetes: Kubernetes, endpoint: Endpoint, seconds: float, deadline: float, sleep: Callable[[float], None] = time.sleep) -> State:
    """Read pods and counters twice, ``seconds`` apart. Raises the gate's ``Denied`` and ``Waiting``."""
    pods = {role: kubernetes.pods(wanted.namespace, wanted.labels, wanted.name_prefix, deadline) for role, wanted in endpoint.pods.items()}
    before = {role: _scraped(kubernetes, endpoint, role, pods[role], deadline) for role in ROLES}
    sleep(seconds)
    after = {role: _scraped(kubernetes, endpoint, role, pods[role], deadline) for role in ROLES}
    roles = tuple(_role(endpoint, role, pods[role], before[role], after[role], seconds) for role in ROLES)
    return State(
        endpoint=endpoint,
        roles=roles,
        router=_pods_of(endpoint, "router", pods["router"]),
        through_prefill=_share(roles[0].requests, roles[1].requests),
        through_prefill_now=_share(roles[0].requests_per_second, roles[1].requests_per_second),
        crossing=_crossing(endpoint, before, after),
    )


def _scraped(kubernetes: Kubernetes, endpoint: Endpoint, role: str, pods: list[Pod], deadline: float) -> Readings:
    found: Readings = {}
    wanted = endpoint.pods[role]
    names = (*endpoint.series.all, *_NAMES)
    for pod in pods:
        until = min(deadline, time.monotonic() + _SCRAPE_SECONDS)
        try:
            ways = [kubernetes.way(pod, port, until) for port in range(wanted.port, wanted.port + wanted.servers)]
            found[pod.name] = merged(probe.scrape(way, "/metrics", names, until) for way in ways)
        except Waiting:
            found[pod.name] = None
    return found


def _pods_of(endpoint: Endpoint, role: str, pods: list[Pod]) -> RoleState:
    wanted = endpoint.pods[role]
    return RoleState(
        name=role,
        wanted=wanted.replicas,
        ready=sum(pod.ready >= wanted.containers for pod in pods),
        pods=tuple(f"{pod.name} on {pod.node or 'no node'}" for pod in pods),
        restarts=sum(container.restarts for pod in pods for container in pod.containers),
        troubles=tuple(trouble for pod in pods for trouble in _troubles(pod)),
    )


def _troubles(pod: Pod) -> Iterable[str]:
    if pod.unscheduled:
        yield f"{pod.name} has no node: {pod.unscheduled}"
    for container in pod.containers:
        if container.waiting and container.waiting != "PodInitializing":
            yield f"{pod.name}: {container.name} waits ({container.waiting})"
        elif container.ended and not container.ready:
            yield f"{pod.name}: {container.name} ended ({container.ended})"


def _role(endpoint: Endpoint, role: str, pods: list[Pod], before: Readings, after: Readings, seconds: float) -> RoleState:
    plain = _pods_of(endpoint, role, pods)
    tokens = _rate(before, after, (_READ if role == "prefill" else _WRITTEN,), seconds)
    kv = [
        value / count
        for samples in after.values()
        if samples and (count := len(samples.get(_KV, ()))) and (value := total(samples, _KV)) is not None
    ]
    return RoleState(
        name=plain.name, wanted=plain.wanted, ready=plain.ready, pods=plain.pods, restarts=plain.restarts, troubles=plain.troubles,
        running=_sum(after, (_RUNNING,)), waiting=_sum(after, (_WAITING,)), kv_use=max(kv, default=None), tokens_per_second=tokens,
        cached_share=_share(_sum(after, (_FOUND,)), _sum(after, (_ASKED,))),
        requests=_sum(after, endpoint.series.requests), requests_per_second=_rate(before, after, endpoint.series.requests, seconds),
        blind=tuple(name for name, samples in after.items() if samples is None),
    )  # fmt: skip


def _crossing(endpoint: Endpoint, before: dict[str, Readings], after: dict[str, Readings]) -> Crossing:
    """Decoders pull, so that their counters have the transfers; what expires is counted by prefillers."""
    series, decode = endpoint.series, after["decode"]
    moved, took, posted = (_sum(decode, names) for names in (series.kv_bytes, series.kv_seconds, (_POSTED,)))
    moved_now, took_now = (_rise(before["decode"], decode, names) for names in (series.kv_bytes, series.kv_seconds))
    failures = {}
    for name in series.failures:
        counts = [value for readings in after.values() if (value := _sum(readings, (name,))) is not None]
        if counts:
            failures[name] = sum(counts)
    return Crossing(
        total_gb_per_second=_share(moved, took, per=_GIGA),
        now_gb_per_second=_share(moved_now, took_now, per=_GIGA),
        moved_gb=None if moved is None else moved / _GIGA,
        posting_share=_share(posted, took),
        failures=failures,
    )


def _sum(readings: Readings, alternatives: Iterable[str]) -> float | None:
    """The first series that any pod has, over all pods that have it."""
    for name in alternatives:
        values = [value for samples in readings.values() if samples is not None and (value := total(samples, name)) is not None]
        if values:
            return sum(values)
    return None


def _rise(before: Readings, after: Readings, alternatives: Iterable[str]) -> float | None:
    names = tuple(alternatives)
    changes = [change for pod in after if (change := rise(before.get(pod), after[pod], names)) is not None]
    return sum(changes) if changes else None


def _rate(before: Readings, after: Readings, alternatives: Iterable[str], seconds: float) -> float | None:
    change = _rise(before, after, alternatives)
    return change / seconds if change is not None and seconds > 0 else None


def _share(part: float | None, whole: float | None, *, per: float = 1.0) -> float | None:
    return part / whole / per if part is not None and whole else None


def as_dict(state: State) -> dict[str, Any]:
    """The state as plain values."""
    crossing = state.crossing
    return {
        "endpoint": state.endpoint.key,
        "serves": state.serves,
        "roles": {
            role.name: {
                "wanted": role.wanted, "ready": role.ready, "pods": list(role.pods), "restarts": role.restarts,
                "troubles": list(role.troubles),
                "running": role.running, "waiting": role.waiting, "kv_use": role.kv_use, "tokens_per_second": role.tokens_per_second,
                "cached_share": role.cached_share, "requests": role.requests, "metrics_unreadable": list(role.blind),
            }
            for role in (*state.roles, state.router)
        },
        "through_prefill": {"total": state.through_prefill, "now": state.through_prefill_now},
        "kv": {
            "gb_per_second": {"total": crossing.total_gb_per_second, "now": crossing.now_gb_per_second},
            "floor_gb_per_second": state.endpoint.kv_floor_gb_per_second,
            "moved_gb": crossing.moved_gb, "posting_share": crossing.posting_share, "failures": crossing.failures,
        },
    }  # fmt: skip
