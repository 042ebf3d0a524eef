"""Rules about the worker pods of llm-d, on the objects that reach the API server, and on the nodes that a file gives them."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from dpd.backends.arguments import parse
from dpd.backends.llmd.placement import ZONE
from dpd.backends.workload import EFA, GPU, HEALTH_PATH, MODELS_PATH
from dpd.catalog.llmd import llmd
from dpd.catalog.runtime_versions import huge_pages
from dpd.checks.llmd_worker import Worker, connectors, mappings, workers
from dpd.checks.manifests import Groups, Object, family, manifest_check, mapping, where
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.fleet import group_path, roles
from dpd.sizing.startup import ENGINE_START_SECONDS

_NIXL: Final = "https://docs.vllm.ai/en/latest/features/nixl_connector_usage/"
_COMPATIBLE: Final = "https://docs.vllm.ai/en/latest/features/nixl_connector_compatibility/"
_PROBES: Final = "https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/"
_SIDE_CHANNEL: Final = "VLLM_NIXL_SIDE_CHANNEL_HOST"
_KEEP_ALIVE: Final = "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"
_CNI: Final = "vpc-cni"
_PATIENCE_SECONDS: Final = 600
"""Kubernetes' own default of ``progressDeadlineSeconds``."""
_GRACE_SECONDS: Final = 30
"""Kubernetes' own default of ``terminationGracePeriodSeconds``."""
_ADDRESS: Final = {False: "status.podIP", True: "status.hostIP"}


