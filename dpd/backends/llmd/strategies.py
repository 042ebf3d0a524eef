"""From ``routing`` to the endpoint picker's configuration: which prompts go through a prefiller, and to which pods."""

from dataclasses import dataclass
from typing import Any, Final

from dpd.backends.llmd.engine import block_size, of_role, publishes_events
from dpd.backends.llmd.picker_config import (
    DataLayer,
    FlowControl,
    PickerConfig,
    Plugin,
    PriorityBand,
    Profile,
    Reference,
    Source,
    Weighted,
)
from dpd.backends.llmd.router_pod import shares_state
from dpd.backends.llmd.tiers import PickerTier, tiers
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.catalog.llmd_plugins import picker_facts
from dpd.environment.endpoint import Endpoint
from dpd.environment.names import LlmdNames
from dpd.sizing.expert_parallel import pods_per_replica
from dpd.sizing.memory import gpu_budget

APPROXIMATE: Final = "approx-prefix-cache-producer"
PRECISE: Final = "precise-prefix-cache-producer"
PREFIX: Final = "prefix-cache-scorer"
ALWAYS: Final = "always-disagg-pd-decider"
BY_LENGTH: Final = "prefix-based-pd-decider"
_METRICS: Final = "metrics-data-source"
_EXTRACTOR: Final = "core-metrics-extractor"
_FAIRNESS: Final = "global-strict-fairness-policy"
_ORDERING: Final = "slo-deadline-ordering-policy"
_NOTIFICATIONS: Final = "endpoint-notification-source"
_SPARE_HOLDERS: Final = 2
"""Places beyond the pods that may hold a block, for pods that come while others go."""
Scores = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Picking:
    """A picker: its configuration, how many replicas may decide side by side, and whether it asks a tokenizer."""

    config: PickerConfig
    replicas: int
    tokenizer: bool


@dataclass(frozen=True, slots=True)
class _Strategy:
    """What a strategy needs and how it weighs pods of each role. Without scores a pod is taken at random."""

    plugins: tuple[Plugin, ...]
    prefill: Scores = ()
    decode: Scores = ()
    sources: tuple[Source, ...] = ()


def picking(endpoint: Endpoint, site: Site) -> Picking:
    """The picker of an endpoint. Raises ``ValueError`` for a group or an instance type that is not known."""
    chosen = _strategy(endpoint, site)
    gated = endpoint.objectives.priority is not None
    config = PickerConfig(
        feature_gates=("flowControl",) if gated else (),
        plugins=_once(
            *chosen.plugins,
            # What the deciders of this version read, whatever the strategy: left out, the picker would make one that tunes itself.
            _approximate(endpoint, site),
            *_plain("prefill-filter", "decode-filter", _picker(chosen)),
            _decider(endpoint),
            Plugin(type="disagg-profile-handler", parameters={"deciders": {"prefill": _decider(endpoint).type}}),
            *(_plain(_FAIRNESS, _ORDERING) if gated else ()),
        ),
        scheduling_profiles=tuple(
            _profile(name, chosen, scores) for name, scores in (("prefill", chosen.prefill), ("decode", chosen.decode))
        ),
        data_layer=DataLayer(sources=chosen.sources) if chosen.sources else None,
        flow_control=_flow_control(endpoint) if gated else None,
    )
    return Picking(config, replicas=2 if shares_state(endpoint) else 1, tokenizer=publishes_events(endpoint))


def _strategy(endpoint: Endpoint, site: Site) -> _Strategy:
    return {
        "prefix_aware": _prefix_aware,
        "kv_aware": _kv_aware,
        "session": _session,
        "round_robin": lambda *_: _Strategy(()),
        "load": lambda *_: _Strategy(_plain("queue-scorer", "kv-cache-utilization-scorer", *_BUSY), _LEAST_QUEUE, _LEAST_BUSY),
    }[endpoint.routing.strategy](endpoint, site)


_BUSY: Final = ("inflight-load-producer", "active-request-scorer")
_LEAST_QUEUE: Final[Scores] = (("queue-scorer", 2), ("kv-cache-utilization-scorer", 2))
_LEAST_BUSY: Final[Scores] = (("active-request-scorer", 2),)


