"""A whole environment on loopback: AWS, a Kubernetes API over HTTPS, and the pods of an endpoint over HTTP."""

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen

from health_gate.clients import clients
from health_gate.report import Report
from health_gate.result import Result
from health_gate.run import run
from health_gate.spec import Spec

from tests.lambdas.fake_cluster import CERTIFICATE, authority
from tests.lambdas.health_gate import engine as serving
from tests.lambdas.health_gate.aws_calls import EKS_ARN, REGION, SELF, Calls, Things
from tests.lambdas.health_gate.engine import DECODE_IP, PREFILL_IP, ROUTER_IP, Engine

NAMESPACE, SYSTEM = "llm", "hyperpod-inference-system"
STARTED: Final = "2026-11-29T10:00:00Z"
SERVICE: Final = "chat-llm-routing-service"
CRD: Final = "inferenceendpointconfigs.inference.sagemaker.aws.amazon.com"
GROUPS: Final = {"system": ("ml.c5.4xlarge", 2), "prefill": ("ml.p5.48xlarge", 1), "decode": ("ml.p5.48xlarge", 1)}


def kube_node(
    group: str, number: int = 0, *, gpus: int = 8, efa: int = 32, ready: bool = True, zone: str = "use2-az1", **more: Any
) -> dict[str, Any]:
    labels = {"sagemaker.amazonaws.com/instance-group-name": group, "topology.k8s.aws/zone-id": zone, **more.pop("labels", {})}
    allocatable = {} if group == "system" else {"nvidia.com/gpu": str(gpus), "vpc.amazonaws.com/efa": str(efa), "hugepages-2Mi": "5120Mi"}
    return {
        "metadata": {"name": f"{group}-{number}", "labels": labels},
        "spec": more,
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}], "allocatable": allocatable},
    }


def pod(role: str, ip: str, *, namespace: str = NAMESPACE, containers: int = 3, efa: int = 32, name: str = "") -> dict[str, Any]:
    main = {"router": "router-container"}.get(role, f"{role}-chat")
    names = [main, *(f"sidecar-{number}" for number in range(containers - 1))]
    requests = {} if role == "router" else {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": str(efa), "hugepages-2Mi": "5120Mi"}
    prefix = "chat-llm-router-" if role == "router" else f"{role}-chat-"
    return {
        "metadata": {"name": name or f"{prefix}abc", "namespace": namespace, "labels": {"dpd-role": role}},
        "spec": {
            "nodeName": f"{role}-0",
            "containers": [{"name": each, "resources": {"requests": requests if each == main else {}}} for each in names],
        },
        "status": {
            "podIP": ip,
            "phase": "Running",
            "containerStatuses": [
                {"name": each, "ready": True, "restartCount": 0, "state": {"running": {"startedAt": STARTED}}, "lastState": {}}
                for each in names
            ],
        },
    }


def endpoint_slice(namespace: str, service: str, ip: str, pod_name: str, port: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{service}-1", "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"port": port}],
        "endpoints": [{"addresses": [ip], "conditions": {"ready": True}, "targetRef": {"name": pod_name}}] if ip else [],
    }