@manifest_check(
    "POD001", "KV is handed over by libfabric",
    why="NIXL takes UCX unless the connector's own configuration names LIBFABRIC, and no environment variable changes that. UCX has no "
    "way to EFA's RDMA: KV crosses TCP or host memory, in seconds instead of milliseconds, and everything looks well.",
    link=_NIXL,
    seen_in=(
        "https://github.com/vllm-project/vllm/issues/41814", "https://github.com/ai-dynamo/nixl/issues/909",
        "https://github.com/ai-dynamo/dynamo/issues/4185",
    ),
)  # fmt: skip
def libfabric(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Look for NIXL among the connectors, and at its backends where the pod has EFA."""
    facts = llmd().more["workers"]["kv"]
    for worker in workers(manifests):
        path = f"{worker.path}: argument --kv-transfer-config"
        nixl = next((known for known in connectors(worker) if known.get("kv_connector") == facts["connector"]), None)
        if nixl is None:
            yield Problem(path, "names no NixlConnector, so nothing is handed over", f"name {facts['connector']}")
            continue
        backends = mapping(nixl.get("kv_connector_extra_config")).get("backends")
        if worker.requests.get(EFA) and backends != facts["backends"]:
            fix = f'put "backends": {json.dumps(facts["backends"])} into its kv_connector_extra_config'
            message = "hands KV over by UCX, which has no way to EFA's RDMA" if not backends else "names another backend than EFA's"
            yield Problem(path, message, fix, json.dumps(backends) if backends else "(UCX)", json.dumps(facts["backends"]))


@manifest_check(
    "POD002", "Peers are told where each pod is",
    why="A decoder fetches KV at the address that the prefiller gives it. Unset it is localhost and 0.0.0.0 is told as it stands, so the "
    "decoder calls itself; on the host's network the pod's address is the node's.",
    link=_NIXL,
    seen_in=(
        "https://github.com/volcano-sh/kthena/issues/503", "https://github.com/vllm-project/vllm/issues/27083",
        "https://github.com/ai-dynamo/dynamo/issues/4773", "https://github.com/ray-project/ray/pull/60817",
    ),
)  # fmt: skip
def side_channel(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Ask for a reference to the pod's own address."""
    for worker in workers(manifests):
        right = _ADDRESS[worker.spec.get("hostNetwork") is True]
        entry = worker.variable(_SIDE_CHANNEL)
        field = mapping(mapping(entry.get("valueFrom")).get("fieldRef")).get("fieldPath")
        if field != right:
            yield Problem(
                f"{worker.path}: environment variable {_SIDE_CHANNEL}",
                "is not the pod's own address" if entry else "is missing, and localhost is told to peers",
                f"take it from fieldRef {right}", field or entry.get("value"), right,
            )  # fmt: skip


@manifest_check(
    "POD003", "Both roles read each other's KV",
    why="A decoder reads the prefiller's blocks as its own. Another size, type or version of anything that shapes them is refused at the "
    "first hand-over, or read wrong. Roles whose labels differ never meet at all.",
    link=_COMPATIBLE,
    seen_in=("https://github.com/vllm-project/vllm/issues/42895", "https://github.com/LMCache/LMCache/issues/2511"),
)  # fmt: skip
def pair(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Compare what both roles of a family must have alike, and look for a role without the other."""
    first: dict[str, Worker] = {}
    present: dict[str, set[str]] = {}
    for worker in workers(manifests):
        known = family(worker.labels)
        present.setdefault(known, set()).add(worker.role)
        right, shape = _kv_shape(first.setdefault(known, worker)), _kv_shape(worker)
        for name, value in shape.items():
            if value != right[name]:
                fix = f"give both roles the same {name}"
                yield Problem(f"{worker.path}: {name}", "is not that of the other role", fix, value or "(none)", right[name] or "(none)")
    for known, found in present.items():
        for missing in sorted({"prefill", "decode"} - found):
            message = f"no {missing} pods carry the labels of the {' and '.join(found)} pods"
            yield Problem(f"workers {known}", message, "give both roles the same guide and revision", limit=missing)


def _kv_shape(worker: Worker) -> dict[str, str]:
    said = {flag: worker.arguments.value(flag) or "" for flag in ("--block-size", "--kv-cache-dtype")}
    return {"image": str(worker.server.get("image", "")), **said}


@manifest_check(
    "POD004", "What happens without KV is somebody's decision",
    why="A hand-over can fail. vLLM then fails the request, or reads the prompt again on the decoder, which nobody sees but as latency. "
    "Its default has changed between versions.",
    link=_NIXL,
    seen_in=("https://github.com/vllm-project/vllm/issues/52234",),
)  # fmt: skip
def load_failure(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Ask for the policy by its name."""
    for worker in workers(manifests):
        policy = next(iter(connectors(worker)), {}).get("kv_load_failure_policy")
        if policy not in {"fail", "recompute"}:
            path = f"{worker.path}: argument --kv-transfer-config"
            yield Problem(path, "has no kv_load_failure_policy", "write fail or recompute", policy, "fail, recompute")


@manifest_check(
    "POD005", "Requests reach vLLM",
    why="The router sends to one port of every pod. On a decoder the sidecar listens there, in plain HTTP, and passes on to vLLM. "
    "One port or protocol that differs is a refused connection for every request.",
    link="https://github.com/llm-d/llm-d-router/blob/v0.10.0/docs/disaggregation.md",
    seen_in=("https://github.com/llm-d/llm-d-benchmark/issues/878", "https://github.com/vllm-project/production-stack/issues/747"),
)  # fmt: skip
def ports(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Follow a request from the router's port to the one on which vLLM listens."""
    known = llmd().ports
    for worker in workers(manifests):
        if worker.role == "prefill":
            if worker.port() != known["server"]:
                right = known["server"]
                yield Problem(f"{worker.path}: port", "is not where the router sends", f"listen on {right}", worker.port(), str(right))
            continue
        sidecar = worker.sidecar()
        if not sidecar:
            name = llmd().containers["sidecar"]
            yield Problem(f"{worker.path}: initContainers", "has no sidecar, so nothing asks a prefiller", f"add {name}")
            continue
        path = f"{worker.path}: sidecar {sidecar.get('name')}"
        for flag, wanted in _sidecar_flags(worker).items():
            value = _flag(sidecar, flag)
            if value != wanted:
                yield Problem(f"{path}: argument {flag}", "does not lead to vLLM", f"write {flag}={wanted}", value, wanted)
        for flag, instead in llmd().more["workers"]["sidecar"]["removed"].items():
            if _flag(sidecar, flag) is not None:
                yield Problem(
                    f"{path}: argument {flag}", "is no flag of the pinned sidecar, which then does not start", f"use {instead}", flag
                )
        if sidecar.get("restartPolicy") != "Always" and sidecar in mappings(worker.spec.get("initContainers")):
            message = "is an init container that must end before vLLM starts, and never does"
            yield Problem(f"{path}: restartPolicy", message, "write restartPolicy: Always", sidecar.get("restartPolicy"), "Always")


def _sidecar_flags(worker: Worker) -> dict[str, str]:
    known = llmd().ports
    return {
        "--port": str(known["server"]),
        "--model-server-port": str(worker.port()),
        "--kv-connector": llmd().more["workers"]["sidecar"]["connector"],
        "--secure-proxy": "false",
    }


def _flag(container: Object, flag: str) -> str | None:
    """The value of a Go flag: ``--flag=value``."""
    args = [str(argument) for argument in container.get("args") or ()]
    return next((value for head, _, value in (argument.partition("=") for argument in args) if head == flag), None)


@manifest_check(
    "POD006", "The ranks of a pod have shared memory",
    why="A container has 64 MiB at /dev/shm. NCCL and vLLM's queues want more for every rank, and end with a bus error or a system error.",
    link="https://docs.vllm.ai/en/latest/deployment/k8s/",
    seen_in=(
        "https://github.com/vllm-project/production-stack/issues/276", "https://github.com/vllm-project/vllm/issues/1710",
        "https://github.com/llm-d/llm-d/issues/352",
    ),
)  # fmt: skip
def shared_memory(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Look for a volume in memory at /dev/shm."""
    for worker in workers(manifests):
        volumes = {volume.get("name"): mapping(volume.get("emptyDir")) for volume in mappings(worker.spec.get("volumes"))}
        mounted = [volumes.get(mount.get("name"), {}) for mount in mappings(worker.server.get("volumeMounts")) if _is_shm(mount)]
        if not any(volume.get("medium") == "Memory" for volume in mounted):
            alone = str(worker.requests.get(GPU)) == "1"
            message = "is no volume in memory, so the container has 64 MiB"
            yield Problem(
                f"{worker.path}: /dev/shm", message, "mount an emptyDir with medium: Memory", limit="medium: Memory",
                level=Level.WARNING if alone else None,
            )  # fmt: skip


def _is_shm(mount: Object) -> bool:
    return mount.get("mountPath") == "/dev/shm"  # noqa: S108 (where every library looks for it)


@manifest_check(
    "POD007", "Services do not set variables of the server",
    why="Kubernetes puts the address of every Service of the namespace into each pod. One that is called vllm sets VLLM_PORT to a URL, and "
    "vLLM dies of it; a thousand of them are more than a process may be given.",
    link="https://docs.vllm.ai/en/latest/deployment/k8s/",
    seen_in=("https://github.com/vllm-project/vllm/issues/34199",),
)  # fmt: skip
def service_links(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Ask for ``enableServiceLinks: false``."""
    for worker in workers(manifests):
        said = worker.spec.get("enableServiceLinks")
        if said is not False:
            yield Problem(f"{worker.path}: enableServiceLinks", "is on", "write enableServiceLinks: false", said, "false")


@manifest_check(
    "POD008", "Probes wait for the weights, and ask whether the model is there",
    why="A liveness probe without a startup probe kills the server while it loads, again and again. Health alone is fine before the "
    "weights can be used, so requests come too early.",
    link=_PROBES,
    seen_in=(
        "https://github.com/kserve/kserve/issues/5062", "https://github.com/llm-d/llm-d/pull/330",
        "https://github.com/kubernetes-sigs/gateway-api-inference-extension/pull/550",
    ),
)  # fmt: skip
def probes(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Compare the three probes of the server with what it needs."""
    for worker in workers(manifests):
        startup, ready = worker.probe("startup"), worker.probe("readiness")
        budget = int(startup.get("periodSeconds", 10)) * int(startup.get("failureThreshold", 3))
        if not startup and worker.probe("liveness"):
            yield Problem(f"{worker.path}: livenessProbe", "kills the server while it loads its weights", "add a startupProbe")
        elif startup and budget < ENGINE_START_SECONDS:
            message = "is over before an engine has started, its weights left aside"
            yield Problem(
                f"{worker.path}: startupProbe", message, "raise failureThreshold", f"{budget} s", f"{ENGINE_START_SECONDS} s or more"
            )
        path = mapping(ready.get("httpGet")).get("path")
        right = HEALTH_PATH if worker.variable("VLLM_API_KEY") else MODELS_PATH
        if not worker.multi_rank and path != right:
            message = "does not ask whether the model is there" if ready else "is missing, so a pod is ready when its container starts"
            yield Problem(f"{worker.path}: readinessProbe", message, f"ask for {right}", path, right)


@manifest_check(
    "POD009", "An update ends although all GPUs are taken",
    why="By default Kubernetes starts a quarter more pods before it stops old ones. On a full group they wait for GPUs that are only free "
    "afterwards. And it calls an update failed after ten minutes, in which large weights are not loaded.",
    link="https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#rolling-update-deployment",
    seen_in=("https://github.com/defilantech/LLMKube/issues/192", "https://github.com/ai-runway/airunway/issues/400"),
)  # fmt: skip
def rollout(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Ask Deployments for a surge that somebody chose, and for patience."""
    patient = {where(body): mapping(body.get("spec")) for body in manifests if body.get("kind") == "Deployment"}
    for worker in workers(manifests):
        if (spec := patient.get(worker.path)) is not None:
            strategy = mapping(spec.get("strategy"))
            if strategy.get("type") != "Recreate" and not isinstance(mapping(strategy.get("rollingUpdate")).get("maxSurge"), int):
                yield Problem(f"{worker.path}: spec.strategy", "starts extra pods that nobody has counted", "write maxSurge: 0", limit="0")
            startup = worker.probe("startup")
            budget = int(startup.get("periodSeconds", 10)) * int(startup.get("failureThreshold", 3))
            patience = int(spec.get("progressDeadlineSeconds", _PATIENCE_SECONDS))
            if patience < budget:
                message = f"is over before a pod has started, which may take {budget} seconds"
                yield Problem(
                    f"{worker.path}: spec.progressDeadlineSeconds", message, f"write {budget} or more", patience, f"{budget} or more"
                )


@manifest_check(
    "POD010", "Huge pages are asked for by the pod and used by libfabric, or neither",
    why="Pages that a pod reserves and libfabric does not use are memory that nobody has. Kubernetes refuses a pod whose request of them "
    "is not its limit.",
    link="https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/",
    seen_in=(
        "https://github.com/aws/karpenter-provider-aws/issues/6296", "https://github.com/awslabs/awsome-distributed-ai/pull/1240",
        "https://github.com/awslabs/awsome-distributed-ai/pull/1256",
    ),
)  # fmt: skip
def pages(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Compare request, limit and variable. A variable without a request is said of every pod, llm-d's or not."""
    variable, resource = str(huge_pages()["variable"]), str(huge_pages()["resource"])
    for worker in workers(manifests):
        amounts = mapping(worker.server.get("resources"))
        asked, limit = (mapping(amounts.get(kind)).get(resource) for kind in ("requests", "limits"))
        path = f"{worker.path}.resources"
        if asked != limit:
            yield Problem(path, f"asks for another amount of {resource} than its limit", "write the same twice", asked, str(limit))
        elif asked and not worker.variable(variable):
            yield Problem(path, f"reserves {resource} that libfabric is not told to use", f'set {variable}: "1"', asked)


@manifest_check(
    "POD011", "Servers keep connections longer than the sidecar does",
    why="The sidecar keeps idle connections for 90 seconds and vLLM closes them after 5. A request on one that is just closing is reset, "
    "at random.",
    link="https://github.com/llm-d/llm-d/issues/1564",
    seen_in=("https://github.com/llm-d/llm-d/issues/1564", "https://github.com/llm-d/llm-d/issues/1686"),
)  # fmt: skip
def keep_alive(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Compare with the sidecar's own time."""
    least = int(llmd().more["workers"]["sidecar_idle_seconds"])
    for worker in workers(manifests):
        value = str(worker.variable(_KEEP_ALIVE).get("value", ""))
        if not value.isdecimal() or int(value) <= least:
            path = f"{worker.path}: environment variable {_KEEP_ALIVE}"
            yield Problem(path, "is not longer than the sidecar's", 'write "120"', value or "(5)", f"more than {least}")


@manifest_check(
    "POD012", "A pod that must go finishes what it has",
    why="Without a pause the router sends requests to a server that is gone, and KV that waits on a prefiller is lost. A grace period that "
    "is shorter than pause and drain together ends in a kill.",
    link="https://llm-d.ai/docs/dev/operations/lifecycle/graceful-shutdown",
)  # fmt: skip
def shutdown(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Add up the pause before the signal and the time to drain."""
    for worker in workers(manifests):
        pause = mapping(mapping(mapping(worker.server.get("lifecycle")).get("preStop")).get("sleep")).get("seconds")
        drain = worker.arguments.value("--shutdown-timeout") or ""
        if not pause or not drain.isdecimal():
            missing = "lifecycle.preStop.sleep" if not pause else "--shutdown-timeout"
            yield Problem(f"{worker.path}: {missing}", "is missing, so running requests are cut", f"set {missing}")
            continue
        grace, need = int(worker.spec.get("terminationGracePeriodSeconds", _GRACE_SECONDS)), int(pause) + int(drain)
        if grace <= need:
            message = f"{pause} s of pause and {drain} s of drain are {need} s"
            yield Problem(f"{worker.path}: terminationGracePeriodSeconds", message, f"write more than {need}", grace, f"more than {need}")


@manifest_check(
    "POD013", "All workers are in one zone",
    why="EFA's packets do not leave a subnet. A decoder in another zone than its prefiller reads KV over TCP, or never.",
    link="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
    seen_in=("https://github.com/aws-samples/amazon-eks-machine-learning-with-terraform-and-kubeflow/issues/77",),
)  # fmt: skip
def zone(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Look for a required term over zones that both roles match."""
    for worker in workers(manifests):
        terms = mappings(
            mapping(mapping(worker.spec.get("affinity")).get("podAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution")
        )
        if not any(term.get("topologyKey") == ZONE and _admits_both(term, worker.labels) for term in terms):
            message = "does not bind prefill and decode pods to one zone"
            yield Problem(f"{worker.path}: affinity.podAffinity", message, f"require both roles of the guide in one {ZONE}", limit=ZONE)


def _admits_both(term: Object, labels: Object) -> bool:
    """Whether a selector matches pods of both roles with these labels, as far as it is one of equal and listed values."""
    selector, role = mapping(term.get("labelSelector")), llmd().labels["role"]
    wanted = {key: {value} for key, value in mapping(selector.get("matchLabels")).items()}
    wanted |= {
        rule["key"]: set(rule.get("values", ())) for rule in mappings(selector.get("matchExpressions")) if rule.get("operator") == "In"
    }
    others = all(labels.get(key) in values for key, values in wanted.items() if key != role)
    return others and wanted.get(role, {"prefill", "decode"}) >= {"prefill", "decode"}


@manifest_check(
    "POD014", "Servers have the rights that EFA needs",
    why="EFA's memory must not be swapped. A container that may not lock memory fails when it registers its KV cache, after the weights "
    "are loaded.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
)  # fmt: skip
def rights(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Look for IPC_LOCK, or for all rights."""
    for worker in workers(manifests):
        context = mapping(worker.server.get("securityContext"))
        added = mapping(context.get("capabilities")).get("add") or ()
        if worker.requests.get(EFA) and not context.get("privileged") and "IPC_LOCK" not in added:
            path = f"{worker.path}: securityContext.capabilities.add"
            yield Problem(path, "lacks the right to lock memory", "add IPC_LOCK", ", ".join(added), "IPC_LOCK")


@manifest_check(
    "POD015", "A set has no field that the pinned version does not know",
    why="LeaderWorkerSet 0.10 has no groupIdentity. The API server drops it without an error, and pods get other identities than planned.",
    link="https://github.com/kubernetes-sigs/lws/tree/v0.10.0/config/crd/bases",
)  # fmt: skip
def known_fields(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Refuse the field that newer guides set."""
    for body in manifests:
        for role in mappings(mapping(body.get("spec")).get("roles")) if body.get("kind") == "DisaggregatedSet" else ():
            said = mapping(role.get("spec")).get("groupIdentity")
            if said is not None:
                yield Problem(f"{where(body)}: role {role.get('name')}: groupIdentity", "is dropped", "remove it", said)


@check(
    "POD016", "GPUs have a way of their own to EFA", level=Level.WARNING,
    why="On these types several GPUs and the EFA devices hang on one PCIe bus. KV, and with tensor parallelism every layer, crosses it; "
    "measured rates of p5 and p6 do not apply. It works, for small models and for trying out.",
    link="https://aws.amazon.com/blogs/machine-learning/disaggregated-prefill-and-decode-for-llm-inference-on-sagemaker-hyperpod/",
)  # fmt: skip
def pcie(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of groups of llm-d roles whose GPUs share PCIe."""
    used = {placed.role.group: placed for placed in roles(environment) if placed.endpoint.backend == "llm-d"}
    for name, placed in used.items():
        if placed.instance and placed.instance.gpus_share_pcie and placed.instance.efa:
            devices = f"{placed.instance.efa} EFA device{'s' if placed.instance.efa > 1 else ''}"
            message = f"its {placed.instance.gpus} GPUs and {devices} share PCIe"
            yield Problem(
                f"{group_path(name)}.instance_type", message, "use p5 or p6, or measure with the health gate and acknowledge this",
                placed.instance.type, "a type with NVLink and EFA beside each GPU",
            )  # fmt: skip


@check(
    "POD017", "Extra arguments do not repeat what llm-d's workers get anyway",
    why="The last one of two equal flags counts. One that is written again parts server and pod: a longer drain than its grace period, a "
    "revision of other weights, events that the router does not listen to.",
    link="https://docs.vllm.ai/en/latest/cli/serve/",
)  # fmt: skip
def repeated(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse the flags that this backend derives beyond those of every backend."""
    own: dict[str, str] = {f"--{name}": said for name, said in llmd().more["workers"]["derived_flags"].items()}
    for index, endpoint in enumerate(environment.endpoints):
        for name, role in endpoint.roles if endpoint.backend == "llm-d" else ():
            for argument in parse(role.extra_args).known:
                if argument.base in own:
                    path = f"endpoints[{index}].{name}.extra_args[{argument.index}]"
                    message = f"repeats {argument.base}, which follows from {own[argument.base]}"
                    yield Problem(path, message, "remove it", argument.flag)


@check(
    "POD018", "The cluster enforces network policies", level=Level.WARNING,
    why="The API server takes network policies whether or not anything enforces them, and the VPC CNI does not by itself. Then every pod "
    "of the cluster may send prompts to the workers past the router, and read the KV of others through the side channel.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/cni-network-policy-configure.html",
)  # fmt: skip
def enforced(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask whoever owns the CNI of an llm-d cluster: an adopted cluster, or one whose file leaves the add-on out."""
    if not any(endpoint.backend == "llm-d" for endpoint in environment.endpoints):
        return
    change = environment.cluster.add_ons.get(_CNI)
    if environment.cluster.existing:
        path, why = "cluster.existing", "its VPC CNI is not this tool's"
    elif change is not None and not change.install:
        path, why = f"cluster.add_ons.{_CNI}.install", "the VPC CNI is not this tool's"
    else:
        return
    fix = "set enableNetworkPolicy: true in the configuration of the vpc-cni add-on, see that it holds, and acknowledge this"
    yield Problem(path, f"{why}, so nobody knows whether it enforces the policies of the workers", fix)
