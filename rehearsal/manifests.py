"""The workers of an endpoint as its synthesized manifests have them: argument list, environment, ports."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from health_gate.spec import DECODE, PREFILL, Endpoint

from dpd.backends.arguments import parse
from dpd.backends.emitted import Container, containers, program
from rehearsal.say import Unable

_OF_OPERATOR: Final = {"prefillSpec": PREFILL, "decodingSpec": DECODE}
_MODEL: Final = 2
"""Where the model stands in ``vllm serve MODEL …``."""
_WIDE: Final = ("--data-parallel-size", "--data-parallel-address", "--enable-expert-parallel", "--pipeline-parallel-size")


@dataclass(frozen=True, slots=True)
class Worker:
    """What a manifest says of the workers of one role. ``model`` is what they are told to load; ``replicas`` how many there are.

    ``arguments`` are those of ``vllm serve``; of ``variables`` one that is a reference, as to the pod's address, is empty.
    """

    role: str
    image: str
    model: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    port: int
    replicas: int


def workers(bodies: Iterable[Mapping[str, Any]], endpoint: Endpoint) -> dict[str, Worker]:
    """The worker of each role, from the objects of an endpoint. Raises ``Unable`` for what one machine cannot hold."""
    found: dict[str, Worker] = {}
    for body in bodies:
        for role, container in _by_role(body, endpoint):
            software, arguments = program(container)
            if software == "vllm" and role not in found:
                pods = endpoint.pods[role]
                found[role] = Worker(role, container.image, _model(container), arguments, container.variables, pods.port, pods.replicas)
    if missing := [role for role in (PREFILL, DECODE) if role not in found]:
        raise Unable(f"The manifests of {endpoint.name} have no vLLM container for {' and '.join(missing)}.")
    for worker in found.values():
        if wide := [flag for flag in _WIDE if parse(worker.arguments).value(flag) not in (None, "1")]:
            raise Unable(
                f"{endpoint.name}: {worker.role} has {wide[0]}. One replica spans several processes or nodes, which has no stand-in here."
            )
    return found


def _by_role(body: Mapping[str, Any], endpoint: Endpoint) -> Iterator[tuple[str, Container]]:
    if body.get("kind") == "InferenceEndpointConfig":
        for container in containers(body):
            yield _OF_OPERATOR[container.path.rpartition(": ")[2]], container
        return
    for labels, template in _templates(body):
        for role in (PREFILL, DECODE):
            wanted = endpoint.pods[role].labels
            if wanted and wanted.items() <= labels.items():
                for container in containers({"kind": "Pod", "spec": template}):
                    yield role, container


def _templates(node: Any) -> Iterator[tuple[Mapping[str, str], Any]]:
    """Labels and spec of every pod template, wherever it stands."""
    if isinstance(node, list):
        for item in node:
            yield from _templates(item)
    elif isinstance(node, Mapping):
        if isinstance(node.get("spec"), Mapping) and "containers" in node["spec"]:
            yield (node.get("metadata") or {}).get("labels") or {}, node["spec"]
        for item in node.values():
            yield from _templates(item)


def _model(container: Container) -> str:
    words = container.words
    if len(words) > _MODEL and not words[_MODEL].startswith("-"):
        return words[_MODEL]
    return parse(words[_MODEL:]).value("--model") or ""
