"""The proxy's configuration against Envoy's own messages, what it takes from clients, and the script that refuses requests."""

import importlib
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from dpd.backends.llmd.envoy import guard, guards, longest_short_body, no_prefiller_script, proxy
from dpd.catalog.llmd_plugins import picker_facts
from tests.backends.llmd.routers import GATEWAY, ROUTING, E, given

Node = Any
FALLBACK = {f"{ROUTING}no_prefiller": "fallback"}
READY, NOT_READY = "200", "503"


def nodes(node: Node) -> Iterator[dict[str, Any]]:
    """Every mapping of a configuration."""
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from nodes(value)
    elif isinstance(node, list):
        for item in node:
            yield from nodes(item)


def typed(config: Node, kind: str) -> list[dict[str, Any]]:
    return [node for node in nodes(config) if str(node.get("@type", "")).endswith(f".{kind}")]


def cluster(config: Node, name: str) -> dict[str, Any]:
    (found,) = (known for known in config["static_resources"]["clusters"] if known["name"] == name)
    assert isinstance(found, dict)
    return found


def plain(node: Node) -> Node:
    """Without messages whose type stands in them: those are read by themselves."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items() if not (isinstance(value, dict) and "@type" in value)}
    return [plain(item) for item in node] if isinstance(node, list) else node


def message(kind: str) -> Any:
    """One of Envoy's own messages."""
    package, _, name = kind.rpartition(".")
    return getattr(importlib.import_module(f"envoy_data_plane.{package}"), name)


def read(config: Node) -> int:
    """Read a configuration into Envoy's messages, which know every field; the number of messages with a type of their own."""
    pytest.importorskip("envoy_data_plane", reason="envoy-data-plane is not installed")
    found = [node for node in nodes(config) if "@type" in node]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package writes pydantic's validators in a form that is on its way out
        message("envoy.config.bootstrap.v3.Bootstrap").from_dict(plain(config))
        for node in found:
            message(node["@type"].rpartition("/")[2]).from_dict(plain({key: value for key, value in node.items() if key != "@type"}))
    return len(found)


@pytest.mark.parametrize("changes", [{}, FALLBACK, {f"{ROUTING}strategy": "kv_aware"}], ids=["fail", "fallback", "kv_aware"])
def test_envoy_knows_every_field_of_the_proxy(changes: dict[str, Any]) -> None:
    assert read(proxy(given(changes)[0])) > 5


def test_envoy_knows_every_field_of_the_guard() -> None:
    assert read(guard(given(GATEWAY)[0])) > 3


@pytest.mark.parametrize("field", ["admn", "static_resource"])
def test_the_message_test_can_fail(field: str) -> None:
    with pytest.raises(Exception, match=field):
        read({**guard(given()[0]), field: {}})


def test_every_cluster_that_is_named_exists() -> None:
    config = proxy(given()[0])
    known = {one["name"] for one in config["static_resources"]["clusters"]}
    named = {node[key] for node in nodes(config) for key in ("cluster", "cluster_name") if isinstance(node.get(key), str)}
    assert named <= known
    assert set(typed(config, "HealthCheck")[1]["cluster_min_healthy_percentages"]) <= known


