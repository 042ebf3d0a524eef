"""EKS add-ons with pinned versions, installed in a chain."""

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import CfnResource
from aws_cdk import aws_eks as eks
from constructs import Construct

from dpd.catalog import add_ons
from dpd.environment.cluster import AddOn


class AddOns:
    """Installs add-ons of one cluster one after another.

    One at a time, because EKS refuses a second change to a cluster's add-ons in places, and because the webhooks of one
    must answer before the pods of the next are made.
    """

    def __init__(
        self, scope: Construct, *, cluster_name: str, kubernetes_version: str, changes: Mapping[str, AddOn], after: Construct | None = None
    ) -> None:
        self._scope = scope
        self._cluster_name = cluster_name
        self._kubernetes_version = kubernetes_version
        self._changes = changes
        self.last = after
        self.names: list[str] = []

    def version(self, name: str) -> str | None:
        """The version that will be installed; ``None`` where neither the file nor the catalog names one."""
        change = self._changes.get(name, AddOn())
        known = add_ons.find(name)
        return change.version or (known.version_for(self._kubernetes_version) if known else None)

    def install(self, name: str, configuration: Mapping[str, Any] | None = None, *, role_arn: str | None = None) -> None:
        """Install an add-on after the ones before it, unless the file says that the cluster has it already.

        Conflicts are overwritten: without it the first install over Kubernetes' own copies, or over a manual edit,
        fails with ConfigurationConflict, and the template would no longer be what runs.
        """
        if not self._changes.get(name, AddOn()).install:
            return
        made = eks.CfnAddon(
            self._scope,
            name,
            addon_name=name,
            addon_version=self.version(name),
            cluster_name=self._cluster_name,
            configuration_values=json.dumps(configuration, sort_keys=True) if configuration else None,
            resolve_conflicts="OVERWRITE",
            service_account_role_arn=role_arn,
        )
        if isinstance(self.last, CfnResource):
            made.add_resource_dependency(self.last)
        elif self.last is not None:
            made.node.add_dependency(self.last)
        self.last = made
        self.names.append(name)