def _prefix_aware(endpoint: Endpoint, site: Site) -> _Strategy:
    """The prompt's prefix where it was last, unless that pod is busy. What is where is the picker's own record of where it sent what.

    A tier behind the prefillers' GPUs has a record of its own, and is worth what its weight says of the GPU's.
    """
    behind = [
        (_tier_record(endpoint, tier), round(3 * tier.weight, 2)) for tier in tiers(endpoint, "prefill", site).picker_tiers if tier.blocks
    ]
    scorers = [
        Plugin(type=PREFIX, name=f"{record.name}-scorer", parameters={"prefixMatchInfoProducerName": record.known_as})
        for record, _ in behind
    ]
    return _Strategy(
        plugins=(
            _approximate(endpoint, site),
            *(record for record, _ in behind),
            Plugin(type=PREFIX),
            *scorers,
            *_plain("queue-scorer", "kv-cache-utilization-scorer", *_BUSY),
        ),
        prefill=((PREFIX, 3), *((scorer.known_as, weight) for scorer, (_, weight) in zip(scorers, behind, strict=True)), *_LEAST_QUEUE),
        decode=((PREFIX, 3), *_LEAST_BUSY),
    )


def _kv_aware(endpoint: Endpoint, site: Site) -> _Strategy:
    """The prompt's prefix where the engines say that it is.

    Whoever listens to their events knows the same, so pickers may be several: load is read from the engines' metrics as
    well, and not from what one picker has sent.
    """
    named = Plugin(type=PREFIX, name="precise-prefix-cache-scorer", parameters={"prefixMatchInfoProducerName": PRECISE})
    return _Strategy(
        plugins=(
            Plugin(type="token-producer", parameters=_tokens(endpoint)),
            Plugin(type=_NOTIFICATIONS),
            Plugin(type=_METRICS, parameters={"scheme": "http", "path": "/metrics"}),
            Plugin(type=_EXTRACTOR),
            Plugin(type=PRECISE, parameters=_index(endpoint, site)),
            named,
            *_plain("queue-scorer", "kv-cache-utilization-scorer", "running-requests-size-scorer"),
        ),
        prefill=((named.known_as, 3), *_LEAST_QUEUE),
        decode=((named.known_as, 3), ("running-requests-size-scorer", 2)),
        sources=(
            Source(plugin_ref=_METRICS, extractors=(Reference(plugin_ref=_EXTRACTOR),)),
            Source(plugin_ref=_NOTIFICATIONS, extractors=(Reference(plugin_ref=PRECISE),)),
        ),
    )


def _session(endpoint: Endpoint, site: Site) -> _Strategy:
    """The decoder that served the session before. A prefiller is found by the prompt's prefix, which a session shares with its past."""
    kind = "session-affinity-scorer"
    return _Strategy(
        plugins=(
            Plugin(type=kind, parameters={"headerName": picker_facts().headers.session}),
            _approximate(endpoint, site),
            *_plain(PREFIX, "queue-scorer", "kv-cache-utilization-scorer", *_BUSY),
        ),
        prefill=((PREFIX, 3), *_LEAST_QUEUE),
        decode=((kind, 10), *_LEAST_BUSY),
    )


def _decider(endpoint: Endpoint) -> Plugin:
    """Who asks for prefill.

    0 means always here, and never to the picker, so it must not reach it. ``prompt`` counts the whole prompt, and of that at
    least one token must be new: for a prompt that the decoder has in full there is nothing to read.
    """
    threshold, counts = endpoint.routing.threshold_tokens, endpoint.routing.threshold_counts
    if threshold == 0:
        return Plugin(type=ALWAYS)
    limits = {"nonCachedTokens": 1, "promptTokens": threshold} if counts == "prompt" else {"nonCachedTokens": threshold, "promptTokens": 0}
    return Plugin(type=BY_LENGTH, parameters=limits)


def _approximate(endpoint: Endpoint, site: Site) -> Plugin:
    """The picker's own record of prefixes, in blocks of the engines' size. Tuned from metrics it would take another size."""
    return Plugin(type=APPROXIMATE, parameters=_record(endpoint, _gpu_blocks(endpoint, site)))


