"""Rules about CloudFormation properties that are set by name (`raw`)."""

import difflib
from collections.abc import Iterator
from typing import Any

from dpd.catalog.cloudformation import Kind, resource
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.environment.storage import ExistingKey
from dpd.finding import Level

_LINK = "https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-template-resource-type-ref.html"


def _places(environment: Environment) -> Iterator[tuple[str, Kind, dict[str, Any]]]:
    """Every place of the file where properties may be set by name."""
    yield "network.raw", "vpc", environment.network.raw
    yield "cluster.raw.eks", "eks", environment.cluster.raw.eks
    yield "cluster.raw.hyperpod", "hyperpod", environment.cluster.raw.hyperpod
    for name, group in environment.cluster.groups.items():
        yield f"cluster.groups.{name}.raw", "instance_group", group.raw
    storage = environment.storage
    yield "storage.raw", "key", storage.raw
    yield "storage.models.raw", "bucket", storage.models.raw
    yield "storage.certificates.raw", "bucket", storage.certificates.raw
    yield "storage.node_scripts.raw", "bucket", storage.node_scripts.raw
    if environment.storage.lustre:
        yield "storage.lustre.raw", "lustre", environment.storage.lustre.raw


@check(
    "RAW001",
    "A property set by name exists",
    why="CloudFormation refuses a template with a property that the resource type does not have, after the stacks before it were made.",
    link=_LINK,
)
def known(environment: Environment, context: Context) -> Iterator[Problem]:  # noqa: ARG001
    """Refuse properties that the provider schema does not list."""
    for place, kind, properties in _places(environment):
        facts = resource(kind)
        for path in properties:
            first, *rest = path.split(".")
            sub = facts.settable.get(first)
            if sub is None:
                wrong, known_names = first, tuple(facts.settable)
            elif rest and sub and rest[0] not in sub:
                wrong, known_names = rest[0], sub
            else:
                continue
            near = difflib.get_close_matches(wrong, known_names, n=1)
            yield Problem(
                path=f"{place}.{path}",
                message=f"{facts.type} has no property {wrong}",
                value=path,
                limit=", ".join(known_names),
                fix=f"did you mean {near[0]}?" if near else "take a property of the list",
            )


@check(
    "RAW002",
    "A property set by name is not one that the file already says",
    why="Two places that say the same thing disagree one day, and the checks only see one of them.",
    link=_LINK,
)
def unmanaged(environment: Environment, context: Context) -> Iterator[Problem]:  # noqa: ARG001
    """Refuse properties that this tool derives, a parent or a part of one included."""
    for place, kind, properties in _places(environment):
        for path in properties:
            for managed, reason in resource(kind).managed.items():
                if f"{path}.".startswith(f"{managed}.") or f"{managed}.".startswith(f"{path}."):
                    yield Problem(path=f"{place}.{path}", message=f"{managed} is set by this tool: {reason}", value=path, fix="remove it")
                    break


@check(
    "RAW003",
    "A property set by name does not replace the resource later",
    why="A change of a create-only property makes a new resource and deletes the old one.",
    link=_LINK,
    level=Level.WARNING,
)
def replacing(environment: Environment, context: Context) -> Iterator[Problem]:  # noqa: ARG001
    """Warn of create-only properties."""
    for place, kind, properties in _places(environment):
        facts = resource(kind)
        for path in properties:
            if path.split(".")[0] in facts.replaces and not any(f"{path}.".startswith(f"{name}.") for name in facts.managed):
                yield Problem(
                    path=f"{place}.{path}",
                    message=f"{path} can only be set when the {facts.type} is made; changing it later replaces the resource",
                    value=path,
                    fix="keep it as it is for the life of the resource, and acknowledge this finding",
                )


def _adopted(environment: Environment) -> dict[str, str]:
    """Places whose resource is adopted, with the place that says so."""
    storage = environment.storage
    given = {
        "network.raw": ("network.existing", environment.network.existing),
        "cluster.raw.eks": ("cluster.existing", environment.cluster.existing),
        "storage.lustre.raw": ("storage.lustre.existing", storage.lustre and storage.lustre.existing),
        "storage.raw": ("storage.encryption_key", isinstance(storage.encryption_key, ExistingKey)),
    }
    buckets = {path.removesuffix("bucket") + "raw": path for path in storage.adopted_buckets}
    return buckets | {place: path for place, (path, is_given) in given.items() if is_given}


@check(
    "RAW004",
    "A property set by name belongs to a resource that is made",
    why="Nothing here changes an adopted resource, so the property would silently do nothing.",
    link=_LINK,
)
def of_made_resources(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse properties of adopted resources."""
    adopted = _adopted(environment)
    for place, _kind, properties in _places(environment):
        if place in adopted:
            for path in properties:
                yield Problem(
                    path=f"{place}.{path}",
                    message=f"{adopted[place]} adopts the resource, which this tool does not change",
                    value=path,
                    fix="remove it, and change the resource where it is made",
                )
