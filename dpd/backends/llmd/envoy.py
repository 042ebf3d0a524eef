"""The proxy in front of the endpoint picker: Envoy's bootstrap configuration, whole, as plain data.

Standalone, it stands in the picker's pod, asks the picker for each request and forwards the request to the pod that the
picker names. Behind a Gateway, which has a proxy of its own, only the guard is left that knows whether a prefiller is ready.
"""

from typing import Any, Final

from dpd.catalog.llmd import llmd
from dpd.catalog.llmd_plugins import PickerHeaders, decodes_without_prefiller, picker_facts, pinned
from dpd.environment.endpoint import Endpoint
from dpd.environment.names import LlmdNames

READY_PATH: Final = "/ready"
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 (of the pod, whose network policy decides)
_LOOPBACK: Final = "127.0.0.1"
_WORKERS: Final = "workers"
_PICKER: Final = "picker"
_PREFILLERS: Final = "prefillers"
_SELF: Final = "self"
_ADMIN: Final = "admin"
_BODY_BYTES: Final = "x-dpd-body-bytes"
"""Length of a request's body as the client states it: the picker's answer takes the header away in which it stands."""
_BYTES_PER_TOKEN: Final = 4
"""The picker without a tokenizer takes so many bytes of text for a token."""
_BUFFER_BYTES: Final = 1 << 20
_STREAMS: Final = 256
_LEAST_FAILURE: Final = 500
_TYPES: Final = "type.googleapis.com/envoy."
Config = dict[str, Any]


def guards(endpoint: Endpoint) -> bool:
    """Whether something beside the picker must see to it that requests fail while no prefiller is ready."""
    return endpoint.routing.no_prefiller == "fail" and decodes_without_prefiller(pinned())


def proxy(endpoint: Endpoint) -> Config:
    """Envoy in the picker's pod, without a Gateway."""
    clusters = [_workers(), _picker(), *([_prefillers(endpoint), _local(_SELF, _port("proxy_health"))] if guards(endpoint) else [])]
    return _bootstrap([_health(endpoint), _inference(endpoint)], clusters)


def guard(endpoint: Endpoint) -> Config:
    """Envoy beside the picker behind a Gateway: it serves no request and only tells the kubelet whether a prefiller is ready."""
    return _bootstrap([_health(endpoint)], [_prefillers(endpoint)])


def _bootstrap(listeners: list[Config], clusters: list[Config]) -> Config:
    return {
        "admin": {"address": _address(_LOOPBACK, _port("proxy_admin"))},
        "static_resources": {"listeners": listeners, "clusters": [*clusters, _local(_ADMIN, _port("proxy_admin"))]},
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": _typed(
                        "extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                        max_active_downstream_connections=_facts()["connections"],
                    ),
                }
            ]
        },
    }


def _health(endpoint: Endpoint) -> Config:
    """Where the kubelet asks for readiness and Prometheus for metrics, and where it is known whether a prefiller is ready."""
    stats = {"match": {"path": "/stats/prometheus"}, "route": {"cluster": _ADMIN}}
    checks = [_check("up", READY_PATH), *([_check("prefillers", _facts()["ready"]["path"], _PREFILLERS)] if guards(endpoint) else [])]
    return {
        "name": "health",
        "address": _address(_EVERYWHERE, _port("proxy_health")),
        "filter_chains": [{"filters": [_http("health", _routes(stats), checks)]}],
    }


def _check(name: str, path: str, cluster: str = "") -> Config:
    """Answer a path with 200; with a cluster only while one of its hosts in a hundred is healthy, and not while it has none."""
    return {
        "name": f"envoy.filters.http.health_check.{name}",
        "typed_config": _typed(
            "extensions.filters.http.health_check.v3.HealthCheck",
            pass_through_mode=False,
            headers=[{"name": ":path", "string_match": {"exact": path}}],
            **({"cluster_min_healthy_percentages": {cluster: {"value": 1}}} if cluster else {}),
        ),
    }


def _inference(endpoint: Endpoint) -> Config:
    """Where clients call. No time limit for a request: an answer takes as long as it takes, and silence is the only sign of death."""
    silence = f"{_facts()['silence_seconds']}s"
    headers_removed = {"request_headers_to_remove": [_BODY_BYTES]} if guards(endpoint) else {}
    route = {"match": {"prefix": "/"}, "route": {"cluster": _WORKERS, "timeout": "0s", "idle_timeout": silence}, **headers_removed}
    filters = [_client_headers(endpoint), _ask_picker(), *([_no_prefiller(endpoint)] if guards(endpoint) else [])]
    return {
        "name": "inference",
        "address": _address(_EVERYWHERE, llmd().ports["envoy"]),
        "per_connection_buffer_limit_bytes": _BUFFER_BYTES,
        "filter_chains": [
            {"filters": [_http("inference", _routes(route), filters, stream_idle_timeout=silence, access_log=[_failures()])]}
        ],
    }


