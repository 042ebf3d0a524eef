"""Rules about rendered manifests: what reaches the API server, wherever it came from.

They read plain objects, so they hold for every backend and for the raw escape. ``run_manifests`` is called with all
objects of an environment when it is rendered or synthesized. As rules over an environment, in ``dpd check``, they
report what a raw escape adds to what the file's own fields already say.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dpd.backends.arguments import parse
from dpd.backends.site import Site
from dpd.backends.workload import EFA, GPU, HEALTH_PATH
from dpd.catalog.instances import Instance, find
from dpd.catalog.llmd import llmd
from dpd.catalog.runtime_versions import huge_pages
from dpd.checks import registry
from dpd.checks.registry import Context, Problem
from dpd.checks.variables import all_faults
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.environment.names import INSTANCE_GROUP_LABEL, INSTANCE_TYPE_LABEL, NODE_HEALTH_TAINT
from dpd.finding import HIDDEN, Finding, Level, in_order, looks_like_secret, names_a_secret
from dpd.sizing.pod import efa_share

_LINK: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_NAMES: Final = "https://kubernetes.io/docs/concepts/overview/working-with-objects/names/"

Object = Mapping[str, Any]
Groups = Mapping[str, Instance]
ManifestRule = Callable[[Sequence[Object], Groups], Iterable[Problem]]


@dataclass(frozen=True, slots=True)
class Pod:
    """What one pod template says, whichever kind of object holds it. ``path`` starts with the object's kind and name."""

    path: str
    role: str
    args: tuple[str, ...]
    environment: tuple[Object, ...]
    requests: Mapping[str, Any]
    node_selector: Mapping[str, str]
    tolerations: tuple[Object, ...]
    port: int | None = None
    peers: str = field(default="")
    """Pods with the same non-empty value hand KV to each other."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables with a literal value."""
        return {str(entry.get("name")): str(entry["value"]) for entry in self.environment if isinstance(entry.get("value"), str)}

    def amount(self, resource: str) -> int:
        """A requested number of devices; 0 for none."""
        try:
            return int(self.requests.get(resource, 0))
        except (TypeError, ValueError):
            return 0

    def instance(self, groups: Groups) -> Instance | None:
        """Facts of the nodes that the pod selects, by group or by type."""
        group = groups.get(self.node_selector.get(INSTANCE_GROUP_LABEL, ""))
        return group or find(self.node_selector.get(INSTANCE_TYPE_LABEL, ""))


class Objects(tuple[Object, ...]):
    """All objects that rules look at. What several rules want to know of them is found out once."""

    def once(self, reader: Callable[[Sequence[Object]], Iterable[Any]]) -> tuple[Any, ...]:
        """What a reader finds in them."""
        known: dict[Any, tuple[Any, ...]] = self.__dict__
        if reader not in known:
            known[reader] = tuple(reader(self))
        return known[reader]


def where(body: Object) -> str:
    """How a finding names an object: ``Kind namespace/name``."""
    metadata = mapping(body.get("metadata"))
    place = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    return f"{body.get('kind', 'object')} {place or '(no name)'}"


def mapping(value: Any) -> Object:
    """A value as a mapping; empty when it is something else, since an object may hold anything."""
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def templates(body: Object) -> Iterator[tuple[str, Object]]:
    """Every pod template of an object with its place: of a Pod itself, a workload, a job, or each role of a set."""
    spec, path = mapping(body.get("spec")), where(body)
    if body.get("kind") == "Pod":
        yield path, body
    elif body.get("kind") == "DisaggregatedSet":
        for role in map(mapping, _list(spec.get("roles"))):
            yield from _group_templates(f"{path}: role {role.get('name')}", mapping(role.get("spec")))
    elif "leaderWorkerTemplate" in spec:
        yield from _group_templates(path, spec)
    else:
        yield path, mapping(mapping(mapping(spec.get("jobTemplate")).get("spec")).get("template") or spec.get("template"))


