"""Rules about llm-d's router: the smallest wrong input and the nearest right one, for environments and for rendered objects."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from dpd.backends.backend import backend
from dpd.backends.site import Site
from dpd.checks.manifests import instance_groups, run_manifests
from dpd.finding import Finding, Level
from tests.support import LLMD_EXAMPLE, environment, findings

E = "endpoints[0]."
ROUTING, SYSTEM = f"{E}routing.", "cluster.groups.system"
GATEWAY: dict[str, Any] = {f"{ROUTING}gateway": {}}
EVENTS: dict[str, Any] = {f"{ROUTING}strategy": "kv_aware"}
HOST = {E + "model.source": {"volume": {"host_path": "/opt/dlami/nvme/llama"}}}
WIDE: dict[str, Any] = {f"{E}decode.expert_parallel": {"nodes": 2}}
CLAIM = {E + "model.source": {"volume": {"claim": "weights"}}}


def gateway(**fields: int) -> dict[str, Any]:
    return {f"{ROUTING}gateway": fields}


TABLE: list[tuple[str, dict[str, Any], str, Level, str, dict[str, Any]]] = [
    ("LLR001", {f"{ROUTING}strategy": "round_robin"}, f"{ROUTING}strategy", Level.WARNING, "at random", {f"{ROUTING}strategy": "load"}),
    ("LLR002", {f"{ROUTING}strategy": "session"}, f"{ROUTING}strategy", Level.WARNING, "x-session-token",
     {f"{ROUTING}strategy": "prefix_aware"}),
    ("LLR003", {**EVENTS, **HOST}, f"{E}model.source.volume.host_path", Level.ERROR, "tokenizer", {**EVENTS, **CLAIM}),
    ("LLR003", {**EVENTS, **HOST}, f"{E}model.source.volume.host_path", Level.ERROR, "prefix_aware", HOST),
    ("LLR004", {**EVENTS, f"{ROUTING}threshold_counts": "non_cached"}, f"{ROUTING}threshold_counts", Level.INFO, "one router",
     {**EVENTS, f"{ROUTING}threshold_counts": "prompt"}),
    ("LLR004", {**EVENTS, f"{ROUTING}threshold_counts": "non_cached"}, f"{ROUTING}threshold_counts", Level.INFO, "two routers",
     {f"{ROUTING}threshold_counts": "non_cached"}),
    ("LLR004", {**EVENTS, f"{ROUTING}threshold_counts": "non_cached"}, f"{ROUTING}threshold_counts", Level.INFO, "own record",
     {**EVENTS, f"{ROUTING}threshold_counts": "non_cached", f"{ROUTING}threshold_tokens": 0}),
    ("LLR005", GATEWAY, f"{ROUTING}no_prefiller", Level.WARNING, "below 4,096 tokens", {**GATEWAY, f"{ROUTING}no_prefiller": "fallback"}),
    ("LLR005", GATEWAY, f"{ROUTING}no_prefiller", Level.WARNING, "leave out gateway", {}),
    ("LLR005", GATEWAY, f"{ROUTING}no_prefiller", Level.WARNING, "fail as well", {**GATEWAY, f"{ROUTING}threshold_tokens": 0}),
    ("LLR006", gateway(request_timeout_seconds=300), f"{ROUTING}gateway.request_timeout_seconds", Level.WARNING, "= 822 s",
     gateway(request_timeout_seconds=822)),
    ("LLR006", gateway(request_timeout_seconds=2), f"{ROUTING}gateway.request_timeout_seconds", Level.ERROR, "0 for no limit",
     gateway(request_timeout_seconds=0)),
    ("LLR006", {**gateway(idle_timeout_seconds=60), E + "objectives.ttft_p99_ms": 60_000}, f"{ROUTING}gateway.idle_timeout_seconds",
     Level.ERROR, "before the first token", gateway(idle_timeout_seconds=900)),
    ("LLR006", gateway(idle_timeout_seconds=821), f"{ROUTING}gateway.idle_timeout_seconds", Level.INFO, "not streamed",
     gateway(idle_timeout_seconds=822)),
    ("LLR007", {**GATEWAY, E + "objectives.priority": 1}, f"{E}objectives.priority", Level.INFO, "x-llm-d-inference-objective: llama-70b",
     GATEWAY),
    ("LLR008", {f"{SYSTEM}.instance_type": "ml.c5.xlarge"}, SYSTEM, Level.ERROR, "fits no node: 6 CPUs of 3",
     {f"{SYSTEM}.instance_type": "ml.c5.4xlarge"}),
    ("LLR008", {f"{SYSTEM}.count": 0}, "cluster.groups", Level.ERROR, "no group without GPUs", {}),
    ("LLR008", {**EVENTS, f"{SYSTEM}.count": 1}, SYSTEM, Level.ERROR, "finds no room", EVENTS),
    ("LLR009", {**EVENTS, **WIDE}, f"{ROUTING}strategy", Level.ERROR, "ranks of decode would", WIDE),
    ("LLR009", {**EVENTS, **WIDE}, f"{ROUTING}strategy", Level.ERROR, "use prefix_aware", EVENTS),
]  # fmt: skip


@pytest.mark.parametrize(("id", "wrong", "path", "level", "says", "right"), TABLE, ids=[f"{row[0]} {row[4]}" for row in TABLE])
def test_what_is_wrong_with_routing_and_what_is_right(
    id: str, wrong: dict[str, Any], path: str, level: Level, says: str, right: dict[str, Any]
) -> None:
    found = findings(wrong, id=id, example=LLMD_EXAMPLE)
    assert [(one.path, one.level) for one in found] == [(path, level)] or id == "LLR008"
    assert any(says in " | ".join((one.message, one.value, one.limit, one.fix)) and one.path == path for one in found)
    assert not findings(right, id=id, example=LLMD_EXAMPLE)


def test_the_example_needs_no_acknowledgement() -> None:
    assert not [one for one in findings(example=LLMD_EXAMPLE) if one.id.startswith("LLR")]


def test_the_operators_router_is_another() -> None:
    assert not [one for one in findings({f"{ROUTING}strategy": "round_robin"}) if one.id.startswith("LLR")]


def bodies(changes: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    known = environment(changes, example=LLMD_EXAMPLE)
    (endpoint,) = known.endpoints
    return [copy.deepcopy(body) for body in backend("llm-d").objects(endpoint, Site.of(known))]


def said(manifests: list[dict[str, Any]], id: str) -> list[Finding]:
    groups = instance_groups(Site.of(environment(example=LLMD_EXAMPLE)))
    return [finding for finding in run_manifests(manifests, groups) if finding.id == id]


def router(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    return next(body for body in manifests if body["kind"] == "Deployment" and "-picker-" in body["metadata"]["name"])


def args(manifests: list[dict[str, Any]]) -> list[str]:
    found: list[str] = router(manifests)["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def rewrite(manifests: list[dict[str, Any]], change: Callable[[dict[str, Any]], None]) -> None:
    """Change the router's file."""
    config = next(body for body in manifests if body["kind"] == "ConfigMap" and "-picker-" in body["metadata"]["name"])
    content = yaml.safe_load(config["data"]["picker.yaml"])
    change(content)
    config["data"]["picker.yaml"] = yaml.safe_dump(content)


