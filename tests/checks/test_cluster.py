"""Rules about the cluster as a whole."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.checks.cases import ADOPTED_CLUSTER, ADOPTED_NETWORK, Case
from tests.support import base, findings

ROLE = "arn:aws:iam::111122223333:role/platform/Admin"


SECOND = {"endpoints[1]": {**base()["endpoints"][0], "name": "other"}}


TIERED = {"endpoints[0].kv.shared_tier": "tiered_storage", "cluster.tiered_storage_memory_percent": 20}


def adopted(**values: Any) -> dict[str, Any]:
    return {**ADOPTED_CLUSTER, **{f"cluster.existing.{key}": value for key, value in values.items()}}


PREINSTALLED = adopted(prerequisites="exists")


CASES = [
    *(
        Case("CLU011", {"cluster.admin_role_arns": [wrong]}, "cluster.admin_role_arns[0]", says, {"cluster.admin_role_arns": [ROLE]})
        for wrong, says in [
            ("arn:aws:sts::111122223333:assumed-role/Admin/me", "a session"),
            ("arn:aws:iam::111122223333:user/me", "not an IAM role"),
            ("arn:aws:iam::111122223333:root", "not an IAM role"),
            ("arn:aws:iam::111122223333:role/*", "not an IAM role"),
            ("arn:aws:iam::111122223333:role/aws-service-role/x.amazonaws.com/Y", "not an IAM role"),
        ]
    ),
    Case(
        "CLU011",
        {"cluster.admin_role_arns": [ROLE, ROLE]},
        "cluster.admin_role_arns[1]",
        "twice",
        {"cluster.admin_role_arns": [ROLE, ROLE.replace("aws:iam::1", "aws:iam::2")]},
    ),
    Case("CLU012", {}, "cluster.admin_role_arns", "kubectl", {"cluster.admin_role_arns": [ROLE]}, Level.INFO),
    Case(
        "CLU013",
        adopted(authentication_mode="CONFIG_MAP"),
        "cluster.existing.authentication_mode",
        "API_AND_CONFIG_MAP",
        adopted(authentication_mode="API"),
    ),
    Case(
        "CLU014",
        adopted(oidc_provider_arn=ADOPTED_CLUSTER["cluster.existing"]["oidc_provider_arn"].replace("1111", "9999")),
        "cluster.existing.oidc_provider_arn",
        "list-open-id-connect-providers",
        ADOPTED_CLUSTER,
    ),
    Case("CLU015", {**ADOPTED_CLUSTER, "network": base()["network"]}, "network.existing", "the cluster's VPC", ADOPTED_CLUSTER),
    Case("CLU016", {"endpoints[0].kv.shared_tier": "tiered_storage"}, "endpoints[0].kv.shared_tier", "such as 20", TIERED),
    Case("CLU016", {"cluster.tiered_storage_memory_percent": 20}, "cluster.tiered_storage_memory_percent", "20 %", TIERED, Level.WARNING),
    Case(
        "CLU017",
        {**TIERED, **SECOND, "endpoints[1].namespace": "tenant", "endpoints[1].kv.shared_tier": "tiered_storage"},
        "endpoints[1].kv.shared_tier",
        "inference, tenant",
        {**TIERED, **SECOND, "endpoints[1].kv.shared_tier": "tiered_storage"},
        Level.WARNING,
    ),
    *(
        Case("CLU021", {**ADOPTED_CLUSTER, f"cluster.{key}": value}, f"cluster.{key}", "would be ignored", {f"cluster.{key}": value})
        for key, value in [
            ("api_access", {"public_cidrs": ["203.0.113.0/24"]}),
            ("raw.eks", {"UpgradePolicy.SupportType": "STANDARD"}),
            ("add_ons.vpc-cni", {"version": "v1.22.4-eksbuild.3"}),
        ]
    ),
    Case("CLU018", {"region": "eu-west-3"}, "region", "eu-west-1", {"region": "eu-west-1"}),
    Case("CLU018", {"region": "ca-central-1"}, "region", "us-east-1", {"region": "ca-central-1", "endpoints": []}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case} {case.says}")
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()


def test_an_issuer_of_another_region() -> None:
    issuer = "https://oidc.eks.us-west-2.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF"
    arn = f"arn:aws:iam::111122223333:oidc-provider/{issuer.removeprefix('https://')}"
    found = findings(adopted(oidc_issuer=issuer, oidc_provider_arn=arn), id="CLU014")
    assert [one.path for one in found] == ["cluster.existing.oidc_issuer"]


def test_agents_without_an_image_in_the_region() -> None:
    region = {"region": "mx-central-1"}
    agents = ("health_monitoring_agent", "efa_device_plugin")
    assert [one.path for one in findings(region, id="CLU019")] == [f"cluster.agent_repositories.{name}" for name in agents]
    mirrors = {name: f"mirror.example.com/{name}" for name in agents}
    assert not findings({**region, "cluster.agent_repositories": mirrors}, id="CLU019")
    assert not findings({**PREINSTALLED, **region}, id="CLU019")


def test_an_adopted_network_alone_is_right() -> None:
    assert not [one for one in findings(ADOPTED_NETWORK) if one.id.startswith("CLU") and one.level is not Level.INFO]