def test_the_admin_interface_is_for_the_pod_alone() -> None:
    assert proxy(given()[0])["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"


def test_requests_go_where_the_picker_says() -> None:
    workers = cluster(proxy(given()[0]), "workers")
    assert workers["type"] == "ORIGINAL_DST"
    assert workers["original_dst_lb_config"] == {"use_http_header": True, "http_header_name": "x-gateway-destination-endpoint"}


def test_the_picker_is_asked_with_the_whole_request_and_its_failure_is_the_requests() -> None:
    (ask,) = typed(proxy(given()[0]), "ExternalProcessor")
    assert ask["failure_mode_allow"] is False
    assert set(ask["processing_mode"].values()) == {"SEND", "FULL_DUPLEX_STREAMED"}
    assert ask["processing_mode"]["request_body_mode"] == ask["processing_mode"]["response_body_mode"] == "FULL_DUPLEX_STREAMED"


def test_proxy_and_picker_speak_in_clear_between_two_containers() -> None:
    picker = cluster(proxy(given()[0]), "picker")
    assert "transport_socket" not in picker
    assert picker["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"] == {
        "address": "127.0.0.1", "port_value": 9002,
    }  # fmt: skip


def test_no_time_limit_cuts_an_answer() -> None:
    config = proxy(given()[0])
    (route,) = (node["route"] for node in nodes(config) if node.get("route", {}).get("cluster") == "workers")
    (_, manager) = typed(config, "HttpConnectionManager")
    assert route["timeout"] == "0s"
    assert int(route["idle_timeout"].rstrip("s")) >= 3600
    assert int(manager["stream_idle_timeout"].rstrip("s")) >= 3600


def test_the_proxy_closes_idle_connections_before_a_server_does() -> None:
    """The least patient is the sidecar, with 90 seconds (https://github.com/llm-d/llm-d/issues/1564)."""
    (options,) = (one for one in typed(cluster(proxy(given()[0]), "workers"), "HttpProtocolOptions"))
    assert 0 < int(options["common_http_protocol_options"]["idle_timeout"].rstrip("s")) < 90


@pytest.mark.parametrize("changes", [{}, FALLBACK], ids=["fail", "fallback"])
def test_what_the_picker_decides_no_client_may_say(changes: dict[str, Any]) -> None:
    """A client that names a prefiller makes a decoder call any address."""
    _, manager = typed(proxy(given(changes)[0]), "HttpConnectionManager")
    filters = [one["typed_config"] for one in manager["http_filters"]]
    kinds = [one["@type"].rpartition(".")[2] for one in filters]
    assert kinds.index("HeaderMutation") < kinds.index("ExternalProcessor")
    removed = {step["remove"] for step in filters[0]["mutations"]["request_mutations"] if "remove" in step}
    assert removed >= {
        picker_facts().headers.prefiller,
        picker_facts().headers.destination,
        "x-encoder-hosts-ports",
        "x-data-parallel-host-port",
    }


def test_objectives_are_said_where_the_client_says_none() -> None:
    (mutation,) = typed(proxy(given({E + "objectives.ttft_p99_ms": 1500})[0]), "HeaderMutation")
    said = {
        step["append"]["header"]["key"]: (step["append"]["header"]["value"], step["append"]["append_action"])
        for step in mutation["mutations"]["request_mutations"]
        if "append" in step
    }
    assert said["x-llm-d-slo-ttft-ms"] == ("1500", "ADD_IF_ABSENT")
    assert said["x-llm-d-slo-tpot-ms"] == ("50", "ADD_IF_ABSENT")


def test_a_header_of_ours_neither_comes_from_clients_nor_goes_to_servers() -> None:
    config = proxy(given()[0])
    (mutation,) = typed(config, "HeaderMutation")
    steps = mutation["mutations"]["request_mutations"]
    removed, added = (
        [index for index, step in enumerate(steps) if "x-dpd-body-bytes" in str(step.get(key))] for key in ("remove", "append")
    )
    assert max(removed) < min(added)
    assert [node["request_headers_to_remove"] for node in nodes(config) if "request_headers_to_remove" in node] == [["x-dpd-body-bytes"]]


def test_fallback_has_no_guard_anywhere() -> None:
    endpoint = given(FALLBACK)[0]
    config = proxy(endpoint)
    assert not guards(endpoint)
    assert not typed(config, "Lua")
    assert len(typed(config, "HealthCheck")) == 1
    assert {known["name"] for known in config["static_resources"]["clusters"]} == {"workers", "picker", "admin"}


def test_ready_prefillers_are_those_of_kubernetes_that_also_answer() -> None:
    """An empty cluster fails the check, and so does one without a healthy host: `failed_cluster_empty` and `failed_cluster_unhealthy` of
    https://www.envoyproxy.io/docs/envoy/v1.33.3/configuration/http/http_filters/health_check_filter."""
    endpoint = given()[0]
    prefillers = cluster(proxy(endpoint), "prefillers")
    (host,) = prefillers["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert host["endpoint"]["address"]["socket_address"]["address"].startswith("llama-70b-prefillers-")
    assert prefillers["type"] == "STRICT_DNS"
    assert prefillers["ignore_health_on_host_removal"] is True
    assert prefillers["health_checks"][0]["http_health_check"] == {"path": "/health"}
    check = typed(proxy(endpoint), "HealthCheck")[1]
    assert check["cluster_min_healthy_percentages"] == {"prefillers": {"value": 1}}
    assert check["pass_through_mode"] is False


FAKE = """
return function(headers, status)
  local seen = {asked = {}}
  local handle = {}
  function handle:headers()
    return {get = function(_, name) return headers[name] end}
  end
  function handle:httpCall(cluster, request, body, timeout)
    table.insert(seen.asked, cluster .. request[":path"])
    return {[":status"] = status}
  end
  function handle:respond(answer, body)
    seen.status, seen.type, seen.body = answer[":status"], answer["content-type"], body
  end
  envoy_on_request(handle)
  return seen
end
"""


def run(changes: dict[str, Any], headers: dict[str, str], prefillers: str) -> tuple[str, int]:
    """Run the script as Envoy would: the status with which it answers, empty when it lets the request pass, and how often it asked."""
    lua = pytest.importorskip("lupa", reason="lupa is not installed").LuaRuntime()
    lua.execute(no_prefiller_script(given(changes)[0]))
    seen = lua.execute(FAKE)(lua.table_from({":method": "POST", **headers}), prefillers)
    return seen["status"] or "", len(seen["asked"])


LONG, SHORT = {"x-dpd-body-bytes": "16381"}, {"x-dpd-body-bytes": "16380"}
PREFILLED = {"x-prefiller-host-port": "10.1.0.7:8000"}
ALWAYS, TOKENS = {f"{ROUTING}threshold_tokens": 0}, {f"{ROUTING}strategy": "kv_aware"}


@pytest.mark.parametrize(
    ("changes", "headers", "prefillers", "status", "asked"),
    [
        ({}, {**LONG, **PREFILLED}, NOT_READY, "", 0),
        ({}, LONG, NOT_READY, "503", 1),
        ({}, LONG, READY, "", 1),
        ({}, SHORT, NOT_READY, "", 0),
        ({}, {}, NOT_READY, "503", 1),
        ({}, {"x-dpd-body-bytes": "-"}, NOT_READY, "503", 1),
        ({}, {":method": "GET"}, NOT_READY, "", 0),
        (ALWAYS, {"x-dpd-body-bytes": "1"}, NOT_READY, "503", 1),
        (ALWAYS, {"x-dpd-body-bytes": "1"}, READY, "", 1),
        (TOKENS, {"x-dpd-body-bytes": "4096"}, NOT_READY, "503", 1),
        (TOKENS, {"x-dpd-body-bytes": "4095"}, NOT_READY, "", 0),
    ],
    ids=[
        "has a prefiller", "long, none ready", "long, the picker decided", "too short to need one", "chunked", "no length", "lists models",
        "always, none ready", "always, decoder has it all", "tokens, none ready", "tokens, too short",
    ],
)  # fmt: skip
def test_what_becomes_of_a_request_without_a_prefiller(
    changes: dict[str, Any], headers: dict[str, str], prefillers: str, status: str, asked: int
) -> None:
    """https://github.com/ai-dynamo/dynamo/pull/4220: prompts that wait for nobody to prefill them must not run on decoders in silence."""
    assert run(changes, headers, prefillers) == (status, asked)


@pytest.mark.parametrize(("tokens", "most"), [(0, 0), (1, 0), (2, 4), (4096, 16380)])
def test_a_body_that_is_called_short_cannot_reach_the_threshold(tokens: int, most: int) -> None:
    """The picker counts (bytes of text) // 4 tokens, rounded either way, and the body is at least its text."""
    endpoint = given({f"{ROUTING}threshold_tokens": tokens})[0]
    assert longest_short_body(endpoint) == most
    assert not most or -(-most // 4) < tokens


@given_any(text=st.text(min_size=1), tokens=st.integers(1, 64))
def test_no_prompt_that_reaches_the_threshold_has_a_short_body(text: str, tokens: int) -> None:
    """However JSON spells it: the picker's count of a prompt never passes what the limit allows for its body."""
    endpoint = given({f"{ROUTING}threshold_tokens": tokens})[0]
    counted = -(-len(text.encode("utf-8", "replace")) // 4)
    bodies = (json.dumps({"prompt": text}, ensure_ascii=ascii).encode("utf-8", "replace") for ascii in (True, False))
    assert counted < tokens or all(len(body) > longest_short_body(endpoint) for body in bodies)
