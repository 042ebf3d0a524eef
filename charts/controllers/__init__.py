"""Rights on the cluster that the installation of controllers needs."""

from collections.abc import Sequence
from typing import Any

from charts.prerequisites.access import granted
from dpd.environment.names import DEFINER_GROUP


def definers(names: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Apply these definitions and no others, for the group that an access entry of our function names."""
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": DEFINER_GROUP}
    rule = (("apiextensions.k8s.io",), ("customresourcedefinitions",), ("create", "get", "patch"), tuple(names))
    return granted("dpd-definers", "dpd-definers", subject, (rule,))
