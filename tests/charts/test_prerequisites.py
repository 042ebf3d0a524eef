"""What must be on the cluster before HyperPod: valid for every supported Kubernetes version, on the right nodes only, and no more."""

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from charts.manifest import Manifest
from charts.prerequisites import prerequisites
from charts.prerequisites.nodes import with_efa, with_nvidia
from charts.render import render, to_yaml
from dpd.catalog import instances, node_agents, regions
from dpd.catalog.sources import source_keys
from dpd.environment.cluster import InstanceGroup, Taint
from dpd.environment.names import INSTANCE_TYPE_LABEL, NODE_HEALTH_TAINT, NODE_READER_GROUP
from tests.support import environment

PREFILL = Taint(key="dpd", value="prefill", effect="NoSchedule")
DECODE = Taint(key="dpd", value="decode", effect="NoExecute")
SYSTEM = Taint(key="system", effect="NoSchedule")
HEALTH = {"key": NODE_HEALTH_TAINT, "operator": "Equal", "value": "Unschedulable", "effect": "NoSchedule"}


def groups(*types: str, **taints: tuple[Taint, ...]) -> dict[str, InstanceGroup]:
    """One group for each type, named by its number (``g0``, ``g1``); ``taints`` by that name."""
    return {f"g{n}": InstanceGroup(instance_type=type, count=1, taints=taints.get(f"g{n}", ())) for n, type in enumerate(types)}


GPU = groups("ml.c5.4xlarge", "ml.p5.48xlarge", "ml.p5.48xlarge")


def made(content: Mapping[str, InstanceGroup], region: str = "us-east-2") -> tuple[Manifest, ...]:
    return prerequisites(region=region, groups=content)


def daemon_sets(content: Mapping[str, InstanceGroup], region: str = "us-east-2") -> dict[str, dict[str, Any]]:
    return {manifest.name: manifest.body for manifest in made(content, region) if manifest.kind == "DaemonSet"}