def _http(name: str, routes: Config, filters: list[Config], **more: Any) -> Config:
    """A connection manager that trusts nothing about its clients and ends with the router."""
    return {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": _typed(
            "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            stat_prefix=name,
            use_remote_address=True,
            normalize_path=True,
            merge_slashes=True,
            path_with_escaped_slashes_action="REJECT_REQUEST",
            server_header_transformation="PASS_THROUGH",
            common_http_protocol_options={"headers_with_underscores_action": "REJECT_REQUEST"},
            http2_protocol_options={"max_concurrent_streams": _STREAMS},
            route_config=routes,
            http_filters=[
                *filters,
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": _typed("extensions.filters.http.router.v3.Router", suppress_envoy_headers=True),
                },
            ],
            **more,
        ),
    }


def _failures() -> Config:
    """A line on standard output for every answer from 500 on: who failed whom, without what was asked."""
    what = {
        "time": "%START_TIME%",
        "method": "%REQ(:METHOD)%",
        "code": "%RESPONSE_CODE%",
        "flags": "%RESPONSE_FLAGS%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "worker": "%UPSTREAM_HOST%",
        "prefiller": f"%REQ({_headers().prefiller})%",
        "milliseconds": "%DURATION%",
        "request": "%REQ(x-request-id)%",
    }
    least = {"default_value": _LEAST_FAILURE, "runtime_key": "dpd.least_logged_status"}
    return {
        "name": "envoy.access_loggers.stdout",
        "filter": {"status_code_filter": {"comparison": {"op": "GE", "value": least}}},
        "typed_config": _typed("extensions.access_loggers.stream.v3.StdoutAccessLog", log_format={"json_format": what}),
    }


def _routes(route: Config) -> Config:
    return {"name": "local", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]}


def _client_headers(endpoint: Endpoint) -> Config:
    """Take away what only the picker may say, before it is asked, and say the endpoint's objectives where the client says none.

    A client that names a prefiller would make a decoder call any address it likes.
    """
    headers, goals = _headers(), endpoint.objectives
    set_by_us = [_BODY_BYTES] if guards(endpoint) else []
    return {
        "name": "envoy.filters.http.header_mutation",
        "typed_config": _typed(
            "extensions.filters.http.header_mutation.v3.HeaderMutation",
            mutations={
                "request_mutations": [
                    *({"remove": name} for name in (*headers.decided, *set_by_us)),
                    *(_header(name, "%REQ(content-length)%", "OVERWRITE_IF_EXISTS_OR_ADD") for name in set_by_us),
                    _header(headers.ttft, str(goals.ttft_p99_ms), "ADD_IF_ABSENT"),
                    _header(headers.itl, str(goals.itl_p99_ms), "ADD_IF_ABSENT"),
                ]
            },
        ),
    }


def _header(name: str, value: str, action: str) -> Config:
    return {"append": {"header": {"key": name, "value": value}, "append_action": action}}


def _ask_picker() -> Config:
    """Headers and body go to the picker and come back from it piece by piece. Without the picker a request fails."""
    modes = {f"{kind}_header_mode": "SEND" for kind in ("request", "response")}
    bodies = {f"{kind}_body_mode": "FULL_DUPLEX_STREAMED" for kind in ("request", "response")}
    trailers = {f"{kind}_trailer_mode": "SEND" for kind in ("request", "response")}
    return {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": _typed(
            "extensions.filters.http.ext_proc.v3.ExternalProcessor",
            grpc_service={"envoy_grpc": {"cluster_name": _PICKER, "authority": f"localhost:{llmd().ports['picker']}"}},
            processing_mode={**modes, **bodies, **trailers},
            message_timeout=f"{_facts()['decision_seconds']}s",
            failure_mode_allow=False,
        ),
    }


def longest_short_body(endpoint: Endpoint) -> int:
    """Bytes below which the body of a request cannot hold a prompt that reaches the threshold.

    Without a tokenizer the picker counts four bytes of text as a token; with one, a token has at least one byte. What is
    around the text, and how JSON spells it, only makes the body longer.
    """
    tokens = endpoint.routing.threshold_tokens
    return max(0, tokens - 1) * (1 if endpoint.routing.strategy == "kv_aware" else _BYTES_PER_TOKEN)


