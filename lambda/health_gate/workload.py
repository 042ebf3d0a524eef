"""Third layer: the endpoint's object and pods, and what they say themselves.

A peer's death reads like a network fault (https://github.com/awslabs/awsome-distributed-ai/issues/312), so memory and
restarts come before everything else.
"""

import re
from typing import Any, Final

from eks_api.reasons import Waiting

from health_gate.kubernetes import Container, Missing, Pod, epoch
from health_gate.patterns import EVENTS, LOGS, named
from health_gate.result import Evidence, Patience, Result, check, failed, passed, unknown
from health_gate.spec import DECODE, PREFILL, ROUTER, Pods, Resource
from health_gate.view import EndpointView

_SHOWN: Final = 3
_TEXT: Final = 300
_MANY_RESTARTS: Final = 3
_RECENT_SECONDS: Final = 3600.0
_FIRST_LINE_SECONDS: Final = 120.0
"""A server says something within this time of its start; a log that begins later has lost its beginning."""
_PART: Final = re.compile(r"[^.\[\]]+")


def _listed(items: list[str]) -> str:
    return ", ".join(items[:_SHOWN]) + (f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else "")


def at(value: Any, place: str) -> Any:
    """What is at ``a.b.0`` in parsed JSON; ``None`` when there is no such place."""
    for part in _PART.findall(place):
        value = _inside(value, part)
    return value


def _inside(value: Any, part: str) -> Any:
    """A field of an object; of a list the item with a number, or with a field of a value, as ``type=Available``."""
    if isinstance(value, dict):
        return value.get(part)
    if not isinstance(value, list):
        return None
    name, sign, wanted = part.partition("=")
    if sign:
        return next((item for item in value if isinstance(item, dict) and item.get(name) == wanted), None)
    return value[int(part)] if part.isdigit() and int(part) < len(value) else None


def _object(view: EndpointView, wanted: Resource) -> dict[str, Any] | None:
    """One of the endpoint's objects; ``None`` when there is none."""
    namespace = wanted.namespace or view.endpoint.namespace

    def read() -> dict[str, Any]:
        return view.kubernetes.resource(wanted.group, wanted.version, namespace, wanted.plural, wanted.name, view.deadline)

    try:
        return view.memory.once(("object", view.endpoint.key, namespace, wanted.group, wanted.label), read)
    except Missing:
        return None


def _patience(view: EndpointView) -> Patience:
    """Time cannot change what a pod shows, unless its backend is at work and may be about to replace it."""
    still = all(at(_object(view, wanted), wanted.state) in {wanted.ready, *wanted.failed} for wanted in view.endpoint.resources)
    return Patience.NEVER if still else Patience.DEADLINE


def _remedy(view: EndpointView, id: str, usual: str) -> str:
    """What to do: the backend's own advice, where it has one."""
    return view.endpoint.remedies.get(id, usual)


@check(
    "workload.observed",
    proves="The state that the endpoint's objects report is of what was applied last, not of the deployment before.",
    cannot="That the pods are new already; `workload.resource` and `workload.pods` wait for them. An object without a generation.",
)
def observed(view: EndpointView) -> Result | None:
    """Generations. An end state of an older one means that pods and logs, too, are of the deployment before.

    Any other state says that the backend is at work, whenever it may write the generation down.
    """
    known: list[Evidence] = []
    for wanted in view.endpoint.resources:
        found = _object(view, wanted)
        applied, seen, state = at(found, "metadata.generation"), at(found, "status.observedGeneration"), at(found, wanted.state)
        if not isinstance(applied, int) or not isinstance(seen, int):
            continue
        if seen < applied and state in {wanted.ready, *wanted.failed}:
            return failed(
                f"{wanted.label}: what was applied last has not been taken up: {state} is of generation {seen}, not {applied}.",
                "Wait; if it stays so, look at the pods and the log of the controller that owns it.",
                patience=Patience.DEADLINE,
                generation=applied,
                observed=seen,
            )
        known.append(seen)
    return passed("The state is of what was applied last.", observed=", ".join(map(str, known))) if known else None


@check(
    "workload.memory",
    proves="No container of the endpoint was killed for its memory.",
    cannot="A container that was replaced with its pod.",
    needs=("workload.observed",),
)
def memory(view: EndpointView) -> Result:
    """Containers that ran out of memory."""
    killed = [f"{pod.name}/{each.name}" for pod in view.all_pods for each in pod.containers if each.ended == "OOMKilled"]
    if killed:
        return failed(
            f"Killed for memory: {_listed(killed)}.",
            "Raise the role's memory: huge pages, shm and the KV cache's CPU tier all count. Network errors of its peers follow.",
            patience=_patience(view),
        )
    return passed("Nothing was killed for memory.")


