"""Rules over llm-d's workers: one fault in a good set each, and the good set itself."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from dpd.backends.llmd.workers import objects
from dpd.backends.site import Site
from dpd.catalog import instances
from dpd.checks.manifests import instance_groups, run_manifests
from dpd.finding import Finding, Level
from tests.checks.cases import ADOPTED_CLUSTER
from tests.support import LLMD_EXAMPLE, REMOVE, environment, findings

E = "endpoints[0]."
Body = dict[str, Any]
Edit = Callable[[Body], None]
SET = {E + "workload": "disaggregated_set"}
WIDE = {E + "decode.expert_parallel": {"nodes": 2}, E + "decode.tensor_parallel": 1, E + "model.catalog": "deepseek-r1"}
GOOD: dict[str, dict[str, Any]] = {
    "deployments": {},
    "set": SET,
    "wide": WIDE,
    "tiers": {E + "kv.cpu_tier": True},
    "pages": {E + "prefill.hugepages_mib": 5120, E + "decode.hugepages_mib": 5120},
    "privileged": {E + "prefill.privileged": True},
    "key": {E + "environment": {"VLLM_API_KEY": {"secret": "key", "key": "key"}}},
    "events": {E + "routing.strategy": "kv_aware"},
    "recompute": {E + "kv.load_failure": "recompute"},
    "surge": {E + "prefill.max_surge": 1, "cluster.groups.prefill.count": 2},
}


def good(changes: dict[str, Any] | None = None) -> list[Body]:
    known = environment(changes, example=LLMD_EXAMPLE)
    return [copy.deepcopy(body) for body in objects(known.endpoints[0], Site.of(known))]


def said(bodies: list[Body], changes: dict[str, Any] | None = None) -> list[Finding]:
    return run_manifests(bodies, instance_groups(Site.of(environment(changes, example=LLMD_EXAMPLE))))


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD)
def test_nothing_is_said_of_what_this_tool_makes(changes: dict[str, Any]) -> None:
    assert said(good(changes), changes) == []


def deployment(bodies: list[Body], role: str) -> Body:
    (found,) = (body for body in bodies if body["kind"] == "Deployment" and role in body["metadata"]["name"])
    return found


def at(path: str, value: Any) -> Edit:
    """Set or remove a field, by its place below the pod's spec."""

    def edit(spec: Body) -> None:
        *parents, last = path.split("/")
        place: Any = spec
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        key: Any = int(last) if isinstance(place, list) else last
        if value is REMOVE:
            del place[key]
        else:
            place[key] = value

    return edit


def argument(flag: str, value: Any) -> Edit:
    def edit(spec: Body) -> None:
        args = spec["containers"][0]["args"]
        where = args.index(flag) if flag in args else len(args)
        args[where : where + 2] = [] if value is REMOVE else [flag, value]

    return edit


def handed_over(**changes: Any) -> Edit:
    """Change keys of the hand-over's configuration."""

    def edit(spec: Body) -> None:
        args = spec["containers"][0]["args"]
        where = args.index("--kv-transfer-config") + 1
        config = {**json.loads(args[where]), **changes}
        args[where] = json.dumps({key: value for key, value in config.items() if value is not REMOVE})

    return edit


def variable(name: str, value: Any) -> Edit:
    """A text, a reference, or nothing."""

    def edit(spec: Body) -> None:
        entries = spec["containers"][0]["env"]
        entries[:] = [entry for entry in entries if entry["name"] != name]
        if value is not REMOVE:
            entries.append({"name": name, **({"value": value} if isinstance(value, str) else {"valueFrom": value})})

    return edit


def flag(name: str, value: str | None) -> Edit:
    """A flag of the sidecar."""

    def edit(spec: Body) -> None:
        args = spec["initContainers"][0]["args"]
        args[:] = [known for known in args if known.partition("=")[0] != name]
        if value is not None:
            args.append(f"{name}={value}")

    return edit


def also(*edits: Edit) -> Edit:
    def edit(spec: Body) -> None:
        for one in edits:
            one(spec)

    return edit


def devices(amount: str) -> Edit:
    def edit(spec: Body) -> None:
        spec["containers"][0]["resources"]["requests"]["vpc.amazonaws.com/efa"] = amount

    return edit


HOST_IP = {"fieldRef": {"fieldPath": "status.hostIP"}}
SIDE = "VLLM_NIXL_SIDE_CHANNEL_HOST"
SERVER = "containers/0"
ZONE = "affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution"
HUGE = f"{SERVER}/resources"