def no_prefiller_script(endpoint: Endpoint) -> str:
    """Refuse what the picker leaves to a decoder alone while no prefiller is ready, unless it is too short to need one.

    The picker of this version says nothing when it wanted a prefiller and found none
    (https://github.com/llm-d/llm-d-router/issues/2427): the request just carries no prefiller. Then the body's length
    decides, which the client states; a body without a length counts as long.
    """
    ready = _facts()["ready"]
    return f"""\
function envoy_on_request(handle)
  local headers = handle:headers()
  if headers:get(":method") ~= "POST" or headers:get("{_headers().prefiller}") then
    return
  end
  local bytes = tonumber(headers:get("{_BODY_BYTES}") or "")
  if bytes and bytes <= {longest_short_body(endpoint)} then
    return
  end
  local answer = handle:httpCall("{_SELF}", {{[":method"] = "GET", [":path"] = "{ready["path"]}", [":authority"] = "{_SELF}"}}, nil, 1000)
  if answer and answer[":status"] == "200" then
    return
  end
  handle:respond(
    {{[":status"] = "503", ["content-type"] = "application/json", ["retry-after"] = "{ready["retry_after_seconds"]}"}},
    '{{"error": {{"message": "no prefiller is ready", "type": "service_unavailable", "code": 503}}}}')
end
"""


def _no_prefiller(endpoint: Endpoint) -> Config:
    return {
        "name": "envoy.filters.http.lua",
        "typed_config": _typed("extensions.filters.http.lua.v3.Lua", default_source_code={"inline_string": no_prefiller_script(endpoint)}),
    }


def _workers() -> Config:
    """Whatever address the picker names, in a header that clients cannot set."""
    return {
        "name": _WORKERS,
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "10s",
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": _headers().destination},
        "upstream_connection_options": {"tcp_keepalive": {}},
        **_busy(),
        **_protocol({"http_protocol_options": {}}, idle_timeout=f"{_facts()['idle_upstream_seconds']}s"),
    }


def _picker() -> Config:
    """The picker beside the proxy, in clear: between two containers of a pod TLS with a certificate that nobody checks proves nothing."""
    return {**_local(_PICKER, llmd().ports["picker"]), **_busy(), **_protocol({"http2_protocol_options": {}})}


def _prefillers(endpoint: Endpoint) -> Config:
    """Prefillers that Kubernetes calls ready, and that answer.

    Their addresses are those of a headless Service, which has ready pods only. A pod that has left it counts no longer, even
    if it still answers.
    """
    names, ready = LlmdNames.of(endpoint), _facts()["ready"]
    host = f"{names.ready_prefillers}.{names.namespace}.svc.cluster.local"
    return {
        "name": _PREFILLERS,
        "type": "STRICT_DNS",
        "connect_timeout": f"{ready['timeout_seconds']}s",
        "dns_lookup_family": "V4_ONLY",
        "dns_refresh_rate": f"{ready['refresh_seconds']}s",
        "respect_dns_ttl": False,
        "ignore_health_on_host_removal": True,
        "health_checks": [
            {
                "timeout": f"{ready['timeout_seconds']}s",
                "interval": f"{ready['interval_seconds']}s",
                "no_traffic_interval": f"{ready['interval_seconds']}s",
                "unhealthy_threshold": ready["unhealthy"],
                "healthy_threshold": 1,
                "http_health_check": {"path": "/health"},
            }
        ],
        "load_assignment": _assignment(_PREFILLERS, host, llmd().ports["server"]),
    }


def _local(name: str, port: int) -> Config:
    return {"name": name, "type": "STATIC", "connect_timeout": "1s", "load_assignment": _assignment(name, _LOOPBACK, port)}


def _busy() -> Config:
    """The picker holds requests back, so the proxy must not: its own limits are for web sites."""
    limit = _facts()["connections"]
    return {"circuit_breakers": {"thresholds": [{"max_connections": limit, "max_pending_requests": limit, "max_requests": limit}]}}


def _protocol(explicit: Config, **common: str) -> Config:
    kind = "extensions.upstreams.http.v3.HttpProtocolOptions"
    options = _typed(kind, explicit_http_config=explicit, **({"common_http_protocol_options": common} if common else {}))
    return {"typed_extension_protocol_options": {f"envoy.{kind}": options}}


def _assignment(name: str, host: str, port: int) -> Config:
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(host, port)}}]}]}


def _address(host: str, port: int) -> Config:
    return {"socket_address": {"address": host, "port_value": port}}


def _typed(kind: str, **fields: Any) -> Config:
    return {"@type": f"{_TYPES}{kind}", **fields}


def _headers() -> PickerHeaders:
    return picker_facts().headers


def _port(name: str) -> int:
    return int(_facts()["ports"][name])


def _facts() -> Config:
    facts: Config = llmd().more["picker"]
    return facts