@check(
    "workload.restarts",
    proves="No container of the endpoint keeps restarting.",
    cannot="Restarts of pods that are gone.",
    needs=("workload.observed",),
)
def restarts(view: EndpointView) -> Result:
    """Containers that end again and again. Fewer restarts than three may be a start in the wrong order."""
    found = [(pod, each) for pod in view.all_pods for each in pod.containers if each.restarts]
    looping = [(pod, each) for pod, each in found if each.restarts >= _MANY_RESTARTS and not each.ready]
    if looping:
        pod, each = looping[0]
        text = f"{pod.name}/{each.name} ended {each.restarts} times, last with {each.ended or 'unknown reason'} ({each.exit_code})"
        known = _said(view, pod, each)
        return failed(
            f"Containers keep ending: {text}.",
            known.remedy if known else "Read the container's last log.",
            link=known.link if known else "",
            patience=_patience(view),
        )
    return passed("No container keeps ending.", restarts=sum(each.restarts for _, each in found))


def _said(view: EndpointView, pod: Pod, container: Container) -> Any:
    try:
        text = view.kubernetes.log(pod, container.name, view.clock.now() - _RECENT_SECONDS, view.deadline)
    except Waiting:
        return None
    return named(text, (*view.endpoint.patterns, *LOGS))


@check(
    "workload.events",
    proves="No warning event of the endpoint has a known cause while its pods are not ready.",
    cannot="Events older than an hour: Kubernetes forgets them.",
    needs=("workload.observed",),
)
def events(view: EndpointView) -> Result:
    """Warning events and scheduling conditions, mapped to remedies."""
    pending = {pod.name: pod.unscheduled for pod in view.all_pods if pod.unscheduled}
    said = list(pending.items())
    waiting = {pod.name for pod in view.all_pods if pod.ready < pod.total or pod.phase != "Running"}
    for role in view.endpoint.pods:
        wanted = view.endpoint.pods[role]
        found = view.kubernetes.warnings(wanted.namespace, wanted.name_prefix, view.deadline, words=wanted.words)
        said += [(name, f"{reason}: {message}") for name, reason, message in found if name in waiting or name not in _names(view)]
    if all(len(view.pods(role)) >= view.endpoint.pods[role].replicas for role in view.endpoint.pods) and not waiting:
        return passed("Nothing keeps the pods from running.", warnings=len(said))
    for name, text in said:
        if known := named(text, (*view.endpoint.patterns, *EVENTS, *LOGS)):
            return failed(f"{name}: {text[:_TEXT]}", known.remedy, link=known.link, patience=Patience.DEADLINE)
    return passed("No event has a known cause.", warnings=len(said))


def _names(view: EndpointView) -> set[str]:
    return {pod.name for pod in view.all_pods}


@check(
    "workload.resource",
    proves="Every object of the endpoint holds what was applied and reports that it is ready.",
    cannot="That what they report is true.",
    needs=("workload.observed",),
)
def resource(view: EndpointView) -> Result | None:
    """The endpoint's objects: state and condition text; of several that are not ready, the one that is final first."""
    found = [_state(view, wanted) for wanted in view.endpoint.resources]
    bad = sorted((result for result in found if not result.passed), key=lambda result: result.patience)
    return next(iter([*bad, *found]), None)


def _state(view: EndpointView, wanted: Resource) -> Result:
    found = _object(view, wanted)
    if found is None:
        return failed(f"There is no {wanted.label}.", "Apply the manifests.", patience=Patience.DEADLINE)
    if dropped := [place for place in wanted.must_have if at(found, place) in (None, "", [], {})]:
        return failed(
            f"The live object {wanted.label} lacks {_listed(dropped)}: its definition dropped it.",
            "Update what installs the definition, then apply again.",
        )
    state = str(at(found, wanted.state) or "none")
    said = str(at(found, wanted.message) or "")[:_TEXT] if wanted.message else ""
    if state == wanted.ready:
        return passed(f"{state}. {said}".rstrip(), state=state)
    known = named(said, (*view.endpoint.patterns, *EVENTS, *LOGS))
    return failed(
        f"The state of {wanted.label} is {state}. {said}".rstrip(),
        known.remedy if known else "Wait; loading a model takes 5 to 30 minutes. Then read the pods' events and logs.",
        link=known.link if known else "",
        patience=Patience.NEVER if state in wanted.failed else Patience.DEADLINE,
        state=state,
    )


