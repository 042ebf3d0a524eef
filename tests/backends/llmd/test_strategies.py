"""Routing as a configuration of the picker: every strategy, every threshold, tiers, ranks and priorities."""

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from dpd.backends.llmd.pod import template
from dpd.backends.llmd.ports import active_ports, target_ports
from dpd.catalog.llmd_plugins import pinned, plugins
from tests.backends.llmd.objects import argument
from tests.backends.llmd.routers import GATEWAY, MOE, ROUTING, E, chosen, given

STRATEGIES = ("prefix_aware", "kv_aware", "session", "round_robin", "load")


def strategy(name: str, **more: Any) -> dict[str, Any]:
    return {f"{ROUTING}strategy": name, **{f"{ROUTING}{key}": value for key, value in more.items()}}


def parameters(changes: dict[str, Any], name: str) -> dict[str, Any] | None:
    (found,) = (plugin for plugin in chosen(changes).config.plugins if plugin.known_as == name)
    return found.parameters


def profile(changes: dict[str, Any], name: str) -> list[str]:
    (found,) = (profile for profile in chosen(changes).config.scheduling_profiles if profile.name == name)
    return [one.plugin_ref for one in found.plugins]


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_configuration_of_every_strategy(name: str, snapshot: SnapshotAssertion) -> None:
    assert chosen(strategy(name)).config.text() == snapshot


@pytest.mark.parametrize(
    ("tokens", "counts", "decider", "limits"),
    [
        (0, "prompt", "always-disagg-pd-decider", None),
        (0, "non_cached", "always-disagg-pd-decider", None),
        (1, "prompt", "prefix-based-pd-decider", {"nonCachedTokens": 1, "promptTokens": 1}),
        (1, "non_cached", "prefix-based-pd-decider", {"nonCachedTokens": 1, "promptTokens": 0}),
        (4096, "prompt", "prefix-based-pd-decider", {"nonCachedTokens": 1, "promptTokens": 4096}),
        (4096, "non_cached", "prefix-based-pd-decider", {"nonCachedTokens": 4096, "promptTokens": 0}),
    ],
)
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_threshold_and_what_it_counts(name: str, tokens: int, counts: str, decider: str, limits: dict[str, int] | None) -> None:
    changes = strategy(name, threshold_tokens=tokens, threshold_counts=counts)
    assert parameters(changes, decider) == limits
    assert parameters(changes, "disagg-profile-handler") == {"deciders": {"prefill": decider}}
    assert not list(chosen(changes).config.idle_faults())


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_record_of_prefixes_is_never_left_to_the_router(name: str) -> None:
    """A producer that the router makes by itself tunes its block size, and a decider without one never asks for prefill
    (https://github.com/modelplaneai/modelplane/issues/175)."""
    for tokens in (0, 4096):
        found = parameters(strategy(name, threshold_tokens=tokens), "approx-prefix-cache-producer")
        assert found is not None
        assert found["autoTune"] is False
        assert found["blockSizeTokens"] == 128


@pytest.mark.parametrize(("engine", "counted"), [(16, 64), (64, 64), (128, 128)])
def test_blocks_are_the_engines_own_and_never_below_what_the_router_counts_in(engine: int, counted: int) -> None:
    changes = {E + "kv.block_size": engine}
    assert (parameters(changes, "approx-prefix-cache-producer") or {})["blockSizeTokens"] == counted
    assert argument("prefill", "--block-size", changes) == str(engine)


def test_the_index_of_blocks_counts_as_the_engines_do() -> None:
    found = parameters({**strategy("kv_aware"), E + "kv.block_size": 64}, "precise-prefix-cache-producer") or {}
    assert found["tokenProcessorConfig"] == {"blockSizeTokens": 64}


def test_no_record_is_longer_than_the_cache_that_it_is_about() -> None:
    small, large = ({E + "prefill.gpu_memory_utilization": share} for share in (0.6, 0.9))
    blocks = [(parameters(changes, "approx-prefix-cache-producer") or {})["lruCapacityPerServer"] for changes in (small, large)]
    assert 0 < blocks[0] < blocks[1]


def test_each_profile_begins_with_its_role_and_ends_with_a_picker() -> None:
    for name in STRATEGIES:
        for role in ("prefill", "decode"):
            found = profile(strategy(name), role)
            assert found[0] == f"{role}-filter"
            assert found[-1] in {"max-score-picker", "random-picker"}


def test_nothing_that_scores_stands_in_a_profile_that_takes_turns() -> None:
    assert profile(strategy("round_robin"), "decode") == ["decode-filter", "random-picker"]


def test_load_looks_at_no_prefix() -> None:
    changes = strategy("load")
    assert not [name for role in ("prefill", "decode") for name in profile(changes, role) if "prefix" in name]


def test_a_session_keeps_its_decoder_and_finds_its_prefiller_by_the_prompt() -> None:
    changes = strategy("session")
    assert parameters(changes, "session-affinity-scorer") == {"headerName": "x-session-token"}
    assert "session-affinity-scorer" in profile(changes, "decode")
    assert "session-affinity-scorer" not in profile(changes, "prefill")
    assert chosen(changes).config.alpha() == ("session-affinity-scorer",)


