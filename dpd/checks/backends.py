"""What each backend can do with the words of the environment file. A word that it cannot honour is said, never dropped."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dpd.backends.backend import Backend, Capabilities, backend
from dpd.catalog import images
from dpd.checks.registry import Context, Problem, check
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.finding import Level

_PAGE: Final = "docs/backends.md"
_DPD: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_NIXL: Final = "https://docs.vllm.ai/en/latest/features/nixl_connector_usage/"
_OTHER: Final = {"operator": "llm-d", "llm-d": "operator"}


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of the file that the backend has nothing for."""

    path: str
    value: Any
    message: str
    fix: str
    limit: str = ""


def _words(environment: Environment) -> Iterator[tuple[str, Endpoint, Backend]]:
    for index, endpoint in enumerate(environment.endpoints):
        yield f"endpoints[{index}]", endpoint, backend(endpoint.backend)


def _problems(path: str, words: Iterator[_Word]) -> Iterator[Problem]:
    for word in words:
        yield Problem(f"{path}.{word.path}", word.message, word.fix, word.value, word.limit)


def _choice(known: Backend, path: str, value: str, allowed: frozenset[str], why: str) -> Iterator[_Word]:
    """A value that is not one of the backend's."""
    if value not in allowed:
        several = ", ".join(sorted(allowed))
        fix = f"use {' or '.join(sorted(allowed))}" if allowed else "leave it out"
        yield _Word(path, value, f"the {known.name} backend cannot do this: {why}", f"{fix}, or backend: {_OTHER[known.name]}", several)


def _only(known: Backend, path: str, value: Any, *, can: bool, why: str, fix: str = "leave it out") -> Iterator[_Word]:
    """A key that was written although the backend has nothing for it."""
    if value and not can:
        yield _Word(path, value if isinstance(value, str | int | float) else None, f"the {known.name} backend {why}", fix)