@check(
    "workload.pods",
    proves="Every role has its pods, each with all its containers ready.",
    cannot="That a ready server answers right.",
    needs=("workload.observed",),
)
def pods(view: EndpointView) -> Result:
    """Pods by role, as ``3/3``."""
    problems, evidence = [], {}
    for role in view.endpoint.pods:
        wanted, found = view.endpoint.pods[role], view.pods(role)
        evidence[role] = ", ".join(sorted({f"{pod.ready}/{pod.total}" for pod in found})) or "none"
        good = sum(pod.ready >= wanted.containers and pod.ready >= pod.total and pod.phase == "Running" for pod in found)
        if good < wanted.replicas:
            why = sorted({each.waiting for pod in found for each in pod.containers if each.waiting})
            problems.append(f"{role} {good} of {wanted.replicas} ({evidence[role]}{'; ' + ', '.join(why) if why else ''})")
    if problems:
        return failed(
            f"Roles without all their pods: {_listed(problems)}.",
            "Wait; loading a model takes 5 to 30 minutes. A container that is never ready says why in its log.",
            patience=Patience.DEADLINE,
        ).with_evidence(**evidence)
    return passed("Every role has its pods.", **evidence)


@check(
    "workload.devices",
    proves="The live pods of both roles ask for the GPUs, EFA devices and huge pages of the spec.",
    cannot="That libfabric uses the devices.",
    needs=("workload.pods",),
)
def devices(view: EndpointView) -> Result:
    """Requested devices: without an EFA device libfabric falls back to TCP in silence."""
    for role in (PREFILL, DECODE):
        wanted = view.endpoint.pods[role]
        for pod in view.pods(role):
            if pod.efa != wanted.efa:
                return failed(
                    f"{pod.name} has {pod.efa} EFA devices instead of {wanted.efa}.",
                    "Ask for vpc.amazonaws.com/efa in the role's resources; without it KV goes over TCP.",
                )
            if pod.gpus != wanted.gpus:
                return failed(f"{pod.name} has {pod.gpus} GPUs instead of {wanted.gpus}.", "Apply the manifests again.")
            if pod.hugepages_mib != wanted.hugepages_mib:
                text = f"{pod.name} asks for {pod.hugepages_mib:.0f} MiB of 2 MiB pages instead of {wanted.hugepages_mib}."
                return failed(text, "Ask for hugepages-2Mi exactly when FI_EFA_USE_HUGE_PAGE is 1.")
    return passed("Both roles have their devices.", prefill_efa=view.endpoint.pods[PREFILL].efa, decode_efa=view.endpoint.pods[DECODE].efa)


@check(
    "workload.logs",
    proves="No known error is in the last hour's log of prefill, decode and router.",
    cannot="Errors that nobody has named yet, or that were logged earlier.",
    seconds=60,
    needs=("workload.pods",),
)
def logs(view: EndpointView) -> Result:
    """Known errors in logs. Only the name of the error is shown: logs may quote prompts."""
    read = 0
    for role in view.endpoint.pods:
        for pod in view.pods(role):
            text = view.kubernetes.log(pod, view.endpoint.pods[role].container, view.clock.now() - _RECENT_SECONDS, view.deadline)
            read += 1
            if known := named(text, (*view.endpoint.patterns, *LOGS)):
                return failed(f"{pod.name} logs {known.text!r}.", known.remedy, link=known.link, patience=_patience(view))
    return passed("No known error is in the logs.", logs=read)