def _tier_record(endpoint: Endpoint, tier: PickerTier) -> Plugin:
    """The record of a tier, as long as the tier is large: no metric of the engines tells what lies there."""
    return Plugin(type=APPROXIMATE, name=f"{tier.name}-prefix-cache", parameters=_record(endpoint, tier.blocks or 1))


def _record(endpoint: Endpoint, blocks: int) -> dict[str, Any]:
    return {
        "autoTune": False,
        "blockSizeTokens": max(block_size(endpoint), picker_facts().least_block_tokens),
        "maxPrefixTokensToMatch": min(endpoint.model.max_model_len, int(_facts()["prefix_tokens"])),
        "lruCapacityPerServer": blocks,
    }


def _gpu_blocks(endpoint: Endpoint, site: Site) -> int:
    """Blocks that the smaller of the roles' caches holds. A longer record would promise what has been evicted."""
    tokens = []
    for name, role in endpoint.roles:
        of_role(endpoint, name, site)
        if instance := site.instance(role.group):
            tokens.append(gpu_budget(endpoint, name, role, instance).kv_tokens)
    return max(1, min(tokens) // max(block_size(endpoint), picker_facts().least_block_tokens))


def _tokens(endpoint: Endpoint) -> dict[str, Any]:
    facts, names = _facts()["tokenizer"], LlmdNames.of(endpoint)
    url = f"http://{names.tokenizer}.{names.namespace}.svc.cluster.local:{facts['port']}"
    return {"modelName": endpoint.served_name, "vllm": {"url": url}}


def _index(endpoint: Endpoint, site: Site) -> dict[str, Any]:
    """The record of what the engines say they hold."""
    known = tiers(endpoint, "prefill", site).picker_tiers or (PickerTier("gpu", 1.0),)
    return {
        "tokenProcessorConfig": {"blockSizeTokens": block_size(endpoint)},
        "indexerConfig": {
            "kvBlockIndexConfig": {"enableMetrics": True, "inMemoryConfig": {"podCacheSize": _holders(endpoint, site, len(known))}},
            "kvCacheBackendConfigs": [{"name": tier.name, "weight": float(tier.weight)} for tier in known],
        },
        "speculativeIndexing": True,
        "kvEventsConfig": {
            "topicFilter": "kv@",
            "discoverPods": True,
            "podDiscoveryConfig": {"socketPort": llmd().ports["kv_events"]},
        },
    }


def _holders(endpoint: Endpoint, site: Site, prefill_tiers: int) -> int:
    """Engines, and tiers of them, that may hold one block: beyond this number the index forgets some."""
    total = _SPARE_HOLDERS
    for name, role in endpoint.roles:
        replicas = role.autoscaling.max_replicas if role.autoscaling else role.replicas
        ranks = of_role(endpoint, name, site)[2]
        total += (replicas + role.max_surge) * pods_per_replica(role) * ranks * (prefill_tiers if name == "prefill" else 1)
    return total


def _flow_control(endpoint: Endpoint) -> FlowControl:
    """Requests of a higher priority go first, and within one the one whose time to first token runs out first."""
    band = PriorityBand(fairness_policy_ref=_FAIRNESS, ordering_policy_ref=_ORDERING)
    return FlowControl(default_priority_band=band, priority_bands=(band.model_copy(update={"priority": endpoint.objectives.priority}),))


def _picker(chosen: _Strategy) -> str:
    return "max-score-picker" if chosen.prefill else "random-picker"


def _profile(name: str, chosen: _Strategy, scores: Scores) -> Profile:
    weighted = (Weighted(plugin_ref=scorer, weight=weight) for scorer, weight in scores)
    return Profile(name=name, plugins=(Weighted(plugin_ref=f"{name}-filter"), *weighted, Weighted(plugin_ref=_picker(chosen))))


def _plain(*types: str) -> tuple[Plugin, ...]:
    return tuple(Plugin(type=kind) for kind in types)


def _once(*plugins: Plugin) -> tuple[Plugin, ...]:
    """Plugins that several parts ask for, made once."""
    return tuple({plugin.known_as: plugin for plugin in plugins}.values())


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = llmd().more["picker"]
    return facts
