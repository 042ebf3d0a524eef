"""Second layer: what Kubernetes says of the nodes, the definitions and the webhooks."""

from collections.abc import Callable
from typing import Any, Final

from health_gate.kubernetes import Missing, Node
from health_gate.result import Patience, Result, check, failed, passed, unknown
from health_gate.view import View

_SHOWN: Final = 5
_PLUGIN: Final = "https://github.com/aws/sagemaker-hyperpod-cli/pull/282"


def _listed(items: list[str]) -> str:
    return ", ".join(items[:_SHOWN]) + (f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else "")


def _of(view: View, group: str) -> list[Node]:
    return [node for node in view.nodes if node.group == group]


def _accelerated(view: View) -> list[Node]:
    return [node for node in view.nodes if node.group in view.spec.accelerated]


@check("cluster.api", proves="The Kubernetes API answers and lets the gate in.", cannot="That it may read everything it needs.", seconds=15)
def api(view: View) -> Result:
    """The API server."""
    view.kubernetes.ready(view.deadline)
    return passed("The API answers.")


@check(
    "cluster.nodes",
    proves="Every group has as many Ready, schedulable, healthy nodes as configured.",
    cannot="That a node stays healthy.",
    seconds=60,
    needs=("cluster.api",),
)
def nodes(view: View) -> Result:
    """Ready nodes by group."""
    problems, evidence = [], {}
    for name, group in view.spec.groups.items():
        found = _of(view, name)
        good = sum(not node.obstacle for node in found)
        evidence[name] = f"{good} of {group.count}"
        if good < group.count:
            why = sorted({node.obstacle for node in found if node.obstacle})
            problems.append(f"{name} {good} of {group.count}" + (f" ({', '.join(why)})" if why else ""))
    if problems:
        return failed(
            f"Groups without enough usable nodes: {_listed(problems)}.",
            "Look at the nodes' conditions and health label; HyperPod replaces failed nodes by itself.",
            patience=Patience.DEADLINE,
        ).with_evidence(**evidence)
    return passed("Every group has its nodes.", **evidence)


@check(
    "cluster.zone",
    proves="Every GPU node that has joined is in the configured AZ, by its label.",
    cannot="A wrong label.",
    needs=("cluster.nodes",),
)
def zone(view: View) -> Result:
    """The AZ of every GPU node."""
    found = _accelerated(view)
    if blind := [node.name for node in found if not node.zone_id]:
        return unknown(f"Nodes without the label of their AZ id: {_listed(blind)}.", "Wait until the cloud controller has labelled them.")
    if wrong := [f"{node.name} in {node.zone_id}" for node in found if node.zone_id != view.spec.zone_id]:
        return failed(
            f"GPU nodes outside of {view.spec.zone_id}: {_listed(wrong)}.", "Pin all GPU groups to one subnet: EFA cannot cross AZs."
        )
    return passed(f"All GPU nodes are in {view.spec.zone_id}.", nodes=len(found))


def _offered(view: View, offer: Callable[[Node], float], wanted: str) -> list[tuple[Node, float, float]]:
    return [
        (node, have, need)
        for node in _accelerated(view)
        if not node.obstacle and (have := offer(node)) != (need := getattr(view.spec.groups[node.group], wanted))
    ]


@check(
    "cluster.gpus",
    proves="Every GPU node offers exactly its type's GPUs.",
    cannot="That each GPU computes right.",
    needs=("cluster.nodes",),
)
def gpus(view: View) -> Result:
    """Allocatable GPUs."""
    if wrong := _offered(view, lambda node: node.gpus, "gpus"):
        texts = [f"{node.name} offers {have:.0f} of {need}" for node, have, need in wrong]
        none = any(have == 0 for _, have, _ in wrong)
        remedy = (
            "The NVIDIA device plugin does not run on the node: check its tolerations and log."
            if none
            else "A GPU has failed: replace the node."
        )
        return failed(f"GPUs are missing: {_listed(texts)}.", remedy, patience=Patience.DEADLINE)
    return passed("Every GPU node offers all its GPUs.")


