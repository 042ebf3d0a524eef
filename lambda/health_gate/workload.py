"""Third layer: the endpoint's object and pods, and what they say themselves.

A peer's death reads like a network fault (https://github.com/awslabs/awsome-distributed-ai/issues/312), so memory and
restarts come before everything else.
"""

import re
from typing import Any, Final

from eks_api.reasons import Waiting

from health_gate.kubernetes import Container, Missing, Pod
from health_gate.patterns import EVENTS, LOGS, named
from health_gate.result import Patience, Result, check, failed, passed
from health_gate.spec import DECODE, PREFILL, ROLES, ROUTER, Resource
from health_gate.view import EndpointView

_SHOWN: Final = 3
_TEXT: Final = 300
_MANY_RESTARTS: Final = 3
_RECENT_SECONDS: Final = 3600.0


def _listed(items: list[str]) -> str:
    return ", ".join(items[:_SHOWN]) + (f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else "")


def at(value: Any, place: str) -> Any:
    """What is at ``a.b.0`` in parsed JSON; ``None`` when there is no such place."""
    for part in place.split("."):
        if isinstance(value, list) and part.isdigit():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _object(view: EndpointView, wanted: Resource) -> dict[str, Any] | None:
    """The backend's own object; ``None`` when there is none."""

    def read() -> dict[str, Any]:
        return view.kubernetes.resource(wanted.group, wanted.version, view.endpoint.namespace, wanted.plural, wanted.name, view.deadline)

    try:
        return view.memory.once(("object", view.endpoint.key), read)
    except Missing:
        return None


def _patience(view: EndpointView) -> Patience:
    """Time cannot change what a pod shows, unless its backend is at work and may be about to replace it."""
    wanted = view.endpoint.resource
    state = at(_object(view, wanted), wanted.state) if wanted else None
    return Patience.NEVER if wanted is None or state in {wanted.ready, *wanted.failed} else Patience.DEADLINE


@check(
    "workload.observed",
    proves="The state that the backend's object reports is of what was applied last, not of the deployment before.",
    cannot="That the pods are new already; `workload.resource` and `workload.pods` wait for them. A backend that reports no generation.",
)
def observed(view: EndpointView) -> Result | None:
    """Generations. An end state of an older one means that pods and logs, too, are of the deployment before.

    Any other state says that the backend is at work, whenever it may write the generation down.
    """
    wanted = view.endpoint.resource
    found = _object(view, wanted) if wanted else None
    if wanted is None or found is None:
        return None
    applied, seen, state = at(found, "metadata.generation"), at(found, "status.observedGeneration"), at(found, wanted.state)
    if not isinstance(applied, int) or not isinstance(seen, int):
        return None
    if seen < applied and state in {wanted.ready, *wanted.failed}:
        return failed(
            f"The operator has not taken up what was applied last: {state} is of generation {seen}, not {applied}.",
            "Wait; if it stays so, look at the operator's pods and log.",
            patience=Patience.DEADLINE,
            generation=applied,
            observed=seen,
        )
    return passed("The state is of what was applied last.", generation=applied, observed=seen)


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
    for role in ROLES:
        wanted = view.endpoint.pods[role]
        found = view.kubernetes.warnings(wanted.namespace, wanted.name_prefix, view.deadline)
        said += [(name, f"{reason}: {message}") for name, reason, message in found if name in waiting or name not in _names(view)]
    if all(len(view.pods(role)) >= view.endpoint.pods[role].replicas for role in ROLES) and not waiting:
        return passed("Nothing keeps the pods from running.", warnings=len(said))
    for name, text in said:
        if known := named(text, (*view.endpoint.patterns, *EVENTS, *LOGS)):
            return failed(f"{name}: {text[:_TEXT]}", known.remedy, link=known.link, patience=Patience.DEADLINE)
    return passed("No event has a known cause.", warnings=len(said))


def _names(view: EndpointView) -> set[str]:
    return {pod.name for pod in view.all_pods}