@check(
    "workload.roles",
    proves="Prefill says that it sends KV and decode that it receives.",
    cannot="That they are wired to each other; the KV layer shows that.",
    seconds=40,
    needs=("workload.pods",),
)
def roles(view: EndpointView) -> Result | None:
    """Sender and receiver. The same role twice, or none, means that they are not wired to each other."""
    shown: dict[str, list[str]] = {}
    for role, other in ((PREFILL, DECODE), (DECODE, PREFILL)):
        mine, theirs = view.endpoint.pods[role], view.endpoint.pods[other]
        if not (mine.role_log or mine.role_settings or mine.role_label):
            return None
        for pod in view.pods(role):
            side = _side(view, pod, mine, theirs)
            if side == _OTHER:
                return failed(f"{pod.name} has the other role of the transfer.", "Compare the connector's settings of both roles.")
            shown.setdefault(side, []).append(pod.name)
    evidence: dict[str, Evidence] = {side.replace(" ", "_"): len(names) for side, names in shown.items()}
    if silent := shown.get(_NEVER):
        return unknown(
            f"The log of {_listed(silent)} goes back to the start and names no role of the transfer.",
            "The connector may not have started: read the log of the start, and compare the connector's settings of both roles.",
        ).with_evidence(**evidence)
    if dark := shown.get(_GONE):
        return unknown(
            f"Neither log nor settings of {_listed(dark)} show the role of the transfer; the lines of the start have left the log.",
            "Restart the pod to see them again, or keep longer container logs on the node.",
        ).with_evidence(**evidence)
    return passed("Sender and receiver are as they should be.").with_evidence(**evidence)


_OTHER: Final = "other role"
_NEVER: Final = "never said"
_GONE: Final = "not shown any more"


def _side(view: EndpointView, pod: Pod, mine: Pods, theirs: Pods) -> str:
    """What shows that a pod has its own side of the transfer: log, settings or label; else why nothing does.

    A label is the backend's word alone, so it counts only where the log no longer can say.
    """
    start = ""
    if mine.role_log:
        start = view.kubernetes.beginning(pod, mine.container, view.deadline)
        # The beginning is cut at a size, and rotated away in the end; what a server writes again later is at the other end.
        whole = f"{start}\n{view.kubernetes.log(pod, mine.container, 0, view.deadline)}"
        if (own := _own(whole, mine.role_log, theirs.role_log)) is not None:
            return "log" if own else _OTHER
    if (own := _own(pod.settings.get(mine.container, ""), mine.role_settings, theirs.role_settings)) is not None:
        return "settings" if own else _OTHER
    began = epoch(start.partition(" ")[0])
    if began and began - pod.started(mine.container) < _FIRST_LINE_SECONDS:
        return _NEVER
    key, _, value = mine.role_label.partition("=")
    return "label" if key and pod.labels.get(key) == value else _GONE


def _own(text: str, mine: str, theirs: str) -> bool | None:
    """Whether a text shows a pod's own side, or the other; ``None`` when it shows neither."""
    if mine and re.search(mine, text):
        return True
    return False if theirs and re.search(theirs, text) else None


@check(
    "workload.router",
    proves="The router's Service has ready addresses.",
    cannot="That the router knows the workers; traffic shows that.",
    needs=("workload.pods",),
)
def router(view: EndpointView) -> Result:
    """Addresses behind the router's Service."""
    wanted = view.endpoint.pods[ROUTER]
    found = view.kubernetes.addresses(wanted.namespace, wanted.service, view.deadline)
    if not found:
        return failed(
            f"The Service {wanted.namespace}/{wanted.service} has no ready address, or is missing: clients get 503.",
            _remedy(view, "workload.router", "Look at the router's pods, and at what makes the Service."),
            patience=Patience.DEADLINE,
        )
    return passed("The router can be reached.", addresses=len(found))


@check(
    "workload.registration",
    proves="The SageMaker endpoint exists and is InService.",
    cannot="That its path through SageMaker is fast enough.",
    needs=("workload.pods",),
)
def registration(view: EndpointView) -> Result | None:
    """Pods up, endpoint absent is a failure of its own."""
    name = view.endpoint.sagemaker_endpoint
    if not name:
        return None
    remedy = _remedy(view, "workload.registration", "Look at what registers the endpoint, and its role's sagemaker rights.")
    try:
        found = view.aws("sagemaker").describe_endpoint(EndpointName=name)
    except Exception as error:
        # SageMaker's word for "not found". botocore is not imported here, so the error is known by what it carries.
        if getattr(error, "response", {}).get("Error", {}).get("Code") != "ValidationException":
            raise
        return failed(f"The pods run, but the SageMaker endpoint {name} is absent.", remedy, patience=Patience.DEADLINE)
    status = found["EndpointStatus"]
    if status != "InService":
        said = str(found.get("FailureReason") or "")[:_TEXT]
        wait = Patience.NEVER if status in {"Failed", "OutOfService", "UpdateRollbackFailed"} else Patience.DEADLINE
        return failed(f"The SageMaker endpoint {name} is {status}. {said}".rstrip(), remedy, patience=wait, status=status)
    return passed("InService.", status=status)
