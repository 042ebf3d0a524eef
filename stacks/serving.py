"""The endpoints: the same objects that a reviewer reads in the rendered manifests, applied to the cluster."""

from collections.abc import Sequence
from typing import Any

from aws_cdk import CfnWaitConditionHandle, Stack
from constructs import Construct

from charts.manifest import Manifest
from charts.render import Rendered
from charts.site import LUSTRE_DNS_NAME, LUSTRE_FILE_SYSTEM_ID, LUSTRE_MOUNT_NAME
from stacks.values import EksValues, LustreValues


class ServingStack(Stack):
    """One manifest for each namespace, which stays when the stack goes, and one for each endpoint, which does not."""

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
            first = [made[namespace] for namespace in sorted(namespaces) if namespace in made]
            eks.kubectl.apply(self, f"Endpoint-{name}", _bodies(manifests), after=first)


def _values(lustre: LustreValues | None) -> dict[str, str]:
    """References in the place of what only the deployment knows."""
    if lustre is None:
        return {}
    return {LUSTRE_FILE_SYSTEM_ID: lustre.file_system_id, LUSTRE_DNS_NAME: lustre.dns_name, LUSTRE_MOUNT_NAME: lustre.mount_name}


def _bodies(manifests: Sequence[Manifest]) -> list[dict[str, Any]]:
    return [manifest.body for manifest in manifests]
