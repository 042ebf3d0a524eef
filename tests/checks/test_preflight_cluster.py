"""Rules about what the Region offers for the cluster."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dpd.finding import Level
from dpd.preflight.facts import AddOnVersions, Certificate, EksCluster, Kubernetes
from tests.checks.answers import VPC, Told
from tests.checks.cases import ADOPTED_CLUSTER, SELF

CNI = ("add_on", "vpc-cni 1.34")
PIN = "cluster.add_ons.vpc-cni.version"
ISSUER = "https://oidc.eks.us-east-2.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF"
PRIVATE = "111122223333.dkr.ecr.us-east-2.amazonaws.com/vllm"
IMAGE: dict[str, Any] = {
    "endpoints[0].image": {"repository": PRIVATE, "tag": "server-hyperpod-cuda-v1.1", "lmcache": "0.4.3", "vllm": "0.19.0", "nixl": "1.0.0"}
}
ACM = "arn:aws:acm:us-east-2:111122223333:certificate/12345678-1234-1234-1234-123456789012"
CERTIFIED: dict[str, Any] = {"endpoints[0].exposure.certificate": {"acm_arn": ACM, "domain_name": "llm.example.com"}}


def cluster(**given: Any) -> dict[tuple[str, str], Any]:
    fit = {
        "status": "ACTIVE", "version": "1.34", "authentication_mode": "API_AND_CONFIG_MAP", "oidc_issuer": ISSUER,
        "security_group_id": SELF, "vpc_id": VPC,
    }  # fmt: skip
    return {("eks_cluster", "platform"): EksCluster(**{**fit, **given})}


def offered(*versions: str) -> dict[tuple[str, str], Any]:
    return {CNI: AddOnVersions(versions=versions)}


def certificate(status: str = "ISSUED", end: int = 30) -> dict[tuple[str, str], Any]:
    return {("certificate", ACM): Certificate(status=status, expires=datetime(2026, 11, end, tzinfo=UTC))}


CASES = [
    Told("PRE040", {("kubernetes", "1.34"): None}, "cluster.kubernetes_version", "does not offer it"),
    Told("PRE040", {("kubernetes", "1.34"): Kubernetes(status="UNSUPPORTED")}, "cluster.kubernetes_version", "does not offer it"),
    Told(
        "PRE040", {("kubernetes", "1.34"): Kubernetes(status="EXTENDED_SUPPORT")}, "cluster.kubernetes_version", "costs more",
        {("kubernetes", "1.34"): Kubernetes(status="STANDARD_SUPPORT")}, level=Level.WARNING,
    ),
    Told("PRE041", offered(), PIN, "us-east-2 does not offer it for Kubernetes 1.34"),
    Told(
        "PRE041", offered("v1.25.0-eksbuild.1", "v1.23.0-eksbuild.1", "v1.20.0-eksbuild.1"), PIN, "write v1.23.0-eksbuild.1",
        offered("v1.25.0-eksbuild.1", "v1.22.4-eksbuild.3"),
    ),
    Told("PRE041", offered("v1.20.0-eksbuild.2", "v1.20.0-eksbuild.1"), PIN, "write v1.20.0-eksbuild.2"),
    Told("PRE041", offered("something-else"), PIN, "write something-else"),
    Told(
        "PRE041", offered("v1.25.0-eksbuild.1"), PIN, "v1.26.0-eksbuild.1 is not offered", offered("v1.26.0-eksbuild.1"),
        {"cluster.add_ons": {"vpc-cni": {"version": "v1.26.0-eksbuild.1"}}},
    ),
    *(
        Told("PRE042", cluster(**wrong), path, says, cluster(), ADOPTED_CLUSTER)
        for wrong, path, says in [
            ({"status": "FAILED"}, "cluster.existing.name", "has FAILED"),
            ({"version": "1.33"}, "cluster.kubernetes_version", "has 1.33"),
            ({"authentication_mode": "CONFIG_MAP"}, "cluster.existing.authentication_mode", "has CONFIG_MAP"),
            ({"oidc_issuer": "https://elsewhere"}, "cluster.existing.oidc_issuer", "https://elsewhere"),
            ({"security_group_id": "sg-00000000000000001"}, "cluster.existing.security_group_id", "sg-00000000000000001"),
            ({"vpc_id": "vpc-0000000000000000f"}, "network.existing.vpc_id", "vpc-0000000000000000f"),
        ]
    ),
    Told("PRE042", {("eks_cluster", "platform"): None}, "cluster.existing.name", "no such cluster", cluster(), ADOPTED_CLUSTER),
    Told("PRE043", {("image", f"{PRIVATE}:server-hyperpod-cuda-v1.1"): None}, "endpoints[0].image", "no such image", changes=IMAGE),
    Told("PRE044", {("certificate", ACM): None}, "endpoints[0].exposure.certificate.acm_arn", "no such", certificate(), CERTIFIED),
    Told(
        "PRE044", certificate("PENDING_VALIDATION"), "endpoints[0].exposure.certificate.acm_arn", "is PENDING_VALIDATION", certificate(),
        CERTIFIED,
    ),
    Told("PRE044", certificate(end=29), "endpoints[0].exposure.certificate.acm_arn", "expired 2026-11-29", certificate(end=30), CERTIFIED),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_smallest_wrong_and_nearest_right(case: Told) -> None:
    case.verify()