@check(
    "cluster.efa",
    proves="Every GPU node offers exactly its type's EFA devices.",
    cannot="That traffic crosses them; `kv.throughput` shows that.",
    needs=("cluster.nodes",),
)
def efa(view: View) -> Result:
    """Allocatable EFA devices."""
    if wrong := _offered(view, lambda node: node.efa, "efa"):
        texts = [f"{node.name} offers {have:.0f} of {need}" for node, have, need in wrong]
        if any(have > need for _, have, need in wrong):
            remedy = "The EFA device plugin counts devices that are no EFA (before 0.5.10 it did on p6-b200): update the plugin."
            return failed(f"Too many EFA devices: {_listed(texts)}.", remedy, link=_PLUGIN)
        remedy = (
            "No device at all: the EFA driver, the device plugin's node selection, or a security group without the rule to and from itself."
            if any(have == 0 for _, have, _ in wrong)
            else "Some devices are missing: replace the node, and compare the group's network interface type."
        )
        return failed(f"EFA devices are missing: {_listed(texts)}.", remedy, patience=Patience.DEADLINE)
    return passed("Every GPU node offers all its EFA devices.")


@check(
    "cluster.hugepages",
    proves="Nodes offer the 2 MiB pages that pods ask for.",
    cannot="That another pod has not taken them.",
    needs=("cluster.nodes",),
)
def hugepages(view: View) -> Result | None:
    """Allocatable huge pages."""
    if not any(group.hugepages_mib for group in view.spec.groups.values()):
        return None
    short = [
        f"{node.name} has {node.hugepages_mib:.0f} MiB of {need} MiB"
        for node in _accelerated(view)
        if node.hugepages_mib < (need := view.spec.groups[node.group].hugepages_mib)
    ]
    if short:
        return failed(
            f"2 MiB pages are missing: {_listed(short)}.", "Reserve them at node start, or set FI_EFA_USE_HUGE_PAGE=0 and ask for none."
        )
    return passed("The pages are there.")


@check(
    "cluster.definitions",
    proves="The live custom resource definitions know every field that the manifests set.",
    cannot="What a controller makes of a field.",
    needs=("cluster.api",),
)
def definitions(view: View) -> Result | None:
    """Custom resource definitions: an older one drops a field without a word."""
    for wanted in view.spec.definitions:
        try:
            found = view.kubernetes.definition(wanted.name, view.deadline)
        except Missing:
            return failed(f"There is no definition {wanted.name}.", "Install what brings it.", patience=Patience.DEADLINE)
        versions = {each["name"]: each for each in found["spec"]["versions"] if each.get("served")}
        if wanted.version not in versions:
            return failed(f"{wanted.name} does not serve {wanted.version}, only {', '.join(versions)}.", "Update what installs it.")
        schema = (versions[wanted.version].get("schema") or {}).get("openAPIV3Schema") or {}
        if unknown_fields := [field for field in wanted.fields if not _knows(schema, field.split("."))]:
            return failed(
                f"{wanted.name} does not know {_listed(unknown_fields)}: the API server drops them silently.",
                "Update what installs it to a version that has these fields.",
            )
    return passed("All fields are known.", definitions=len(view.spec.definitions)) if view.spec.definitions else None


def _knows(schema: Any, parts: list[str]) -> bool:
    if not isinstance(schema, dict):
        return False
    if not parts or schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    first, *rest = parts
    name = first.removesuffix("[]")
    inner = (schema.get("properties") or {}).get(name, schema.get("additionalProperties"))
    if first != name and isinstance(inner, dict) and not inner.get("x-kubernetes-preserve-unknown-fields"):
        inner = inner.get("items")
    return _knows(inner, rest)


@check(
    "cluster.webhooks",
    proves="Every webhook of the watched namespaces that can refuse objects, conversion included, has a ready pod behind it.",
    cannot="That its certificate is good.",
    needs=("cluster.api",),
)
def webhooks(view: View) -> Result | None:
    """Webhooks and their endpoints."""
    watched = set(view.spec.webhook_namespaces)
    if not watched:
        return None
    services = {(each.namespace, each.service): each.owner for each in view.kubernetes.webhooks(view.deadline)}
    for wanted in view.spec.definitions:
        conversion = (view.kubernetes.definition(wanted.name, view.deadline)["spec"].get("conversion") or {}).get("webhook") or {}
        if service := (conversion.get("clientConfig") or {}).get("service"):
            services[service["namespace"], service["name"]] = f"conversion of {wanted.name}"
    mine = {place: owner for place, owner in services.items() if place[0] in watched}
    if dead := [
        f"{owner} ({space}/{name})" for (space, name), owner in mine.items() if not view.kubernetes.addresses(space, name, view.deadline)
    ]:
        return failed(
            f"Webhooks without endpoints: {_listed(dead)}.",
            "Wait for the add-on's pods, or look why they do not run.",
            patience=Patience.DEADLINE,
        )
    return passed("Every webhook has endpoints.", webhooks=len(mine))
