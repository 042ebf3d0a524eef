"""What the gate reads of Kubernetes, cut down to what it uses, and the ways to a pod."""

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, urlencode

from eks_api.http import OK, Failed, Server, Untrusted
from eks_api.reasons import Denied, Waiting

GROUP_LABEL: Final = "sagemaker.amazonaws.com/instance-group-name"
HEALTH_LABEL: Final = "sagemaker.amazonaws.com/node-health-status"
ZONE_LABEL: Final = "topology.k8s.aws/zone-id"
GPU: Final = "nvidia.com/gpu"
EFA: Final = "vpc.amazonaws.com/efa"
HUGEPAGES: Final = "hugepages-2Mi"
LOG_LINES: Final = 4000
LOG_BYTES: Final = 2 << 20
_PAGE: Final = 100
_MESSAGE: Final = 300
_MICROSECONDS: Final = len("2026-11-29T15:00:00.123456")
_CONNECT_SECONDS: Final = 2.0
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _GONE = 401, 403, 404, 410
_UNITS: Final = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 1024 * 1024, "": 1 / (1024 * 1024)}


class Missing(Waiting):
    """There is no such object."""


def mebibytes(quantity: str | int) -> float:
    """A Kubernetes quantity of memory in MiB; 0 for what is none."""
    text = str(quantity)
    digits = text.rstrip("KMGTi")
    try:
        return float(digits or 0) * _UNITS.get(text[len(digits) :], 0)
    except ValueError:
        return 0


def _count(quantity: Any) -> int:
    text = str(quantity or 0)
    return int(text) if text.isdigit() else 0


def belongs(name: str, prefix: str, words: int = 2) -> bool:
    """Whether a pod, a replica set or an object named like ``prefix`` belongs to it.

    Kubernetes appends at most two words to a Deployment's name, so ``prefill-chat-2-…`` is not a pod of ``prefill-chat-``.
    """
    return not prefix or (name.startswith(prefix) and name[len(prefix) :].count("-") < words)


@dataclass(frozen=True, slots=True)
class Node:
    """A node, and what it has left for pods at most."""

    name: str
    group: str
    zone_id: str
    obstacle: str
    gpus: int
    efa: int
    hugepages_mib: float

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> "Node":
        """Read an item of a NodeList."""
        labels = item["metadata"].get("labels") or {}
        allocatable = (item.get("status") or {}).get("allocatable") or {}
        return cls(
            item["metadata"]["name"],
            labels.get(GROUP_LABEL, ""),
            labels.get(ZONE_LABEL, ""),
            _obstacle(item),
            _count(allocatable.get(GPU)),
            _count(allocatable.get(EFA)),
            mebibytes(allocatable.get(HUGEPAGES) or 0),
        )


def _obstacle(item: Mapping[str, Any]) -> str:
    conditions = (item.get("status") or {}).get("conditions") or []
    health = (item["metadata"].get("labels") or {}).get(HEALTH_LABEL, "Schedulable")
    if not any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return "not Ready"
    if (item.get("spec") or {}).get("unschedulable"):
        return "cordoned"
    return "" if health == "Schedulable" else f"health {health}"


