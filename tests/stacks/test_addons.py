"""The add-ons stack: nothing before there are nodes, the operator last, and every role for one service account."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from dpd.catalog import iam_policies
from tests.stacks.conftest import changed
from tests.stacks.support import Template

ORDER = [
    "coredns",
    "cert-manager",
    "metrics-server",
    "aws-mountpoint-s3-csi-driver",
    "aws-fsx-csi-driver",
    "amazon-sagemaker-hyperpod-inference",
]
BUCKET = "arn:aws:s3:::llama-dpd-dev-models-111122223333-us-east-2"


def addons(changes: dict[str, Any] | None = None) -> Template:
    return changed(changes).templates["addons"]


def by_name(template: Template) -> dict[str, tuple[str, dict[str, Any]]]:
    """Logical id and resource of each add-on."""
    return {resource["Properties"]["AddonName"]: (id_, resource) for id_, resource in template.of("AWS::EKS::Addon").items()}


def joined(value: Any) -> str:
    """A text with references in it as plain text."""
    if isinstance(value, str):
        return value
    if "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return str(separator).join(joined(part) for part in parts)
    return "/".join(map(str, next(iter(value.values())))) if isinstance(value, dict) and "Fn::GetAtt" in value else "REF"


def operator(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Configuration of the inference operator."""
    _, resource = by_name(addons(changes))["amazon-sagemaker-hyperpod-inference"]
    configuration: dict[str, Any] = json.loads(joined(resource["Properties"]["ConfigurationValues"]))
    return configuration


