"""What a synthesis says of an environment beside its templates, so that a review needs no environment file of the past."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.environment.network import Network
from dpd.finding import Finding
from dpd.gate.digest import digest
from dpd.promotion.identity import gpu_zone, identity
from dpd.review.assembly import SUMMARIES
from dpd.sizing.cost import CostItem, at_rest

VERSION: Final = 1


def summary(environment: Environment, findings: Iterable[Finding]) -> dict[str, Any]:
    """Findings, cost at rest, the health gate's digest, and the topology, of one environment. ``findings`` may be of others too."""
    network = environment.network
    own = [finding for finding in findings if finding.file.rsplit("/", 1)[-1].rsplit(".", 1)[0] == environment.name]
    return {
        "version": VERSION,
        "environment": environment.name,
        "app": environment.app,
        "account": environment.account,
        "region": environment.region,
        "findings": [finding.as_dict() for finding in own],
        "cost": [_cost(item) for item in at_rest(environment)],
        "gate": digest(environment) if environment.gate.deploy else None,
        "promotion": identity(environment),
        "topology": {
            "vpc": network.existing.vpc_id if network.existing else network.vpc_cidr,
            "gpu_availability_zone": gpu_zone(environment),
            "control_plane_availability_zones": _control_plane_zones(network),
            "groups": [
                {"name": name, "instance_type": group.instance_type, "count": group.count}
                for name, group in environment.cluster.groups.items()
            ],
            "lustre": environment.storage.lustre is not None,
            "endpoints": [_endpoint(endpoint) for endpoint in environment.endpoints],
        },
    }


def write_summary(environment: Environment, findings: Iterable[Finding], assembly: Path) -> None:
    """Write the summary into an assembly."""
    folder = assembly / SUMMARIES
    folder.mkdir(exist_ok=True)
    text = json.dumps(summary(environment, findings), indent=1)
    (folder / f"{environment.name}.json").write_text(f"{text}\n", encoding="utf-8")


def _control_plane_zones(network: Network) -> list[str]:
    if network.existing:
        return sorted({subnet.availability_zone_id for subnet in network.existing.control_plane_subnets})
    return list(network.control_plane_availability_zone_ids)


def _cost(item: CostItem) -> dict[str, Any]:
    return {
        "what": item.what,
        "quantity": item.quantity,
        "unit": item.unit,
        "usd_per_hour": item.usd_per_hour,
        "price": str(item.price) if item.price else None,
    }


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "name": endpoint.name,
        "namespace": endpoint.namespace,
        "backend": endpoint.backend,
        "model": endpoint.model.catalog or endpoint.model.config,
        "threshold_tokens": endpoint.routing.threshold_tokens,
        "roles": {
            name: {"group": role.group, "replicas": role.replicas, "tensor_parallel": role.tensor_parallel} for name, role in endpoint.roles
        },
    }
