"""The endpoints: the same objects that a reviewer reads in the rendered manifests, applied to the cluster."""

import json
from collections.abc import Sequence
from typing import Any

from aws_cdk import CfnWaitConditionHandle, Stack
from constructs import Construct

from charts.manifest import Manifest
from charts.render import Rendered
from charts.site import LUSTRE_DNS_NAME, LUSTRE_FILE_SYSTEM_ID, LUSTRE_MOUNT_NAME, PLACEHOLDERS
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
        if not rendered.endpoints:
            # A stack cannot be empty, and without a stack the last endpoint would stay on the cluster when the file drops it.
            CfnWaitConditionHandle(self, "Nothing")
        made: dict[str, Construct] = {}
        for name, manifests in rendered.namespaces.items():
            made[name] = eks.kubectl.apply(self, f"Namespace-{name}", _filled(manifests, lustre), retain=True)
        for name, manifests in rendered.endpoints.items():
            namespaces = {manifest.namespace for manifest in manifests}
            first = [made[namespace] for namespace in sorted(namespaces) if namespace in made]
            eks.kubectl.apply(self, f"Endpoint-{name}", _filled(manifests, lustre), after=first)


def _filled(manifests: Sequence[Manifest], lustre: LustreValues | None) -> list[dict[str, Any]]:
    """Put references in the place of what only the deployment knows. Raises ``ValueError`` when there is nothing to put."""
    text = json.dumps([manifest.body for manifest in manifests])
    if lustre:
        values = {LUSTRE_FILE_SYSTEM_ID: lustre.file_system_id, LUSTRE_DNS_NAME: lustre.dns_name, LUSTRE_MOUNT_NAME: lustre.mount_name}
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)
    left = [placeholder for placeholder in PLACEHOLDERS if placeholder in text]
    if left:
        raise ValueError(f"the manifests want {', '.join(left)} and the environment has no Lustre file system")
    objects: list[dict[str, Any]] = json.loads(text)
    return objects
