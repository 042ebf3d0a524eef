"""The picker's file: what the pinned version reads, and what it and other versions refuse."""

from typing import Any

import pytest
import yaml

from dpd.backends.llmd.picker_config import PickerConfig, load

HEAD = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}
FILTERS = [{"type": "prefill-filter"}, {"type": "decode-filter"}]


def content(*plugins: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**HEAD, "plugins": [*plugins], **more}


def profile(*references: Any, name: str = "default") -> dict[str, Any]:
    return {"name": name, "plugins": [reference if isinstance(reference, dict) else {"pluginRef": reference} for reference in references]}


# What samples of the versions do, in our own arrangement: disaggregation by uncached tokens, by events, and flow control.
DISAGGREGATED = content(
    {"type": "approx-prefix-cache-producer", "parameters": {"maxPrefixTokensToMatch": 4096, "lruCapacityPerServer": 31250}},
    {"type": "prefix-cache-scorer"}, {"type": "queue-scorer"}, *FILTERS, {"type": "max-score-picker"},
    {"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": 16}},
    {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "prefix-based-pd-decider"}}},
    schedulingProfiles=[
        profile(f"{role}-filter", "max-score-picker", {"pluginRef": "prefix-cache-scorer", "weight": 2},
                {"pluginRef": "queue-scorer", "weight": 1.0}, name=role)
        for role in ("prefill", "decode")
    ],
)  # fmt: skip
BY_EVENTS = content(
    {"type": "disagg-headers-handler"}, {"type": "always-disagg-pd-decider"},
    {"type": "disagg-profile-handler", "parameters": {"deciderPluginName": "always-disagg-pd-decider"}}, *FILTERS,
    {"type": "token-producer", "parameters": {"modelName": "openai/gpt-oss-120b", "vllm": {"url": "http://render:8000"}}},
    {"type": "endpoint-notification-source"}, {"type": "metrics-data-source", "parameters": {"scheme": "http", "insecureSkipVerify": True}},
    {"type": "core-metrics-extractor"},
    {"type": "precise-prefix-cache-producer", "parameters": {
        "indexerConfig": {"kvBlockIndexConfig": {"inMemoryConfig": {"podCacheSize": 20}},
                          "kvCacheBackendConfigs": [{"name": "gpu", "weight": 1.0}, {"name": "cpu", "weight": 0.4}]},
        "tokenProcessorConfig": {"blockSizeTokens": 128}, "speculativeIndexing": True,
        "kvEventsConfig": {"topicFilter": "kv@", "discoverPods": True, "podDiscoveryConfig": {"socketPort": 5556}}}},
    {"type": "prefix-cache-scorer", "name": "precise", "parameters": {"prefixMatchInfoProducerName": "precise-prefix-cache-producer"}},
    {"type": "active-request-scorer"},
    dataLayer={"sources": [
        {"pluginRef": "metrics-data-source", "extractors": [{"pluginRef": "core-metrics-extractor"}]},
        {"pluginRef": "endpoint-notification-source", "extractors": [{"pluginRef": "precise-prefix-cache-producer"}]},
    ]},
    schedulingProfiles=[profile("prefill-filter", {"pluginRef": "precise", "weight": 3}, name="prefill"),
                        profile("decode-filter", {"pluginRef": "active-request-scorer", "weight": 2}, name="decode")],
)  # fmt: skip
QUEUED = content(
    {"type": "round-robin-fairness-policy"}, {"type": "fcfs-ordering-policy"}, {"type": "queue-scorer"},
    {"type": "concurrency-detector", "parameters": {"maxConcurrency": 15, "concurrencyMode": "requests", "headroom": 0.0}},
    featureGates=["flowControl"],
    saturationDetector={"pluginRef": "concurrency-detector"},
    flowControl={
        "maxBytes": "10Gi", "maxRequests": "1k", "defaultRequestTTL": "60s",
        "priorityBands": [
            {"priority": 100, "maxRequests": "500", "fairnessPolicyRef": "round-robin-fairness-policy",
             "orderingPolicyRef": "fcfs-ordering-policy"},
            {"priority": -10, "maxRequests": 50},
        ],
    },
    schedulingProfiles=[profile("queue-scorer")],
)  # fmt: skip


