"""Rules about the cluster."""

from typing import Any

import pytest

from dpd.catalog import add_ons
from dpd.finding import Level
from tests.checks.cases import ADOPTED_CLUSTER, ADOPTED_NETWORK, Case
from tests.support import REMOVE, base, findings

ROLE = "arn:aws:iam::111122223333:role/platform/Admin"
PLAN = "arn:aws:sagemaker:us-east-2:111122223333:training-plan/llama"
SECOND = {"endpoints[1]": {**base()["endpoints"][0], "name": "other"}}
TIERED = {"endpoints[0].kv.shared_tier": "tiered_storage", "cluster.tiered_storage_memory_percent": 20}


def plan(arn: str) -> dict[str, Any]:
    return {"cluster.groups.prefill.capacity": {"training_plan_arn": arn, "availability_zone_id": "use2-az1"}}


def labels(**values: str) -> dict[str, Any]:
    return {"cluster.groups.decode.labels": values}


def label(key: str, value: str = "x") -> dict[str, Any]:
    return {"cluster.groups.decode.labels": {key: value}}


def taints(*keys: str, effect: str = "NoSchedule", group: str = "decode") -> dict[str, Any]:
    return {f"cluster.groups.{group}.taints": [{"key": key, "effect": effect} for key in keys]}


def add_on(name: str, **values: Any) -> dict[str, Any]:
    return {"cluster.add_ons": {name: values}}


def adopted(**values: Any) -> dict[str, Any]:
    return {**ADOPTED_CLUSTER, **{f"cluster.existing.{key}": value for key, value in values.items()}}


