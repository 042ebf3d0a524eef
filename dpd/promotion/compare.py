"""Whether what is to be deployed is what passed in the environment before: object by object, image by image, model by model."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dpd.finding import Finding
from dpd.promotion.allowed import BUILT_IN, Place, declared
from dpd.promotion.faults import DIFFERENT, ONE_SIDED, OTHER_IMAGE, OTHER_MODEL, UNUSED_DIFFERENCE
from dpd.review.assembly import Assembly, NotAnAssemblyError
from dpd.review.leaves import Leaf, leaves

_DIGEST: Final = re.compile(r"@(sha256:[0-9a-f]{64})$")
_IMAGE: Final = re.compile(r"(?:^|\.)image$")
_REGISTRY: Final = re.compile(r"^[^/]*\.dkr\.ecr\.[^/]*/")
"""A private registry of ECR: AWS keeps the same agents in an account of its own in each Region."""
_OURS: Final = "_"
"""Folders that begin with it hold what is not an endpoint's."""


@dataclass(frozen=True, slots=True)
class Release:
    """One environment of an assembly, with its own values replaced by what they stand for."""

    environment: str
    objects: dict[tuple[str, str, str, str], dict[str, Any]]
    """By folder, kind, namespace and name."""
    facts: dict[str, Any]
    digest: str
    name: str
    """``<app>-<environment>``, as reports and alarms name it."""
    account: str
    region: str

    @property
    def models(self) -> dict[str, Any]:
        """Models by endpoint."""
        return dict(self.facts["models"])


def release(assembly: Assembly, environment: str) -> Release:
    """Raises ``NotAnAssemblyError`` when the assembly has no such environment, or an older tool made it."""
    if environment not in assembly.environments:
        raise NotAnAssemblyError(f"{assembly.folder} has no environment {environment[:60]!r}; it has: {', '.join(assembly.environments)}")
    summary = assembly.summaries.get(environment, {})
    if "promotion" not in summary:
        raise NotAnAssemblyError(f"{assembly.folder} says too little of {environment} for a promotion; make it again with: make synth")
    facts = summary["promotion"]
    objects = {}
    for path, body in assembly.objects.items():
        name, folder = path.split("/")[:2]
        if name == environment:
            common = _common(body, facts["own"])
            metadata = common.get("metadata", {})
            objects[folder, str(common["kind"]), str(metadata.get("namespace", "")), str(metadata.get("name", ""))] = common
    return Release(
        environment,
        objects,
        facts,
        str(summary.get("gate") or ""),
        f"{summary['app']}-{environment}",
        summary["account"],
        summary["region"],
    )


def _common(body: dict[str, Any], own: list[list[str]]) -> dict[str, Any]:
    """An object in words that mean the same in every environment."""
    text = json.dumps(body)
    for value, mark in own:
        text = mark.join(re.split(rf"(?<![A-Za-z0-9]){re.escape(json.dumps(value)[1:-1])}(?![A-Za-z0-9])", text))
    common: dict[str, Any] = json.loads(text)
    return common


def differences(before: Release, after: Release) -> list[Finding]:
    """Everything in which two environments differ and must not, and declared differences that never occur."""
    own = [declared(each) for each in after.facts["differences"]]
    used: set[Place] = set()

    def allowed(kind: str, name: str, field: str) -> bool:
        found = [place for place in (*BUILT_IN, *own) if place.holds(kind, name, field)]
        used.update(found)
        return bool(found)

    found: list[Finding] = []
    for key in dict.fromkeys([*before.objects, *after.objects]):
        old, new = before.objects.get(key), after.objects.get(key)
        folder, kind, _, name = key
        if old is None or new is None:
            if not allowed(kind, name, ""):
                found.append(_one_sided(key, before if new is None else after, after if new is None else before))
            continue
        found += [
            _different(key, leaf, before, after)
            for leaf in leaves(old, new)
            if not _is_image(leaf.path) and not allowed(kind, name, leaf.path)
        ]
        found += _images(key, old, new, pinned=not folder.startswith(_OURS))
    found += _models(before, after)
    found += [
        UNUSED_DIFFERENCE.finding(
            f"promotion.differences[{index}]", f"{after.environment} and {before.environment} do not differ at {place}",
            "remove it, or correct object and field",
        )
        for index, place in enumerate(own)
        if place not in used
    ]  # fmt: skip
    return found