def _group_templates(path: str, spec: Object) -> Iterator[tuple[str, Object]]:
    group = mapping(spec.get("leaderWorkerTemplate"))
    for name in ("leaderTemplate", "workerTemplate"):
        if name in group:
            yield path, mapping(group[name])


def pods(body: Object) -> Iterator[Pod]:
    """Every pod that an object makes: the two roles of an InferenceEndpointConfig, or the containers of its pod templates."""
    if body.get("kind") == "InferenceEndpointConfig":
        yield from _operator_pods(where(body), mapping(body.get("spec")))
        return
    for path, template in templates(body):
        labels, pod = mapping(mapping(template.get("metadata")).get("labels")), mapping(template.get("spec"))
        for container in map(mapping, _list(pod.get("containers"))):
            resources = mapping(container.get("resources"))
            serves = container.get("name") == llmd().containers["server"]
            yield Pod(
                path=f"{path}: container {container.get('name')}",
                role=str(labels.get(llmd().labels["role"], "")) if serves else "",
                args=_arguments(container),
                environment=tuple(map(mapping, _list(container.get("env")))),
                requests={**mapping(resources.get("limits")), **mapping(resources.get("requests"))},
                node_selector=mapping(pod.get("nodeSelector")),
                tolerations=tuple(map(mapping, _list(pod.get("tolerations")))),
                port=next((port.get("containerPort") for port in map(mapping, _list(container.get("ports")))), None),
                peers=family(labels) if serves else "",
            )


def family(labels: Object) -> str:
    """What the labels of an llm-d worker share with those of the pods that it hands KV to or takes it from; empty for other pods."""
    known = llmd().labels
    return "/".join(str(labels.get(known[name])) for name in ("guide", "revision")) if known["role"] in labels else ""


def _arguments(container: Object) -> tuple[str, ...]:
    """Arguments of a container; of one that a shell starts, those behind `vllm serve` in its script."""
    args = tuple(map(str, _list(container.get("args"))))
    command = _list(container.get("command"))
    if command[-1:] == ["-c"] and args:
        line = next((line for line in args[0].splitlines() if _SERVE in line), "")
        return tuple(shlex.split(line.partition(_SERVE)[2]))
    return args


def _operator_pods(path: str, spec: Mapping[str, Any]) -> Iterator[Pod]:
    worker = mapping(spec.get("worker"))
    for role, key in (("prefill", "prefillSpec"), ("decode", "decodingSpec")):
        block = mapping(mapping(spec.get("pdSpec")).get(key))
        if not block:
            continue
        resources = mapping(block.get("resources"))
        yield Pod(
            path=f"{path}: spec.pdSpec.{key}",
            role=role,
            # The operator puts a role's arguments behind the shared ones; the last one of a flag counts.
            args=tuple(map(str, (*_list(worker.get("args")), *_list(block.get("args"))))),
            environment=tuple(map(mapping, _list(worker.get("environmentVariables")))),
            requests={**mapping(resources.get("limits")), **mapping(resources.get("requests"))},
            node_selector=mapping(block.get("nodeSelector")),
            tolerations=tuple(map(mapping, _list(spec.get("tolerations")))),
            port=mapping(worker.get("modelInvocationPort")).get("containerPort"),
            peers=path,
        )


_SERVE: Final = "vllm serve"
_RULES: Final[dict[str, ManifestRule]] = {}


def manifest_check(
    id: str, title: str, *, why: str, link: str, level: Level = Level.ERROR, seen_in: tuple[str, ...] = ()
) -> Callable[[ManifestRule], ManifestRule]:
    """Register a rule over manifests, and the same rule over what the raw fields of an environment add."""

    def register(rule: ManifestRule) -> ManifestRule:
        def over_environment(environment: Environment, _: Context) -> Iterator[Problem]:
            for path, body, plain, groups in _with_raw(environment):
                before = {(problem.path, problem.message) for problem in rule([plain], groups)}
                for problem in rule([body], groups):
                    if (problem.path, problem.message) not in before:
                        yield replace(problem, path=path, message=f"{problem.path}: {problem.message}")

        over_environment.__module__ = rule.__module__  # which names the family
        registry.check(id, title, why=why, link=link, level=level, seen_in=seen_in)(over_environment)
        _RULES[id] = rule
        return rule

    return register