@dataclass(frozen=True, slots=True)
class Container:
    """A container's state. ``ended`` is how it ended last, as ``OOMKilled``; ``waiting`` why it does not run.

    ``stays``: it runs as long as the pod, as a native sidecar does and an ordinary init container does not. ``started`` in
    seconds of the epoch, 0 when it does not run.
    """

    name: str
    stays: bool
    ready: bool
    restarts: int
    waiting: str
    ended: str
    exit_code: int
    started: float


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod."""

    name: str
    namespace: str
    ip: str
    node: str
    phase: str
    containers: tuple[Container, ...]
    total: int
    gpus: int
    efa: int
    hugepages_mib: float
    unscheduled: str = field(repr=False)
    labels: Mapping[str, str] = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    """Arguments and variables by container, one a line. Values that come from elsewhere, as of a secret, are not in it."""

    @property
    def ready(self) -> int:
        """How many of the containers that stay are ready."""
        return sum(each.ready for each in self.containers if each.stays)

    def started(self, container: str) -> float:
        """When a container started, in seconds of the epoch; 0 when it does not run."""
        return next((each.started for each in self.containers if each.name == container), 0.0)

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> "Pod":
        """Read an item of a PodList."""
        spec, status = item.get("spec") or {}, item.get("status") or {}
        mine, first = spec.get("containers") or [], spec.get("initContainers") or []
        sidecars = {each.get("name", "") for each in first if each.get("restartPolicy") == "Always"}
        requests = [(each.get("resources") or {}).get("requests") or {} for each in mine]
        unscheduled = [
            each.get("message", "")
            for each in status.get("conditions") or ()
            if each.get("type") == "PodScheduled" and each.get("status") == "False"
        ]
        return cls(
            item["metadata"]["name"],
            item["metadata"]["namespace"],
            status.get("podIP", ""),
            spec.get("nodeName", ""),
            status.get("phase", ""),
            (
                *(_container(each, stays=each.get("name", "") in sidecars) for each in status.get("initContainerStatuses") or ()),
                *(_container(each, stays=True) for each in status.get("containerStatuses") or ()),
            ),
            len(mine) + len(sidecars),
            sum(_count(each.get(GPU)) for each in requests),
            sum(_count(each.get(EFA)) for each in requests),
            sum(mebibytes(each.get(HUGEPAGES) or 0) for each in requests),
            "; ".join(unscheduled)[:_MESSAGE],
            item["metadata"].get("labels") or {},
            {each.get("name", ""): _settings(each) for each in mine},
        )


def _settings(container: Mapping[str, Any]) -> str:
    said = [f"arg {each}" for each in (*(container.get("command") or ()), *(container.get("args") or ()))]
    return "\n".join([*said, *(f"env {each.get('name', '')}={each['value']}" for each in container.get("env") or () if "value" in each)])


def epoch(text: str) -> float:
    """A Kubernetes time, as ``2026-11-29T15:00:00.123456789Z``, in seconds of the epoch; 0 for what is none."""
    try:
        # Kubernetes writes nanoseconds, which Python does not read.
        return datetime.fromisoformat(f"{text.rstrip('Z')[:_MICROSECONDS]}+00:00").timestamp()
    except ValueError:
        return 0.0


def _container(status: Mapping[str, Any], *, stays: bool) -> Container:
    state, last = status.get("state") or {}, status.get("lastState") or {}
    ended = state.get("terminated") or last.get("terminated") or {}
    return Container(
        status.get("name", ""),
        stays,
        bool(status.get("ready")),
        int(status.get("restartCount") or 0),
        (state.get("waiting") or {}).get("reason", ""),
        ended.get("reason", ""),
        int(ended.get("exitCode") or 0),
        epoch(str((state.get("running") or {}).get("startedAt") or "")),
    )


@dataclass(frozen=True, slots=True)
class Address:
    """A ready address behind a Service."""

    ip: str
    pod: str
    port: int


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook that refuses objects when its Service has no endpoints."""

    owner: str
    namespace: str
    service: str