FAULTS: list[tuple[str, str, Edit, str]] = [
    # KV by UCX: not named, named, or hidden in a combination of connectors.
    ("POD001", "prefill", handed_over(kv_connector_extra_config=REMOVE), "argument --kv-transfer-config"),
    ("POD001", "decode", handed_over(kv_connector_extra_config={"backends": ["UCX"]}), "argument --kv-transfer-config"),
    ("POD001", "decode", handed_over(kv_connector_extra_config={"backends": []}), "argument --kv-transfer-config"),
    ("POD001", "decode", handed_over(kv_connector="OffloadingConnector"), "argument --kv-transfer-config"),
    # An address that leads to the caller itself, or to a node instead of a pod.
    ("POD002", "prefill", variable(SIDE, REMOVE), f"environment variable {SIDE}"),
    ("POD002", "prefill", variable(SIDE, "0.0.0.0"), f"environment variable {SIDE}"),
    ("POD002", "decode", variable(SIDE, "localhost"), f"environment variable {SIDE}"),
    ("POD002", "decode", variable(SIDE, HOST_IP), f"environment variable {SIDE}"),
    ("POD002", "decode", at("hostNetwork", True), f"environment variable {SIDE}"),
    # Roles that read each other's KV wrong.
    ("POD003", "decode", argument("--block-size", "64"), "--block-size"),
    ("POD003", "decode", argument("--block-size", REMOVE), "--block-size"),
    ("POD003", "decode", argument("--kv-cache-dtype", "fp8"), "--kv-cache-dtype"),
    ("POD003", "decode", at(f"{SERVER}/image", "vllm/vllm-openai:latest"), "image"),
    ("POD004", "prefill", handed_over(kv_load_failure_policy=REMOVE), "argument --kv-transfer-config"),
    ("POD004", "decode", handed_over(kv_load_failure_policy="ignore"), "argument --kv-transfer-config"),
    # A request that meets a closed port, TLS, or no sidecar.
    ("POD005", "prefill", also(argument("--port", "8200"), at(f"{SERVER}/ports/0/containerPort", 8200)), "port"),
    ("POD005", "decode", flag("--port", "8080"), "argument --port"),
    ("POD005", "decode", flag("--model-server-port", "8000"), "argument --model-server-port"),
    ("POD005", "decode", also(argument("--port", "8201"), at(f"{SERVER}/ports/0/containerPort", 8201)), "argument --model-server-port"),
    ("POD005", "decode", flag("--secure-proxy", None), "argument --secure-proxy"),
    ("POD005", "decode", flag("--kv-connector", "sglang"), "argument --kv-connector"),
    ("POD005", "decode", flag("--connector", "nixlv2"), "argument --connector"),
    ("POD005", "decode", at("initContainers/0/restartPolicy", REMOVE), "restartPolicy"),
    ("POD005", "decode", at("initContainers", []), "initContainers"),
    # 64 MiB for eight ranks.
    ("POD006", "decode", at(f"{SERVER}/volumeMounts/0", REMOVE), "/dev/shm"),
    ("POD006", "decode", at("volumes/0/emptyDir", {}), "/dev/shm"),
    ("POD007", "decode", at("enableServiceLinks", REMOVE), "enableServiceLinks"),
    ("POD007", "decode", at("enableServiceLinks", True), "enableServiceLinks"),
    # Killed while loading, or ready too early.
    ("POD008", "decode", at(f"{SERVER}/startupProbe", REMOVE), "livenessProbe"),
    ("POD008", "decode", at(f"{SERVER}/startupProbe/failureThreshold", 3), "startupProbe"),
    ("POD008", "prefill", at(f"{SERVER}/readinessProbe/httpGet/path", "/health"), "readinessProbe"),
    ("POD008", "prefill", at(f"{SERVER}/readinessProbe", REMOVE), "readinessProbe"),
    ("POD010", "decode", at(f"{HUGE}/requests/hugepages-2Mi", "5120Mi"), "resources"),
    (
        "POD010", "decode",
        also(at(f"{HUGE}/requests/hugepages-2Mi", "5120Mi"), at(f"{HUGE}/limits/hugepages-2Mi", "5120Mi")), "resources",
    ),
    ("POD011", "prefill", variable("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", REMOVE), "environment variable VLLM_HTTP_TIMEOUT_KEEP_ALIVE"),
    ("POD011", "prefill", variable("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "90"), "environment variable VLLM_HTTP_TIMEOUT_KEEP_ALIVE"),
    ("POD012", "prefill", at(f"{SERVER}/lifecycle", REMOVE), "lifecycle.preStop.sleep"),
    ("POD012", "prefill", argument("--shutdown-timeout", REMOVE), "--shutdown-timeout"),
    ("POD012", "prefill", at("terminationGracePeriodSeconds", 100), "terminationGracePeriodSeconds"),
    ("POD012", "prefill", at("terminationGracePeriodSeconds", REMOVE), "terminationGracePeriodSeconds"),
    ("POD013", "prefill", at("affinity", REMOVE), "affinity.podAffinity"),
    ("POD013", "prefill", at(f"{ZONE}/0/topologyKey", "kubernetes.io/hostname"), "affinity.podAffinity"),
    ("POD013", "prefill", at(f"{ZONE}/0/labelSelector/matchExpressions/0/values", ["prefill"]), "affinity.podAffinity"),
    ("POD013", "prefill", at(f"{ZONE}/0/labelSelector/matchLabels", {"llm-d.ai/guide": "another"}), "affinity.podAffinity"),
    ("POD014", "decode", at(f"{SERVER}/securityContext", REMOVE), "securityContext.capabilities.add"),
    ("POD014", "decode", at(f"{SERVER}/securityContext/capabilities/add", ["SYS_PTRACE"]), "securityContext.capabilities.add"),
    # The rules over every pod see these as well.
    ("MAN001", "decode", devices("1"), "resources"),
    ("MAN002", "decode", variable("FI_EFA_USE_HUGE_PAGE", "1"), "environment variable FI_EFA_USE_HUGE_PAGE"),
    ("MAN002", "decode", variable("FI_PROVIDER", "tcp"), "environment variable FI_PROVIDER"),
    ("MAN002", "decode", variable("NCCL_SOCKET_IFNAME", "^lo,eth"), "environment variable NCCL_SOCKET_IFNAME"),
    ("MAN003", "decode", variable("PYTHONHASHSEED", REMOVE), "environment variable PYTHONHASHSEED"),
    ("MAN003", "decode", variable("PYTHONHASHSEED", "random"), "environment variable PYTHONHASHSEED"),
    ("MAN009", "decode", argument("--tensor-parallel-size", "4"), "argument --tensor-parallel-size"),
    ("MAN010", "decode", at("nodeSelector", {}), "nodeSelector"),
    ("MAN010", "decode", at("nodeSelector", {"node.kubernetes.io/instance-type": "p5.48xlarge"}), "nodeSelector"),
    ("MAN011", "decode", at("tolerations", [{"operator": "Exists"}]), "tolerations"),
]  # fmt: skip


@pytest.mark.parametrize(("id", "role", "fault", "place"), FAULTS, ids=[f"{row[0]}-{row[1]}-{row[3]}" for row in FAULTS])
def test_one_fault_is_one_finding(id: str, role: str, fault: Edit, place: str) -> None:
    bodies = good()
    fault(deployment(bodies, role)["spec"]["template"]["spec"])
    (found,) = (finding for finding in said(bodies) if finding.id == id)
    assert role in found.path
    assert place in found.path
    assert found.fix
    assert found.link.startswith("https://")


@pytest.mark.parametrize(("id", "role", "fault", "place"), FAULTS[:20:3], ids=lambda value: str(value)[:20])
def test_a_set_is_read_like_deployments(id: str, role: str, fault: Edit, place: str) -> None:
    bodies = good(SET)
    (both,) = (body for body in bodies if body["kind"] == "DisaggregatedSet")
    (wrong,) = (known for known in both["spec"]["roles"] if known["name"] == role)
    fault(wrong["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"])
    (found,) = (finding for finding in said(bodies) if finding.id == id)
    assert f"DisaggregatedSet inference/llama-70b-{both['metadata']['name'][-8:]}: role {role}" in found.path
    assert place in found.path


def test_on_the_hosts_network_the_address_is_the_hosts() -> None:
    bodies = good()
    also(at("hostNetwork", True), variable(SIDE, HOST_IP))(deployment(bodies, "decode")["spec"]["template"]["spec"])
    assert not [finding for finding in said(bodies) if finding.id == "POD002"]


def test_ucx_is_right_where_there_is_no_efa() -> None:
    bodies = good()
    spec = deployment(bodies, "decode")["spec"]["template"]["spec"]
    handed_over(kv_connector_extra_config={"backends": ["UCX"]})(spec)
    for amounts in spec["containers"][0]["resources"].values():
        del amounts["vpc.amazonaws.com/efa"]
    assert not [finding for finding in said(bodies) if finding.id == "POD001"]


def test_one_gpu_alone_is_warned_of_little_shared_memory() -> None:
    changes = {E + "decode.tensor_parallel": 1, E + "prefill.tensor_parallel": 1}
    bodies = good(changes)
    at("volumes/0/emptyDir", {})(deployment(bodies, "decode")["spec"]["template"]["spec"])
    (found,) = (finding for finding in said(bodies, changes) if finding.id == "POD006")
    assert found.level is Level.WARNING


def test_roles_that_never_meet() -> None:
    for relabelled in ({"llm-d.ai/guide": "another"}, {"dpd/revision": "00000000"}):
        bodies = good()
        deployment(bodies, "decode")["spec"]["template"]["metadata"]["labels"].update(relabelled)
        found = [finding for finding in said(bodies) if finding.id == "POD003"]
        assert {finding.limit for finding in found} == {"prefill", "decode"}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"strategy": REMOVE}, "spec.strategy"),
        ({"strategy": {"type": "RollingUpdate"}}, "spec.strategy"),
        ({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}}, "spec.strategy"),
        ({"progressDeadlineSeconds": REMOVE}, "spec.progressDeadlineSeconds"),
        ({"progressDeadlineSeconds": 600}, "spec.progressDeadlineSeconds"),
    ],
    ids=str,
)  # fmt: skip
def test_updates_that_never_end(changes: Body, place: str) -> None:
    bodies = good()
    spec = deployment(bodies, "decode")["spec"]
    for key, value in changes.items():
        at(key, value)(spec)
    (found,) = (finding for finding in said(bodies) if finding.id == "POD009")
    assert found.path.endswith(place)