def _with_raw(environment: Environment) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], Groups]]:
    """Endpoints with raw fields: path, the object with them, the object without them, and the groups' instance types."""
    for index, endpoint in enumerate(environment.endpoints):
        if endpoint.raw.spec and endpoint.backend == "operator":
            # Building these types takes longer than all other checks together, and only raw fields need them.
            from dpd.backends.operator.build import build  # noqa: PLC0415

            site = Site.of(environment)
            try:
                body, plain = build(endpoint, site), build(_plain(endpoint), site)
            except ValueError:  # an unknown group or type, which other rules report
                continue
            yield f"endpoints[{index}].raw.spec", body, plain, instance_groups(site)


def _plain(endpoint: Endpoint) -> Endpoint:
    return endpoint.model_copy(update={"raw": endpoint.raw.model_copy(update={"spec": {}})})


def instance_groups(site: Site) -> dict[str, Instance]:
    """Facts of the nodes of every group whose type is known."""
    return {group: instance for group in site.groups if (instance := site.instance(group))}


def run_manifests(manifests: Sequence[Object], groups: Groups) -> list[Finding]:
    """Every finding about rendered objects. ``groups`` maps instance groups to what their nodes carry."""
    declared = {known.id: known for known in registry.checks() if known.id in _RULES}
    bodies = Objects(manifests)
    return in_order([declared[id_].finding(problem) for id_, rule in _RULES.items() for problem in rule(bodies, groups)])


def beyond_checks(environment: Environment, manifests: Sequence[Object]) -> list[Finding]:
    """What the objects of a whole environment show that its own checks have not said already.

    The checks examine the operator's object of each endpoint; what remains are the other objects, and all of them together.
    """
    from dpd.backends.operator.build import build  # noqa: PLC0415 (as above)

    site = Site.of(environment)
    groups = instance_groups(site)
    examined = [build(endpoint, site) for endpoint in environment.endpoints if endpoint.backend == "operator"]
    said = {(finding.id, finding.path, finding.message) for body in examined for finding in run_manifests([body], groups)}
    return [finding for finding in run_manifests(manifests, groups) if (finding.id, finding.path, finding.message) not in said]


def _all_pods(manifests: Sequence[Object]) -> Iterable[Pod]:
    return manifests.once(_read_pods) if isinstance(manifests, Objects) else _read_pods(manifests)


def _read_pods(manifests: Sequence[Object]) -> Iterator[Pod]:
    for body in manifests:
        yield from pods(body)