def role(id_: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    properties: dict[str, Any] = addons(changes).resources[id_]["Properties"]
    return properties


def allowed(id_: str, changes: dict[str, Any] | None = None) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for policy in role(id_, changes)["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            for action in statement["Action"]:
                found.setdefault(action, []).extend(statement["Resource"])
    return found


def test_nothing_is_installed_before_the_gate_opens() -> None:
    template = addons()
    found = by_name(template)
    assert list(found) == ORDER
    (gate,) = template.of("Custom::DpdNodeGate")
    assert gate in found["coredns"][1]["DependsOn"]
    for before, after in pairwise(ORDER):
        assert found[before][0] in found[after][1]["DependsOn"], after


def test_the_gate_waits_for_the_system_group_and_gives_up_in_time() -> None:
    (gate,) = addons().properties("Custom::DpdNodeGate")
    assert gate["Groups"] == {"system": 2}
    assert int(gate["TimeoutSeconds"]) < 50 * 60 < int(gate["ServiceTimeout"]) <= 3600


@pytest.mark.parametrize("change", [{"cluster.groups.decode.count": 2}, {"cluster.groups.system.instance_type": "ml.c5.9xlarge"}])
def test_the_gate_looks_again_when_a_group_changes(change: dict[str, Any]) -> None:
    before, after = (addons(changes).one("Custom::DpdNodeGate")["Digest"] for changes in (None, change))
    assert before != after
    assert before == addons({"cluster.api_access": {"public_cidrs": ["203.0.113.0/24"]}}).one("Custom::DpdNodeGate")["Digest"]


def test_the_gate_may_read_nodes_and_nothing_else() -> None:
    template = addons()
    entry = template.one("AWS::EKS::AccessEntry")
    assert entry["KubernetesGroups"] == ["dpd:node-readers"]
    assert "AccessPolicies" not in entry
    (gate,) = template.of("Custom::DpdNodeGate").values()
    assert set(gate["DependsOn"]) & set(template.of("AWS::EKS::AccessEntry"))


def test_versions_are_pinned_and_conflicts_overwritten() -> None:
    for name, (_, resource) in by_name(addons()).items():
        assert resource["Properties"]["AddonVersion"].startswith("v"), name
        assert resource["Properties"]["ResolveConflicts"] == "OVERWRITE", name
        assert "PodIdentityAssociations" not in resource["Properties"], name


def test_the_file_changes_or_leaves_out_an_add_on() -> None:
    changes = {"cluster.add_ons": {"metrics-server": {"install": False}, "cert-manager": {"version": "v1.19.0-eksbuild.9"}}}
    found = by_name(addons(changes))
    assert "metrics-server" not in found
    assert found["cert-manager"][1]["Properties"]["AddonVersion"] == "v1.19.0-eksbuild.9"
    assert found["cert-manager"][0] in found["aws-mountpoint-s3-csi-driver"][1]["DependsOn"]


def test_the_operator_is_configured_with_its_roles_cluster_and_bucket() -> None:
    configuration = operator()
    assert configuration["executionRoleArn"] == "Operator/Arn"
    assert configuration["tlsCertificateS3Bucket"].startswith("hyperpod-tls-")
    assert configuration["hyperpodClusterArn"] == "REF"
    assert configuration["alb"] == {"enabled": True, "serviceAccount": {"create": True, "roleArn": "LoadBalancers/Arn"}}
    assert configuration["keda"] == {"enabled": True, "auth": {"aws": {"irsa": {"enabled": True, "roleArn": "Autoscaler/Arn"}}}}


@pytest.mark.parametrize(("version", "expected"), [("v1.5.0-eksbuild.1", None), ("v2.0.0-eksbuild.2", {"enabled": False})])
def test_the_gateway_is_off_where_there_is_one(version: str, expected: dict[str, Any] | None) -> None:
    changes = {"cluster.add_ons": {"amazon-sagemaker-hyperpod-inference": {"version": version}}}
    assert operator(changes).get("inferenceGateway") == expected


@pytest.mark.parametrize(
    ("id_", "account", "services"),
    [
        ("Operator", "hyperpod-inference-system:hyperpod-inference-controller-manager", ["sagemaker.amazonaws.com"]),
        ("LoadBalancers", "hyperpod-inference-system:aws-load-balancer-controller", []),
        ("Autoscaler", "hyperpod-inference-system:keda-operator", []),
        ("ModelReader", "kube-system:s3-csi-driver-sa", []),
    ],
)
def test_each_role_trusts_one_service_account(id_: str, account: str, services: list[str]) -> None:
    text, variables = role(id_)["AssumeRolePolicyDocument"]["Fn::Sub"]
    assert set(variables) == {"Issuer", "Provider"}
    *others, federated = json.loads(text)["Statement"]
    assert [statement["Principal"]["Service"] for statement in others] == services
    assert federated["Principal"] == {"Federated": "${Provider}"}
    assert federated["Action"] == "sts:AssumeRoleWithWebIdentity"
    equals = {"${Issuer}:aud": "sts.amazonaws.com", "${Issuer}:sub": f"system:serviceaccount:{account}"}
    assert federated["Condition"] == {"StringEquals": equals}


def test_the_operator_s_role_has_the_name_that_the_add_on_demands() -> None:
    name = role("Operator")["RoleName"]
    assert name.startswith("SageMakerHyperPodInference")
    assert len(name) <= 64
    assert role("Operator")["ManagedPolicyArns"] == ["arn:aws:iam::aws:policy/AmazonSageMakerHyperPodInferenceAccess"]


def test_certificates_and_workspaces_widen_roles_only_when_they_are_used() -> None:
    assert not {"acm:DescribeCertificate", "route53:ChangeResourceRecordSets"} & set(allowed("Operator"))
    assert "aps:QueryMetrics" not in allowed("Autoscaler")
    certificate = "arn:aws:acm:us-east-2:111122223333:certificate/12345678-1234-1234-1234-123456789012"
    trigger = {"workspace_url": "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1", "query": "up", "target": 1}
    changes = {
        "endpoints[0].exposure.certificate": {"acm_arn": certificate, "domain_name": "a.example.com", "hosted_zone_id": "Z1"},
        "endpoints[0].decode.autoscaling": {"min_replicas": 1, "max_replicas": 1, "prometheus": [trigger]},
    }
    assert allowed("Operator", changes)["acm:DescribeCertificate"] == [certificate]
    assert allowed("Operator", changes)["route53:ChangeResourceRecordSets"] == ["arn:aws:route53:::hostedzone/Z1"]
    assert allowed("Autoscaler", changes)["aps:QueryMetrics"] == ["arn:aws:aps:us-east-2:111122223333:workspace/ws-1"]


def test_the_s3_driver_reads_the_model_bucket_alone() -> None:
    actions = allowed("ModelReader")
    assert actions["s3:ListBucket"] == [BUCKET]
    assert actions["s3:GetObject"] == [f"{BUCKET}/*"]
    assert set(actions) == {"s3:ListBucket", "s3:GetObject", "kms:Decrypt"}
    assert "*" not in actions["kms:Decrypt"]
    adopted = {"storage.models.bucket": {"existing": "our-models", "region": "us-east-2"}}
    assert set(allowed("ModelReader", adopted)) == {"s3:ListBucket", "s3:GetObject"}
    _, driver = by_name(addons())["aws-mountpoint-s3-csi-driver"]
    assert driver["Properties"]["ServiceAccountRoleArn"] == {"Fn::GetAtt": ["ModelReader", "Arn"]}


def test_static_lustre_volumes_need_no_role() -> None:
    _, driver = by_name(addons())["aws-fsx-csi-driver"]
    assert "ServiceAccountRoleArn" not in driver["Properties"]


def test_every_wildcard_of_the_catalog_has_a_reason_and_nothing_else_has_one() -> None:
    for name in iam_policies.names():
        for statement in iam_policies.find(name).statements:
            # A whole value, such as {files}, may hold a wildcard once it is known.
            open_ended = any(re.search(r"[*?]|^\{\w+\}$", resource) for resource in statement.resources)
            assert not statement.wildcard or open_ended, f"{name}: {statement.id}"
            assert statement.wildcard or not any("*" in resource for resource in statement.resources), f"{name}: {statement.id}"
            assert not [action for action in statement.actions if "*" in action], f"{name}: {statement.id}"


def test_the_load_balancer_controller_s_policy_is_complete() -> None:
    policy = iam_policies.find("load_balancer_controller")
    assert len(policy.statements) == 16
    assert len({action for statement in policy.statements for action in statement.actions}) == 80