PREINSTALLED = adopted(prerequisites="exists")
LABELS = "cluster.groups.decode.labels"
INFERENCE = "amazon-sagemaker-hyperpod-inference"
CASES = [
    Case("CLU001", {"cluster.groups.decode.capacity": REMOVE}, "cluster.groups.decode.capacity", "ml.p5.48xlarge has GPUs"),
    Case(
        "CLU002",
        {"cluster.groups.system.max_count": 1},
        "cluster.groups.system.max_count",
        "at least 2",
        {"cluster.groups.system.max_count": 2},
    ),
    *(
        Case("CLU003", plan(wrong), "cluster.groups.prefill.capacity.training_plan_arn", says, plan(PLAN))
        for wrong, says in [
            (PLAN.replace("us-east-2", "us-west-2"), "in us-west-2"),
            (PLAN.replace("111122223333", "444455556666"), "account 444455556666"),
            ("arn:aws:ec2:us-east-2:111122223333:capacity-reservation/cr-0123", "not the ARN of a training plan"),
        ]
    ),
    *(
        Case("CLU004", label(wrong), f"{LABELS}.{wrong}", says, label(right))
        for wrong, says, right in [
            ("a b", "at most 63", "a-b"),
            ("a" * 64, "at most 63", "a" * 63),
            ("-a", "at most 63", "a"),
            ("Example/a", "DNS name", "example/a"),
            ("/a", "DNS name", "example.com/a"),
            ("kubernetes.io/role", "belongs to kubernetes.io", "example.com/role"),
            ("node.kubernetes.io/x", "belongs to kubernetes.io", "kubernetes.io.example.com/x"),
            ("sagemaker.amazonaws.com/instance-group-name", "belongs to sagemaker", "example.com/instance-group-name"),
            ("eks.amazonaws.com/nodegroup", "belongs to eks", "example.com/nodegroup"),
        ]
    ),
    Case("CLU004", label("a", "b c"), f"{LABELS}.a", "not a label value", label("a", "b-c")),
    Case("CLU004", label("a", "b" * 64), f"{LABELS}.a", "at most 63", label("a", "")),
    Case(
        "CLU004",
        taints("sagemaker.amazonaws.com/node-health-status"),
        "cluster.groups.decode.taints[0]",
        "belongs to sagemaker.amazonaws.com",
        taints("example.com/gpu"),
    ),
    Case("CLU004", taints("a", "a"), "cluster.groups.decode.taints[1]", "of another taint", taints("a", "b")),
    Case(
        "CLU005",
        {**PREINSTALLED, **taints("nvidia.com/gpu")},
        "cluster.groups.decode.taints[0]",
        "does not tolerate",
        {**PREINSTALLED, **taints("aws.amazon.com/efa")},
        Level.WARNING,
    ),
    Case(
        "CLU005",
        {**PREINSTALLED, **taints("x")},
        "cluster.groups.decode.taints[0]",
        "does not tolerate",
        {**adopted(prerequisites="install"), **taints("x")},
        Level.WARNING,
    ),
    Case(
        "CLU006",
        {"cluster.groups.system.deep_health_checks": ["instance_stress"]},
        "cluster.groups.system.deep_health_checks",
        "no accelerator",
    ),
    Case(
        "CLU006",
        {"cluster.groups.decode.deep_health_checks": ["instance_stress", "instance_stress"]},
        "cluster.groups.decode.deep_health_checks",
        "twice",
    ),
    Case(
        "CLU006",
        {"cluster.groups.decode.deep_health_checks": ["instance_stress", "instance_connectivity"]},
        "cluster.groups.decode.deep_health_checks",
        "billed while they are tested",
        level=Level.INFO,
    ),
    Case(
        "CLU007",
        add_on("cert-manger", version="v1.20.2-eksbuild.2"),
        "cluster.add_ons.cert-manger",
        "did you mean cert-manager?",
        add_on("cert-manager", version="v1.20.2-eksbuild.2"),
    ),
    Case("CLU007", add_on("something"), "cluster.add_ons.something", "outside of this tool"),
    *(
        Case("CLU008", add_on(name, version=wrong), f"cluster.add_ons.{name}.version", says, add_on(name, version=right))
        for name, wrong, says, right in [
            (INFERENCE, "v1.3.0-eksbuild.1", "v1.4.0-eksbuild.1 or newer", "v1.4.0-eksbuild.1"),
            (INFERENCE, "1.4.0", "v<major>", "v2.0.0-eksbuild.2"),
            (INFERENCE, "latest", "v<major>", "v10.0.0-eksbuild.1"),
            ("vpc-cni", "v1.18.2-eksbuild.9", "v1.18.3-eksbuild.1 or newer", "v1.18.3-eksbuild.1"),
            ("aws-fsx-csi-driver", "v1.5.9-eksbuild.1", "v1.6.0-eksbuild.1 or newer", "v1.6.0-eksbuild.1"),
            ("aws-mountpoint-s3-csi-driver", "v1.14.0-eksbuild.1", "or newer", "v1.14.1-eksbuild.1"),
            ("cert-manager", "v1.18.2-eksbuild.1", "or newer", "v1.18.2-eksbuild.2"),
            ("metrics-server", "v0.7.2-eksbuild.3", "or newer", "v0.7.2-eksbuild.4"),
            ("kube-proxy", "v1.35.3-eksbuild.29", "newer than Kubernetes 1.34", "v1.34.6-eksbuild.29"),
        ]
    ),
    Case(
        "CLU009",
        add_on("cert-manager", install=False),
        "cluster.add_ons.cert-manager.install",
        "made by this tool",
        {**ADOPTED_CLUSTER, **add_on("cert-manager", install=False)},
    ),
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
    Case(
        "CLU022",
        {"cluster.groups.system.network_interface": "efa_only"},
        "cluster.groups.system.network_interface",
        "no EFA device",
        {"cluster.groups.decode.network_interface": "efa_only"},
    ),
    Case(
        "CLU020",
        {"cluster.groups.decode.capacity": "spot"},
        "cluster.groups.decode.capacity",
        "endpoints[0].decode",
        {"cluster.groups.decode.capacity": "on_demand"},
        Level.WARNING,
    ),
    Case(
        "CLU020",
        {"cluster.groups.system.capacity": "spot"},
        "cluster.groups.system.capacity",
        "DNS, webhooks and routers",
        {"cluster.groups.system.capacity": "on_demand"},
        Level.WARNING,
    ),
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


def test_add_ons_without_a_pin() -> None:
    found = findings({"cluster.kubernetes_version": "1.33"}, id="CLU010")
    unpinned = [one.name for one in add_ons.all_add_ons() if one.version_for("1.33") is None]
    assert [one.path for one in found] == [f"cluster.add_ons.{name}.version" for name in unpinned]
    pins = {name: {"version": "v1.33.1-eksbuild.1"} for name in unpinned}
    assert not findings({"cluster.kubernetes_version": "1.33", "cluster.add_ons": pins}, id="CLU010")
    assert not findings(id="CLU010")


def test_agents_without_an_image_in_the_region() -> None:
    region = {"region": "mx-central-1"}
    agents = ("health_monitoring_agent", "efa_device_plugin")
    assert [one.path for one in findings(region, id="CLU019")] == [f"cluster.agent_repositories.{name}" for name in agents]
    mirrors = {name: f"mirror.example.com/{name}" for name in agents}
    assert not findings({**region, "cluster.agent_repositories": mirrors}, id="CLU019")
    assert not findings({**PREINSTALLED, **region}, id="CLU019")


def test_an_adopted_network_alone_is_right() -> None:
    assert not [one for one in findings(ADOPTED_NETWORK) if one.id.startswith("CLU") and one.level is not Level.INFO]