_Key = tuple[str, str, str, str]


def _where(key: _Key) -> str:
    _, kind, namespace, name = key
    return f"{kind} {f'{namespace}/' if namespace else ''}{name}"


def _one_sided(key: _Key, having: Release, lacking: Release) -> Finding:
    return ONE_SIDED.finding(
        _where(key), f"{having.environment} has this object, {lacking.environment} does not",
        f"make the environments alike, or declare {key[1]}/{key[3]} in promotion.differences with the reason",
    )  # fmt: skip


def _different(key: _Key, leaf: Leaf, before: Release, after: Release) -> Finding:
    return DIFFERENT.finding(
        f"{_where(key)} {leaf.path}",
        f"is not what passed in {before.environment}",
        f"make the environments alike, or declare {key[1]}/{key[3]} {leaf.path} in promotion.differences of {after.environment}",
        value=leaf.after or "(none)",
        limit=leaf.before or "(none)",
    )


def _is_image(path: str) -> bool:
    return _IMAGE.search(path) is not None


def _found_images(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every image of an object, by its place; an item of a list is named where it has a name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "image" and isinstance(inner, str):
                yield f"{path}.{key}".lstrip("."), inner
            else:
                yield from _found_images(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            name = inner.get("name", index) if isinstance(inner, dict) else index
            yield from _found_images(inner, f"{path}[{name}]")


def _images(key: _Key, old: dict[str, Any], new: dict[str, Any], *, pinned: bool) -> Iterator[Finding]:
    """Digests must agree; where an image comes from may differ, since a mirror keeps them. Agents of AWS have no published digest."""
    before, after = dict(_found_images(old)), dict(_found_images(new))
    for place in dict.fromkeys([*before, *after]):
        was, will = before.get(place, ""), after.get(place, "")
        digests = [match[1] if (match := _DIGEST.search(image)) else "" for image in (was, will)]
        where = f"{_where(key)} {place}"
        if pinned and not all(digests):
            yield OTHER_IMAGE.finding(
                where, "no digest pins the image, so nobody can tell that it is the one that passed",
                "write image.digest in both files: docker buildx imagetools inspect <image> prints it", value=will or "(none)",
            )  # fmt: skip
        elif digests[0] != digests[1] or (not digests[0] and _REGISTRY.sub("", was) != _REGISTRY.sub("", will)):
            yield OTHER_IMAGE.finding(
                where,
                "is not the image that passed",
                "deploy that image first where the proof is",
                value=will or "(none)",
                limit=was or "(none)",
            )


def _models(before: Release, after: Release) -> Iterator[Finding]:
    for endpoint in dict.fromkeys([*before.models, *after.models]):
        was, will = before.models.get(endpoint), after.models.get(endpoint)
        if was is None or will is None:
            continue  # its objects are missing, which is said already
        for what in ("name", "revision"):
            if was[what] != will[what]:
                yield OTHER_MODEL.finding(
                    f"{endpoint} model.{what}", f"is not what passed in {before.environment}", "promote the model that passed",
                    value=will[what] or "(unknown)", limit=was[what] or "(unknown)",
                )  # fmt: skip
        if was["revision"] is None and will["revision"] is None:
            yield OTHER_MODEL.finding(
                f"{endpoint} model.revision", f"nobody says which commit of {will['name']} lies in either place",
                "write model.revision in both files: the commit that the weights were copied from",
            )  # fmt: skip
