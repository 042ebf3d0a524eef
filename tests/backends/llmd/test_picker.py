"""Objects of the router: rights, flags, the way in, and that it belongs to the workers."""

from pathlib import Path
from typing import Any

import pytest

from dpd.backends.llmd.picker_config import load
from dpd.catalog.llmd_plugins import flags as known_flags
from dpd.catalog.llmd_plugins import pinned
from dpd.environment.names import LlmdNames
from tests.backends.llmd import objects as workers
from tests.backends.llmd.routers import GATEWAY, MOE, ROUTING, E, container, file, flags, given, made, one, pod
from tests.schemas import check

FALLBACK = {f"{ROUTING}no_prefiller": "fallback"}
EVENTS = {f"{ROUTING}strategy": "kv_aware"}
PICKER = "llama-70b-picker"
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "fallback": FALLBACK,
    "events": EVENTS,
    "session": {f"{ROUTING}strategy": "session"},
    "gateway": GATEWAY,
    "gateway, fallback": {**GATEWAY, **FALLBACK},
    "gateway, priority": {**GATEWAY, E + "objectives.priority": 7},
    "gateway, limits": {f"{ROUTING}gateway": {"request_timeout_seconds": 1200, "idle_timeout_seconds": 1800}},
    "gateway, events": {**GATEWAY, **EVENTS},
    "experts": MOE,
    "experts, gateway": {**MOE, **GATEWAY},
    "taints": {"cluster.groups.system.taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
    "hub": {**EVENTS, E + "model.source": {"hub": {"model_id": "a/b", "revision": "c" * 40, "token": {"secret": "hub", "key": "token"}}}},
    "lustre": {**EVENTS, E + "model.source": {"lustre": {"path": "/checkpoints/llama"}}},
}


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_every_object_against_its_schema(changes: dict[str, Any], crds: Path) -> None:
    releases = {"InferencePool": "v1.5.0", "Gateway": "v1.5.1", "HTTPRoute": "v1.5.1"}
    for body in made(changes):
        check(body, crds, release=releases.get(body["kind"], ""))


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_the_same_file_makes_the_same_objects(changes: dict[str, Any]) -> None:
    assert made(changes) == made(changes)
    names = [(body["kind"], body["metadata"]["name"]) for body in made(changes)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_every_flag_is_one_of_the_pinned_version(changes: dict[str, Any]) -> None:
    assert {f"--{name}" for name in flags(changes)} <= known_flags("picker")


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_the_mounted_file_is_one_that_the_pinned_version_reads(changes: dict[str, Any]) -> None:
    config = load(file("picker.yaml", changes), pinned())
    given_flag = flags(changes).get("allow-experimental-plugins", "false") == "true"
    assert given_flag == bool(config.alpha())


def test_the_picker_may_read_pods_of_its_namespace_and_nothing_else() -> None:
    assert one("Role")["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


def test_behind_a_gateway_it_may_read_its_pool_and_objectives_too() -> None:
    assert one("Role", GATEWAY)["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["inference.networking.k8s.io"], "resources": ["inferencepools"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": ["llm-d.ai", "inference.networking.x-k8s.io"],
            "resources": ["inferenceobjectives", "inferencemodelrewrites"],
            "verbs": ["get", "list", "watch"],
        },
    ]


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_no_right_reaches_beyond_the_namespace(changes: dict[str, Any]) -> None:
    assert not [body["kind"] for body in made(changes) if body["kind"].startswith("Cluster")]
    assert {body["metadata"]["namespace"] for body in made(changes)} == {"inference"}


def test_rights_belong_to_the_account_of_the_pods() -> None:
    binding = one("RoleBinding")
    assert binding["roleRef"]["name"] == one("Role")["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [pod()["serviceAccountName"]]


def test_only_the_picker_holds_the_accounts_token() -> None:
    holders = [known["name"] for known in pod()["containers"] for mount in known["volumeMounts"] if mount["name"] == "token"]
    assert holders == ["epp"]
    assert pod()["automountServiceAccountToken"] is False


@pytest.mark.parametrize("changes", [{}, GATEWAY, EVENTS], ids=["standalone", "gateway", "events"])
def test_pods_of_the_router_are_restricted(changes: dict[str, Any]) -> None:
    """The `restricted` Pod Security Standard."""
    for body in made(changes):
        if body["kind"] == "Deployment":
            spec = body["spec"]["template"]["spec"]
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            for known in spec["containers"]:
                assert known["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                }


def test_pods_are_found_by_labels_or_through_the_pool_but_not_both() -> None:
    """The picker refuses to start with both, and with neither."""
    assert {"endpoint-selector", "endpoint-target-ports"} <= flags().keys()
    assert not {"pool-name", "pool-namespace"} & flags().keys()
    assert flags(GATEWAY)["pool-name"] == one("InferencePool", GATEWAY)["metadata"]["name"]
    assert not {"endpoint-selector", "endpoint-target-ports"} & flags(GATEWAY).keys()


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("changes", [{}, GATEWAY], ids=["standalone", "gateway"])
def test_the_router_finds_the_workers_of_its_revision(role: str, changes: dict[str, Any]) -> None:
    """https://github.com/vllm-project/production-stack/issues/747: labels and ports of router and pods belong together."""
    labels = workers.of_role(role, changes=changes)["spec"]["template"]["metadata"]["labels"]
    selector = (
        dict(part.split("=") for part in flags()["endpoint-selector"].split(","))
        if not changes
        else one("InferencePool", GATEWAY)["spec"]["selector"]["matchLabels"]
    )
    assert selector.items() <= labels.items()
    assert "dpd/revision" in selector
    other = LlmdNames.of(given({E + "kv.dtype": "fp8"})[0]).pool_labels
    assert not other.items() <= labels.items()


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_the_router_sends_to_a_port_on_which_a_pod_of_the_role_listens(role: str) -> None:
    """https://github.com/llm-d/llm-d-benchmark/pull/878."""
    spec = workers.pod(role)
    ports = {port["containerPort"] for known in (*spec.get("initContainers", []), *spec["containers"]) for port in known["ports"]}
    assert int(flags()["endpoint-target-ports"]) in ports


def test_every_rank_has_its_port() -> None:
    assert flags(MOE)["endpoint-target-ports"] == "8000,8001,8002,8003,8004,8005,8006,8007"


def test_tls_is_for_a_gateway_elsewhere() -> None:
    assert flags()["secure-serving"] == "false"
    assert flags(GATEWAY)["secure-serving"] == "true"


def test_metrics_ask_for_no_right_of_the_cluster_and_nothing_is_left_open_for_debugging() -> None:
    assert flags()["metrics-endpoint-auth"] == "false"
    assert flags()["enable-pprof"] == "false"


@pytest.mark.parametrize("changes", [{}, GATEWAY], ids=["standalone", "gateway"])
def test_one_router_goes_before_the_next_comes(changes: dict[str, Any]) -> None:
    """Operations of the pinned version: what an approximate router remembers is not shared."""
    spec = one("Deployment", changes, PICKER)["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_two_routers_that_listen_to_events_replace_each_other_one_by_one() -> None:
    spec = one("Deployment", EVENTS, PICKER)["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert flags(EVENTS)["ha-enable-leader-election"] == "false"


def test_a_change_of_a_file_is_a_change_of_the_pods() -> None:
    """The router reads its file once."""
    marks = {
        one("Deployment", changes, PICKER)["spec"]["template"]["metadata"]["annotations"]["dpd/config"]
        for changes in ({}, {f"{ROUTING}threshold_tokens": 4095}, FALLBACK)
    }
    assert len(marks) == 3


def test_clients_reach_the_proxy_through_the_endpoints_own_name() -> None:
    service = next(body for body in made() if body["kind"] == "Service" and body["metadata"]["name"] == "llama-70b")
    (port,) = service["spec"]["ports"]
    named = {known["name"]: known["containerPort"] for known in container("envoy")["ports"]}
    assert (port["port"], named[port["targetPort"]]) == (80, 8081)
    assert service["spec"]["selector"].items() <= one("Deployment", name=PICKER)["spec"]["template"]["metadata"]["labels"].items()


def test_the_same_name_stands_for_the_gateway() -> None:
    service = next(body for body in made(GATEWAY) if body["kind"] == "Service" and body["metadata"]["name"] == "llama-70b")
    assert service["spec"] == {"type": "ExternalName", "externalName": "llama-70b-gateway-istio.inference.svc.cluster.local"}


@pytest.mark.parametrize("changes", [{}, GATEWAY], ids=["standalone", "gateway"])
def test_ready_prefillers_have_addresses_of_their_own(changes: dict[str, Any]) -> None:
    service = one("Service", changes, "llama-70b-prefillers")["spec"]
    assert service["clusterIP"] == "None"
    assert "publishNotReadyAddresses" not in service
    labels = workers.of_role("prefill")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert not service["selector"].items() <= workers.of_role("decode")["spec"]["template"]["metadata"]["labels"].items()


def test_the_proxy_may_ask_prefillers_for_their_health() -> None:
    policy = workers.of_role("prefill", "NetworkPolicy")["spec"]
    admitted = [rule["ports"] for rule in policy["ingress"] if {"podSelector": {"matchLabels": _labels()}} in rule["from"]]
    assert 8000 in {port["port"] for ports in admitted for port in ports}


def _labels() -> dict[str, str]:
    return LlmdNames.of(given()[0]).picker_labels


@pytest.mark.parametrize("changes", [FALLBACK, {**GATEWAY, **FALLBACK}], ids=["standalone", "gateway"])
def test_fallback_asks_for_nothing(changes: dict[str, Any]) -> None:
    assert not [body for body in made(changes) if body["metadata"]["name"].startswith("llama-70b-prefillers")]
    assert [known["name"] for known in pod(changes)["containers"]] == (["epp", "envoy"] if changes == FALLBACK else ["epp"])


def test_behind_a_gateway_the_picker_is_out_of_service_while_no_prefiller_is_ready() -> None:
    """https://github.com/ai-dynamo/dynamo/pull/4286: without a place in its Service the pool fails every request."""
    assert container("guard", GATEWAY)["readinessProbe"]["httpGet"] == {"path": "/prefillers", "port": 19001}
    assert container("guard", GATEWAY)["livenessProbe"]["httpGet"]["path"] == "/ready"
    assert one("InferencePool", GATEWAY)["spec"]["endpointPickerRef"]["failureMode"] == "FailClose"
    service = one("Service", GATEWAY, PICKER)["spec"]
    assert "publishNotReadyAddresses" not in service


def test_standalone_the_router_stays_in_service_for_short_prompts() -> None:
    assert container("envoy")["readinessProbe"]["httpGet"]["path"] == "/ready"


def test_the_picker_is_asked_by_grpc_how_it_is() -> None:
    for probe in ("livenessProbe", "readinessProbe"):
        assert container("epp")[probe]["grpc"]["port"] == 9003


@pytest.mark.parametrize(
    ("changes", "open_to"),
    [({}, [(None, [8081]), ("scrapers", [9090, 19001])]), (GATEWAY, [("gateway", [9002]), ("scrapers", [9090, 19001])]),
     ({**GATEWAY, **FALLBACK}, [("gateway", [9002]), ("scrapers", [9090])])],
    ids=["standalone", "gateway", "gateway, fallback"],
)  # fmt: skip
def test_who_may_reach_the_router(changes: dict[str, Any], open_to: list[tuple[str | None, list[int]]]) -> None:
    rules = one("NetworkPolicy", changes, PICKER)["spec"]["ingress"]
    assert [[port["port"] for port in rule["ports"]] for rule in rules] == [ports for _, ports in open_to]
    for rule, (who, _) in zip(rules, open_to, strict=True):
        assert ("from" in rule) == (who is not None)
        if who == "gateway":
            assert rule["from"] == [{"podSelector": {"matchLabels": {"gateway.networking.k8s.io/gateway-name": "llama-70b-gateway"}}}]


def test_the_router_runs_on_nodes_without_gpus() -> None:
    (term,) = pod()["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "sagemaker.amazonaws.com/instance-group-name", "operator": "In", "values": ["system"]}]
    assert "nodeAffinity" not in pod({"cluster.groups.system": {"instance_type": "ml.g6.12xlarge", "count": 2}})["affinity"]


def test_taints_of_those_nodes_are_borne() -> None:
    assert pod(OPTIONS["taints"])["tolerations"] == [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}]
    assert "tolerations" not in pod()


def test_the_tokenizer_is_the_model_that_the_workers_serve() -> None:
    deployment = one("Deployment", EVENTS, "llama-70b-tokenizer")["spec"]["template"]["spec"]
    (known,) = deployment["containers"]
    assert known["command"] == ["vllm", "launch", "render"]
    assert known["args"][0] == workers.server("prefill", EVENTS)["args"][0]
    assert "--served-model-name=llama-70b" in known["args"]
    assert known["image"].endswith(":v0.23.0")
    mounted = {mount["mountPath"] for mount in workers.server("prefill", EVENTS)["volumeMounts"] if mount.get("readOnly")}
    assert mounted <= {mount["mountPath"] for mount in known["volumeMounts"]}


def test_only_the_picker_asks_the_tokenizer() -> None:
    (rule,) = one("NetworkPolicy", EVENTS, "llama-70b-tokenizer")["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": _labels()}}]


def test_the_token_of_the_hub_comes_from_a_secret() -> None:
    (known,) = one("Deployment", OPTIONS["hub"], "llama-70b-tokenizer")["spec"]["template"]["spec"]["containers"]
    (token,) = (entry for entry in known["env"] if entry["name"] == "HF_TOKEN")
    assert token["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}


def test_images_are_those_of_the_version_table() -> None:
    assert container("epp")["image"].startswith(f"ghcr.io/llm-d/llm-d-router-endpoint-picker:v{pinned()}@sha256:")


def test_a_pod_that_goes_finishes_what_it_has() -> None:
    """The picker must outlive the proxy's requests, and both the pod's grace."""
    seconds = {known["name"]: known["lifecycle"]["preStop"]["sleep"]["seconds"] for known in pod()["containers"]}
    assert 0 < seconds["epp"] < seconds["envoy"] < pod()["terminationGracePeriodSeconds"]