def pod(body: dict[str, Any]) -> dict[str, Any]:
    spec = body["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def types_of(body: dict[str, Any]) -> list[str]:
    (term,) = pod(body)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (INSTANCE_TYPE_LABEL, "In")
    return list(expression["values"])


def bears(tolerations: list[dict[str, str]], taint: Taint) -> bool:
    """Kubernetes' own rule of toleration."""
    return any(
        one.get("key", taint.key) == taint.key
        and one.get("effect", taint.effect) == taint.effect
        and (one.get("operator") == "Exists" or one.get("value", "") == taint.value)
        for one in tolerations
    )


# --- the whole


def test_of_the_shipped_environment(snapshot: SnapshotAssertion) -> None:
    shipped = environment()
    manifests = prerequisites(region=shipped.region, groups=shipped.cluster.groups)
    assert "---\n".join(f"# {manifest.path}\n{to_yaml(manifest)}" for manifest in manifests) == snapshot


@pytest.mark.parametrize("version", ["1.33", "1.34", "1.35"])
def test_kubernetes_accepts_every_object(version: str) -> None:
    tainted = groups("ml.c5.4xlarge", "ml.p5.48xlarge", "ml.g5.xlarge", g0=(SYSTEM,), g1=(PREFILL, DECODE), g2=(SYSTEM,))
    for manifest in made(tainted):
        kubernetes_validate.validate(manifest.body, version, strict=True)


def test_the_namespace_comes_first_and_files_sort_in_the_order_of_application() -> None:
    manifests = made(GPU)
    assert manifests[0].body["metadata"]["name"] == "aws-hyperpod"
    assert manifests[0].body["metadata"]["labels"]["name"] == "aws-hyperpod"
    paths = [manifest.path for manifest in manifests]
    assert paths == sorted(paths)
    assert all(re.fullmatch(r"[0-9]{2}-[a-z]+-[a-z0-9-]+\.yaml", path) for path in paths)


def test_same_input_same_bytes() -> None:
    assert [to_yaml(one) for one in made(GPU)] == [to_yaml(one) for one in made(dict(reversed(GPU.items())))]


def test_only_what_inference_needs() -> None:
    names = {(manifest.kind, manifest.name) for manifest in made(GPU)}
    assert {name for kind, name in names if kind == "DaemonSet"} == {
        "health-monitoring-agent",
        "nvidia-device-plugin",
        "aws-efa-k8s-device-plugin",
    }
    assert {kind for kind, _ in names} == {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"}
    assert not [name for _, name in names if re.search(r"mps|neuron|mpi|training|restart|kubeflow", name)]


# --- which nodes


_P5 = ["ml.p5.48xlarge", "ml.p5en.48xlarge"]


@pytest.mark.parametrize(
    ("types", "nvidia", "efa"),
    [
        (["ml.c5.4xlarge"], None, None),
        (["ml.c5.4xlarge", "ml.p5.48xlarge"], ["ml.p5.48xlarge"], ["ml.p5.48xlarge"]),
        (["ml.g5.xlarge", "ml.p5.48xlarge"], ["ml.g5.xlarge", "ml.p5.48xlarge"], ["ml.p5.48xlarge"]),
        (["ml.g5.xlarge"], ["ml.g5.xlarge"], None),
        (["ml.g5.4xlarge", "ml.g5.8xlarge"], ["ml.g5.4xlarge", "ml.g5.8xlarge"], ["ml.g5.8xlarge"]),
        (["ml.g7.2xlarge", "ml.g7.48xlarge"], ["ml.g7.2xlarge", "ml.g7.48xlarge"], ["ml.g7.48xlarge"]),
        (["ml.p5en.48xlarge", "ml.p5.48xlarge", "ml.p5.48xlarge"], _P5, _P5),
    ],
)
def test_plugins_run_on_the_groups_that_have_the_device(types: list[str], nvidia: list[str] | None, efa: list[str] | None) -> None:
    found = {name: types_of(body) for name, body in daemon_sets(groups(*types)).items()}
    assert found.get("nvidia-device-plugin") == nvidia
    assert found.get("health-monitoring-agent") == nvidia
    assert found.get("aws-efa-k8s-device-plugin") == efa


def test_without_gpus_the_agent_leaves_nothing_behind() -> None:
    assert not [manifest for manifest in made(groups("ml.c5.4xlarge")) if "health-monitoring" in manifest.name]


@given(st.lists(st.sampled_from(instances.types()), min_size=1, max_size=6))
def test_no_node_without_the_device_is_ever_chosen(types: list[str]) -> None:
    content = groups(*types)
    chosen_nvidia = {group.instance_type for group in with_nvidia(content).values()}
    chosen_efa = {group.instance_type for group in with_efa(content).values()}
    for type in types:
        instance = instances.find(type)
        assert instance is not None
        assert (type in chosen_nvidia) == (instance.gpus > 0)
        assert (type in chosen_efa) == (instance.efa is None or instance.efa > 0)


def test_every_gpu_of_the_catalog_is_nvidias() -> None:
    known = {"T4", "A10G", "L4", "L40S", "A100", "H100", "H200", "B200", "B300", "GB200", "RTX PRO 4500", "RTX PRO Server 6000"}
    found = {instance.gpu for type in instances.types() if (instance := instances.find(type)) and instance.gpus}
    assert found <= known


def test_an_unknown_instance_type_is_refused() -> None:
    with pytest.raises(LookupError, match=r"'ml\.p9\.48xlarge' is not in the catalog"):
        made(groups("ml.p9.48xlarge"))


# --- taints


def test_every_taint_of_the_groups_with_the_device_is_borne_and_no_other() -> None:
    content = groups("ml.c5.4xlarge", "ml.p5.48xlarge", "ml.g5.xlarge", g0=(SYSTEM,), g1=(PREFILL, DECODE))
    sets = daemon_sets(content)
    for name in ("nvidia-device-plugin", "aws-efa-k8s-device-plugin"):
        tolerations = pod(sets[name])["tolerations"]
        assert HEALTH in tolerations
        assert bears(tolerations, PREFILL)
        assert bears(tolerations, DECODE)
        assert not bears(tolerations, SYSTEM)
        assert not bears(tolerations, Taint(key="dpd", value="other", effect="NoSchedule"))


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
@pytest.mark.parametrize("value", ["", "true"])
def test_a_group_tainted_with_the_customary_gpu_key_keeps_its_efa(value: str, effect: Any) -> None:
    taint = Taint(key="nvidia.com/gpu", value=value, effect=effect)
    sets = daemon_sets(groups("ml.p5.48xlarge", g0=(taint,)))
    for body in (sets["nvidia-device-plugin"], sets["aws-efa-k8s-device-plugin"]):
        assert bears(pod(body)["tolerations"], taint)


def test_no_toleration_is_written_twice() -> None:
    content = groups("ml.p5.48xlarge", "ml.p5.48xlarge", g0=(PREFILL,), g1=(PREFILL,))
    for body in daemon_sets(content).values():
        tolerations = pod(body)["tolerations"]
        assert len(tolerations) == len({tuple(sorted(one.items())) for one in tolerations})


def test_the_health_agent_stays_whatever_the_taint() -> None:
    tolerations = pod(daemon_sets(GPU)["health-monitoring-agent"])["tolerations"]
    for taint in (PREFILL, DECODE, SYSTEM):
        assert bears(tolerations, taint)


def test_no_pod_that_serves_bears_the_mark_of_an_unhealthy_node() -> None:
    for manifest in chain.from_iterable(render(environment()).endpoints.values()):
        assert NODE_HEALTH_TAINT not in to_yaml(manifest)


# --- images


def image(body: dict[str, Any]) -> str:
    (container,) = pod(body)["containers"]
    return str(container["image"])


@pytest.mark.parametrize(
    ("region", "health", "efa"),
    [
        ("us-east-2", "851725546812.dkr.ecr.us-east-2.amazonaws.com", "602401143452.dkr.ecr.us-east-2.amazonaws.com"),
        ("ap-southeast-3", "971422672635.dkr.ecr.ap-southeast-3.amazonaws.com", "296578399912.dkr.ecr.ap-southeast-3.amazonaws.com"),
    ],
)
def test_images_come_from_the_regions_own_registry(region: str, health: str, efa: str) -> None:
    sets = daemon_sets(GPU, region)
    assert image(sets["health-monitoring-agent"]).startswith(f"{health}/hyperpod-health-monitoring-agent:1.")
    assert image(sets["aws-efa-k8s-device-plugin"]).startswith(f"{efa}/eks/aws-efa-k8s-device-plugin:v0.")
    assert image(sets["nvidia-device-plugin"]) == "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"


@pytest.mark.parametrize("region", regions.operator_regions())
def test_every_region_of_the_operator_has_every_image(region: str) -> None:
    for body in daemon_sets(GPU, region).values():
        assert image(body).startswith("nvcr.io/") or f".{region}." in image(body)


@pytest.mark.parametrize("region", ["us-east-9", "mx-central-1", "af-south-1", "cn-north-1"])
def test_no_other_region_stands_in_for_one_without_images(region: str) -> None:
    with pytest.raises(LookupError, match=region):
        made(GPU, region)


def test_a_region_without_an_agents_image_serves_those_who_need_none_of_it() -> None:
    assert "aws-efa-k8s-device-plugin" not in daemon_sets(groups("ml.c5.4xlarge"), "mx-central-1")


def test_a_mirror_replaces_the_repository_and_not_the_version() -> None:
    mirror = "111122223333.dkr.ecr.mx-central-1.amazonaws.com"
    names = [name for name in node_agents.names() if name != node_agents.EFA_COUNTERS]
    manifests = prerequisites(region="mx-central-1", groups=GPU, repositories={name: f"{mirror}/{name}" for name in names})
    images = [image(manifest.body) for manifest in manifests if manifest.kind == "DaemonSet"]
    assert sorted(images) == sorted(f"{mirror}/{name}:{node_agents.find(name).tag}" for name in names)


def test_every_version_names_its_source() -> None:
    for name in node_agents.names():
        assert node_agents.find(name).sources
        assert set(node_agents.find(name).sources) <= set(source_keys())


def test_versions_with_known_faults_are_not_shipped() -> None:
    efa = [int(part) for part in re.findall(r"[0-9]+", node_agents.find("efa_device_plugin").tag)[:3]]
    assert efa >= [0, 5, 10]
    assert not node_agents.find("nvidia_device_plugin").tag.startswith(("v0.19.0", "v0.19.1", "v0.19.2"))


# --- rights


def test_containers_have_the_rights_they_need_and_no_more() -> None:
    contexts = {name: pod(body)["containers"][0]["securityContext"] for name, body in daemon_sets(GPU).items()}
    assert contexts == {
        "nvidia-device-plugin": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "aws-efa-k8s-device-plugin": {"allowPrivilegeEscalation": True, "privileged": True, "runAsNonRoot": False, "runAsUser": 0},
        "health-monitoring-agent": {"runAsUser": 1000, "runAsGroup": 2000},
    }


def test_only_the_health_agent_talks_to_the_api_and_only_the_efa_plugin_shares_the_hosts_network() -> None:
    pods = {name: pod(body) for name, body in daemon_sets(GPU).items()}
    assert [name for name, spec in pods.items() if spec["automountServiceAccountToken"]] == ["health-monitoring-agent"]
    assert [name for name, spec in pods.items() if spec.get("hostNetwork")] == ["aws-efa-k8s-device-plugin"]
    assert all(spec["priorityClassName"] == "system-node-critical" for spec in pods.values())
    assert not [name for name, spec in pods.items() if spec.get("hostPID") or spec.get("hostIPC")]


def rules() -> dict[str, list[dict[str, Any]]]:
    return {manifest.name: manifest.body["rules"] for manifest in made(GPU) if manifest.kind == "ClusterRole"}


def test_rights_are_exactly_those_that_the_services_use() -> None:
    flat = {
        name: {
            (group, resource, verb)
            for rule in found
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        for name, found in rules().items()
    }
    assert flat == {
        "deep-health-check-service-account-role": {
            ("", "nodes", "get"),
            ("", "nodes", "list"),
            ("", "pods", "get"),
            ("", "pods", "list"),
            ("", "pods", "patch"),
        },
        "hyperpod-patching": {("", "pods", "list"), ("", "pods/eviction", "create")},
        "dpd-node-readers": {("", "nodes", "get"), ("", "nodes", "list")},
        "health-monitoring-agent": {("", "nodes", "get"), ("", "nodes", "patch"), ("", "nodes/status", "patch")}
        | {(group, "events", verb) for group in ("", "events.k8s.io") for verb in ("create", "patch", "update")},
    }


def test_bindings_name_an_existing_role_and_the_right_subject() -> None:
    subjects = {}
    for manifest in made(GPU):
        if manifest.kind == "ClusterRoleBinding":
            assert manifest.body["roleRef"]["name"] in rules()
            (subjects[manifest.name],) = manifest.body["subjects"]
    rbac = "rbac.authorization.k8s.io"
    assert subjects == {
        "deep-health-check-service-account-role-binding": {
            "kind": "ServiceAccount",
            "name": "deep-health-check-service-account",
            "namespace": "aws-hyperpod",
        },
        "hyperpod-patching": {"apiGroup": rbac, "kind": "User", "name": "hyperpod-service-linked-role"},
        "dpd-node-readers": {"apiGroup": rbac, "kind": "Group", "name": NODE_READER_GROUP},
        "health-monitoring-agent": {"kind": "ServiceAccount", "name": "health-monitoring-agent", "namespace": "aws-hyperpod"},
    }


def test_selectors_match_their_pods_and_nothing_elses() -> None:
    selectors = []
    for body in daemon_sets(GPU).values():
        selector = body["spec"]["selector"]["matchLabels"]
        assert selector.items() <= body["spec"]["template"]["metadata"]["labels"].items()
        selectors.append(selector)
    assert len({tuple(selector.items()) for selector in selectors}) == len(selectors)