@pytest.mark.parametrize("known", [DISAGGREGATED, BY_EVENTS, QUEUED], ids=["disaggregated", "by events", "queued"])
def test_what_samples_of_the_pinned_version_say_is_read_and_written_again(known: dict[str, Any]) -> None:
    config = load(known, "0.10.0")
    again = yaml.safe_load(config.text())
    assert again == known
    assert load(again, "0.10.0") == config


def replaced(**more: Any) -> dict[str, Any]:
    return {**DISAGGREGATED, **more}


def decided(**parameters: Any) -> dict[str, Any]:
    plugins = [
        {"type": plugin["type"], "parameters": parameters} if plugin["type"] == "prefix-based-pd-decider" else plugin
        for plugin in DISAGGREGATED["plugins"]
    ]
    return replaced(plugins=plugins)


def added(plugin: dict[str, Any], **more: Any) -> dict[str, Any]:
    return replaced(plugins=[*DISAGGREGATED["plugins"], plugin], **more)


REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("another version of the file", "0.10.0", replaced(apiVersion="llm-d.ai/v1"), "apiVersion"),
    ("the group of before", "0.10.0", replaced(apiVersion="inference.networking.x-k8s.io/v1alpha1"), "apiVersion"),
    ("an unknown key", "0.10.0", replaced(metadata={"name": "a"}), "metadata"),
    ("an unknown key of a plugin", "0.10.0", added({"type": "random-picker", "params": {}}), "params"),
    ("an unknown key of flow control", "0.10.0", {**QUEUED, "flowControl": {"noEndpointRequestTTL": "60s"}}, "noEndpointRequestTTL"),
    ("a plugin that nobody knows", "0.10.0", added({"type": "by-label"}), "no plugin 'by-label'"),
    ("a plugin of a later version", "0.10.0", added({"type": "multicluster-queue-scorer"}), "multicluster-queue-scorer"),
    ("a plugin that came after", "0.9.0", added({"type": "topology-affinity-filter"}), "router 0.9.0 has no plugin"),
    ("a parameter that came after", "0.9.0", decided(nonCachedTokens=1, promptTokens=4096), "no parameter 'promptTokens'"),
    ("a parameter of a later version", "0.10.0", decided(nonCachedTokens=1, prefixMatchInfoProducerName="approx-prefix-cache-producer"),
     "no parameter 'prefixMatchInfoProducerName'"),
    ("the order of stages, which came after", "0.9.0",
     replaced(plugins=[*DISAGGREGATED["plugins"][:-1], {"type": "disagg-profile-handler", "parameters": {"stageOrder": "prefill-first"}}]),
     "no parameter 'stageOrder'"),
    ("a parameter of another type", "0.10.0", decided(nonCachedTokens="16"), "must be of type integer"),
    ("a truth for a number", "0.10.0", decided(nonCachedTokens=True), "must be of type integer"),
    ("a parameter of a plugin without any", "0.10.0", added({"type": "token-load-scorer", "parameters": {"weight": 1}}),
     "no parameter 'weight'"),
    ("a nested parameter that nobody knows", "0.10.0",
     added({"type": "precise-prefix-cache-producer", "parameters": {"kvEventsConfig": {"port": 1}}}),
     "kvEventsConfig has no parameter 'port'"),
    ("a tier without its form", "0.10.0",
     added({"type": "precise-prefix-cache-producer", "parameters": {"indexerConfig": {"kvCacheBackendConfigs": {"name": "gpu"}}}}),
     "must be a list"),
    ("a reference to nothing", "0.10.0", replaced(schedulingProfiles=[profile("queue")]), "no plugin is called 'queue'"),
    ("a decider that is not there", "0.10.0",
     replaced(plugins=[plugin for plugin in DISAGGREGATED["plugins"] if plugin["type"] != "prefix-based-pd-decider"]),
     "no plugin is called 'prefix-based-pd-decider'"),
    ("a producer that is not there", "0.10.0",
     added({"type": "prefix-cache-scorer", "name": "b", "parameters": {"prefixMatchInfoProducerName": "c"}}), "no plugin is called 'c'"),
    ("two of one name", "0.10.0", added({"type": "queue-scorer"}), "two plugins are called 'queue-scorer'"),
    ("two profiles of one name", "0.10.0", replaced(schedulingProfiles=[profile("queue-scorer"), profile("queue-scorer")]),
     "two profiles"),
    ("two handlers", "0.10.0", added({"type": "single-profile-handler"}), "more than one plugin handles profiles"),
    ("two pickers in a profile", "0.10.0",
     added({"type": "random-picker"}, schedulingProfiles=[profile("random-picker", "max-score-picker")]),
     "more than one picker"),
    ("a weight for a filter", "0.10.0", replaced(schedulingProfiles=[profile({"pluginRef": "decode-filter", "weight": 1})]), "no scorer"),
    ("a gate of before", "0.10.0", replaced(featureGates=["prepareDataPlugins"]), "'prepareDataPlugins' is not known"),
    ("flow control without its gate", "0.10.0", {**QUEUED, "featureGates": ["flowControl=false", "other"]}, "is not known"),
    ("flow control that nobody reads", "0.10.0", {key: value for key, value in QUEUED.items() if key != "featureGates"}, "feature gate"),
    ("a time without a unit", "0.10.0", {**QUEUED, "flowControl": {"defaultRequestTTL": "60"}}, "defaultRequestTTL"),
    ("no plugins", "0.10.0", replaced(plugins=[]), "plugins"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "wrong", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_the_picker_would_not_start_with_is_refused(version: str, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match="validation error") as refused:
        load(wrong, version)
    assert says in str(refused.value)


def test_a_version_that_the_catalog_has_not_read() -> None:
    with pytest.raises(KeyError):
        load(DISAGGREGATED, "0.11.0")


def test_all_faults_are_said_at_once() -> None:
    with pytest.raises(ValueError, match="validation error") as refused:
        load(replaced(featureGates=["a"], schedulingProfiles=[profile("b", "c")]), "0.10.0")
    assert all(text in str(refused.value) for text in ("'a'", "'b'", "'c'"))


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (decided(nonCachedTokens=0), "is never"),
        (decided(), "is never"),
        (content({"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": 1}}), "no approx-prefix-cache-producer"),
        (content({"type": "disagg-profile-handler"}), "no decider for prefill"),
    ],
)
def test_what_the_picker_accepts_and_never_does(known: dict[str, Any], says: str) -> None:
    assert says in "; ".join(load(known, "0.10.0").idle_faults())


@pytest.mark.parametrize("known", [DISAGGREGATED, BY_EVENTS], ids=["disaggregated", "by events"])
def test_what_does_its_work_is_not_called_idle(known: dict[str, Any]) -> None:
    assert not list(load(known, "0.10.0").idle_faults())


def test_experimental_plugins_are_named() -> None:
    assert load(added({"type": "session-affinity-scorer"}), "0.10.0").alpha() == ("session-affinity-scorer",)
    assert load(DISAGGREGATED, "0.10.0").alpha() == ()


def test_what_one_picker_alone_knows() -> None:
    assert load(DISAGGREGATED, "0.10.0").private_state() == ("prefix-cache-scorer", "prefix-based-pd-decider")
    assert load(BY_EVENTS, "0.10.0").private_state() == ("active-request-scorer",)
    assert load(QUEUED, "0.10.0").private_state() == ("flowControl",)


def test_an_object_made_in_code_is_checked_as_well() -> None:
    with pytest.raises(ValueError, match="no plugin 'nothing'"):
        PickerConfig.model_validate({"plugins": [{"type": "nothing"}]})
