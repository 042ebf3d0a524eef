"""Rules about the network."""

from typing import Any

import pytest

from dpd.checks.network import public_registry
from dpd.finding import Level
from tests.checks.cases import ADOPTED_NETWORK, CLOSED, SUBNETS, Case
from tests.support import LLMD_EXAMPLE, REMOVE, base, findings

MADE = ("vpc_cidr", "gpu_subnet", "control_plane_availability_zone_ids", "egress")
GPU = ADOPTED_NETWORK["network.existing"]["gpu_subnet"]


def subnets(*listed: dict[str, str]) -> dict[str, Any]:
    return {**ADOPTED_NETWORK, "network.existing.control_plane_subnets": list(listed)}


PLUGIN, PYTHON = ({name: CLOSED["cluster.agent_repositories"][name]} for name in ("nvidia_device_plugin", "efa_counters"))


def image(repository: str) -> dict[str, Any]:
    return {**CLOSED, "endpoints[0].image.repository": repository}


def api(*networks: str) -> dict[str, Any]:
    return {"cluster.api_access": {"public_cidrs": list(networks)}}


CASES = [
    *(Case("NET001", {f"network.{key}": REMOVE}, "network", f"needs {key} as well") for key in MADE),
    Case("NET001", {"network": {}}, "network", "says nothing", ADOPTED_NETWORK),
    *(
        Case("NET001", {**ADOPTED_NETWORK, f"network.{key}": base()["network"][key]}, f"network.{key}", "remove existing", ADOPTED_NETWORK)
        for key in MADE
    ),
    *(
        Case("NET001", {**ADOPTED_NETWORK, f"network.{key}": value}, f"network.{key}", "not changed", {f"network.{key}": value})
        for key, value in [("flow_logs", True), ("raw", {"InstanceTenancy": "default"})]
    ),
    Case("NET002", subnets(*SUBNETS, SUBNETS[0]), "network.existing.control_plane_subnets[2].id", "stands twice", subnets(*SUBNETS)),
    Case(
        "NET002",
        subnets(*SUBNETS, {**GPU, "availability_zone_id": "use2-az3"}),
        "network.existing.control_plane_subnets[2].id",
        "another AZ id or network",
        subnets(*SUBNETS, GPU),
    ),
    Case("NET003", {**CLOSED, "network.egress.interface_endpoints": False}, "network.egress.interface_endpoints", "true", CLOSED),
    Case("NET004", {**CLOSED, "endpoints[0].image": None}, "endpoints[0].image", "default image", CLOSED),
    *(
        Case("NET004", image(repository), "endpoints[0].image.repository", registry, CLOSED)
        for repository, registry in [
            ("public.ecr.aws/deep-learning-containers/vllm", "public.ecr.aws"),
            ("lmcache/vllm-openai", "docker.io"),
            ("docker.io/lmcache/vllm-openai", "docker.io"),
            ("nvcr.io/nvidia/vllm", "nvcr.io"),
            ("ghcr.io/a/b", "ghcr.io"),
            ("111122223333.dkr.ecr.us-west-2.amazonaws.com/vllm", "us-west-2"),
        ]
    ),
    Case("NET005", {**CLOSED, "cluster.agent_repositories": PYTHON}, "cluster.agent_repositories.nvidia_device_plugin", "nvcr.io", CLOSED),
    Case(
        "NET005",
        {**CLOSED, "cluster.agent_repositories": PLUGIN},
        "cluster.agent_repositories.efa_counters",
        "public.ecr.aws",
        {**CLOSED, "cluster.agent_repositories": PLUGIN, "gate.efa_counters": False},
    ),
    Case("NET006", api("0.0.0.0/1"), "cluster.api_access.public_cidrs[0]", "2,147,483,648 addresses", api("8.0.0.0/8"), Level.WARNING),
    Case(
        "NET006", api("203.0.113.0/24", "10.0.0.0/8"), "cluster.api_access.public_cidrs[1]", "private", api("203.0.113.0/24"), Level.WARNING
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case} {case.says}")
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize("changes", [CLOSED, ADOPTED_NETWORK], ids=["closed", "adopted"])
def test_complete_networks_are_right(changes: dict[str, Any]) -> None:
    assert not [one for one in findings(changes) if one.id.startswith("NET")]


@pytest.mark.parametrize("repository", ["registry.example.com/vllm", "localhost/vllm", "10.0.0.1:5000/vllm", "mirror:5000/vllm"])
def test_registries_that_may_lie_inside(repository: str) -> None:
    assert public_registry(repository) is None


LLMD = base(LLMD_EXAMPLE)["endpoints"][0]
REGISTRY = "111122223333.dkr.ecr.us-east-2.amazonaws.com"
MIRRORS = {name: f"{REGISTRY}/{name}" for name in ("picker", "sidecar", "envoy")}


@pytest.mark.parametrize(
    ("strategy", "repositories", "expected"),
    [
        ("prefix_aware", {}, ["picker", "sidecar", "envoy"]),
        ("prefix_aware", {**MIRRORS, "envoy": "docker.io/envoyproxy/envoy"}, ["envoy"]),
        ("prefix_aware", {**MIRRORS, "envoy": "111122223333.dkr.ecr.us-west-2.amazonaws.com/envoy"}, ["envoy"]),
        ("prefix_aware", MIRRORS, []),
        ("kv_aware", MIRRORS, ["tokenizer"]),
        ("kv_aware", {**MIRRORS, "tokenizer": f"{REGISTRY}/tokenizer"}, []),
    ],
)
def test_a_closed_network_pulls_the_router_from_mirrors(strategy: str, repositories: dict[str, str], expected: list[str]) -> None:
    """NET007."""
    endpoint = {**LLMD, "routing": {**LLMD["routing"], "strategy": strategy}}
    changes = {**CLOSED, "endpoints[0]": endpoint, "cluster.router_repositories": repositories}
    del changes["endpoints[0].image"]
    assert [one.path for one in findings(changes, id="NET007")] == [f"cluster.router_repositories.{name}" for name in expected]
    opened = {"endpoints[0]": endpoint, "cluster.router_repositories": repositories}
    assert not findings(opened, id="NET007")
