"""A worker pod of llm-d as the rules read it, whatever owns it."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpd.backends.arguments import Arguments, parse
from dpd.catalog.llmd import llmd
from dpd.checks.manifests import Object, Objects, mapping, pods, templates


def mappings(value: Any) -> tuple[Object, ...]:
    """The items of a list as mappings; nothing for what is none."""
    return tuple(map(mapping, value)) if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class Worker:
    """A pod template of a role: where it stands, its ``spec``, and the container with vLLM."""

    path: str
    role: str
    labels: Object
    spec: Object
    server: Object
    arguments: Arguments

    @property
    def requests(self) -> Object:
        """What vLLM's container asks for."""
        return {**self._amounts("limits"), **self._amounts("requests")}

    def _amounts(self, kind: str) -> Object:
        return mapping(mapping(self.server.get("resources")).get(kind))

    @property
    def multi_rank(self) -> bool:
        """Whether a supervisor stands in front of several engines, which answers probes on a port of its own."""
        return int(self.arguments.value("--data-parallel-size-local") or 1) > 1

    def variable(self, name: str) -> Object:
        """An environment variable's entry, empty without one."""
        return next((entry for entry in mappings(self.server.get("env")) if entry.get("name") == name), {})

    def probe(self, kind: str) -> Object:
        """A probe of vLLM's container."""
        return mapping(self.server.get(f"{kind}Probe"))

    def port(self) -> Any:
        """Where vLLM listens, as the container says."""
        return next((port.get("containerPort") for port in mappings(self.server.get("ports"))), None)

    def sidecar(self) -> Object:
        """The container in front of a decoder's server, empty without one."""
        name = llmd().containers["sidecar"]
        beside = (*mappings(self.spec.get("initContainers")), *mappings(self.spec.get("containers")))
        return next((container for container in beside if container.get("name") == name), {})


def workers(manifests: Sequence[Object]) -> Iterable[Worker]:
    """Every worker of llm-d among some objects."""
    return manifests.once(_read_workers) if isinstance(manifests, Objects) else _read_workers(manifests)


def _read_workers(manifests: Sequence[Object]) -> Iterator[Worker]:
    for body in manifests:
        read = {pod.path: pod for pod in pods(body) if pod.peers and body.get("kind") != "InferenceEndpointConfig"}
        for path, template in templates(body):
            spec, labels = mapping(template.get("spec")), mapping(mapping(template.get("metadata")).get("labels"))
            for container in mappings(spec.get("containers")):
                if pod := read.get(f"{path}: container {container.get('name')}"):
                    yield Worker(path, pod.role, labels, spec, container, parse(pod.args))


def connectors(worker: Worker) -> list[Object]:
    """The connectors of the hand-over's configuration: one, or those that stand beside each other."""
    try:
        config = mapping(json.loads(worker.arguments.value("--kv-transfer-config") or "{}"))
    except ValueError:
        return []
    inner = mappings(mapping(config.get("kv_connector_extra_config")).get("connectors"))
    return [config, *inner] if config else []