def test_an_update_may_stop_everything_first() -> None:
    bodies = good()
    deployment(bodies, "decode")["spec"]["strategy"] = {"type": "Recreate"}
    assert not [finding for finding in said(bodies) if finding.id == "POD009"]


def test_a_field_of_newer_guides_is_dropped() -> None:
    bodies = good(SET)
    (both,) = (body for body in bodies if body["kind"] == "DisaggregatedSet")
    both["spec"]["roles"][0]["spec"]["groupIdentity"] = "Hash"
    (found,) = (finding for finding in said(bodies) if finding.id == "POD015")
    assert "role prefill" in found.path


TYPES = ("cluster.groups.prefill.instance_type", "cluster.groups.decode.instance_type")
SMALL = {
    E + "model.catalog": "qwen3-8b", E + "prefill.tensor_parallel": 1, E + "prefill.replicas": 1, E + "decode.tensor_parallel": 1,
}  # fmt: skip
SHARED = [
    instance.type
    for name in instances.types()
    if (instance := instances.find(name)) and instance.family in {"g6", "g6e", "g7e"} and instance.gpus_share_pcie and instance.efa
]


@pytest.mark.parametrize("instance_type", SHARED)
def test_gpus_that_share_pcie_are_allowed_with_a_warning(instance_type: str) -> None:
    changes = {**SMALL, **dict.fromkeys(TYPES, instance_type)}
    found = findings(changes, id="POD016", example=LLMD_EXAMPLE)
    assert [(one.path, one.level) for one in found] == [(place, Level.WARNING) for place in TYPES]
    refused = [one.id for one in findings(changes, example=LLMD_EXAMPLE) if one.id.startswith("INS") and one.level is Level.ERROR]
    assert refused == []