def selector_of_another_endpoint(manifests: list[dict[str, Any]]) -> None:
    args(manifests)[0] = "--endpoint-selector=llm-d.ai/guide=other"


def role_without_its_label(manifests: list[dict[str, Any]]) -> None:
    for body in manifests:
        if body["kind"] == "Deployment" and "-prefill-" in body["metadata"]["name"]:
            body["spec"]["template"]["metadata"]["labels"]["llm-d.ai/guide"] = "llama"


def no_configuration(manifests: list[dict[str, Any]]) -> None:
    router(manifests)["spec"]["template"]["spec"]["volumes"] = []


def unknown_plugin(manifests: list[dict[str, Any]]) -> None:
    rewrite(manifests, lambda content: content["plugins"].append({"type": "by-label"}))


def gate_of_before(manifests: list[dict[str, Any]]) -> None:
    rewrite(manifests, lambda content: content.update(featureGates=["prepareDataPlugins"]))


def experimental(manifests: list[dict[str, Any]]) -> None:
    rewrite(manifests, lambda content: content["plugins"].append({"type": "session-affinity-scorer"}))


def never(manifests: list[dict[str, Any]]) -> None:
    def change(content: dict[str, Any]) -> None:
        next(plugin for plugin in content["plugins"] if plugin["type"] == "prefix-based-pd-decider")["parameters"] = {"nonCachedTokens": 0}

    rewrite(manifests, change)


