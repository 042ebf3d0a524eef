"""What the endpoint's own object, pods, events and logs say."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from health_gate.result import Outcome, Patience

from tests.lambdas.health_gate.engine import DECODE_IP, PICKER_IP, PREFILL_IP, ROUTER_IP
from tests.lambdas.health_gate.world import NAMESPACE, SERVICE, SYSTEM, World, endpoint_slice, pod

Break = Callable[[World], Any]
DEFINITE, NOT_YET = (Outcome.FAIL, Patience.NEVER), (Outcome.FAIL, Patience.DEADLINE)
DENIED, UNSEEN = (Outcome.UNKNOWN, Patience.GRACE), (Outcome.UNKNOWN, Patience.DEADLINE)
ENDED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


def _container(role: str, **status: Any) -> Break:
    return lambda world: world.container(role, **status)


def _log(ip: str, line: str) -> Break:
    return lambda world: world.engine.logs[ip].append(line)


def _state(state: str, message: str = "") -> Break:
    def change(world: World) -> None:
        assert world.custom is not None
        world.custom["status"] = {"state": state, "conditions": [{"message": message}]}

    return change


def _event(reason: str, message: str) -> Break:
    """A warning while the decoder is not ready."""

    def change(world: World) -> None:
        world.container("decode", ready=False)
        about = {"metadata": {"namespace": NAMESPACE}, "involvedObject": {"name": "decode-chat-abc"}}
        world.events = [{**about, "reason": reason, "message": message}]

    return change


def _together(*changes: Break) -> Break:
    return lambda world: [change(world) for change in changes]


def _unscheduled(world: World) -> None:
    status = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/4 nodes: 2 Insufficient nvidia.com/gpu."}],
    }
    world.pods[1]["status"] = status


def _behind(world: World) -> None:
    """An update that nobody has seen yet: whatever is there is of the deployment before."""
    assert world.custom is not None
    world.custom["metadata"]["generation"] += 1


def _silent(*places: str) -> Break:
    def change(world: World) -> None:
        assert world.custom is not None
        for place in places:
            part, name = place.split(".")
            del world.custom[part][name]

    return change


def _pruned(world: World) -> None:
    assert world.custom is not None
    world.custom["spec"] = {}


def _requests(**values: str) -> Break:
    def change(world: World) -> None:
        requests = world.pods[0]["spec"]["containers"][0]["resources"]["requests"]
        for name, value in values.items():
            requests[{"efa": "vpc.amazonaws.com/efa", "gpu": "nvidia.com/gpu", "pages": "hugepages-2Mi"}[name]] = value

    return change


def _swapped(world: World) -> None:
    world.engine.logs[DECODE_IP][:] = ["'pd_role': 'sender'"]


def _silent_start(world: World) -> None:
    """Logs from the very start that name no role: the connector has not started."""
    world.engine.logs.update({ip: [] for ip in world.engine.logs})


def _forgotten(world: World) -> None:
    """Logs that have lost their beginning."""
    _silent_start(world)
    world.first_line = "2026-11-29T18:00:00.1Z"


def _forgotten_without_label(world: World) -> None:
    _forgotten(world)
    pods = world.document()["endpoints"][0]["pods"]
    for role in ("prefill", "decode"):
        pods[role]["role_label"] = ""
    world.endpoint_changes["pods"] = pods


def _settings(role: str, argument: str) -> Break:
    index = ["prefill", "decode"].index(role)
    return lambda world: world.pods[index]["spec"]["containers"][0].update(args=["--kv", argument], env=[{"name": "A", "valueFrom": {}}])


ROLLED: Final = "NewReplicaSetAvailable"


def _deployment(reason: str = "", seen: int = 4) -> Break:
    """A backend whose objects are Deployments."""

    def change(world: World) -> None:
        world.endpoint_changes["resources"] = [
            {
                "group": "apps",
                "version": "v1",
                "plural": "deployments",
                "name": "chat-decode",
                "state": "status.conditions[type=Progressing].reason",
                "ready": ROLLED,
                "failed": ["ProgressDeadlineExceeded"],
                "message": "status.conditions[type=Progressing].message",
            }
        ]
        conditions = [
            {"type": "Available", "reason": "MinimumReplicasAvailable"},
            {"type": "Progressing", "reason": reason, "message": "odd"},
        ]
        if reason:
            status = {"observedGeneration": seen, "conditions": conditions}
            world.deployments["chat-decode"] = {"metadata": {"generation": 4}, "status": status}

    return change


def _picker(*, ready: bool = True) -> Break:
    """A role besides the three that every backend has."""

    def change(world: World) -> None:
        made = pod("picker", PICKER_IP, containers=1)
        made["status"]["containerStatuses"][0]["ready"] = ready
        world.pods.append(made)
        world.engine.logs.setdefault(PICKER_IP, [])
        pods = world.document()["endpoints"][0]["pods"]
        like = {"namespace": NAMESPACE, "name_prefix": "picker-chat-", "container": "picker-chat"}
        world.endpoint_changes["pods"] = {**pods, "picker": {**like, "replicas": 1, "containers": 1, "port": 9090}}

    return change


def _sidecar(*, ready: bool = True) -> Break:
    """A native sidecar: an init container that runs as long as the pod."""

    def change(world: World) -> None:
        world.pods[1]["spec"]["initContainers"] = [{"name": "routing-proxy", "restartPolicy": "Always"}]
        world.pods[1]["status"]["initContainerStatuses"] = [{"name": "routing-proxy", "ready": ready, "state": {"running": {}}}]
        pods = world.document()["endpoints"][0]["pods"]
        world.endpoint_changes["pods"] = {**pods, "decode": {**pods["decode"], "containers": 4}}

    return change


def _finished(world: World) -> None:
    world.pods[1]["spec"]["initContainers"] = [{"name": "copy"}]
    ended = {"terminated": {"reason": "Completed", "exitCode": 0}}
    world.pods[1]["status"]["initContainerStatuses"] = [{"name": "copy", "ready": True, "state": ended}]
    world.container("decode", ready=False)


WRONG: list[tuple[Any, ...]] = [
    ("not seen yet", _behind, "workload.observed", NOT_YET, "DeploymentComplete is of generation 2, not 3"),
    ("killed before the change", _together(_behind, _container("decode", state=ENDED)), "workload.observed", NOT_YET, "not been taken up"),
    ("logged before the change", _together(_behind, _log(DECODE_IP, "EngineDeadError")), "workload.observed", NOT_YET, "not been taken up"),
    ("killed", _container("decode", state=ENDED), "workload.memory", DEFINITE, "decode-chat-abc/decode-chat.*memory"),
    (
        "killed before, and EFA is blamed",
        _together(_container("prefill", lastState=ENDED, restartCount=1), _log(DECODE_IP, "Error 4126 Unresponsive receiver")),
        "workload.memory",
        DEFINITE,
        "Killed for memory: prefill",
    ),
    (
        "keeps ending",
        _together(
            _container("decode", ready=False, restartCount=4, lastState={"terminated": {"reason": "Error", "exitCode": 1}}),
            _log(DECODE_IP, "EngineDeadError"),
        ),
        "workload.restarts",
        DEFINITE,
        r"ended 4 times, last with Error \(1\).*The engine died",
    ),
    ("no room", _unscheduled, "workload.events", NOT_YET, "Insufficient nvidia.com/gpu.*surge must be 0"),
    ("no EFA left", _event("FailedScheduling", "1 Insufficient vpc.amazonaws.com/efa"), "workload.events", NOT_YET, "belong to one pod"),
    ("no mount", _event("FailedMount", "MountVolume.SetUp failed for volume"), "workload.events", NOT_YET, "bucket and prefix must exist"),
    ("no image", _event("Failed", "Error: ErrImagePull"), "workload.events", NOT_YET, "cannot be pulled"),
    ("tainted", _event("FailedScheduling", "4 node(s) had untolerated taint {role: prefill}"), "workload.events", NOT_YET, "taint"),
    ("own text", _event("Odd", "quux happened"), "workload.events", NOT_YET, "turn the quux"),
    ("no object", lambda world: setattr(world, "custom", None), "workload.resource", NOT_YET, "no inferenceendpointconfigs/chat"),
    ("field dropped", _pruned, "workload.resource", DEFINITE, "lacks spec.pdSpec.prefillSpec"),
    ("starts", _state("DeploymentInProgress", "waiting for pods"), "workload.resource", NOT_YET, "DeploymentInProgress. waiting for pods"),
    ("failed", _state("DeploymentFailed", "EngineDeadError in worker"), "workload.resource", DEFINITE, "DeploymentFailed.*The engine died"),
    ("two of three", _container("decode", ready=False), "workload.pods", NOT_YET, r"decode 0 of 1 \(2/3\)"),
    (
        "a container too few",
        lambda world: world.pods.__setitem__(1, pod("decode", DECODE_IP, containers=2)),
        "workload.pods",
        NOT_YET,
        r"\(2/2\)",
    ),
    (
        "waits",
        _container("prefill", ready=False, state={"waiting": {"reason": "ContainerCreating"}}),
        "workload.pods",
        NOT_YET,
        "ContainerCreating",
    ),
    ("no decoder", lambda world: world.pods.pop(1), "workload.pods", NOT_YET, r"decode 0 of 1 \(none\)"),
    ("no router", lambda world: world.pods.pop(2), "workload.pods", NOT_YET, r"router 0 of 1 \(none\)"),
    ("TCP", _requests(efa="0"), "workload.devices", DEFINITE, "prefill-chat-abc has 0 EFA devices instead of 32.*TCP"),
    ("one EFA", _requests(efa="1"), "workload.devices", DEFINITE, "1 EFA devices"),
    ("four GPUs", _requests(gpu="4"), "workload.devices", DEFINITE, "4 GPUs instead of 8"),
    ("no pages", _requests(pages="0"), "workload.devices", DEFINITE, "0 MiB of 2 MiB pages"),
    (
        "4126",
        _log(DECODE_IP, "fi_cq_readerr: Error 4126 handshake failed"),
        "workload.logs",
        DEFINITE,
        "logs 'Error 4126'.*to and from itself",
    ),
    ("NCCL", _log(PREFILL_IP, "NCCL WARN Attribute arch of node cpu not found"), "workload.logs", DEFINITE, "topology file"),
    ("buffer", _log(PREFILL_IP, "Failed to allocate memory object, retrying..."), "workload.logs", DEFINITE, "kv.buffer_gib"),
    ("router's own", _log(ROUTER_IP, "quux"), "workload.logs", DEFINITE, "turn the quux"),
    ("same role twice", _swapped, "workload.roles", DEFINITE, "decode-chat-abc has the other role"),
    (
        "told the other role",
        _together(_forgotten, _settings("decode", "kv_role=kv_producer")),
        "workload.roles",
        DEFINITE,
        "decode-chat-abc has the other role",
    ),
    ("never said a role", _silent_start, "workload.roles", UNSEEN, "prefill-chat-abc, decode-chat-abc goes back to the start"),
    ("role forgotten", _forgotten_without_label, "workload.roles", UNSEEN, "Neither log nor settings of prefill-chat-abc, decode"),
    ("Deployment rolls", _deployment(reason="ReplicaSetUpdated"), "workload.resource", NOT_YET, "deployments/chat-decode is ReplicaSetUpd"),
    ("Deployment stuck", _deployment(reason="ProgressDeadlineExceeded"), "workload.resource", DEFINITE, "ProgressDeadlineExceeded. odd"),
    ("Deployment absent", _deployment(), "workload.resource", NOT_YET, "no deployments/chat-decode"),
    ("Deployment behind", _deployment(reason=ROLLED, seen=3), "workload.observed", NOT_YET, "generation 3, not 4"),
    ("picker not ready", _picker(ready=False), "workload.pods", NOT_YET, "picker 0 of 1"),
    ("picker's log", _together(_picker(), _log(PICKER_IP, "quux")), "workload.logs", DEFINITE, "turn the quux"),
    ("sidecar not ready", _sidecar(ready=False), "workload.pods", NOT_YET, r"decode 0 of 1 \(3/4\)"),
    ("a finished init container is no sidecar", _finished, "workload.pods", NOT_YET, r"decode 0 of 1 \(2/3\)"),
    (
        "no address",
        lambda world: world.slices.__setitem__(0, endpoint_slice(SYSTEM, SERVICE, "", "", 8000)),
        "workload.router",
        NOT_YET,
        "no ready address",
    ),
    ("no service", lambda world: world.slices.pop(0), "workload.router", NOT_YET, "is missing: clients get 503"),
    (
        "endpoint absent",
        lambda world: setattr(world.aws, "endpoint", None),
        "workload.registration",
        NOT_YET,
        "pods run, but .* absent.*role's sagemaker rights",
    ),
    (
        "endpoint failed",
        lambda world: setattr(world.aws, "endpoint", {"EndpointStatus": "Failed", "FailureReason": "no role"}),
        "workload.registration",
        DEFINITE,
        "is Failed. no role",
    ),
    (
        "pods forbidden",
        lambda world: world.override.update({"/api/v1/namespaces/llm/pods": (403, b"{}")}),
        "workload.memory",
        DENIED,
        "not read",
    ),
    (
        "log fails",
        lambda world: world.override.update({"/api/v1/namespaces/llm/pods/prefill-chat-abc/log": (500, b"")}),
        "workload.logs",
        UNSEEN,
        "500",
    ),
]


@pytest.mark.parametrize(("change", "id", "kind", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong(world: World, change: Break, id: str, kind: tuple[Outcome, Patience], words: str) -> None:
    world.endpoint_changes["patterns"] = [{"text": "QUUX", "remedy": "turn the quux off"}]
    change(world)
    report = world.run()
    first = report.causes()[0]
    assert (first.id, first.outcome, first.patience) == (id, *kind), report.table()
    assert first.endpoint == "llm/chat"
    assert re.search(words, f"{first.summary} {first.remedy}")


RIGHT: list[Break] = [
    _silent("status.observedGeneration"),
    _silent("metadata.generation"),
    _container("decode", restartCount=1, lastState={"terminated": {"reason": "Error", "exitCode": 1}}),
    lambda world: world.events.append(
        {"metadata": {"namespace": NAMESPACE}, "involvedObject": {"name": "decode-chat-abc"}, "message": "Insufficient nvidia.com/gpu"}
    ),
    lambda world: world.pods.append(pod("decode", "", name="decode-chatter-1")),
    lambda world: world.pods.append(
        {**pod("decode", ""), "metadata": {"name": "decode-chat-old", "namespace": NAMESPACE, "deletionTimestamp": "now"}}
    ),
    _forgotten,
    _together(_silent_start, _settings("prefill", "kv_role=kv_producer"), _settings("decode", "kv_role=kv_consumer")),
    lambda world: world.endpoint_changes.update(sagemaker_endpoint="", resources=[]),
    _deployment(reason=ROLLED),
    _picker(),
    _sidecar(),
]


@pytest.mark.parametrize("change", RIGHT)
def test_right(world: World, change: Break) -> None:
    world.engine.faults = {"500"}
    change(world)
    report = world.run()
    assert [result.id for result in report.open] == ["traffic.short"], report.table()


def test_another_endpoint_in_the_namespace_is_not_looked_at(world: World) -> None:
    """Labels of the operator name the role and not the endpoint, so its pods must be told by name."""
    world.engine.faults = {"500"}
    other = pod("prefill", "127.0.0.9", name="prefill-other-1", efa=1)
    other["status"]["containerStatuses"][0]["state"] = ENDED
    world.pods.insert(0, other)
    assert [result.id for result in world.run().open] == ["traffic.short"]


def test_a_backend_at_work_is_believed_whenever_it_writes_the_generation_down(world: World) -> None:
    """Else a cause that shows during the work would stay hidden."""
    assert world.custom is not None
    world.custom["status"]["state"] = "DeploymentInProgress"
    world.container("decode", state=ENDED)
    _behind(world)
    assert world.run().causes()[0].id == "workload.memory"


@pytest.mark.parametrize(
    ("change", "id"),
    [
        (_container("decode", state=ENDED), "workload.memory"),
        (_container("decode", ready=False, restartCount=4), "workload.restarts"),
        (_log(DECODE_IP, "EngineDeadError"), "workload.logs"),
    ],
)
def test_what_pods_show_that_may_be_replaced_is_named_first_but_waited_for(world: World, change: Break, id: str) -> None:
    """The deployment that raises a role's memory must not fail for the pods that it replaces."""
    _state("DeploymentInProgress")(world)
    change(world)
    report = world.run()
    assert (found := next(result for result in report.open if result.id == id)).patience is Patience.DEADLINE
    assert found.outcome is Outcome.FAIL
    assert not report.settled(10**6)