@check(
    "workload.resource",
    proves="The backend's object holds what was applied and reports that it is ready.",
    cannot="That what it reports is true.",
    needs=("workload.observed",),
)
def resource(view: EndpointView) -> Result | None:
    """The backend's own object: state and condition text."""
    wanted = view.endpoint.resource
    if wanted is None:
        return None
    found = _object(view, wanted)
    if found is None:
        return failed(f"There is no {wanted.plural}/{wanted.name}.", "Apply the manifests.", patience=Patience.DEADLINE)
    if dropped := [place for place in wanted.must_have if at(found, place) in (None, "", [], {})]:
        return failed(
            f"The live object lacks {_listed(dropped)}: its definition dropped it.", "Update the operator's add-on, then apply again."
        )
    state = str(at(found, wanted.state) or "none")
    said = str(at(found, wanted.message) or "")[:_TEXT] if wanted.message else ""
    if state == wanted.ready:
        return passed(f"{state}. {said}".rstrip(), state=state)
    known = named(said, (*view.endpoint.patterns, *EVENTS, *LOGS))
    return failed(
        f"The endpoint's state is {state}. {said}".rstrip(),
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
    for role in ROLES:
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
    for role in ROLES:
        for pod in view.pods(role):
            text = view.kubernetes.log(pod, view.endpoint.pods[role].container, view.clock.now() - _RECENT_SECONDS, view.deadline)
            read += 1
            if known := named(text, (*view.endpoint.patterns, *LOGS)):
                return failed(f"{pod.name} logs {known.text!r}.", known.remedy, link=known.link, patience=_patience(view))
    return passed("No known error is in the logs.", logs=read)


@check(
    "workload.roles",
    proves="Prefill says that it sends KV and decode that it receives.",
    cannot="Anything when the lines of the start have left the log; it is then no fault.",
    seconds=40,
    needs=("workload.pods",),
)
def roles(view: EndpointView) -> Result | None:
    """Sender and receiver. The same role twice means that they are not wired to each other."""
    patterns = {PREFILL: view.endpoint.logs.prefill_role, DECODE: view.endpoint.logs.decode_role}
    if not all(patterns.values()):
        return None
    seen = 0
    for role, own in patterns.items():
        other = patterns[DECODE if role == PREFILL else PREFILL]
        for pod in view.pods(role):
            text = view.kubernetes.log(pod, view.endpoint.pods[role].container, 0, view.deadline)
            if not re.search(own, text) and re.search(other, text):
                return failed(f"{pod.name} has the other role of the transfer.", "Compare the connector's settings of both roles.")
            seen += bool(re.search(own, text))
    return passed(
        "Sender and receiver are as they should be." if seen else "The logs no longer show the roles; the KV layer decides.", seen=seen
    )


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
            "Update the operator (v3.2 lost this Service), or look at the router's pods.",
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
    """Operator up, endpoint absent is a failure of its own."""
    name = view.endpoint.sagemaker_endpoint
    if not name:
        return None
    remedy = "Operators before v3.3 never finish it for router-fronted endpoints; check the operator role's sagemaker rights."
    try:
        found = view.aws("sagemaker").describe_endpoint(EndpointName=name)
    except Exception as error:
        # SageMaker's word for "not found". botocore is not imported here, so the error is known by what it carries.
        if getattr(error, "response", {}).get("Error", {}).get("Code") != "ValidationException":
            raise
        return failed(f"The operator runs, but the SageMaker endpoint {name} is absent.", remedy, patience=Patience.DEADLINE)
    status = found["EndpointStatus"]
    if status != "InService":
        said = str(found.get("FailureReason") or "")[:_TEXT]
        wait = Patience.NEVER if status in {"Failed", "OutOfService", "UpdateRollbackFailed"} else Patience.DEADLINE
        return failed(f"The SageMaker endpoint {name} is {status}. {said}".rstrip(), remedy, patience=wait, status=status)
    return passed("InService.", status=status)
