"""The pod of a role: devices, probes, volumes, placement, and how it goes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.backends.llmd.engine import drain_seconds
from dpd.backends.llmd.pod import grace_seconds, notice_seconds
from dpd.environment.names import NODE_HEALTH_TAINT, is_dns_label, weights_volume
from dpd.sizing.startup import startup_budget_seconds
from tests.backends.llmd.objects import Body, E, made, pod, server
from tests.support import LLMD_EXAMPLE, environment

ROLES = ("prefill", "decode")
EFA, GPU = "vpc.amazonaws.com/efa", "nvidia.com/gpu"
GROUPS = ("cluster.groups.prefill.instance_type", "cluster.groups.decode.instance_type")
SHARED = {E + "decode.group": "prefill", "cluster.groups.prefill.count": 2}
ONE_NODE = {E + "decode.group": "prefill", E + "decode.tensor_parallel": 4, E + "prefill.replicas": 1}


def volumes(role: str, changes: dict[str, Any] | None = None) -> dict[str, Body]:
    return {volume["name"]: volume for volume in pod(role, changes)["volumes"]}


def mounts(role: str, changes: dict[str, Any] | None = None) -> dict[str, Body]:
    return {mount["name"]: mount for mount in server(role, changes)["volumeMounts"]}


@pytest.mark.parametrize(
    ("instance_type", "size", "devices"),
    [
        ("ml.p5.48xlarge", 1, 4), ("ml.p5.48xlarge", 8, 32), ("ml.p5e.48xlarge", 4, 16), ("ml.p5en.48xlarge", 1, 2),
        ("ml.p5en.48xlarge", 4, 8), ("ml.p6-b200.48xlarge", 4, 4), ("ml.p6-b300.48xlarge", 8, 16), ("ml.g6e.48xlarge", 8, 4),
        ("ml.g7e.24xlarge", 2, 1), ("ml.g6.8xlarge", 1, 1),
    ],
)  # fmt: skip
def test_devices_are_the_share_of_the_pods_gpus(instance_type: str, size: int, devices: int) -> None:
    changes = {**dict.fromkeys(GROUPS, instance_type), E + "decode.tensor_parallel": size}
    asked = server("decode", changes)["resources"]
    assert asked["requests"] == asked["limits"]
    assert (asked["limits"][GPU], asked["limits"][EFA]) == (str(size), str(devices))


@pytest.mark.parametrize("role", ROLES)
def test_pods_are_guaranteed_what_they_ask_for(role: str) -> None:
    for container in (*pod(role)["containers"], *pod(role).get("initContainers", ())):
        asked = container["resources"]
        assert asked["requests"] == asked["limits"]
        assert {"cpu", "memory"} <= asked["limits"].keys()


@pytest.mark.parametrize("role", ROLES)
def test_weights_may_take_their_time(role: str) -> None:
    shape = environment(example=LLMD_EXAMPLE).endpoints[0].model.shape
    startup = server(role)["startupProbe"]
    budget = startup["failureThreshold"] * startup["periodSeconds"]
    assert startup_budget_seconds(shape) <= budget < startup_budget_seconds(shape) + startup["periodSeconds"]
    assert startup["httpGet"] == {"path": "/v1/models", "port": "modelserver"}
    large = server(role, {E + "model.catalog": "llama-3.1-405b-instruct"})["startupProbe"]
    assert large["failureThreshold"] > startup["failureThreshold"]


@pytest.mark.parametrize("role", ROLES)
def test_ready_is_who_names_its_model_and_alive_who_is_healthy(role: str) -> None:
    assert server(role)["readinessProbe"]["httpGet"]["path"] == "/v1/models"
    assert server(role)["livenessProbe"]["httpGet"]["path"] == "/health"
    key = {E + "environment": {"VLLM_API_KEY": {"secret": "key", "key": "key"}}}
    assert server(role, key)["readinessProbe"]["httpGet"]["path"] == "/health", "with a key the list is hidden"
    assert server(role, key)["startupProbe"]["httpGet"]["path"] == "/health"


@pytest.mark.parametrize(("role", "size"), [("prefill", "16Gi"), ("decode", "24Gi")])
def test_shared_memory_is_not_the_containers_64_mib(role: str, size: str) -> None:
    assert volumes(role)["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": size}
    assert mounts(role)["shm"]["mountPath"] == "/dev/shm"


def test_a_tier_in_shared_memory_has_room_there() -> None:
    tiered = {E + "kv.cpu_tier": True, E + "kv.cpu_tier_gib": 20}
    assert volumes("prefill", tiered)["shm"]["emptyDir"]["sizeLimit"] == "96Gi"
    assert volumes("decode", tiered)["shm"]["emptyDir"]["sizeLimit"] == "24Gi"


@pytest.mark.parametrize("role", ROLES)
def test_caches_can_be_written_without_a_home(role: str) -> None:
    for name, path in {"cache": "/.cache", "config": "/.config", "triton": "/.triton"}.items():
        assert volumes(role)[name] == {"name": name, "emptyDir": {}}
        assert mounts(role)[name]["mountPath"] == path


@pytest.mark.parametrize("role", ROLES)
def test_memory_may_be_pinned_and_nothing_else(role: str) -> None:
    assert server(role)["securityContext"] == {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
    }  # fmt: skip
    chosen = {E + f"{role}.privileged": True}
    assert server(role, chosen)["securityContext"] == {"privileged": True}
    other = ROLES[1 - ROLES.index(role)]
    assert server(other, chosen)["securityContext"] == server(other)["securityContext"]


@pytest.mark.parametrize("role", ROLES)
def test_pods_know_nothing_of_the_cluster(role: str) -> None:
    assert pod(role)["enableServiceLinks"] is False
    assert pod(role)["automountServiceAccountToken"] is False
    assert pod(role)["serviceAccountName"] == "llama-70b-worker"
    assert "hostNetwork" not in pod(role)


@pytest.mark.parametrize(("role", "notice"), [("prefill", 40), ("decode", 10)])
def test_a_pod_that_must_go_serves_until_the_router_knows(role: str, notice: int) -> None:
    endpoint = environment(example=LLMD_EXAMPLE).endpoints[0]
    assert server(role)["lifecycle"] == {"preStop": {"sleep": {"seconds": notice}}}
    assert notice == notice_seconds(role)
    assert pod(role)["terminationGracePeriodSeconds"] == grace_seconds(endpoint, role) > notice + drain_seconds(endpoint, role)


def test_the_sidecar_stands_in_front_of_decoders_alone() -> None:
    assert "initContainers" not in pod("prefill")
    (sidecar,) = pod("decode")["initContainers"]
    assert sidecar["name"] == "routing-proxy"
    assert sidecar["restartPolicy"] == "Always", "else Kubernetes would wait for it to end"
    assert sidecar["args"] == [
        "--port=8000", "--model-server-port=8200", "--kv-connector=nixlv2", "--secure-proxy=false", "--prefill-max-retries=2",
    ]  # fmt: skip
    assert sidecar["ports"] == [{"name": "sidecar", "containerPort": 8000, "protocol": "TCP"}]
    assert sidecar["readinessProbe"]["tcpSocket"] == {"port": 8000}
    assert sidecar["securityContext"]["runAsNonRoot"] is True
    assert sidecar["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_images_are_pinned_by_their_digests() -> None:
    (sidecar,) = pod("decode")["initContainers"]
    for image in (sidecar["image"], server("prefill")["image"], server("decode")["image"]):
        assert "@sha256:" in image


@pytest.mark.parametrize("role", ROLES)
def test_nodes_are_selected_by_hyperpods_labels(role: str) -> None:
    extra = {E + f"{role}.node_selector": {"team": "a"}, f"cluster.groups.{role}.labels": {"team": "a"}}
    assert pod(role, extra)["nodeSelector"] == {
        "sagemaker.amazonaws.com/instance-group-name": role, "node.kubernetes.io/instance-type": "ml.p5.48xlarge", "team": "a",
    }  # fmt: skip


def test_a_groups_taints_are_tolerated_and_no_others() -> None:
    tainted = {"cluster.groups.decode.taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}]}
    assert pod("decode", tainted)["tolerations"] == [{"key": "gpu", "operator": "Equal", "value": "only", "effect": "NoSchedule"}]
    assert "tolerations" not in pod("prefill", tainted)
    assert NODE_HEALTH_TAINT not in str(made(tainted))


REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def roles_of(term: Body) -> list[str]:
    (expression,) = term["labelSelector"]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("llm-d.ai/role", "In")
    assert term["labelSelector"]["matchLabels"] == {"llm-d.ai/guide": "llama-70b"}
    return list(expression["values"])


@pytest.mark.parametrize("role", ROLES)
def test_all_workers_are_in_one_zone(role: str) -> None:
    (term,) = pod(role)["affinity"]["podAffinity"][REQUIRED]
    assert term["topologyKey"] == "topology.kubernetes.io/zone"
    assert role in roles_of(term), "else the first pod would find nobody to be with"
    assert set(roles_of(term)) == set(ROLES)


@pytest.mark.parametrize(("role", "other"), [("prefill", "decode"), ("decode", "prefill")])
@pytest.mark.parametrize("changes", [{}, SHARED], ids=["groups", "group"])
def test_the_roles_are_on_different_hosts(role: str, other: str, changes: dict[str, Any]) -> None:
    (term,) = pod(role, changes)["affinity"]["podAntiAffinity"][REQUIRED]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert roles_of(term) == [other]


@pytest.mark.parametrize("role", ROLES)
def test_on_one_node_they_have_to_share_it(role: str) -> None:
    assert "podAntiAffinity" not in pod(role, ONE_NODE)["affinity"]


@pytest.mark.parametrize("role", ROLES)
def test_equal_pods_come_together_where_the_roles_share_a_group(role: str) -> None:
    (term,) = pod(role, SHARED)["affinity"]["podAffinity"][PREFERRED]
    assert roles_of(term["podAffinityTerm"]) == [role]
    assert PREFERRED not in pod(role)["affinity"]["podAffinity"]


CLAIM = {"persistentVolumeClaim": {"claimName": "weights"}}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("source", "volume", "sub_path"),
    [
        ({"lustre": {"path": "/checkpoints/llama"}}, {"persistentVolumeClaim": {"claimName": "lustre-models"}}, "checkpoints/llama"),
        ({"volume": {"claim": "weights", "path": "llama"}}, CLAIM, None),
        ({"volume": {"host_path": "/opt/dlami/nvme/llama"}}, {"hostPath": {"path": "/opt/dlami/nvme/llama", "type": "Directory"}}, None),
    ],
    ids=["lustre", "claim", "nvme"],
)  # fmt: skip
def test_weights_are_mounted_read_only(role: str, source: Body, volume: Body, sub_path: str | None) -> None:
    changes = {E + "model.source": source}
    assert volumes(role, changes)["model-weights"] == {"name": "model-weights", **volume}
    mount = mounts(role, changes)["model-weights"]
    assert mount["readOnly"] is True
    assert (mount["mountPath"], mount.get("subPath")) == ("/opt/ml/model", sub_path)
    assert not [body for body in made(changes) if body["kind"].startswith("PersistentVolume")]


def test_weights_of_the_hub_need_no_volume() -> None:
    hub = {E + "model.source": {"hub": {"model_id": "a/b", "revision": "c" * 40}}}
    assert "model-weights" not in volumes("decode", hub)
    assert "model-weights" not in mounts("decode", hub)


def test_a_folder_of_the_bucket_is_a_volume() -> None:
    volume, claim = (body for body in made() if body["kind"].startswith("PersistentVolume"))
    assert volumes("prefill")["model-weights"]["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"], "readOnly": True}
    assert volume["spec"]["csi"] == {
        "driver": "s3.csi.aws.com", "volumeHandle": volume["metadata"]["name"],
        "volumeAttributes": {"bucketName": "llama-llmd-dev-models-111122223333-us-east-2"},
    }  # fmt: skip
    assert volume["spec"]["mountOptions"] == ["read-only", "allow-other", "region us-east-2", "prefix Llama-3.3-70B-Instruct/"]
    assert volume["spec"]["claimRef"] == {"namespace": "inference", "name": claim["metadata"]["name"]}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert [body["spec"]["storageClassName"] for body in (volume, claim)] == ["", ""], "a default class would provision something else"
    assert [body["spec"]["accessModes"] for body in (volume, claim)] == [["ReadOnlyMany"], ["ReadOnlyMany"]]


@pytest.mark.parametrize(
    "elsewhere",
    [
        {E + "model.source": {"s3": {"prefix": "Other/"}}},
        {"storage.models.bucket": {"existing": "our-weights", "region": "us-east-2"}},
    ],
)  # fmt: skip
def test_another_place_in_s3_is_another_volume(elsewhere: dict[str, Any]) -> None:
    def names(changes: dict[str, Any]) -> set[str]:
        return {body["metadata"]["name"] for body in made(changes) if body["kind"].startswith("PersistentVolume")}

    assert not names({}) & names(elsewhere), "what a volume points at cannot change"
    assert names({}) == names({E + "decode.max_concurrent_sequences": 4})


def test_a_long_name_of_a_volume_is_cut_and_stays_its_own() -> None:
    long = {"app": "a" * 40, E + "namespace": "n" * 40}
    (volume,) = (body for body in made(long) if body["kind"] == "PersistentVolume")
    (other,) = (body for body in made({**long, E + "namespace": "n" * 39 + "m"}) if body["kind"] == "PersistentVolume")
    assert len(volume["metadata"]["name"]) <= 63
    assert volume["metadata"]["name"] != other["metadata"]["name"]


labels = st.from_regex(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)


@given(labels, labels, labels)
def test_a_volume_has_a_legal_name_that_is_its_own(prefix: str, namespace: str, claim: str) -> None:
    name = weights_volume(prefix, namespace, claim)
    assert is_dns_label(name)
    assert name != weights_volume(prefix, namespace, f"{claim}0")


@given(st.integers(1, 2_000_000), st.integers(1, 100_000))
def test_a_pod_is_never_killed_before_it_has_drained(tokens: int, itl_p99_ms: int) -> None:
    known = environment({E + "model.max_model_len": tokens, E + "objectives.itl_p99_ms": itl_p99_ms}, example=LLMD_EXAMPLE)
    for role in ROLES:
        drain = drain_seconds(known.endpoints[0], role)
        assert 60 <= drain <= 600
        assert grace_seconds(known.endpoints[0], role) >= notice_seconds(role) + drain + 30