@pytest.mark.parametrize("place", ["status.observedGeneration", "metadata.generation"])
def test_a_backend_without_generations_is_not_said_to_have_seen_anything(world: World, place: str) -> None:
    world.engine.faults = {"500"}
    _silent(place)(world)
    assert "workload.observed" not in [result.id for result in world.run().results]


def test_a_failed_state_of_the_deployment_before_does_not_end_the_next(world: World) -> None:
    assert world.custom is not None
    world.custom["status"]["state"] = "DeploymentFailed"
    assert world.result("workload.resource").patience is Patience.NEVER
    _behind(world)
    report = world.run()
    assert [result.id for result in report.open] == ["workload.observed"]
    assert not report.settled(10**6)


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        (lambda _: None, {"log": 2}),
        (_forgotten, {"label": 2}),
        (_together(_forgotten, _settings("decode", "kv_role=kv_consumer")), {"label": 1, "settings": 1}),
    ],
)
def test_what_shows_a_role_is_said(world: World, change: Break, evidence: dict[str, int]) -> None:
    change(world)
    found = world.result("workload.roles")
    assert found.passed
    assert found.evidence == evidence


def test_a_backend_s_own_advice_comes_first(world: World) -> None:
    world.slices.pop(0)
    world.endpoint_changes["remedies"] = {"workload.router": "turn it off and on"}
    assert world.result("workload.router").remedy == "turn it off and on"


def test_of_several_objects_the_final_state_is_named(world: World) -> None:
    _deployment(reason="ProgressDeadlineExceeded")(world)
    (last,) = world.endpoint_changes["resources"]
    world.endpoint_changes["resources"] = [{**last, "name": "absent"}, last]
    assert world.result("workload.resource").summary.startswith("The state of deployments/chat-decode is Progress")