@pytest.mark.parametrize("name", STRATEGIES)
def test_only_sessions_need_what_is_experimental(name: str) -> None:
    assert bool(chosen(strategy(name)).config.alpha()) == (name == "session")


@pytest.mark.parametrize("name", STRATEGIES)
def test_several_routers_only_where_each_knows_the_same(name: str) -> None:
    found = chosen(strategy(name))
    assert found.replicas == (2 if name == "kv_aware" else 1)
    assert bool(found.config.private_state()) == (found.replicas == 1 and name != "round_robin")
    assert found.tokenizer == (name == "kv_aware")


@pytest.mark.parametrize(
    ("more", "replicas"),
    [
        ({f"{ROUTING}threshold_counts": "non_cached"}, 1),
        ({f"{ROUTING}threshold_counts": "non_cached", f"{ROUTING}threshold_tokens": 0}, 2),
        ({f"{E}objectives.priority": 1, **GATEWAY}, 1),
    ],
)
def test_what_makes_a_router_of_events_depend_on_itself(more: dict[str, Any], replicas: int) -> None:
    assert chosen({**strategy("kv_aware"), **more}).replicas == replicas


def test_a_tier_behind_the_prefillers_has_a_record_of_its_own() -> None:
    changes = {E + "kv.cpu_tier": True, E + "kv.cpu_tier_gib": 64}
    tier, gpu = parameters(changes, "cpu-prefix-cache") or {}, parameters(changes, "approx-prefix-cache-producer") or {}
    assert tier["lruCapacityPerServer"] > gpu["lruCapacityPerServer"]
    assert {**tier, "lruCapacityPerServer": 0} == {**gpu, "lruCapacityPerServer": 0}
    assert "cpu-prefix-cache-scorer" in profile(changes, "prefill")
    assert "cpu-prefix-cache-scorer" not in profile(changes, "decode")


def test_events_of_a_tier_weigh_less_than_those_of_a_gpu() -> None:
    found = parameters({**strategy("kv_aware"), E + "kv.cpu_tier": True}, "precise-prefix-cache-producer") or {}
    gpu, cpu = found["indexerConfig"]["kvCacheBackendConfigs"]
    assert (gpu["name"], cpu["name"]) == ("gpu", "cpu")
    assert gpu["weight"] == 1.0
    assert 0 < cpu["weight"] < 1


@pytest.mark.parametrize(
    ("more", "holders"),
    [
        ({}, 2 + 1 + 2),
        ({E + "kv.cpu_tier": True}, 2 * 2 + 1 + 2),
        ({E + "prefill.autoscaling": {"min_replicas": 1, "max_replicas": 9}}, 9 + 1 + 2),
        (MOE, 2 * 8 + 2 * 8 + 2),
    ],
)
def test_the_index_has_room_for_everybody_who_may_hold_a_block(more: dict[str, Any], holders: int) -> None:
    found = parameters({**more, **strategy("kv_aware")}, "precise-prefix-cache-producer") or {}
    assert found["indexerConfig"]["kvBlockIndexConfig"]["inMemoryConfig"] == {"podCacheSize": holders}


def test_router_and_engines_speak_of_the_same_events() -> None:
    changes = strategy("kv_aware")
    found = parameters(changes, "precise-prefix-cache-producer") or {}
    events = argument("prefill", "--kv-events-config", changes) or ""
    assert f'"endpoint":"tcp://*:{found["kvEventsConfig"]["podDiscoveryConfig"]["socketPort"]}"' in events
    assert '"topic":"kv@$(POD_IP):8000@llama-70b"' in events
    assert (parameters(changes, "token-producer") or {})["modelName"] == "llama-70b"


def test_priorities_are_bands_and_within_one_the_deadline_decides() -> None:
    config = chosen({E + "objectives.priority": -5, **GATEWAY}).config
    assert config.feature_gates == ("flowControl",)
    assert config.flow_control is not None
    (band,) = config.flow_control.priority_bands
    assert (band.priority, band.ordering_policy_ref) == (-5, "slo-deadline-ordering-policy")
    assert chosen(GATEWAY).config.flow_control is None


def test_one_port_for_each_rank() -> None:
    assert target_ports(*given()) == (8000,)
    assert target_ports(*given(MOE)) == tuple(range(8000, 8008))


def test_a_role_with_fewer_ranks_says_on_which_ports_it_serves() -> None:
    """https://github.com/llm-d/llm-d/pull/2488."""
    changes = {key: value for key, value in MOE.items() if not key.startswith(E + "prefill.expert")} | {E + "prefill.tensor_parallel": 8}
    endpoint, site = given(changes)
    assert active_ports(endpoint, "prefill", site) == {"llm-d.ai/active-ports": "8000"}
    assert active_ports(endpoint, "decode", site) == {}
    assert template(endpoint, "prefill", site)["metadata"]["annotations"] == {"llm-d.ai/active-ports": "8000"}
    assert "annotations" not in template(endpoint, "decode", site)["metadata"]
    assert active_ports(given()[0], "prefill", given()[1]) == {}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_plugin_is_one_of_the_pinned_version(name: str) -> None:
    assert {plugin.type for plugin in chosen(strategy(name)).config.plugins} <= plugins(pinned()).keys()
