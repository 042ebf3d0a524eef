"""Rules over rendered objects: one fault in a good set each, and what the raw fields bring into `dpd check`."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dpd.backends.operator.build import build
from dpd.backends.site import Site
from dpd.checks.manifests import beyond_checks, instance_groups, run_manifests
from dpd.environment.names import NODE_HEALTH_TAINT
from dpd.finding import HIDDEN, Finding, Level
from tests.support import environment, findings

Body = dict[str, Any]
Edit = Callable[[Body], None]


def good() -> Body:
    made = environment()
    return copy.deepcopy(build(made.endpoints[0], Site.of(made)))


def said(*bodies: Body) -> list[Finding]:
    return run_manifests(bodies, instance_groups(Site.of(environment())))


def setting(path: str, value: Any) -> Edit:
    def edit(body: Body) -> None:
        *parents, last = path.split("/")
        place: Any = body
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list):
            place.append(value)
        else:
            place[last] = value

    return edit


def variable(name: str, value: Any) -> Edit:
    def edit(body: Body) -> None:
        variables = body["spec"]["worker"]["environmentVariables"]
        variables[:] = [entry for entry in variables if entry["name"] != name]
        if value is not None:
            variables.append({"name": name, "value": value})

    return edit


def efa(role: str, devices: int | None) -> Edit:
    def edit(body: Body) -> None:
        for amounts in body["spec"]["pdSpec"][role]["resources"].values():
            del amounts["vpc.amazonaws.com/efa"]
            if devices is not None:
                amounts["vpc.amazonaws.com/efa"] = str(devices)

    return edit


def argument(flag: str, value: str | None) -> Edit:
    def edit(body: Body) -> None:
        args = body["spec"]["worker"]["args"]
        place = args.index(flag)
        args[place : place + 2] = [] if value is None else [flag, value]

    return edit


def without(*path: str) -> Edit:
    def edit(body: Body) -> None:
        place: Any = body
        for part in path[:-1]:
            place = place[part]
        del place[path[-1]]

    return edit


CASES: list[tuple[str, Edit, Level]] = [
    ("MAN001", efa("prefillSpec", 1), Level.WARNING),
    ("MAN001", efa("decodingSpec", None), Level.WARNING),
    ("MAN001", efa("decodingSpec", 64), Level.ERROR),
    ("MAN002", efa("prefillSpec", None), Level.ERROR),
    ("MAN002", variable("FI_EFA_USE_HUGE_PAGE", "1"), Level.ERROR),
    ("MAN002", variable("NCCL_SOCKET_IFNAME", "^eth"), Level.ERROR),
    ("MAN003", variable("PYTHONHASHSEED", None), Level.ERROR),
    ("MAN003", variable("PYTHONHASHSEED", "random"), Level.ERROR),
    ("MAN003", variable("PYTHONHASHSEED", 0), Level.ERROR),
    ("MAN004", variable("PYTHONHASHSEED", 0), Level.ERROR),
    ("MAN004", variable("A", True), Level.ERROR),
    ("MAN004", setting("spec/worker/environmentVariables/0", {"name": "HF_HOME", "value": "/a"}), Level.ERROR),
    ("MAN004", setting("spec/worker/environmentVariables/0", {"name": "A", "value": "b", "valueFrom": {}}), Level.ERROR),
    ("MAN004", setting("spec/worker/environmentVariables/0", {"value": "b"}), Level.ERROR),
    ("MAN005", variable("HF_TOKEN", "anything"), Level.ERROR),
    ("MAN005", variable("A", "hf_abcdefghijklmnop"), Level.ERROR),
    ("MAN005", setting("metadata/annotations", {"a": "AKIAABCDEFGHIJKLMNOP"}), Level.ERROR),
    ("MAN006", setting("spec/modelName", None), Level.ERROR),
    ("MAN006", setting("spec/modelName", "None"), Level.ERROR),
    ("MAN006", variable("A", "undefined"), Level.ERROR),
    ("MAN006", setting("spec/clusterIP", "null"), Level.ERROR),
    ("MAN007", setting("metadata/name", "Llama_70B"), Level.ERROR),
    ("MAN007", setting("metadata/name", "a" * 82), Level.ERROR),
    ("MAN007", setting("metadata/name", "qwen2.5"), Level.ERROR),
    ("MAN008", without("spec", "pdSpec"), Level.ERROR),
    ("MAN008", without("spec", "pdSpec", "decodingSpec"), Level.ERROR),
    ("MAN008", setting("spec/loadBalancer", {}), Level.ERROR),
    ("MAN008", setting("spec/loadBalancer", {"healthCheckPath": "/ping"}), Level.ERROR),
    ("MAN009", argument("--tensor-parallel-size", "4"), Level.ERROR),
    ("MAN009", argument("--port", None), Level.ERROR),
    ("MAN009", argument("--served-model-name", None), Level.WARNING),
    ("MAN010", without("spec", "pdSpec", "prefillSpec", "resources"), Level.ERROR),
    ("MAN010", setting("spec/pdSpec/prefillSpec/nodeSelector", {}), Level.ERROR),
    ("MAN011", setting("spec/tolerations", [{"operator": "Exists"}]), Level.WARNING),
    ("MAN011", setting("spec/tolerations", [{"key": NODE_HEALTH_TAINT, "operator": "Exists"}]), Level.WARNING),
]


def test_a_good_object_has_no_finding() -> None:
    assert said(good()) == []


@pytest.mark.parametrize(("id", "edit", "level"), CASES)
def test_one_fault(id: str, edit: Edit, level: Level) -> None:
    body = good()
    edit(body)
    assert (id, level) in {(finding.id, finding.level) for finding in said(body)}


def test_group_that_does_not_exist() -> None:
    body = good()
    body["spec"]["pdSpec"]["prefillSpec"]["nodeSelector"]["sagemaker.amazonaws.com/instance-group-name"] = "nowhere"
    assert [finding.value for finding in said(body) if finding.id == "MAN010"] == ["nowhere"]


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": NODE_HEALTH_TAINT, "operator": "Equal", "value": "Schedulable", "effect": "NoSchedule"},
        {"key": "team", "operator": "Exists"},
    ],
)
def test_narrow_tolerations_are_fine(toleration: Body) -> None:
    body = good()
    body["spec"]["tolerations"] = [toleration]
    assert said(body) == []


def test_agents_may_run_anywhere() -> None:
    agent = deployment()
    agent["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert [finding.id for finding in said(agent)] == ["MAN011"]
    assert said({**agent, "kind": "DaemonSet"}) == []


def test_a_headless_service_means_none() -> None:
    headless = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "b"}, "spec": {"clusterIP": "None"}}
    assert said(headless) == []


def test_credentials_are_never_shown() -> None:
    body = good()
    variable("A", "hf_abcdefghijklmnop")(body)
    variable("API_KEY", "plain")(body)
    found = [finding for finding in said(body) if finding.id == "MAN005"]
    assert {finding.value for finding in found} == {HIDDEN}
    assert all("hf_abc" not in str(finding.as_dict()) and "plain" not in str(finding.as_dict()) for finding in found)


def test_twins_are_refused_and_namesakes_of_another_kind_are_not() -> None:
    def named(kind: str, name: str, namespace: str = "a", group: str = "v1") -> Body:
        return {"apiVersion": group, "kind": kind, "metadata": {"name": name, "namespace": namespace}}

    assert [finding.id for finding in said(named("ConfigMap", "x"), named("ConfigMap", "x"))] == ["MAN007"]
    assert said(named("ConfigMap", "x"), named("Service", "x"), named("ConfigMap", "x", "b")) == []
    assert said(named("ClusterRole", "system:node-reader"), named("ConfigMap", "a.b")) == []
    assert [finding.id for finding in said(named("CronJob", "a" * 53))] == ["MAN007"]
    assert [finding.id for finding in said(named("Service", "a.b"))] == ["MAN007"]


def deployment(**container: Any) -> Body:
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "b"},
        "spec": {
            "template": {
                "spec": {
                    "nodeSelector": {"node.kubernetes.io/instance-type": "ml.p5.48xlarge"},
                    "containers": [{"name": "main", **container}],
                }
            }
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("container", "ids"),
    [
        ({"resources": {"limits": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}}}, []),
        ({"resources": {"limits": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 1}}}, ["MAN001"]),
        ({"resources": {"limits": {"nvidia.com/gpu": 1, "vpc.amazonaws.com/efa": 4}}}, []),
        ({"env": [{"name": "FI_PROVIDER", "value": "efa"}]}, ["MAN002"]),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}, []),
        ({"env": [{"name": "A", "value": 1}]}, ["MAN004"]),
        ({}, []),
    ],
)
def test_pods_of_other_kinds(container: Body, ids: list[str]) -> None:
    assert [finding.id for finding in said(deployment(**container))] == ids


def test_secrets_with_content_are_refused() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "b"}}
    assert said(secret) == []
    assert [finding.id for finding in said({**secret, "stringData": {"a": "b"}})] == ["MAN005"]


@pytest.mark.parametrize("body", [{}, {"kind": "Deployment", "spec": None}, {"kind": "InferenceEndpointConfig", "spec": {"pdSpec": []}}])
def test_broken_objects_never_raise(body: Body) -> None:
    assert {finding.id for finding in said(body)} >= {"MAN007"}


@pytest.mark.parametrize(
    ("raw", "id"),
    [
        ({"loadBalancer": {"healthCheckPath": "/ping"}}, "MAN008"),
        ({"worker": {"args": ["--port", "8000"]}}, "MAN009"),
        ({"worker": {"environmentVariables": []}}, "MAN003"),
        ({"worker": {"modelInvocationPort": {"containerPort": 9000}}}, "MAN009"),
        ({"pdSpec": {"prefillSpec": {"resources": {"requests": {"vpc.amazonaws.com/efa": "1"}}}}}, "MAN001"),
        ({"worker": {"image": None}}, "MAN006"),
        ({"kubernetes": {"initContainers": [{"name": "a", "env": [{"name": "X", "value": "hf_abcdefghijklmnop"}]}]}}, "MAN005"),
    ],
)
def test_raw_fields_are_checked_before_anything_is_rendered(raw: Body, id: str) -> None:
    found = findings({"endpoints[0].raw.spec": raw}, id=id)
    assert [finding.path for finding in found][:1] == ["endpoints[0].raw.spec"]


def test_raw_fields_are_not_blamed_for_what_the_file_says() -> None:
    changes = {"endpoints[0].prefill.efa_devices": 1, "endpoints[0].raw.spec": {"loadBalancer": {"idleTimeoutSeconds": 600}}}
    assert [finding for finding in findings(changes) if finding.id.startswith("MAN")] == []


def test_beyond_checks_repeats_nothing() -> None:
    made = environment({"endpoints[0].prefill.efa_devices": 1})
    body = build(made.endpoints[0], Site.of(made))
    assert beyond_checks(made, [body]) == []
    assert [finding.id for finding in beyond_checks(made, [body, {**body}])] == ["MAN007"]