@check(
    "BCK001", "The backend's router can do what routing asks for",
    why="A strategy, a way of counting or a gateway that the router does not have would be replaced by its default, and the traffic "
    "would look right while it goes elsewhere.",
    link=_PAGE, binding=True,
)  # fmt: skip
def routing(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare every key of ``routing`` with the backend's router."""
    for path, endpoint, known in _words(environment):
        yield from _problems(f"{path}.routing", _routing(endpoint, known, known.capabilities))


def _routing(endpoint: Endpoint, known: Backend, can: Capabilities) -> Iterator[_Word]:
    asked = endpoint.routing
    yield from _choice(known, "strategy", asked.strategy, can.strategies, "its router has no such strategy")
    yield from _choice(
        known, "threshold_counts", asked.threshold_counts, can.threshold_counts, "its router compares the whole prompt with the threshold"
    )
    yield from _choice(
        known, "no_prefiller", asked.no_prefiller, can.no_prefiller, "what its router does without a prefiller cannot be chosen"
    )
    yield from _only(known, "gateway", asked.gateway, can=can.gateway, why="brings a load balancer of its own and takes no Gateway")
    if known.name != "operator":
        yield from _only(
            known, "inference_gateway", asked.inference_gateway, can=False, why="has no such thing; it is a part of the operator",
            fix="leave it out, and set gateway",
        )  # fmt: skip


@check(
    "BCK002", "Incoming KV has the place that the backend gives it",
    why="The operator's decoders receive KV in a buffer whose size is memory that nothing else can use, so it has no default. With llm-d "
    "they read it straight into their cache, and a buffer would be an amount of memory that nobody sets aside.",
    link=_DPD, binding=True,
)  # fmt: skip
def buffer(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask for the buffer where there is one, and refuse it where there is none."""
    for path, endpoint, known in _words(environment):
        size = endpoint.kv.buffer_gib
        if known.capabilities.kv_buffer and size is None:
            yield Problem(
                f"{path}.kv.buffer_gib",
                f"is required with the {known.name} backend",
                "add buffer_gib; the KV of the longest prompt on a rank, at least twice",
            )
        elif size is not None and not known.capabilities.kv_buffer:
            yield Problem(
                f"{path}.kv.buffer_gib",
                f"the {known.name} backend has no such buffer: decoders pull KV into their own cache",
                "leave it out; gpu_memory_utilization can be higher",
                size,
            )


@check(
    "BCK003", "The backend moves and keeps KV as the file asks",
    why="A tier that nothing fills, or another failure policy than the file says, is found when memory or latency run out.",
    link=_NIXL, binding=True,
)  # fmt: skip
def kv(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare every other key of ``kv`` with the backend."""
    for path, endpoint, known in _words(environment):
        yield from _problems(f"{path}.kv", _kv(endpoint, known, known.capabilities))


def _kv(endpoint: Endpoint, known: Backend, can: Capabilities) -> Iterator[_Word]:
    asked = endpoint.kv
    if "load_failure" in asked.model_fields_set:
        yield from _choice(known, "load_failure", asked.load_failure, can.load_failure, "LMCache always recomputes what does not arrive")
    if asked.tier_engine:
        yield from _choice(known, "tier_engine", asked.tier_engine, can.tier_engines, "it moves KV between the tiers with LMCache")
    kind = asked.shared_tier.partition(":")[0]
    if kind not in can.shared_tiers:
        addresses = {"redis": "redis://host:port", "rediss": "rediss://host:port", "mooncake": "mooncake://host:port"}
        choices = " or ".join(sorted(addresses.get(one, one) for one in can.shared_tiers))
        yield _Word(
            "shared_tier", asked.shared_tier, f"the {known.name} backend cannot share KV through this", f"use {choices}", choices
        )  # fmt: skip
    yield from _only(
        known,
        "disk_tier",
        asked.disk_tier,
        can=can.disk_tier,
        why="keeps no KV on disk",
        fix="leave it out, or use cpu_tier or shared_tier",
    )
    if asked.eviction:
        yield from _choice(known, "eviction", asked.eviction, can.eviction, "its resource has no field for it")


@check(
    "BCK004", "The backend makes the pods that the file asks for",
    why="Pods that lack a right, huge pages or a second node start, and do less than what was planned and paid for.",
    link=_PAGE, binding=True,
)  # fmt: skip
def pods(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare what is said of workloads and roles with the backend."""
    for path, endpoint, known in _words(environment):
        yield from _problems(path, _pods(endpoint, known, known.capabilities))


def _pods(endpoint: Endpoint, known: Backend, can: Capabilities) -> Iterator[_Word]:
    yield from _choice(known, "workload", endpoint.workload, can.workloads, "the operator makes Deployments itself")
    for name, role in endpoint.roles:
        yield from _only(
            known, f"{name}.expert_parallel", role.expert_parallel, can=can.expert_parallel,
            why="runs each replica on one node", fix=f"leave it out, or use backend: {_OTHER[known.name]}",
        )  # fmt: skip
        yield from _only(
            known, f"{name}.hugepages_mib", role.hugepages_mib, can=can.pod_security,
            why="has no word for it", fix="ask for hugepages-2Mi under raw.spec.pdSpec, for both roles",
        )  # fmt: skip
        yield from _only(
            known, f"{name}.privileged", role.privileged, can=can.pod_security,
            why="decides about the rights of its containers itself", fix=f"leave it out, or use backend: {_OTHER[known.name]}",
        )  # fmt: skip


@check(
    "BCK005", "The backend exposes the endpoint as the file asks",
    why="An endpoint that nobody registers, or a certificate that nobody attaches, is missed by the first client. Raw fields belong to "
    "the one resource that the operator reads; with other objects there is nothing to merge them into.",
    link=_PAGE, binding=True,
)  # fmt: skip
def exposure(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare ``exposure`` and ``raw`` with the backend."""
    for path, endpoint, known in _words(environment):
        yield from _problems(path, _exposure(endpoint, known, known.capabilities))


def _exposure(endpoint: Endpoint, known: Backend, can: Capabilities) -> Iterator[_Word]:
    asked, raw = endpoint.exposure, endpoint.raw
    inside = "leave it out; clients inside the VPC can use routing.gateway"
    yield from _only(
        known, "exposure.sagemaker_endpoint", asked.sagemaker_endpoint, can=can.exposure, why="registers no SageMaker endpoint", fix=inside
    )
    yield from _only(known, "exposure.certificate", asked.certificate, can=can.exposure, why="attaches no certificate", fix=inside)
    words = "leave it out, and use the words of this file"
    yield from _only(known, "raw.spec", raw.spec, can=can.raw, why="has no single resource to merge it into", fix=words)
    yield from _only(known, "raw.unknown_fields_reason", raw.unknown_fields_reason, can=can.raw, why="has no resource with raw fields")


@check(
    "BCK006", "Objectives go no further than the router can use them",
    why="A priority that no router reads protects nobody. The latency objectives are always read by gate, alarms and planner; no router of "
    "this catalog steers by them without a predictor that this tool does not install, or unless clients send them with each request.",
    link=_PAGE, binding=True,
)  # fmt: skip
def objectives(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse a priority where the router has no notion of it."""
    for path, endpoint, known in _words(environment):
        priority = endpoint.objectives.priority
        if priority is None:
            continue
        if not known.capabilities.priority:
            message = f"the router of the {known.name} backend has no priorities"
            yield Problem(f"{path}.objectives.priority", message, f"leave it out, or use backend: {_OTHER[known.name]}", priority)
        elif endpoint.routing.gateway is None:
            message = "belongs to a pool, and without a Gateway the router has none"
            yield Problem(f"{path}.objectives.priority", message, "add routing.gateway, or leave it out", priority, "with routing.gateway")


@check(
    "BCK007", "The image holds what moves KV",
    why="The operator hands KV over with LMCache, and so does an LMCache tier. An image without it starts, and every prompt is computed "
    "twice.",
    link=_DPD, binding=True,
)  # fmt: skip
def image(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask for the LMCache version of an image that needs it."""
    for path, endpoint, known in _words(environment):
        tiers = endpoint.kv.tier_engine == "lmcache"
        chosen = endpoint.image or images.default_image(known.name)
        if (known.name == "operator" or tiers) and not chosen.lmcache:
            yield Problem(
                f"{path}.image.lmcache",
                f"is required {'with kv.tier_engine: lmcache' if tiers else f'with the {known.name} backend'}",
                "state the version of LMCache in the image, or use another image",
            )


@check(
    "BCK008", "What is said for a backend has an endpoint that uses it", level=Level.WARNING,
    why="A mirror that no endpoint pulls from looks like a closed network that is provided for, and is none.",
    link=_PAGE,
)  # fmt: skip
def unused(environment: Environment, _: Context) -> Iterator[Problem]:
    """Say which mirrors of the router nobody pulls from."""
    served = [endpoint for endpoint in environment.endpoints if endpoint.backend == "llm-d"]
    knows_tokens = any(endpoint.routing.strategy == "kv_aware" for endpoint in served)
    for name, repository in environment.cluster.router_repositories.items():
        if not served or (name == "tokenizer" and not knows_tokens):
            message = "no endpoint with strategy kv_aware needs it" if served else "no endpoint has backend: llm-d"
            yield Problem(f"cluster.router_repositories.{name}", message, "remove it", repository)
