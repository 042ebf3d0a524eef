"""The pod of a role: vLLM with its devices, probes and volumes, and on a decoder the sidecar in front of it."""

from typing import Any, Final

from dpd.backends.llmd.engine import FieldRef, Value, drain_seconds, engine, of_role
from dpd.backends.llmd.placement import affinity, node_selector, tolerations
from dpd.backends.llmd.ports import active_ports
from dpd.backends.llmd.tiers import tiers
from dpd.backends.llmd.weights import weights
from dpd.backends.site import Site
from dpd.backends.workload import HEALTH_PATH, MODELS_PATH, amounts, image_reference
from dpd.catalog.llmd import llmd
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.model import SecretKey
from dpd.environment.names import LlmdNames
from dpd.sizing.pod import PodShape, shared_memory_gib
from dpd.sizing.startup import startup_budget_seconds

PROBE_PERIOD_SECONDS: Final = 10
PORT: Final = "modelserver"


def template(endpoint: Endpoint, role_name: str, site: Site) -> dict[str, Any]:
    """The pod template of a role: ``metadata`` with its labels, and ``spec``. Raises ``ValueError`` as the engine and the weights do."""
    role, shape, ranks = of_role(endpoint, role_name, site)
    mounted, tier = weights(endpoint, site), tiers(endpoint, role_name, site)
    names = LlmdNames.of(endpoint)
    shared = {"medium": "Memory", "sizeLimit": f"{shared_memory_gib(shape.gpus) + tier.shm_gib}Gi"}
    caches: dict[str, str] = llmd().more["workers"]["caches"]
    served = active_ports(endpoint, role_name, site)
    return {
        "metadata": {"labels": names.labels(role_name), **({"annotations": served} if served else {})},
        "spec": {
            "serviceAccountName": names.service_account,
            "automountServiceAccountToken": False,
            # A Service called `vllm` would put VLLM_PORT=tcp://… into every pod (https://github.com/vllm-project/vllm/issues/34199).
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": grace_seconds(endpoint, role_name),
            "nodeSelector": node_selector(role, site),
            **({"tolerations": borne} if (borne := tolerations(role, site)) else {}),
            "affinity": affinity(endpoint, role_name, site),
            **({"initContainers": [sidecar(ranks)]} if role_name == "decode" else {}),
            "containers": [_server(endpoint, role_name, site)],
            "volumes": [
                {"name": "shm", "emptyDir": shared},
                *({"name": name, "emptyDir": {}} for name in caches),
                *mounted.volumes,
                *tier.volumes,
            ],
        },
    }


def _server(endpoint: Endpoint, role_name: str, site: Site) -> dict[str, Any]:
    role, shape, _ = of_role(endpoint, role_name, site)
    run, mounted, tier = engine(endpoint, role_name, site), weights(endpoint, site), tiers(endpoint, role_name, site)
    caches: dict[str, str] = llmd().more["workers"]["caches"]
    return {
        "name": llmd().containers["server"],
        "image": image_reference(endpoint),
        "imagePullPolicy": "IfNotPresent",
        "command": list(run.command),
        "args": list(run.args),
        "env": [variable(name, value) for name, value in run.env.items()],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in run.ports.items()],
        "resources": resources(shape),
        **probes(endpoint),
        "lifecycle": {"preStop": {"sleep": {"seconds": notice_seconds(role_name)}}},
        "securityContext": {**security(role), **({"runAsUser": 0} if tier.run_as_root else {})},
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 (where every library looks for it)
            *({"name": name, "mountPath": path} for name, path in caches.items()),
            *mounted.mounts,
            *tier.mounts,
        ],
    }


def variable(name: str, value: Value) -> dict[str, Any]:
    """An environment variable as Kubernetes reads it."""
    if isinstance(value, FieldRef):
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": value.path}}}
    if isinstance(value, SecretKey):
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}
    return {"name": name, "value": value}


def resources(shape: PodShape) -> dict[str, Any]:
    """Requests and limits are equal: devices and huge pages cannot be overcommitted, and a guaranteed pod is evicted last."""
    return {"requests": amounts(shape), "limits": amounts(shape)}


def probes(endpoint: Endpoint, port: str | int = PORT) -> dict[str, Any]:
    """Loading weights may take the whole start-up budget, and nothing kills the pod before; then half a minute without health is a fault.

    Ready is who names its model: health alone says nothing about it
    (https://github.com/kubernetes-sigs/gateway-api-inference-extension/pull/550). With an API key vLLM hides the list.
    """
    ready = HEALTH_PATH if "VLLM_API_KEY" in endpoint.environment else MODELS_PATH
    budget = -(-startup_budget_seconds(endpoint.model.shape) // PROBE_PERIOD_SECONDS)

    def probe(path: str, period_seconds: int, failures: int, timeout_seconds: int = 5) -> dict[str, Any]:
        return {
            "httpGet": {"path": path, "port": port},
            "periodSeconds": period_seconds,
            "timeoutSeconds": timeout_seconds,
            "failureThreshold": failures,
        }

    return {
        "startupProbe": probe(ready, PROBE_PERIOD_SECONDS, budget),
        "livenessProbe": probe(HEALTH_PATH, PROBE_PERIOD_SECONDS, 3),
        "readinessProbe": probe(ready, 5, 3, 2),
    }


def security(role: Role) -> dict[str, Any]:
    """EFA pins memory, for which the container needs one capability. All the others go, unless the file asks for every right there is.

    No seccomp profile of the runtime: it refuses the calls with which libfabric and hwloc place memory beside its device.
    """
    if role.privileged:
        return {"privileged": True}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}}


def notice_seconds(role_name: str) -> int:
    """Seconds for which a pod that must go still serves as before.

    The router notices first. A prefiller then waits until its KV has been fetched, which vLLM by itself does not do:
    whoever still holds a lease on it would find nobody.
    """
    facts = llmd().more["workers"]
    return int(facts["router_notice_seconds"]) + (int(facts["kv_lease_seconds"]) if role_name == "prefill" else 0)


def grace_seconds(endpoint: Endpoint, role_name: str) -> int:
    """Seconds from the decision that a pod must go until it is killed: notice, running requests, and the engine's exit."""
    return notice_seconds(role_name) + drain_seconds(endpoint, role_name) + int(llmd().more["workers"]["exit_seconds"])


def sidecar(ranks: int = 1) -> dict[str, Any]:
    """What takes a decoder's requests: it asks the prefiller that the router named first, then vLLM behind it.

    An init container that is always restarted, so it runs before the server starts and until after it has stopped. TLS is
    its default, which neither the router nor vLLM speaks here.
    """
    facts, ports = llmd(), llmd().ports
    own = facts.more["workers"]["sidecar"]
    amount = {"cpu": str(own["cpus"]), "memory": f"{own['memory_gib']}Gi"}
    return {
        "name": facts.containers["sidecar"],
        "image": facts.images["sidecar"].reference,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "args": [
            f"--port={ports['server']}",
            f"--model-server-port={ports['engine']}",
            f"--kv-connector={own['connector']}",
            "--secure-proxy=false",
            f"--prefill-max-retries={own['prefill_retries']}",
            *([f"--data-parallel-size={ranks}", "--enable-prefiller-sampling"] if ranks > 1 else []),
        ],
        "ports": [{"name": "sidecar", "containerPort": ports["server"], "protocol": "TCP"}],
        "resources": {"requests": dict(amount), "limits": dict(amount)},
        "readinessProbe": {"tcpSocket": {"port": ports["server"]}, "periodSeconds": 5, "failureThreshold": 3},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
