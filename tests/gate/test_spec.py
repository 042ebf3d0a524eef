"""The gate's spec of an environment is one that the gate can read, and says of the backend what only the backend knows."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from health_gate.cluster import _knows
from health_gate.spec import Series, Spec
from hypothesis import given
from hypothesis import strategies as st

from charts.gate import gate_objects
from dpd.backends.backend import backend
from dpd.backends.signs import DecisionSigns, ObjectSigns, PodSigns, Signs
from dpd.backends.site import LUSTRE_FILE_SYSTEM_ID
from dpd.catalog.instances import find
from dpd.catalog.operator import operator
from dpd.environment.environment import Environment
from dpd.environment.load import load
from dpd.gate.spec import EFA_SECURITY_GROUP_ID, KEY_ARN, PLACEHOLDERS, TOPIC_ARN, document, filled, without_reports, worker_ports
from dpd.sizing.startup import GATE_LOOK_SECONDS, GATE_RUN_SECONDS, gate_wait_seconds, longest_gate_wait_seconds
from dpd.sizing.transfer import kv_floor_gb_per_second
from tests.support import ROOT, environment

VALUES = {placeholder: f"value-{index}" for index, placeholder in enumerate(PLACEHOLDERS)}
ADOPTED_LUSTRE = {
    "file_system_id": "fs-0123456789abcdef0",
    "dns_name": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
    "mount_name": "abcdef12",
    "availability_zone_id": "use2-az1",
    "capacity_gib": 4800,
    "security_group_id": "sg-0123456789abcdef0",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "no endpoint": {"endpoints": []},
    "no Lustre": {"storage.lustre": None},
    "adopted Lustre": {"storage.lustre": {"existing": ADOPTED_LUSTRE}},
    "no link": {"storage.lustre.link": None},
    "adopted bucket": {"storage.models.bucket": {"existing": "our-weights", "region": "us-east-2"}},
    "completions": {"endpoints[0].routing.api": "completions"},
    "kv aware": {"endpoints[0].routing.strategy": "kv_aware", "endpoints[0].routing.api": "completions"},
    "registered": {"endpoints[0].exposure.sagemaker_endpoint": "Chat"},
    "redis": {"endpoints[0].kv.shared_tier": "redis://cache.internal:6379"},
    "hub": {"endpoints[0].model.source": {"hub": {"model_id": "meta-llama/Llama-3.3-70B-Instruct", "revision": "0" * 40}}},
    "claim": {"endpoints[0].model.source": {"volume": {"claim": "weights", "path": "llama"}}},
    "unequal nodes": {"cluster.groups.decode.instance_type": "ml.p5en.48xlarge"},
    "closed": {"network.egress": {"nat_gateways": 0, "interface_endpoints": True}},
    "add-on left out": {"cluster.add_ons": {"metrics-server": {"install": False}}},
    "autoscaling": {
        "endpoints[0].prefill.autoscaling": {
            "min_replicas": 0,
            "max_replicas": 2,
            "cloudwatch": [{"namespace": "A", "metric": "B", "target": 1, "dimensions": {"a.b/c": "d"}}],
        }
    },
    "huge pages": {
        "endpoints[0].raw.spec": {
            "pdSpec": {"decodingSpec": {"resources": {"requests": {"hugepages-2Mi": "5120Mi"}, "limits": {"hugepages-2Mi": "5120Mi"}}}}
        }
    },
}


def spec(changes: dict[str, Any] | None = None) -> Spec:
    return Spec.parse(filled(document(environment(changes)), VALUES))


@pytest.mark.parametrize("path", sorted((ROOT / "environments").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_gate_reads_the_spec_of_every_shipped_environment(path: Path) -> None:
    loaded = load(path).environment
    assert loaded is not None
    parsed = Spec.parse(filled(document(loaded), VALUES))
    assert parsed.environment == f"llama-dpd-{path.stem}"
    assert [endpoint.key for endpoint in parsed.endpoints] == ["inference/llama-70b"]


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("example*.yaml")), ids=lambda path: path.stem)
def test_the_gate_reads_the_spec_of_every_example_whatever_its_backend(path: Path) -> None:
    """Every worker's side of the transfer, prefill's use and KV can be proven by something that the backend has."""
    loaded = load(path).environment
    assert loaded is not None
    for endpoint in Spec.parse(filled(document(loaded), VALUES)).endpoints:
        assert all(endpoint.pods[role].role_log or endpoint.pods[role].role_label for role in ("prefill", "decode"))
        assert endpoint.logs.decision or endpoint.decisions or endpoint.series.requests
        assert endpoint.logs.retrieved or endpoint.series.external_tokens
        assert endpoint.pods["router"].service_port > 0
        assert endpoint.resources


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_the_gate_reads_the_spec_whatever_the_options(changes: dict[str, Any]) -> None:
    text = filled(document(environment(changes)), VALUES)
    Spec.parse(text)
    assert "${" not in text
    looked, _ = without_reports(document(environment(changes)), {})
    assert "${" not in looked
    assert Spec.parse(looked).reports.bucket == ""


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_the_real_definition_knows_every_field_that_is_looked_for(changes: dict[str, Any], crds: Path) -> None:
    (file,) = crds.glob("inference.sagemaker.aws.amazon.com_inferenceendpointconfigs.*.yaml")
    served = {each["name"]: each for each in yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["versions"] if each["served"]}
    for definition in spec(changes).definitions:
        schema = served[definition.version]["schema"]["openAPIV3Schema"]
        assert [field for field in definition.fields if not _knows(schema, field.split("."))] == []
        assert not _knows(schema, ["spec", "pdSpec", "newerThanThis"])


def test_only_a_deployment_s_own_values_are_placeholders() -> None:
    whole = document(environment())
    assert whole["security_groups"] == [EFA_SECURITY_GROUP_ID]
    assert whole["lustre"] == {"file_system_id": LUSTRE_FILE_SYSTEM_ID, "associated": True}
    assert (whole["reports"]["key_arn"], whole["reports"]["topic_arn"]) == (KEY_ARN, TOPIC_ARN)
    assert set(re.findall(r"\$\{[A-Z_]+\}", filled(whole, {each: each for each in PLACEHOLDERS}))) == set(PLACEHOLDERS)
    with pytest.raises(KeyError):
        filled(whole, {key: value for key, value in VALUES.items() if key != TOPIC_ARN})


def test_what_cannot_be_known_is_left_out_of_a_look() -> None:
    text, left_out = without_reports(document(environment()), {})
    assert left_out == ("lustre",)
    assert (Spec.parse(text).lustre, Spec.parse(text).security_groups) == (None, ())
    text, left_out = without_reports(
        document(environment({"storage.lustre": {"existing": ADOPTED_LUSTRE}})), {EFA_SECURITY_GROUP_ID: "sg-1"}
    )
    assert left_out == ()
    assert Spec.parse(text).security_groups == ("sg-1",)


def test_nodes_offer_what_the_catalog_says() -> None:
    groups = spec({"cluster.groups.decode.instance_type": "ml.p6-b200.48xlarge"}).groups
    assert (groups["system"].gpus, groups["system"].efa) == (0, 0)
    assert (groups["prefill"].gpus, groups["prefill"].efa) == (8, 32)
    assert (groups["decode"].gpus, groups["decode"].efa) == (8, 8)


def test_huge_pages_are_expected_of_pod_and_group_only_where_a_raw_field_asks_for_them() -> None:
    assert {group.hugepages_mib for group in spec().groups.values()} == {0}
    asked = spec(OPTIONS["huge pages"])
    assert {name: group.hugepages_mib for name, group in asked.groups.items()} == {"system": 0, "prefill": 0, "decode": 5120}
    assert asked.endpoints[0].pods["decode"].hugepages_mib == 5120


def test_pods_are_those_that_the_operator_makes() -> None:
    (endpoint,) = spec().endpoints
    prefill, router = endpoint.pods["prefill"], endpoint.pods["router"]
    assert (prefill.name_prefix, prefill.container, prefill.containers, prefill.port) == (
        "prefill-llama-70b-",
        "prefill-llama-70b",
        3,
        8000,
    )
    assert prefill.labels == {"inference.sagemaker.aws.amazon.com/dpd-role": "prefill"}
    assert (router.namespace, router.container, router.containers) == ("hyperpod-inference-system", "router-container", 2)
    assert router.service == "llama-70b-inference-routing-service"


@pytest.mark.parametrize(("replicas", "least", "expected"), [(2, 1, 1), (1, 2, 1), (2, 0, 1), (3, 3, 3)])
def test_a_role_that_scales_has_at_least_its_fewest_pods(replicas: int, least: int, expected: int) -> None:
    trigger = {"namespace": "A", "metric": "B", "target": 1}
    scaling = {"min_replicas": least, "max_replicas": 3, "cloudwatch": [trigger]}
    changes = {"endpoints[0].prefill.replicas": replicas, "endpoints[0].prefill.autoscaling": scaling}
    assert spec(changes).endpoints[0].pods["prefill"].replicas == expected


LINES = {
    "decision": (
        "Conditional routing: estimated_tokens=6750, threshold=4096, disaggregate=True",
        {"estimate": "6750", "split": "True"},
    ),
    "retrieved": (
        "Retrieved 6035 out of 6035 required tokens (from 6035 total tokens). size: 0.2344 gb, cost 1.3300 ms, throughput: 176.2 GB/s;",
        {"got": "6035", "needed": "6035", "gigabytes": "0.2344", "throughput": "176.2"},
    ),
    "prefill_role": ("{'pd_role': 'sender', 'a': 1}", {}),
    "decode_role": ("{'pd_role': 'receiver', 'a': 1}", {}),
}


@pytest.mark.parametrize("name", LINES)
def test_the_lines_of_the_guide_are_recognised(name: str) -> None:
    line, groups = LINES[name]
    (endpoint,) = spec().endpoints
    pattern = endpoint.pods[name.partition("_")[0]].role_log if name.endswith("_role") else getattr(endpoint.logs, name)
    found = re.search(pattern, f"2026-11-29 INFO {line}")
    assert found is not None
    assert found.groupdict() == groups
    assert all(re.search(pattern, other) is None for key, (other, _) in LINES.items() if key != name)


def test_a_line_without_a_rate_still_says_how_many_tokens() -> None:
    found = re.search(spec().endpoints[0].logs.retrieved, "Retrieved 0 out of 6035 required tokens")
    assert found is not None
    assert (found["got"], found["throughput"]) == ("0", None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [("llama-dpd-dev-models-111122223333-us-east-2", "Llama-3.3-70B-Instruct")]),
        (OPTIONS["hub"], []),
        (OPTIONS["claim"], []),
        (
            {"endpoints[0].model.source": {"lustre": {"path": "/checkpoints/llama"}}},
            [("llama-dpd-dev-models-111122223333-us-east-2", "checkpoints/llama")],
        ),
        ({"endpoints[0].model.source": {"lustre": {"path": "/checkpoints-old/llama"}}}, []),
    ],
)
def test_weights_are_looked_for_where_the_bucket_holds_them(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert [(each.bucket, each.prefix) for each in spec(changes).weights] == expected


def test_only_add_ons_of_ours_are_looked_for() -> None:
    assert {add_on.name for add_on in spec(OPTIONS["add-on left out"]).add_ons} == {each.name for each in spec().add_ons} - {
        "metrics-server"
    }
    floors = {add_on.name: add_on.floor for add_on in spec().add_ons}
    assert floors["amazon-sagemaker-hyperpod-inference"] == "v1.4.0-eksbuild.1"


def test_a_closed_network_cannot_ask_iam() -> None:
    assert [role.name for role in spec().roles] == ["SageMakerHyperPodInference-llama-dpd-dev-us-east-2"]
    assert spec(OPTIONS["closed"]).roles == ()


@pytest.mark.parametrize(("value", "expected"), [(None, 256), ("512", 512), ("0", 256), ("many", 256)])
def test_chunks_are_as_long_as_the_variable_says(value: str | None, expected: int) -> None:
    changes = {} if value is None else {"endpoints[0].environment": {"LMCACHE_CHUNK_SIZE": value}}
    assert spec(changes).endpoints[0].chunk_tokens == expected


def test_only_backends_know_the_operator() -> None:
    words = [operator().role_label, operator().router_container, "pd_role", "InferenceEndpointConfig", "sidecar"]
    for file in (ROOT / "dpd" / "gate").glob("*.py"):
        assert not [word for word in words if word in file.read_text(encoding="utf-8")], file.name


SETTINGS = [
    ("""arg --kv-transfer-config\narg {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_producer"}""", "prefill"),
    ("arg --kv-transfer-config.kv_role=kv_producer", "prefill"),
    ("""arg {"kv_connector":"LMCacheConnectorV1","kv_role":"kv_consumer"}""", "decode"),
    ("env LMCACHE_PD_ROLE=sender", "prefill"),
    ("env LMCACHE_PD_ROLE=receiver", "decode"),
    ("env LMCACHE_EXTRA={'pd_role': 'receiver'}", "decode"),
    ("arg --kv-transfer-config\narg {'kv_role': 'kv_both'}\nenv PD_BUFFER_SIZE=8589934592", None),
]


