"""What a deployment would do to AWS resources: what AWS's library says, and what it cannot see."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from dpd.review.assembly import Assembly
from dpd.review.leaves import Leaf, leaves
from dpd.review.library import Answer, Library, Template

_ROUNDS: Final = 8
"""A replacement moves from stack to stack at most once for each of the seven stacks of an environment."""


class Effect(StrEnum):
    """What happens to a resource."""

    REMOVED = "removed"
    REPLACED = "replaced"
    MAY_BE_REPLACED = "may be replaced"
    KEPT_BEHIND = "left behind"
    """It leaves the template, and goes on existing (and costing) outside of it."""
    RUN_AGAIN = "run again"
    """A custom resource: its function is called with the new properties."""
    CHANGED = "changed"
    ADDED = "added"


_IMPACTS: Final = {
    "WILL_REPLACE": Effect.REPLACED,
    "MAY_REPLACE": Effect.MAY_BE_REPLACED,
    "WILL_DESTROY": Effect.REMOVED,
    "WILL_ORPHAN": Effect.KEPT_BEHIND,
    "WILL_CREATE": Effect.ADDED,
}


_NEW_ID: Final = frozenset({Effect.REPLACED, Effect.MAY_BE_REPLACED})


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """One resource that changes. ``because`` is set when another resource's replacement is the cause."""

    stack: str
    id: str
    type: str
    effect: Effect
    leaves: tuple[Leaf, ...] = ()
    because: str = ""

    @property
    def environment(self) -> str:
        """The environment that it belongs to."""
        return self.stack.partition("/")[0]

    @property
    def is_custom(self) -> bool:
        """Whether a function of ours or CDK's stands behind it."""
        return self.type.startswith("Custom::") or self.type == "AWS::CloudFormation::CustomResource"


@dataclass(frozen=True, slots=True)
class Widening:
    """More rights, or a more open network, than before. ``what`` says which."""

    stack: str
    what: str
    of_rights: bool


@dataclass(frozen=True, slots=True)
class TemplateChanges:
    """All changes of all stacks."""

    resources: tuple[ResourceChange, ...]
    widenings: tuple[Widening, ...]


def compare_templates(before: Assembly, after: Assembly, library: Library) -> TemplateChanges:
    """Compare the stacks of two assemblies.

    A resource that is replaced has another id afterwards, and resources of other stacks that use the id may have to be
    replaced in turn. The library sees one stack at a time, so it is asked again with the ids changed until nothing more follows.
    Raises ``LibraryError`` when the library fails.
    """
    keys = [*after.stacks, *(key for key in before.stacks if key not in after.stacks)]
    pairs = {key: (_template(before, key), _template(after, key)) for key in keys}
    pairs = {key: (old, new) for key, (old, new) in pairs.items() if old != new}
    first = library(pairs) if pairs else {}
    resources = {(stack, change.id): change for stack, answer in first.items() for change in _resources(stack, answer)}
    told: set[tuple[str, str]] = set()
    for _ in range(_ROUNDS):
        news = _outputs_of_replaced(after, resources) - told
        told |= news
        touched = _with_new_values(before, after, told) if news else {}
        if not touched:
            break
        for stack, answer in library(touched).items():
            for change in _resources(stack, answer):
                known = resources.get((stack, change.id))
                worse = change.effect in _NEW_ID and (known is None or known.effect not in _NEW_ID)
                if known is None or worse:
                    resources[stack, change.id] = replace(change, leaves=known.leaves if known else (), because=_sources(touched[stack][1]))
    return TemplateChanges(
        tuple(resources.values()), tuple(found for stack, answer in first.items() for found in _widenings(stack, answer))
    )


def _template(assembly: Assembly, key: str) -> Template:
    return assembly.stacks[key].template if key in assembly.stacks else {}


def _resources(stack: str, answer: Answer) -> list[ResourceChange]:
    return [_resource(stack, found) for found in answer["resources"] if found["type"] != "AWS::CDK::Metadata"]


def _resource(stack: str, found: dict[str, Any]) -> ResourceChange:
    details = tuple(
        Leaf(leaf.path.removeprefix("Properties."), leaf.before, leaf.after)
        for change in found["properties"]
        if change["place"] != "Metadata"
        for leaf in leaves(_readable(change["before"]), _readable(change["after"]), change["place"])
    )
    effect = _IMPACTS.get(found["impact"], Effect.CHANGED)
    if effect is Effect.CHANGED and found["type"].startswith("Custom::"):
        effect = Effect.RUN_AGAIN
    added_or_gone = effect in (Effect.ADDED, Effect.REMOVED, Effect.KEPT_BEHIND)
    return ResourceChange(stack, found["id"], found["type"], effect, () if added_or_gone else details)


