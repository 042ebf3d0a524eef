"""A row of a table of checks: the smallest wrong input, what is said of it, and the nearest right input."""

from dataclasses import dataclass, field
from datetime import date
from typing import Any

from dpd.finding import Level
from tests.support import REMOVE, TODAY, findings

SELF = "sg-0123456789abcdef0"
SUBNETS = [
    {"id": "subnet-0000000000000000a", "availability_zone_id": "use2-az2", "cidr": "10.192.0.0/24"},
    {"id": "subnet-0000000000000000b", "availability_zone_id": "use2-az3", "cidr": "10.192.1.0/24"},
]
ADOPTED_NETWORK: dict[str, Any] = {
    "network.vpc_cidr": REMOVE,
    "network.gpu_subnet": REMOVE,
    "network.control_plane_availability_zone_ids": REMOVE,
    "network.egress": REMOVE,
    "network.existing": {
        "vpc_id": "vpc-0123456789abcdef0",
        "vpc_cidr": "10.192.0.0/16",
        "gpu_subnet": {"id": "subnet-0000000000000000c", "availability_zone_id": "use2-az1", "cidr": "10.1.0.0/16"},
        "control_plane_subnets": SUBNETS,
        "route_table_ids": ["rtb-0123456789abcdef0"],
        "s3_gateway_endpoint": "exists",
    },
}
ADOPTED_CLUSTER: dict[str, Any] = {
    **ADOPTED_NETWORK,
    "cluster.existing": {
        "name": "platform",
        "security_group_id": SELF,
        "oidc_issuer": "https://oidc.eks.us-east-2.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF",
        "oidc_provider_arn": "arn:aws:iam::111122223333:oidc-provider/oidc.eks.us-east-2.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF",
        "authentication_mode": "API_AND_CONFIG_MAP",
        "prerequisites": "install",
    },
}
ADOPTED_BUCKET: dict[str, Any] = {"storage.models.bucket": {"existing": "our-weights", "region": "us-east-2"}}
CLOSED: dict[str, Any] = {
    "network.egress": {"nat_gateways": 0, "interface_endpoints": True},
    "cluster.agent_repositories": {
        "nvidia_device_plugin": "111122223333.dkr.ecr.us-east-2.amazonaws.com/nvidia/k8s-device-plugin",
        "efa_counters": "111122223333.dkr.ecr.us-east-2.amazonaws.com/python",
    },
    "endpoints[0].image": {
        "repository": "111122223333.dkr.ecr.us-east-2.amazonaws.com/vllm",
        "tag": "server-hyperpod-cuda-v1.1",
        "lmcache": "0.4.3",
        "vllm": "0.19.0",
        "nixl": "1.0.0",
    },
}


def source(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    """Read the first endpoint's weights from somewhere else."""
    return {"endpoints[0].model.source": {kind: value}}


@dataclass(frozen=True)
class Case:
    """``says`` stands in the message, value, limit or fix of the only finding with this id."""

    id: str
    wrong: dict[str, Any]
    path: str
    says: str
    right: dict[str, Any] = field(default_factory=dict)
    level: Level = Level.ERROR
    today: date = TODAY

    def __str__(self) -> str:
        return f"{self.id} {self.path}"

    def verify(self) -> None:
        """The wrong input gives one finding at the path, the right one gives none."""
        found = findings(self.wrong, id=self.id, today=self.today)
        assert [(one.path, one.level) for one in found] == [(self.path, self.level)]
        (one,) = found
        assert self.says in " | ".join((one.message, one.value, one.limit, one.fix))
        assert one.fix
        assert one.link.startswith(("https://", "docs/"))
        assert not findings(self.right, id=self.id, today=self.today)