@manifest_check(
    "MAN001", "A pod has the EFA devices that belong to its GPUs",
    why="Fewer devices are that share of the bandwidth, none is TCP, more leave the next pod of the node waiting for ever.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
    level=Level.WARNING,
    seen_in=("https://github.com/aws/sagemaker-hyperpod-cli/issues/306", "https://github.com/aws-samples/aws-efa-eks/issues/4"),
)  # fmt: skip
def efa_devices(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:
    """Compare the request with the share of the node's devices."""
    for pod in _all_pods(manifests):
        instance, gpus, asked = pod.instance(groups), pod.amount(GPU), pod.amount(EFA)
        if instance is None or not gpus or not instance.efa:
            continue
        share = efa_share(instance, gpus)
        if asked != share:
            yield Problem(
                path=f"{pod.path}.resources",
                message=f"requests {asked} EFA devices for {gpus} of the {instance.gpus} GPUs of {instance.type}",
                value=asked,
                limit=f"{instance.efa} x {gpus} / {instance.gpus} = {share}",
                fix=f"request {EFA}: {share}",
                level=Level.ERROR if asked > instance.efa else None,
            )


@manifest_check(
    "MAN002", "Network variables fit the pod",
    why="libfabric falls back to TCP in silence without a device, dies without huge pages, and NCCL hangs on the wrong interface.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
    seen_in=("https://github.com/awslabs/ai-on-sagemaker-hyperpod/pull/134", "https://github.com/awslabs/awsome-distributed-ai/issues/519"),
)  # fmt: skip
def network_variables(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """The rules of the file's own variables, on what the container gets."""
    resource = str(huge_pages()["resource"])
    for pod in _all_pods(manifests):
        for fault in all_faults(pod.variables, efa_devices=pod.amount(EFA), huge_pages_requested=resource in pod.requests):
            yield Problem(
                path=f"{pod.path}: environment variable {fault.variable}",
                message=fault.message,
                value=pod.variables.get(fault.variable),
                fix=fault.fix,
            )


@manifest_check(
    "MAN003", "All peers hash alike",
    why="LMCache finds KV by hashes of tokens. Python hashes differ between processes unless PYTHONHASHSEED is set, so every "
    "look-up misses.",
    link=_LINK,
    seen_in=("https://github.com/LMCache/LMCache/issues/2979",),
)  # fmt: skip
def hash_seed(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Ask for one and the same text in every pod that hands over or takes KV."""
    seeds: dict[str, str] = {}
    for pod in _all_pods(manifests):
        if pod.peers:
            seed = pod.variables.get("PYTHONHASHSEED", "")
            if not seed.isdigit() or seeds.setdefault(pod.peers, seed) != seed:
                yield Problem(
                    path=f"{pod.path}: environment variable PYTHONHASHSEED",
                    message="is missing, random, or not the same in both roles",
                    value=seed,
                    limit='"0"',
                    fix='set PYTHONHASHSEED: "0" for both roles',
                )


@manifest_check(
    "MAN004", "Environment variables are texts",
    why="Kubernetes refuses a number or a truth value; a bare 0 or False in YAML is one.",
    link="https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/",
)  # fmt: skip
def variable_types(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Refuse values of other types, doubled names, and both a value and a reference."""
    for pod in _all_pods(manifests):
        seen: set[str] = set()
        for entry in pod.environment:
            name = str(entry.get("name", ""))
            value = entry.get("value")
            faults = {
                "has no name": not name,
                f"is a {type(value).__name__}": value is not None and not isinstance(value, str),
                "is given twice": name in seen,
                "has both a value and a reference": bool(value) and "valueFrom" in entry,
            }
            seen.add(name)
            for message in (message for message, holds in faults.items() if holds):
                yield Problem(path=f"{pod.path}: environment variable {name}", message=message, fix="put the value in quotes, once")


@manifest_check(
    "MAN005", "Credentials are references",
    why="A manifest is kept in Git, in the cloud assembly and in etcd, and everyone who can read the pod can read it.",
    link="https://kubernetes.io/docs/concepts/configuration/secret/",
    seen_in=("https://github.com/validatedpatterns/rag-llm-gitops/issues/70", "https://github.com/kserve/kserve/issues/3832"),
)  # fmt: skip
def secrets(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Refuse literal credentials anywhere, Secret objects with content included."""
    for body in manifests:
        if body.get("kind") == "Secret" and (body.get("data") or body.get("stringData")):
            yield Problem(path=where(body), message="carries its content", fix="make the Secret outside of Git, and refer to it by name")
        for place, text in _texts(body):
            if looks_like_secret(text):
                yield Problem(
                    path=f"{where(body)}: {place}", message="has the shape of a credential", value=HIDDEN,
                    fix="put it into a Secret, and refer to it by name and key",
                )  # fmt: skip
    for pod in _all_pods(manifests):
        for name, value in pod.variables.items():
            if value and names_a_secret(name) and not looks_like_secret(value):
                yield Problem(
                    path=f"{pod.path}: environment variable {name}", message="holds a literal under the name of a credential", value=HIDDEN,
                    fix="use valueFrom.secretKeyRef",
                )  # fmt: skip


def _texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{place}[{index}]")


@manifest_check(
    "MAN006", "No value is missing",
    why="A null takes a field away, or becomes the text None; either way the object is not what its author meant.",
    link="https://kubernetes.io/docs/reference/using-api/api-concepts/",
    seen_in=("https://github.com/kserve/kserve/issues/3832",),
)  # fmt: skip
def missing(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Refuse nulls, and texts that a program made of a missing value."""
    for body in manifests:
        for place, value in _leaves(body):
            said = isinstance(value, str) and value.strip() in {"None", "null", "undefined", "<nil>"}
            if value is None or (said and not (value == "None" and place.endswith(_MEANT))):
                yield Problem(path=f"{where(body)}: {place}", message="has no value", value=value, fix="give it one, or remove the field")


_MEANT: Final = ("leaderWorkerTemplate.restartPolicy", "spec.clusterIP")
"""Where `None` is one of the words of the field: a Service with it is headless."""


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{place}[{index}]")
    else:
        yield place, value


@manifest_check(
    "MAN007", "Objects have legal and different names",
    why="cdk8s does not check names that are given. The API server refuses illegal ones, and the second of two equal ones replaces "
    "the first.",
    link=_NAMES,
    seen_in=("https://github.com/cdk8s-team/cdk8s/issues/3270", "https://github.com/cdk8s-team/cdk8s-core/issues/761"),
)  # fmt: skip
def object_names(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Check the name of each object against the rule of its kind, and all of them for doubles."""
    seen: set[tuple[str, ...]] = set()
    for body in manifests:
        metadata = mapping(body.get("metadata"))
        name = str(metadata.get("name", ""))
        key = (str(body.get("apiVersion")).rpartition("/")[0], str(body.get("kind")), str(metadata.get("namespace", "")), name)
        if key in seen:
            yield Problem(path=where(body), message="is there twice", value=name, fix="give one of them another name")
        seen.add(key)
        pattern, longest = _NAME_RULES.get(str(body.get("kind")), _SUBDOMAIN)
        if len(name) > longest or not pattern.fullmatch(name):
            yield Problem(
                path=where(body), message="has a name that Kubernetes refuses", value=name,
                limit=f"at most {longest} lower-case letters, digits and '-'", fix="give it another name",
            )  # fmt: skip


_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"), 63
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"), 253
_PATH_SEGMENT: Final = re.compile(r"(?!\.{1,2}$)[^/%]+"), 253
_NAME_RULES: Final = {
    "Namespace": _LABEL, "Service": _LABEL, "InferenceEndpointConfig": _LABEL, "CronJob": (_LABEL[0], 52), "Job": _LABEL,
    **dict.fromkeys(("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"), _PATH_SEGMENT),
}  # fmt: skip
"""Kinds whose names are not DNS subdomains: labels, RBAC objects (path segments), and CronJobs (52, for the jobs' suffix)."""


@manifest_check(
    "MAN008", "A served endpoint is disaggregated, and its health is asked for where vLLM answers",
    why="Without pdSpec the operator starts one colocated role and says that all is well. Without /health the load balancer asks "
    "/ping, which "
    "vLLM does not have, and takes every pod out.",
    link=_LINK,
)  # fmt: skip
def disaggregated(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Look for both roles, for the health path, and for the gateway that excludes the router."""
    for body in manifests:
        if body.get("kind") != "InferenceEndpointConfig":
            continue
        spec = mapping(body.get("spec"))
        roles = mapping(spec.get("pdSpec"))
        if not all(mapping(roles.get(role)) for role in ("prefillSpec", "decodingSpec")):
            yield Problem(path=f"{where(body)}: spec.pdSpec", message="lacks a role", fix="give both prefillSpec and decodingSpec")
        health = mapping(spec.get("loadBalancer")).get("healthCheckPath")
        if health != HEALTH_PATH:
            yield Problem(
                path=f"{where(body)}: spec.loadBalancer.healthCheckPath", message="is not where vLLM answers", value=health,
                limit=HEALTH_PATH, fix=f"write {HEALTH_PATH}",
            )  # fmt: skip


@manifest_check(
    "MAN009", "vLLM's arguments agree with the pod",
    why="The tensor parallel size is the number of GPUs, the port is where proxy and probes knock, and the served name is what "
    "clients ask for.",
    link=_LINK,
    seen_in=("https://github.com/llm-d/llm-d/pull/1101",),
)  # fmt: skip
def arguments(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Compare size, port and name with resources and container port."""
    for pod in _all_pods(manifests):
        if not pod.peers:
            continue
        known = parse(pod.args)
        ranks = int(known.value("--data-parallel-size-local") or 1)
        wanted = {"--tensor-parallel-size": str(pod.amount(GPU) // ranks), "--port": str(pod.port)}
        for flag, right in wanted.items():
            value = known.value(flag)
            if value != right:
                yield Problem(
                    path=f"{pod.path}: argument {flag}", message="does not agree with the pod" if value else "is missing",
                    value=value, limit=right, fix=f"write {flag} {right}",
                )  # fmt: skip
        if not known.value("--served-model-name"):
            yield Problem(
                path=f"{pod.path}: argument --served-model-name",
                message="is missing, so clients must call the model by its path in the container",
                fix="write --served-model-name and a name",
                level=Level.WARNING,
            )


@manifest_check(
    "MAN010", "Every pod of a role has CPUs, memory, GPUs and a place",
    why="With pdSpec the resources under worker do nothing: a role without its own gets no CPU and memory request, and is the first "
    "to be evicted.",
    link=_LINK,
    seen_in=("https://github.com/awslabs/awsome-distributed-ai/issues/312",),
)  # fmt: skip
def requests(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:
    """Ask for the resources, and for a selector of a group that exists."""
    for pod in _all_pods(manifests):
        if not pod.peers:
            continue
        for resource in ("cpu", "memory", GPU):
            if not pod.requests.get(resource):
                yield Problem(path=f"{pod.path}.resources", message=f"requests no {resource}", fix=f"request {resource}")
        group = pod.node_selector.get(INSTANCE_GROUP_LABEL)
        if group not in groups:
            yield Problem(
                path=f"{pod.path}.nodeSelector", message="selects no group of this cluster", value=group,
                limit=", ".join(sorted(groups)), fix=f"select {INSTANCE_GROUP_LABEL}",
            )  # fmt: skip


@manifest_check(
    "MAN011", "Serving pods stay off failed nodes",
    why="HyperPod taints a node whose health check failed, with the same key as one that is being examined. A toleration without a value "
    "admits both, so pods start on the broken node before it is replaced.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-resiliency-node-labels.html",
    level=Level.WARNING,
    seen_in=("https://github.com/awslabs/awsome-distributed-ai/pull/1110",),
)  # fmt: skip
def health_taint(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Warn of tolerations of everything, or of any value of the health taint. Agents (DaemonSets) may have them."""
    for body in manifests:
        for pod in pods(body) if body.get("kind") != "DaemonSet" else ():
            for toleration in pod.tolerations:
                if toleration.get("operator") == "Exists" and toleration.get("key") in (None, "", NODE_HEALTH_TAINT):
                    yield Problem(
                        path=f"{pod.path}: tolerations",
                        message=f"admits any value of {NODE_HEALTH_TAINT}",
                        value=toleration.get("key", "(every taint)"),
                        limit="operator: Equal, value: Schedulable",
                        fix="name the value, or remove the toleration",
                    )
