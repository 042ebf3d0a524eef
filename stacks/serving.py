"""The endpoints: the same objects that a reviewer reads in the rendered manifests, applied to the cluster."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from aws_cdk import CfnWaitConditionHandle, Stack
from constructs import Construct

from charts.manifest import Manifest
from charts.render import Rendered
from charts.site import LUSTRE_DNS_NAME, LUSTRE_FILE_SYSTEM_ID, LUSTRE_MOUNT_NAME
from dpd.catalog.llmd import llmd
from stacks.values import EksValues, LustreValues

_BY_CHOICE: Final = frozenset(
    {
        "Deployment", "LeaderWorkerSet", "DisaggregatedSet", "ScaledObject", "TriggerAuthentication",
        "InferencePool", "InferenceObjective", "DestinationRule", "Gateway", "HTTPRoute",
    }
)  # fmt: skip
_NEEDED_BY_PODS: Final = frozenset({"PersistentVolume", "PersistentVolumeClaim", "ServiceAccount", "ConfigMap"})


class ServingStack(Stack):
    """One manifest for each namespace, which stays when the stack goes, and some for each endpoint, which do not."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        rendered: Rendered,
        lustre: LustreValues | None,
        eks: EksValues,
        **stack: Any,
    ) -> None:
        super().__init__(scope, id_, **stack)
        ready = rendered.filled(_values(lustre))
        if left := ready.placeholders():
            raise ValueError(f"the manifests want {', '.join(left)} and the environment has no Lustre file system")
        if not ready.endpoints:
            # A stack cannot be empty, and without a stack the last endpoint would stay on the cluster when the file drops it.
            CfnWaitConditionHandle(self, "Nothing")
        made: dict[str, Construct] = {}
        for name, manifests in ready.namespaces.items():
            made[name] = eks.kubectl.apply(self, f"Namespace-{name}", _bodies(manifests), retain=True)
        for name, manifests in ready.endpoints.items():
            namespaces = {manifest.namespace for manifest in manifests}
            before: list[Construct] = [made[namespace] for namespace in sorted(namespaces) if namespace in made]
            for step in _steps(name, manifests):
                before = [eks.kubectl.apply(self, part_id, _bodies(part), after=before) for part_id, part in step]


_Parts = list[tuple[str, Sequence[Manifest]]]


def _steps(name: str, manifests: Sequence[Manifest]) -> Iterator[_Parts]:
    """The objects of an endpoint by the resource that applies them, step by step.

    What carries a revision in its name is a resource of its own for each revision. A new model or engine makes new objects
    beside the old ones, and nothing prunes: only the resource that goes takes its objects with it, and their GPUs. What lasts
    is split by what the pods need and what leads to them, so that no route names a pool that does not exist yet. Kinds that come
    and go with a word of the file have a resource for each object, for the same reason: a scaler or a Gateway that is no longer
    asked for must not stay.
    """
    revisions = {found for manifest in manifests if (found := manifest.body["metadata"].get("labels", {}).get(llmd().labels["revision"]))}
    passing = [manifest for manifest in manifests if manifest.name.rpartition("-")[2] in revisions]
    if not passing:
        yield [(f"Endpoint-{name}", manifests)]
        return
    lasting = [manifest for manifest in manifests if manifest not in passing]
    yield [(f"Endpoint-{name}", [manifest for manifest in lasting if manifest.kind in _NEEDED_BY_PODS])]
    for revision in sorted(revisions):
        yield from _by_choice(f"Pods-{name}-{revision}", [manifest for manifest in passing if manifest.name.endswith(f"-{revision}")])
    yield from _by_choice(f"Front-{name}", [manifest for manifest in lasting if manifest.kind not in _NEEDED_BY_PODS])


def _by_choice(id_: str, manifests: Sequence[Manifest]) -> Iterator[_Parts]:
    """What is always there in one resource, then each of what is there by choice in one of its own."""
    if always := [manifest for manifest in manifests if manifest.kind not in _BY_CHOICE]:
        yield [(id_, always)]
    if chosen := [manifest for manifest in manifests if manifest.kind in _BY_CHOICE]:
        yield [(f"{id_}-{manifest.kind}-{manifest.name}", [manifest]) for manifest in chosen]


def _values(lustre: LustreValues | None) -> dict[str, str]:
    """References in the place of what only the deployment knows."""
    if lustre is None:
        return {}
    return {LUSTRE_FILE_SYSTEM_ID: lustre.file_system_id, LUSTRE_DNS_NAME: lustre.dns_name, LUSTRE_MOUNT_NAME: lustre.mount_name}


def _bodies(manifests: Sequence[Manifest]) -> list[dict[str, Any]]:
    return [manifest.body for manifest in manifests]
