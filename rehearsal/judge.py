"""The health gate's own checks, unchanged, with clients that reach the processes of a rehearsal."""

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from eks_api.http import Server
from eks_api.reasons import Waiting
from health_gate.kubernetes import LOG_BYTES, Address, Kubernetes, Pod
from health_gate.report import Report
from health_gate.run import run
from health_gate.spec import Endpoint, Spec
from health_gate.view import Clients

from dpd.environment.environment import Environment
from dpd.gate import spec as gate_spec
from rehearsal.front import Front
from rehearsal.substitutions import Substitution

LAYERS: Final = ("traffic", "kv", "answers")
"""What can be judged without AWS and Kubernetes."""
_NOWHERE: Final = "http://127.0.0.1:9"
_QUICK_SECONDS: Final = 25.0
"""For a fault whose answers are refused: the gate asks again until its time is over, since a real router may still be starting."""


@dataclass(frozen=True, slots=True)
class Stand:
    """A process that stands for a pod."""

    name: str
    role: str
    address: str
    log: Path
    settings: tuple[str, ...] = ()


def spec_of(environment: Environment, endpoint: str, *, max_model_len: int, threshold_tokens: int) -> tuple[Spec, list[Substitution]]:
    """The gate's spec of one endpoint, without what a CPU cannot keep, and what that is. Raises ``BadSpec``."""
    document = gate_spec.document(environment)
    (found,) = (each for each in document["endpoints"] if each["name"] == endpoint)
    seen = []

    def note(name: str, here: Any, why: str, shown: str = "") -> None:
        seen.append(Substitution("gate", name, shown or json.dumps(found[name]), json.dumps(here), why))
        found[name] = here

    note("kv_floor_gb_per_second", 0.0, "KV does not use EFA here, which is what the floor finds out")
    note("objectives", None, "latency on a CPU is recorded, not judged")
    if found["wire"]:
        note("wire", None, "there are no EFA devices whose bytes could be counted", "the counters of EFA devices")
    for name, here in (("max_model_len", max_model_len), ("threshold_tokens", threshold_tokens)):
        if found[name] != here:
            note(name, here, "as the workers'; both shrink by the same factor")
    # Other layers ask for what is not here; an environment without it has less to ask.
    spec = Spec.parse(gate_spec.text({**document, "endpoints": [found]}))
    return replace(spec, weights=(), lustre=None, add_ons=(), roles=(), definitions=(), webhook_namespaces=()), seen


class Local(Kubernetes):
    """What the gate asks of Kubernetes about pods, answered with processes; everything else has no answer here."""

    def __init__(self, endpoint: Endpoint, stands: list[Stand], front: Front) -> None:
        super().__init__(Server(_NOWHERE), lambda: "")
        self._endpoint, self._stands, self._front = endpoint, stands, front

    def pods(self, namespace: str, labels: Mapping[str, str], prefix: str, deadline: float, *, words: int = 2) -> list[Pod]:  # noqa: ARG002
        """The processes of a role. Roles that are neither prefill nor decode are the front."""
        wanted = {role for role, pods in self._endpoint.pods.items() if (pods.namespace, pods.name_prefix) == (namespace, prefix)}
        found = [self._pod(stand) for stand in self._stands if stand.role in wanted]
        if found or not wanted:
            return found
        return [self._pod(Stand("front", "router", self._front.url.partition("://")[2].partition(":")[0], Path()))]

    def addresses(self, namespace: str, service: str, deadline: float) -> list[Address]:  # noqa: ARG002
        """The front, whatever the Service is called."""
        address, _, port = self._front.url.partition("://")[2].partition(":")
        return [Address(address, "front", int(port))]

    def log(self, pod: Pod, container: str, since: float, deadline: float) -> str:  # noqa: ARG002
        """A worker's log from its end, and the front's decisions."""
        for stand in self._stands:
            if stand.name == pod.name:
                return stand.log.read_bytes()[-LOG_BYTES:].decode("utf-8", "replace")
        return self._front.log(since)

    def _pod(self, stand: Stand) -> Pod:
        container = self._endpoint.pods[stand.role].container
        return Pod.of(
            {
                "metadata": {"name": stand.name, "namespace": self._endpoint.namespace, "labels": self._endpoint.pods[stand.role].labels},
                "spec": {"containers": [{"name": container, "args": list(stand.settings)}]},
                "status": {"podIP": stand.address, "phase": "Running", "containerStatuses": [{"name": container, "ready": True}]},
            }
        )


def judge(spec: Spec, stands: list[Stand], front: Front, *, impatient: bool = False) -> Report:
    """Run the gate; its results for traffic, KV and answers. ``impatient`` for faults that are known to refuse answers."""
    (endpoint,) = spec.endpoints
    if impatient:
        checks = dict.fromkeys(("traffic.short", "traffic.long", "traffic.limit", "traffic.stream", "answers.match"), _QUICK_SECONDS)
        spec = replace(spec, deadlines=replace(spec.deadlines, checks=checks))

    def nothing(service: str) -> Any:
        raise Waiting(f"A rehearsal has no AWS to ask for {service}.")

    report = run(spec, Clients(nothing, lambda: Local(endpoint, stands, front)), keep_going=True)
    return replace(report, results=tuple(result for result in report.results if result.id.partition(".")[0] in LAYERS))


def first_cause(report: Report, *, besides: Container[str] = ()) -> str:
    """The id of the first check that did not pass, some left out; empty when all did."""
    return next((result.id for result in report.open if result.id not in besides), "")