class Kubernetes:
    """A cluster's API. ``token`` makes a fresh token; ``direct`` allows to talk to pods at their own addresses.

    Raises ``Denied`` for 401 and 403, ``Missing`` for 404, ``Waiting`` for everything else that is no answer in time.
    """

    def __init__(self, server: Server, token: Callable[[], str], *, direct: bool = True) -> None:
        self._server = server
        self._make_token = token
        self._token = ""
        self._direct = direct
        self._lock = Lock()
        self._ways: dict[tuple[str, str, str], Way] = {}
        self.calls = 0

    def ready(self, deadline: float) -> None:
        """Raise unless the API answers and knows the caller."""
        self.get("/api/v1/namespaces/kube-system", deadline)

    def nodes(self, deadline: float) -> list[Node]:
        """All nodes."""
        return [Node.of(item) for item in self.pages("/api/v1/nodes", {}, deadline)]

    def pods(self, namespace: str, labels: Mapping[str, str], prefix: str, deadline: float, *, words: int = 2) -> list[Pod]:
        """Pods that have the labels and whose name begins so, without those that are being deleted."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())} if labels else {}
        return [
            Pod.of(item)
            for item in self.pages(f"/api/v1/namespaces/{quote(namespace)}/pods", query, deadline)
            if belongs(item["metadata"]["name"], prefix, words) and not item["metadata"].get("deletionTimestamp")
        ]

    def warnings(self, namespace: str, prefix: str, deadline: float, *, words: int = 2) -> list[tuple[str, str, str]]:
        """Warning events on objects whose name begins so: object, reason, message."""
        query = {"fieldSelector": "type=Warning"}
        return [
            (name, str(item.get("reason") or ""), str(item.get("message") or ""))
            for item in self.pages(f"/api/v1/namespaces/{quote(namespace)}/events", query, deadline)
            if belongs(name := str((item.get("involvedObject") or {}).get("name", "")), prefix, words)
        ]

    def addresses(self, namespace: str, service: str, deadline: float) -> list[Address]:
        """Ready addresses behind a Service."""
        query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        found: list[Address] = []
        for item in self.pages(f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace)}/endpointslices", query, deadline):
            port = next((int(each["port"]) for each in item.get("ports") or () if each.get("port")), 0)
            for endpoint in item.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready", True) is not False:
                    pod = str((endpoint.get("targetRef") or {}).get("name", ""))
                    found.extend(Address(str(ip), pod, port) for ip in endpoint.get("addresses") or ())
        return found

    def resource(self, group: str, version: str, namespace: str, plural: str, name: str, deadline: float) -> dict[str, Any]:
        """One custom object."""
        return self.get(f"/apis/{group}/{version}/namespaces/{quote(namespace)}/{plural}/{quote(name)}", deadline)

    def definition(self, name: str, deadline: float) -> dict[str, Any]:
        """One custom resource definition."""
        return self.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{quote(name)}", deadline)

    def webhooks(self, deadline: float) -> list[Webhook]:
        """Admission webhooks that are Services and must answer."""
        found = []
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            for item in self.pages(f"/apis/admissionregistration.k8s.io/v1/{kind}", {}, deadline):
                for hook in item.get("webhooks") or ():
                    service = (hook.get("clientConfig") or {}).get("service")
                    if service and hook.get("failurePolicy", "Fail") == "Fail":
                        found.append(
                            Webhook(f"webhook {hook.get('name', item['metadata']['name'])}", service["namespace"], service["name"])
                        )
        return found

    def log(self, pod: Pod, container: str, since: float, deadline: float) -> str:
        """The last lines of a container's log, not older than ``since`` (seconds of the epoch)."""
        seconds = max(1, int(time.time() - since) + 1)
        query = {"container": container, "sinceSeconds": seconds, "tailLines": LOG_LINES, "limitBytes": LOG_BYTES}
        path = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}/log?{urlencode(query)}"
        return self._ask(path, deadline).decode("utf-8", "replace")

    def beginning(self, pod: Pod, container: str, deadline: float) -> str:
        """The oldest lines that the node still has of a container's log, each behind its time."""
        query = {"container": container, "timestamps": "true", "limitBytes": LOG_BYTES}
        path = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}/log?{urlencode(query)}"
        return self._ask(path, deadline).decode("utf-8", "replace")

    def get(self, path: str, deadline: float) -> dict[str, Any]:
        """One object."""
        try:
            value = json.loads(self._ask(path, deadline))
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Waiting("The Kubernetes API answered with something else than a JSON object.")
        return value

    def pages(self, path: str, query: Mapping[str, str], deadline: float) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page."""
        following, seen = "", {""}
        while True:
            page = self.get(f"{path}?{urlencode({**query, 'limit': _PAGE, **({'continue': following} if following else {})})}", deadline)
            yield from page.get("items") or ()
            following = (page.get("metadata") or {}).get("continue") or ""
            if not following:
                return
            if following in seen:
                raise Waiting("The Kubernetes API repeats a page of a list.")
            seen.add(following)

    def way(self, pod: Pod, port: int, deadline: float) -> "Way":
        """A way to a port of a pod: its own address where that answers, else the API server's proxy of this very pod.

        A Service would pick any of its pods, and whose counters are read, or who is asked alone, must be known.
        """
        return self._way(pod.namespace, f"pods/{quote(pod.name)}:{port}", pod.ip, port, deadline)

    def service_way(self, namespace: str, service: str, service_port: int, address: Address, deadline: float) -> "Way":
        """A way to a Service: one of its addresses where that answers, else the API server's proxy of the Service."""
        return self._way(namespace, f"services/http:{quote(service)}:{service_port}", address.ip, address.port, deadline)

    def _way(self, namespace: str, place: str, ip: str, port: int, deadline: float) -> "Way":
        key = (namespace, place, ip)
        if key not in self._ways:
            if self._direct and ip and _answers(ip, port, deadline):
                host = f"[{ip}]" if ":" in ip else ip
                self._ways[key] = Way(Server(f"http://{host}:{port}"), "", dict, "pod address")
            else:
                self._ways[key] = Way(self._server, f"/api/v1/namespaces/{quote(namespace)}/{place}/proxy", self._headers, "API server")
        return self._ways[key]

    def close(self) -> None:
        """Close all connections."""
        self._server.close()
        for way in self._ways.values():
            way.server.close()

    def _headers(self) -> dict[str, str]:
        with self._lock:
            self._token = self._token or self._make_token()
            return {"Authorization": f"Bearer {self._token}"}

    def _ask(self, path: str, deadline: float) -> bytes:
        for attempt in range(2):
            try:
                with self._lock:
                    self.calls += 1
                headers = self._headers()
                reply = self._server.send("GET", path, headers={**headers, "Accept": "application/json, */*"}, deadline=deadline)
            except Untrusted as error:
                raise Waiting(f"The Kubernetes API shows a certificate that the cluster's authority did not sign ({error}).") from None
            except Failed as error:
                raise Waiting(f"The Kubernetes API at {self._server.host} did not answer ({error}).") from None
            if reply.status == OK:
                return reply.body
            if reply.status != _UNAUTHORIZED or attempt:
                break
            with self._lock:
                # It may have expired while the gate worked: one new token, then the refusal counts.
                self._token = ""
        raise _refusal(reply.status, reply.body, path)


@dataclass(frozen=True, slots=True)
class Way:
    """How to reach a port of a pod."""

    server: Server
    prefix: str
    headers: Callable[[], dict[str, str]] = field(repr=False)
    kind: str


def _answers(ip: str, port: int, deadline: float) -> bool:
    try:
        socket.create_connection((ip, port), timeout=max(0.05, min(_CONNECT_SECONDS, deadline - time.monotonic()))).close()
    except OSError:
        return False
    return True


def _refusal(status: int, body: bytes, path: str) -> Waiting:
    try:
        said = str(json.loads(body).get("message", ""))[:_MESSAGE]
    except (ValueError, AttributeError):
        said = ""
    if status == _UNAUTHORIZED:
        return Denied("The Kubernetes API does not know the caller (401): the cluster has no access entry for it, or the token is void.")
    if status == _FORBIDDEN:
        return Denied(f"The Kubernetes API lets the caller in, but not read {path.partition('?')[0]} (403). {said}".rstrip())
    if status == _NOT_FOUND:
        return Missing(f"There is no {path.partition('?')[0]} (404).")
    if status == _GONE:
        return Waiting("A list changed while it was read (410).")
    return Waiting(f"The Kubernetes API answered {status}. {said}".rstrip())
