"""Limits on names and attachments, and names that somebody else owns."""

from typing import cast

from dpd.catalog.tables import yaml_table


def longest(kind: str) -> int:
    """Most characters of a name of this kind. Raises ``KeyError`` for a kind that the table does not have."""
    return int(yaml_table("limits")["name_lengths"][kind]["most"])


def node_security_groups() -> int:
    """Most security groups that a HyperPod node may have."""
    return int(yaml_table("limits")["node_security_groups"]["most"])


def stack_resources() -> int:
    """Most resources of a CloudFormation stack."""
    return int(yaml_table("limits")["stack_resources"]["most"])


def stack_outputs() -> int:
    """Most outputs of a CloudFormation stack."""
    return int(yaml_table("limits")["stack_outputs"]["most"])


def custom_resource_seconds() -> int:
    """Most seconds that CloudFormation waits for a custom resource."""
    return int(yaml_table("limits")["custom_resource_seconds"]["most"])


def namespace_owner(namespace: str) -> str | None:
    """Who owns a namespace in which endpoints have no business, or ``None``."""
    owner = yaml_table("limits")["namespaces"].get(namespace)
    return "Kubernetes" if owner is None and namespace.startswith("kube-") else owner


def words(table: str) -> tuple[str, ...]:
    """One of the lists of names: ``variable_prefixes``, ``label_prefixes``, ``bucket_beginnings``, …"""
    return tuple(cast("list[str]", yaml_table("limits")[table]))


def broadest_public_network() -> int:
    """Shortest prefix that still counts as naming a network rather than opening the API to most of the internet."""
    return int(yaml_table("limits")["broadest_public_network"]["prefix"])