def _readable(value: Any) -> Any:
    """Objects instead of texts that hold JSON (manifests), so that a difference is a field and not a page."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _outputs_of_replaced(after: Assembly, resources: Mapping[tuple[str, str], ResourceChange]) -> set[tuple[str, str]]:
    """Pairs of a stack's name and an output whose value changes with a replaced resource."""
    found = set()
    replaced: dict[str, set[str]] = {}
    for (key, id_), change in resources.items():
        if change.effect in _NEW_ID:
            replaced.setdefault(key, set()).add(id_)
    for key, ids in replaced.items():
        stack = after.stacks[key]
        for name, output in stack.template.get("Outputs", {}).items():
            if ids & set(_mentions(output.get("Value"))):
                found.add((stack.name, name))
    return found


def _mentions(value: Any) -> list[str]:
    """Logical ids that a value refers to."""
    if isinstance(value, list):
        return [id_ for item in value for id_ in _mentions(item)]
    if not isinstance(value, dict):
        return []
    if "Ref" in value:
        return [value["Ref"]]
    if "Fn::GetAtt" in value:
        given = value["Fn::GetAtt"]
        return [given[0] if isinstance(given, list) else str(given).split(".")[0]]
    return [id_ for item in value.values() for id_ in _mentions(item)]


_NEW: Final = "(new)"


def _with_new_values(before: Assembly, after: Assembly, outputs: set[tuple[str, str]]) -> dict[str, tuple[Template, Template]]:
    """The stacks that use one of the outputs, with its use changed, against what they were."""
    result = {}
    for key, stack in after.stacks.items():
        if key in before.stacks:
            changed = copy.deepcopy(stack.template)
            if _mark(changed, outputs):
                result[key] = (before.stacks[key].template, changed)
    return result


def _mark(value: Any, outputs: set[tuple[str, str]]) -> bool:
    marked = False
    for use in _uses(value):
        if (use.get("StackName"), use.get("OutputName")) in outputs:
            use["OutputName"] += _NEW
            marked = True
    return marked


def _uses(value: Any) -> Iterator[dict[str, Any]]:
    """Every use of another stack's output inside a value."""
    if isinstance(value, list):
        for item in value:
            yield from _uses(item)
    elif isinstance(value, dict):
        if isinstance(use := value.get("Fn::GetStackOutput"), dict):
            yield use
        for item in value.values():
            yield from _uses(item)


def _sources(template: Template) -> str:
    """In words, whose replacement a template with marks is about."""
    names = {str(use["StackName"]) for use in _uses(template) if str(use.get("OutputName", "")).endswith(_NEW)}
    return f"it uses what {', '.join(sorted(names))} makes anew"


def _widenings(stack: str, answer: Answer) -> list[Widening]:
    found = []
    gone = {_without_digests(statement) for statement in answer["statements_gone"]}
    for statement in answer["statements"]:
        if statement.get("effect") == "Allow" and _without_digests(statement) not in gone:
            said = f"{_set(statement['principals'])} may {_set(statement['actions'])} on {_set(statement['resources'])}"
            found.append(Widening(stack, said, of_rights=True))
    found += [
        Widening(stack, f"{policy.get('identityArn', 'an identity')} gets {policy['managedPolicyArn']}", of_rights=True)
        for policy in answer["managed_policies"]
    ]
    for direction in ("ingress", "egress"):
        found += [Widening(stack, f"{rule['groupId']} opens {direction}: {_rule(rule)}", of_rights=False) for rule in answer[direction]]
    return found


_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def _without_digests(statement: dict[str, Any]) -> str:
    """A statement whatever the content of the asset is that it names: a new version of a file is no new right."""
    return _DIGEST.sub("", json.dumps(statement, sort_keys=True))


def _set(values: dict[str, Any]) -> str:
    listed = ", ".join(str(value) for value in values["values"])
    return f"everything but {listed}" if values.get("not") else listed


def _rule(rule: dict[str, Any]) -> str:
    every = str(rule.get("ipProtocol")) == "-1"
    ports = "all traffic" if every else f"{rule.get('ipProtocol')} {rule.get('fromPort')}-{rule.get('toPort')}"
    peer = rule.get("peer") or {}
    return f"{ports} with {peer.get('ip') or peer.get('securityGroupId') or peer.get('prefixListId') or 'a peer'}"
