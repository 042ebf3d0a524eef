"""What is made of an llm-d endpoint, and by what it is known when it runs."""

from collections.abc import Iterator, Mapping
from typing import Any

from dpd.backends.llmd.build import build
from dpd.backends.llmd.engine import block_size, publishes_events, server_port
from dpd.backends.signs import DecisionSigns, DefinitionSigns, KnownText, ObjectSigns, PodSigns, Signs, set_fields
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.catalog.operator import operator
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.names import LlmdNames
from dpd.sizing.expert_parallel import local_ranks, pods_per_replica
from dpd.sizing.pod import pod_shape

Body = Mapping[str, Any]
_BUILT_IN = ("networking.k8s.io", "rbac.authorization.k8s.io")


def signs(endpoint: Endpoint, site: Site) -> Signs:
    """The signs of an endpoint. Raises ``ValueError`` as ``build``."""
    bodies = build(endpoint, site)
    facts, names = _facts(), LlmdNames.of(endpoint)
    decided = facts["decisions"]
    return Signs(
        path=operator().invocation_paths[endpoint.routing.api],
        pods={
            **{name: _worker(endpoint, name, role, site, bodies) for name, role in endpoint.roles},
            "router": _router(endpoint, names, bodies),
            "picker": _picker(names, bodies),
        },
        characters_per_token=int(facts["characters_per_token"]["counted" if publishes_events(endpoint) else "estimated"]),
        # Blocks are what a decoder pulls, and their last one may be computed again.
        chunk_tokens=block_size(endpoint),
        resources=tuple(_resources(bodies)),
        definitions=tuple(_definitions(bodies)),
        decisions=DecisionSigns("picker", tuple(decided["split"]), tuple(decided["whole"])),
        patterns=tuple(KnownText(**known) for known in facts["known_texts"]),
    )


def _worker(endpoint: Endpoint, name: str, role: Role, site: Site, bodies: tuple[Body, ...]) -> PodSigns:
    names, instance = LlmdNames.of(endpoint), site.instance(role.group)
    if instance is None:
        raise ValueError(f"endpoint {endpoint.name!r}: the {name} role's group {role.group!r} has no known instance type")
    shape, ranks = pod_shape(role, instance), local_ranks(role, instance)
    in_a_set = endpoint.workload == "disaggregated_set"
    # While the load is low, a role that scales has as few pods as it may have; the gate needs one to ask.
    replicas = max(1, min(role.replicas, role.autoscaling.min_replicas)) if role.autoscaling else role.replicas
    return PodSigns(
        namespace=names.namespace,
        name_prefix=f"{names.workload_set}-0-" if in_a_set else f"{names.workload(name)}-",
        container=llmd().containers["server"],
        replicas=replicas * pods_per_replica(role),
        containers=_containers(_template(bodies, name, in_a_set)),
        port=server_port(name),
        servers=ranks,
        # A set's LeaderWorkerSets have its own digest and the role in their names, and pods are counted by group and place in it.
        words=4 if in_a_set else 2,
        labels=names.role_labels(name),
        gpus=shape.gpus,
        efa=shape.efa_devices,
        hugepages_mib=shape.hugepages_mib,
        role_settings=operator().role_settings[name],
        role_label=f"{llmd().labels['role']}={name}",
    )


def _router(endpoint: Endpoint, names: LlmdNames, bodies: tuple[Body, ...]) -> PodSigns:
    """Who takes clients' requests: the proxy in the picker's pod, or the Gateway's own pods."""
    ports = llmd().ports
    if endpoint.routing.gateway is None:
        picker = _owner(bodies, names.picker)
        return PodSigns(
            namespace=names.namespace,
            name_prefix=f"{names.picker}-",
            container=llmd().containers["envoy"],
            replicas=picker["spec"]["replicas"],
            containers=_containers(picker["spec"]["template"]["spec"]),
            port=ports["envoy"],
            labels=names.picker_labels,
            service=names.service,
            service_port=ports["service"],
        )
    made = _facts()["gateway"]
    return PodSigns(
        namespace=names.namespace,
        name_prefix=f"{names.gateway}{made['suffix']}-",
        container=made["container"],
        replicas=1,
        containers=1,
        port=ports["service"],
        service=f"{names.gateway}{made['suffix']}",
        service_port=ports["service"],
    )


def _picker(names: LlmdNames, bodies: tuple[Body, ...]) -> PodSigns:
    """Who decides; the gate reads its counters."""
    picker = _owner(bodies, names.picker)
    return PodSigns(
        namespace=names.namespace,
        name_prefix=f"{names.picker}-",
        container=llmd().containers["picker"],
        replicas=picker["spec"]["replicas"],
        containers=_containers(picker["spec"]["template"]["spec"]),
        port=llmd().ports["picker_metrics"],
        labels=names.picker_labels,
    )


def _resources(bodies: tuple[Body, ...]) -> Iterator[ObjectSigns]:
    for body in bodies:
        known = _facts()["states"].get(body["kind"])
        if known:
            group, _, version = body["apiVersion"].rpartition("/")
            yield ObjectSigns(
                group=group,
                version=version,
                plural=f"{body['kind'].lower()}s",
                name=body["metadata"]["name"],
                state=f"{known['place']}.{known['state']}",
                ready=known["ready"],
                failed=tuple(known["failed"]),
                message=f"{known['place']}.message",
            )


def _definitions(bodies: tuple[Body, ...]) -> Iterator[DefinitionSigns]:
    """Every kind that Kubernetes itself does not have. All of them have the plural that English has."""
    kinds: dict[tuple[str, str], list[Body]] = {}
    for body in bodies:
        group = body["apiVersion"].rpartition("/")[0]
        if "." in group and group not in _BUILT_IN:
            kinds.setdefault((body["apiVersion"], body["kind"]), []).append(body)
    for (api_version, kind), found in kinds.items():
        group, _, version = api_version.rpartition("/")
        yield DefinitionSigns(name=f"{kind.lower()}s.{group}", version=version, fields=set_fields(found))


def _owner(bodies: tuple[Body, ...], name: str) -> Body:
    return next(body for body in bodies if body["metadata"]["name"] == name and body["kind"] in ("Deployment", "LeaderWorkerSet"))


def _template(bodies: tuple[Body, ...], role_name: str, in_a_set: bool) -> Body:  # noqa: FBT001
    """``spec`` of the pods of a role, whatever owns them."""
    if in_a_set:
        the_set = next(body for body in bodies if body["kind"] == "DisaggregatedSet")
        spec = next(role["spec"] for role in the_set["spec"]["roles"] if role["name"] == role_name)
    else:
        label = llmd().labels["role"]
        owners = ("Deployment", "LeaderWorkerSet")
        spec = next(b["spec"] for b in bodies if b["kind"] in owners and b["metadata"]["labels"].get(label) == role_name)
    template = spec.get("template") or spec["leaderWorkerTemplate"]["workerTemplate"]
    found: Body = template["spec"]
    return found


def _containers(pod: Body) -> int:
    """Containers of a ready pod: those that start with it for good, native sidecars among them."""
    sidecars = [container for container in pod.get("initContainers", ()) if container.get("restartPolicy") == "Always"]
    return len(pod["containers"]) + len(sidecars)


def _facts() -> Mapping[str, Any]:
    facts: Mapping[str, Any] = llmd().more["gate"]
    return facts