def nothing_to_read(manifests: list[dict[str, Any]]) -> None:
    def change(content: dict[str, Any]) -> None:
        content["plugins"] = [plugin for plugin in content["plugins"] if plugin["type"] != "approx-prefix-cache-producer"]

    rewrite(manifests, change)


def two(manifests: list[dict[str, Any]]) -> None:
    router(manifests)["spec"]["replicas"] = 2


Break = Callable[[list[dict[str, Any]]], None]
BROKEN: list[tuple[str, Break, str]] = [
    ("LLR020", selector_of_another_endpoint, "no prefill pod has these labels"),
    ("LLR020", role_without_its_label, "no prefill pod has these labels"),
    ("LLR021", no_configuration, "has no configuration file"),
    ("LLR021", unknown_plugin, "no plugin 'by-label'"),
    ("LLR021", gate_of_before, "'prepareDataPlugins' is not known"),
    ("LLR021", experimental, "session-affinity-scorer"),
    ("LLR021", never, "nonCachedTokens is 0"),
    ("LLR021", nothing_to_read, "approx-prefix-cache-producer"),
    ("LLR022", two, "prefix-cache-scorer"),
]
"""production-stack#747, llm-d-benchmark#878, modelplane#175 and #1189 of llm-d, and two routers side by side."""


@pytest.mark.parametrize(("id", "change", "says"), BROKEN, ids=[f"{row[0]} {row[1].__name__}" for row in BROKEN])
def test_objects_of_a_router_that_do_not_belong_together(id: str, change: Break, says: str) -> None:
    manifests = bodies()
    assert said(manifests, id) == []
    change(manifests)
    found = said(manifests, id)
    assert any(says in finding.message for finding in found), found
    assert all(finding.fix and finding.link for finding in found)


@pytest.mark.parametrize(
    "changes",
    [GATEWAY, EVENTS, {f"{ROUTING}strategy": "session"}, {f"{ROUTING}no_prefiller": "fallback"}],
    ids=lambda changes: str(list(changes)),
)
@pytest.mark.parametrize("id", ["LLR020", "LLR021", "LLR022"])
def test_objects_that_we_make_are_quiet(changes: dict[str, Any], id: str) -> None:
    assert said(bodies(changes), id) == []


def test_a_router_behind_a_gateway_finds_workers_through_its_pool() -> None:
    manifests = [body for body in bodies(GATEWAY) if body["kind"] != "InferencePool"]
    assert {finding.id for finding in said(manifests, "LLR020")} == {"LLR020"}


@pytest.mark.parametrize("broken", [{"args": None}, {"args": ["--config-file"]}, {"args": [7, {}]}], ids=str)
def test_objects_of_other_hands_raise_nothing(broken: dict[str, Any]) -> None:
    manifests = bodies()
    router(manifests)["spec"]["template"]["spec"]["containers"][0].update(broken)
    for id in ("LLR020", "LLR021", "LLR022"):
        assert all(finding.message for finding in said(manifests, id))