@pytest.mark.parametrize(("settings", "role"), SETTINGS)
def test_settings_show_the_side_of_the_transfer(settings: str, role: str | None) -> None:
    pods = spec().endpoints[0].pods
    found = [name for name in ("prefill", "decode") if re.search(pods[name].role_settings, settings)]
    assert found == ([role] if role else [])


def test_the_operator_s_label_shows_the_role() -> None:
    pods = spec().endpoints[0].pods
    for name in ("prefill", "decode"):
        key, _, value = pods[name].role_label.partition("=")
        assert pods[name].labels == {key: value}
        assert value == name


# --- EFA's own counters


def test_the_gate_reads_the_exporter_that_is_deployed() -> None:
    wire = spec().endpoints[0].wire
    assert wire is not None
    (daemon,) = [manifest.body for manifest in gate_objects(environment()) if manifest.kind == "DaemonSet"]
    template = daemon["spec"]["template"]
    assert wire.namespace == daemon["metadata"]["namespace"]
    assert wire.labels.items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert str(wire.port) in container["command"]
    assert {wire.sent, wire.received, wire.rdma_written} == {f"node_amazonefa_{name}_bytes" for name in ("tx", "rx", "rdma_write")}


@pytest.mark.parametrize(
    "changes",
    [
        {"gate.efa_counters": False},
        {"gate.deploy": False},
        {"endpoints[0].decode.efa_devices": 0},
        {"endpoints": []},
    ],
    ids=["off", "no gate", "no EFA", "no endpoint"],
)
def test_without_an_exporter_none_is_looked_for(changes: dict[str, Any]) -> None:
    assert [endpoint.wire for endpoint in spec(changes).endpoints if endpoint.wire] == []
    assert not [manifest for manifest in gate_objects(environment(changes)) if manifest.kind == "DaemonSet"]