@pytest.mark.parametrize("instance_type", SHARED)
def test_the_operator_refuses_them_as_before(instance_type: str) -> None:
    changes = dict.fromkeys(TYPES, instance_type)
    assert {one.level for one in findings(changes, id="INS006")} == {Level.ERROR}
    assert not findings(changes, id="POD016")


@pytest.mark.parametrize("instance_type", ["ml.p5.48xlarge", "ml.p6-b200.48xlarge", "ml.g6e.8xlarge"])
def test_gpus_with_a_way_of_their_own(instance_type: str) -> None:
    assert not findings({**SMALL, **dict.fromkeys(TYPES, instance_type)}, id="POD016", example=LLMD_EXAMPLE)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        (["--shutdown-timeout", "5"], "[0]"), (["--revision=main"], "[0]"), (["--seed", "1", "--kv_events_config", "{}"], "[2]"),
        (["--disable-access-log-for-endpoints", "/health"], "[0]"),
    ],
)  # fmt: skip
def test_an_argument_that_is_there_already(written: list[str], path: str) -> None:
    (found,) = findings({E + "decode.extra_args": written}, id="POD017", example=LLMD_EXAMPLE)
    assert (found.path, found.level) == (f"{E}decode.extra_args{path}", Level.ERROR)
    assert not findings({E + "decode.extra_args": written}, id="POD017"), "the operator's own are others"
    assert not findings({E + "decode.extra_args": ["--seed", "1"]}, id="POD017", example=LLMD_EXAMPLE)


@pytest.mark.parametrize(
    ("changes", "path"),
    [(ADOPTED_CLUSTER, "cluster.existing"), ({"cluster.add_ons": {"vpc-cni": {"install": False}}}, "cluster.add_ons.vpc-cni.install")],
    ids=["adopted", "left out"],
)  # fmt: skip
def test_somebody_elses_cni_may_enforce_nothing(changes: dict[str, Any], path: str) -> None:
    (found,) = findings(changes, id="POD018", example=LLMD_EXAMPLE)
    assert (found.path, found.level) == (path, Level.WARNING)
    assert not findings(changes, id="POD018"), "the operator's endpoints bring no policies"
    assert not findings({"cluster.add_ons": {"vpc-cni": {"version": "v1.23.1-eksbuild.1"}}}, id="POD018", example=LLMD_EXAMPLE)