@dataclass
class World:
    """Everything that a test can break before it runs the gate."""

    aws: Things = field(default_factory=lambda: Things(GROUPS))
    engine: Engine = field(default_factory=Engine)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    slices: list[dict[str, Any]] = field(default_factory=list)
    webhooks: list[dict[str, Any]] = field(default_factory=list)
    custom: dict[str, Any] | None = None
    definition: dict[str, Any] | None = None
    deployments: dict[str, dict[str, Any]] = field(default_factory=dict)
    override: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    stalled: set[str] = field(default_factory=set)
    refuse_tokens: int = 0
    page: int = 100
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    endpoint_changes: dict[str, Any] = field(default_factory=dict)
    engines: dict[str, Engine] = field(default_factory=dict)
    """Engines of more endpoints, by the third part of their addresses."""
    first_line: str = "2026-11-29T10:00:05.123456789Z"
    """When the oldest line that a node still has was written."""
    closing: list[Callable[[], None]] = field(default_factory=list)
    """What to end with the world."""
    ports: dict[str, int] = field(default_factory=dict)
    """Where pods listen that are no engine, by address."""
    pods_port: int = 0
    api: str = ""

    def __post_init__(self) -> None:
        self.calls = Calls(self.aws.answers)
        self.nodes = [kube_node("system", 0), kube_node("system", 1), kube_node("prefill"), kube_node("decode")]
        self.pods = [pod("prefill", PREFILL_IP), pod("decode", DECODE_IP), pod("router", ROUTER_IP, namespace=SYSTEM, containers=2)]
        self.custom = {
            "metadata": {"generation": 2},
            "spec": {"pdSpec": {"prefillSpec": {"replicas": 1}}},
            "status": {
                "observedGeneration": 2,
                "state": "DeploymentComplete",
                "conditions": [{"message": "DPD prefill and decode deployments are ready"}],
            },
        }
        properties = {"pdSpec": {"properties": {"prefillSpec": {}, "decodingSpec": {}}}, "tags": {"items": {"properties": {"name": {}}}}}
        schema = {"properties": {"spec": {"properties": properties}}}
        self.definition = {"spec": {"versions": [{"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}]}}
        self.webhooks = [{"name": "m", "clientConfig": {"service": {"namespace": SYSTEM, "name": "hooks"}}}]
        self.engine.logs[PREFILL_IP].append("config: {'pd_role': 'sender', 'x': 1}")
        self.engine.logs[DECODE_IP].append("config: {'pd_role': 'receiver', 'x': 1}")

    def document(self) -> dict[str, Any]:
        """The spec as JSON values."""
        role = {"port": self.pods_port, "containers": 3, "replicas": 1, "gpus": 8, "efa": 32, "hugepages_mib": 5120}
        endpoint = {
            "name": "chat",
            "namespace": NAMESPACE,
            "path": "v1/chat/completions",
            "served_name": "llama",
            "threshold_tokens": 4096,
            "max_model_len": 16384,
            "kv_floor_gb_per_second": 1.0,
            "objectives": {"ttft_ms": 5000, "itl_ms": 1000},
            "sagemaker_endpoint": "chat",
            "pods": {
                "prefill": {
                    **role,
                    "namespace": NAMESPACE,
                    "name_prefix": "prefill-chat-",
                    "container": "prefill-chat",
                    "labels": {"dpd-role": "prefill"},
                    "role_log": "'pd_role': 'sender'",
                    "role_settings": "kv_role=kv_producer",
                    "role_label": "dpd-role=prefill",
                },
                "decode": {
                    **role,
                    "namespace": NAMESPACE,
                    "name_prefix": "decode-chat-",
                    "container": "decode-chat",
                    "labels": {"dpd-role": "decode"},
                    "role_log": "'pd_role': 'receiver'",
                    "role_settings": "kv_role=kv_consumer",
                    "role_label": "dpd-role=decode",
                },
                "router": {
                    "namespace": SYSTEM,
                    "name_prefix": "chat-llm-router-",
                    "container": "router-container",
                    "replicas": 1,
                    "containers": 2,
                    "port": self.pods_port,
                    "service": SERVICE,
                    "service_port": 443,
                },
            },
            "resources": [
                {
                    "group": "inference.sagemaker.aws.amazon.com",
                    "version": "v1",
                    "plural": "inferenceendpointconfigs",
                    "name": "chat",
                    "state": "status.state",
                    "ready": "DeploymentComplete",
                    "failed": ["DeploymentFailed"],
                    "message": "status.conditions.0.message",
                    "must_have": ["spec.pdSpec.prefillSpec"],
                }
            ],
            "logs": {
                "decision": r"Conditional routing: estimated_tokens=(?P<estimate>\d+), threshold=\d+, disaggregate=(?P<split>True|False)",
                "retrieved": r"Retrieved (?P<got>\d+) out of (?P<needed>\d+) required tokens.*throughput: (?P<throughput>[\d.]+) GB/s",
            },
            **self.endpoint_changes,
        }
        gpu = {"instance_type": "ml.p5.48xlarge", "count": 1, "gpus": 8, "efa": 32, "hugepages_mib": 5120}
        return {
            "environment": "dpd-dev",
            "region": REGION,
            "hyperpod_cluster": "dpd-dev",
            "eks_cluster": "dpd-dev",
            "eks_cluster_arn": EKS_ARN,
            "zone_id": "use2-az1",
            "groups": {"system": {"instance_type": "ml.c5.4xlarge", "count": 2}, "prefill": gpu, "decode": gpu},
            "security_groups": [SELF],
            "lustre": {"file_system_id": "fs-0123456789abcdef0"},
            "weights": [{"bucket": "models", "prefix": "llama"}],
            "add_ons": [{"name": "inference", "floor": "v1.4.0-eksbuild.1"}],
            "roles": [
                {
                    "name": "SageMakerHyperPodInference-dpd-dev",
                    "prefix": "SageMakerHyperPodInference",
                    "service": "sagemaker.amazonaws.com",
                    "subject": "system:serviceaccount:hyperpod-inference-system:controller",
                }
            ],
            "definitions": [
                {"name": CRD, "version": "v1", "fields": ["spec.pdSpec.prefillSpec", "spec.pdSpec.decodingSpec", "spec.tags[].name"]}
            ],
            "webhook_namespaces": [SYSTEM],
            "endpoints": [endpoint],
            "reports": {"bucket": "reports", "key_arn": "arn:aws:kms:k", "topic_arn": f"arn:aws:sns:{REGION}:111122223333:t"},
            "deadlines": {"settle_seconds": 0.2},
            **self.changes,
        }

    def spec(self) -> Spec:
        return Spec.parse(json.dumps(self.document()))

    def run(self, *, direct: bool = True, keep_going: bool = False, seconds: float = 60) -> Report:
        return run(self.spec(), clients(self.spec(), direct=direct, session=self.calls.session), keep_going=keep_going, seconds=seconds)

    def result(self, id: str, **more: Any) -> Result:
        """Run the gate and take one check's result."""
        (found,) = (result for result in self.run(**more).results if result.id == id)
        return found

    def container(self, role: str, **status: Any) -> None:
        """Change the state of a role's main container."""
        index = ["prefill", "decode", "router"].index(role)
        self.pods[index]["status"]["containerStatuses"][0].update(status)

    def answer(self, path: str) -> tuple[int, bytes]:
        """What the Kubernetes API says to a GET."""
        address = urlsplit(path)
        for prefix, given in self.override.items():
            if address.path.startswith(prefix):
                return given
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        parts = [unquote(part) for part in address.path.strip("/").split("/")]
        if address.path.endswith("/log"):
            engine, ip = self.at(self._ip(parts[-2]))
            stamp = f"{self.first_line} " if query.get("timestamps") else ""
            return 200, "\n".join(stamp + line for line in ["INFO begin", *engine.logs.get(ip, [])]).encode()
        found = self._object(parts)
        if isinstance(found, list):
            start = int(query.get("continue", 0))
            end = start + self.page
            wanted = dict(pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if pair)
            items = [item for item in found if wanted.items() <= (item["metadata"].get("labels") or {}).items()]
            return 200, json.dumps({"items": items[start:end], "metadata": {"continue": str(end) if end < len(items) else ""}}).encode()
        return (404, b"{}") if found is None else (200, json.dumps(found).encode())

    def _object(self, parts: list[str]) -> Any:
        kind = parts[-1]
        if kind in {"kube-system", "nodes"}:
            return self.nodes if kind == "nodes" else {"metadata": {}}
        if kind in {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}:
            return [{"metadata": {"name": "w"}, "webhooks": self.webhooks}] if kind.startswith("mutating") else []
        if "customresourcedefinitions" in parts:
            return self.definition
        if "inferenceendpointconfigs" in parts:
            return self.custom
        if "deployments" in parts or "leaderworkersets" in parts:
            return self.deployments.get(kind)
        namespace = parts[parts.index("namespaces") + 1]
        listed = {"pods": self.pods, "endpointslices": self.slices, "events": self.events}[kind]
        return [item for item in listed if item["metadata"].get("namespace", namespace) == namespace]

    def _ip(self, name: str) -> str:
        return next((str(each["status"]["podIP"]) for each in self.pods if each["metadata"]["name"] == name), "")

    def proxied(self, path: str) -> str:
        """Address of the pod that a request through the API server is for; of a Service, that of its first one."""
        kind, name = path.partition("/proxy")[0].rsplit("/", 2)[1:]
        if kind == "pods":
            return self._ip(name.partition(":")[0])
        _, service, port = name.split(":")
        slices = [each for each in self.slices if each["metadata"]["labels"]["kubernetes.io/service-name"] == service]
        assert port == "443"
        return str(slices[0]["endpoints"][0]["addresses"][0])

    def metrics(self, ip: str, path: str) -> str | None:
        """What a pod says to a GET."""
        if ip in self.ports:
            with urlopen(f"http://{ip}:{self.ports[ip]}{path}", timeout=5) as reply:
                return str(reply.read(), "utf-8")
        engine, known = self.at(ip)
        return engine.metrics(known)

    def at(self, ip: str) -> tuple[Engine, str]:
        """The engine that listens at an address, 127.0.<endpoint>.<role>, and the address as that engine knows it."""
        parts = ip.split(".")
        return self.engines.get(parts[2] if ip else "0", self.engine), ".".join([*parts[:2], "0", *parts[3:]]) if ip else ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:
        """Clients that hang up are part of the tests."""


def _api(world: World) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            world.requests.append((self.path, dict(self.headers)))
            if any(part in self.path for part in world.stalled):
                world.engine.stop.wait(30)
            if world.refuse_tokens:
                world.refuse_tokens -= 1
                serving.answer(self, 401, b"{}")
            elif "/proxy/" in self.path:
                text = world.metrics(world.proxied(self.path), self.path.partition("/proxy")[2])
                serving.answer(self, 404 if text is None else 200, (text or "").encode(), "text/plain")
            else:
                serving.answer(self, *world.answer(self.path))

        def do_POST(self) -> None:
            world.requests.append((self.path, dict(self.headers)))
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            serving.converse(self, *world.at(world.proxied(self.path)), body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    return Handler


@contextmanager
def running() -> Iterator[World]:
    """A healthy world, until the block ends."""
    world = World()
    pods = _Server(("0.0.0.0", 0), serving.handler(world.at))
    api = _Server(("127.0.0.1", 0), _api(world))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    api.socket = context.wrap_socket(api.socket, server_side=True, do_handshake_on_connect=False)
    world.pods_port = pods.server_port
    world.api = f"https://localhost:{api.server_port}"
    world.aws.api = (world.api, authority())
    world.slices = [
        endpoint_slice(SYSTEM, SERVICE, ROUTER_IP, "chat-llm-router-abc", world.pods_port),
        endpoint_slice(SYSTEM, "hooks", "10.0.0.9", "controller", 9443),
    ]
    for server in (pods, api):
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield world
    finally:
        world.engine.stop.set()
        for close in world.closing:
            close()
        for server in (pods, api):
            server.shutdown()
            server.server_close()