# --- a backend that has less

BARE = Signs(
    path="v1/completions",
    pods={
        "prefill": PodSigns("ns", "p-", "c", 1, 1, 8000, role_label="role=prefill"),
        "decode": PodSigns("ns", "d-", "c", 1, 2, 8200, efa=4, role_label="role=decode"),
        "router": PodSigns("ns", "r-", "envoy", 1, 1, 8081, service="chat", service_port=80),
        "picker": PodSigns("ns", "e-", "epp", 1, 1, 9090),
    },
    characters_per_token=4,
    chunk_tokens=128,
    resources=(ObjectSigns("apps", "v1", "deployments", "d", "status.conditions[type=Progressing].reason", "NewReplicaSetAvailable"),),
    decisions=DecisionSigns("picker", ('a_total{decision_type="prefill-decode"}',), ('a_total{decision_type="decode-only"}',)),
    series={"failures": ("vllm:nixl_num_failed_transfers_total",)},
)


def test_what_a_backend_does_not_have_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(backend("operator"), namespace="", signs=lambda *_: BARE)
    monkeypatch.setattr("dpd.gate.spec.backend", lambda _: known)
    whole = document(environment())
    assert worker_ports(whole) == (8000, 8081, 8200, 9090, 9109)
    ranks = replace(BARE, pods={**BARE.pods, "decode": replace(BARE.pods["decode"], servers=3)})
    monkeypatch.setattr("dpd.gate.spec.backend", lambda _: replace(known, signs=lambda *_: ranks))
    assert worker_ports(document(environment())) == (8000, 8081, 8200, 8201, 8202, 9090, 9109)
    made = Spec.parse(filled(whole, VALUES))
    (endpoint,) = made.endpoints
    assert (made.definitions, made.webhook_namespaces) == ((), ("cert-manager",))
    assert (endpoint.logs.decision, endpoint.logs.retrieved, endpoint.patterns, endpoint.remedies) == ("", "", (), {})
    assert [resource.label for resource in endpoint.resources] == ["deployments/d"]
    assert endpoint.decisions is not None
    assert endpoint.series.failures == ("vllm:nixl_num_failed_transfers_total",)
    assert endpoint.series.requests == Series().requests
    rules = {manifest.namespace: manifest.body["rules"] for manifest in gate_objects(environment()) if manifest.kind == "Role"}
    said = {(rule["resources"][0], *rule.get("resourceNames", ())): rule["verbs"] for rule in rules["ns"]}
    assert said["services/proxy", "http:chat:80"] == ["create"]
    assert said[("pods/proxy",)] == ["get", "create"]
    assert {rule["resources"][0]: rule.get("resourceNames") for rule in rules["inference"]} == {"deployments": ["d"]}


# --- floor and deadlines


@pytest.mark.parametrize(
    ("type_", "devices", "ranks", "floor"),
    [
        ("ml.p5.48xlarge", 32, 8, 2.5),
        ("ml.p5.48xlarge", 16, 4, 2.5),
        ("ml.p5en.48xlarge", 16, 8, 2.5),
        ("ml.p6-b300.48xlarge", 16, 8, 5.0),
        ("ml.p5.48xlarge", 8, 8, 1.0),
        ("ml.p5.48xlarge", 0, 8, 1.0),
        ("ml.c5.4xlarge", 0, 1, 1.0),
    ],
)
def test_the_floor_follows_the_devices_of_a_rank(type_: str, devices: int, ranks: int, floor: float) -> None:
    assert kv_floor_gb_per_second(find(type_), efa_devices=devices, ranks=ranks) == floor


@given(devices=st.integers(0, 64), more=st.integers(0, 64), ranks=st.integers(1, 64))
def test_more_devices_never_lower_the_floor_and_it_never_falls_below_aws_s(devices: int, more: int, ranks: int) -> None:
    instance = find("ml.p5.48xlarge")
    low, high = (kv_floor_gb_per_second(instance, efa_devices=each, ranks=ranks) for each in (devices, devices + more))
    assert 1.0 <= low <= high


def test_the_gate_gives_up_before_cloudformation_does() -> None:
    assert longest_gate_wait_seconds() + 2 * GATE_RUN_SECONDS + GATE_LOOK_SECONDS < 3600
    assert GATE_RUN_SECONDS + 60 <= 900, "Lambda ends a function after 15 minutes"


def test_it_waits_for_the_slowest_model() -> None:
    shape = environment().endpoints[0].model.shape
    assert gate_wait_seconds([]) == 900
    assert 900 < gate_wait_seconds([shape]) <= longest_gate_wait_seconds()
    assert gate_wait_seconds([shape, shape.with_parameters(2e12)]) == longest_gate_wait_seconds()


def test_the_same_environment_gives_the_same_text() -> None:
    made: list[Environment] = [environment(), environment()]
    first, second = (filled(document(each), VALUES) for each in made)
    assert first == second
