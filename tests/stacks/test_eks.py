"""The EKS stack: what HyperPod demands of the cluster, who may reach it, and what lies on it before HyperPod comes."""

import json
from typing import Any

import pytest

from dpd.environment.cluster import AddOn
from tests.stacks.conftest import changed
from tests.stacks.support import Template

EXISTING = {
    "name": "shared",
    "security_group_id": "sg-0123456789abcdef0",
    "oidc_issuer": "https://oidc.eks.us-east-2.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF",
    "oidc_provider_arn": "arn:aws:iam::111122223333:oidc-provider/oidc.eks.us-east-2.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF",
    "authentication_mode": "API_AND_CONFIG_MAP",
    "prerequisites": "install",
}


def eks(changes: dict[str, Any] | None = None) -> Template:
    return changed(changes).templates["eks"]


def manifests(template: Template) -> dict[str, list[dict[str, Any]]]:
    """Objects of each kubectl manifest by logical id."""
    found = {}
    for id_, resource in template.of("Custom::AWSCDK-EKS-KubernetesResource").items():
        text = resource["Properties"]["Manifest"]
        found[id_] = json.loads(
            text if isinstance(text, str) else "".join(part if isinstance(part, str) else "REF" for part in text["Fn::Join"][1])
        )
    return found


def test_the_cluster_is_what_hyperpod_demands() -> None:
    cluster = eks().one("AWS::EKS::Cluster")
    assert cluster["AccessConfig"] == {"AuthenticationMode": "API_AND_CONFIG_MAP", "BootstrapClusterCreatorAdminPermissions": False}
    assert cluster["BootstrapSelfManagedAddons"] is False
    assert "ComputeConfig" not in cluster
    assert cluster["Name"] == "llama-dpd-dev"
    assert cluster["Version"] == "1.34"


def test_the_logical_id_of_the_cluster_never_changes() -> None:
    assert list(eks().of("AWS::EKS::Cluster")) == ["EksCluster"]


def test_secrets_are_encrypted_and_everything_is_logged() -> None:
    template = eks()
    cluster = template.one("AWS::EKS::Cluster")
    (encryption,) = cluster["EncryptionConfig"]
    assert encryption["Resources"] == ["secrets"]
    assert {kind["Type"] for kind in cluster["Logging"]["ClusterLogging"]["EnabledTypes"]} == {
        "api", "audit", "authenticator", "controllerManager", "scheduler",
    }  # fmt: skip
    groups = {id_: group for id_, group in template.of("AWS::Logs::LogGroup").items() if "LogGroupName" in group["Properties"]}
    (made,) = [id_ for id_, group in groups.items() if group["Properties"]["LogGroupName"] == "/aws/eks/llama-dpd-dev/cluster"]
    assert made in template.resources["EksCluster"]["DependsOn"]


@pytest.mark.parametrize(
    ("access", "public", "cidrs"),
    [("private", False, None), ({"public_cidrs": ["203.0.113.0/24"]}, True, ["203.0.113.0/24"])],
)
def test_the_api_is_private_unless_networks_are_named(access: Any, public: bool, cidrs: list[str] | None) -> None:
    config = eks({"cluster.api_access": access}).one("AWS::EKS::Cluster")["ResourcesVpcConfig"]
    assert config["EndpointPrivateAccess"] is True
    assert config["EndpointPublicAccess"] is public
    assert config.get("PublicAccessCidrs") == cidrs


def test_administrators_are_those_that_the_file_names_and_the_kubectl_handler() -> None:
    role = "arn:aws:iam::111122223333:role/platform"
    entries = eks({"cluster.admin_role_arns": [role]}).properties("AWS::EKS::AccessEntry")
    assert sum(entry["PrincipalArn"] == role for entry in entries) == 1
    assert len(entries) == 2
    for entry in entries:
        assert entry["AccessPolicies"] == [
            {"AccessScope": {"Type": "cluster"}, "PolicyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"}
        ]


def test_add_ons_that_need_no_node_are_pinned_and_overwrite() -> None:
    add_ons = {add_on["AddonName"]: add_on for add_on in eks().properties("AWS::EKS::Addon")}
    assert set(add_ons) == {"vpc-cni", "kube-proxy", "eks-pod-identity-agent"}
    for add_on in add_ons.values():
        assert add_on["ResolveConflicts"] == "OVERWRITE"
        assert add_on["AddonVersion"].startswith("v")
        assert "PodIdentityAssociations" not in add_on


def test_network_policies_are_enforced_where_an_endpoint_has_some() -> None:
    def configured(changes: dict[str, Any] | None = None) -> Any:
        (found,) = (one for one in eks(changes).properties("AWS::EKS::Addon") if one["AddonName"] == "vpc-cni")
        return found.get("ConfigurationValues")

    assert configured() is None
    assert json.loads(configured({"endpoints[0].backend": "llm-d", "endpoints[0].kv": {"cpu_tier": False}, "gate.deploy": False})) == {
        "enableNetworkPolicy": "true"
    }


def test_an_add_on_takes_the_file_s_version_or_is_left_out() -> None:
    change = {"cluster.add_ons": {"vpc-cni": {"version": "v1.99.0-eksbuild.1"}, "kube-proxy": {"install": False}}}
    add_ons = {add_on["AddonName"]: add_on for add_on in eks(change).properties("AWS::EKS::Addon")}
    assert add_ons["vpc-cni"]["AddonVersion"] == "v1.99.0-eksbuild.1"
    assert "kube-proxy" not in add_ons
    assert AddOn().install


def test_the_kubectl_handler_sits_in_the_vpc_and_in_the_cluster_s_group() -> None:
    template = eks()
    for function in template.properties("AWS::Lambda::Function"):
        assert len(function["VpcConfig"]["SubnetIds"]) == 2
        assert function["VpcConfig"]["SecurityGroupIds"] == [{"Fn::GetAtt": ["EksCluster", "ClusterSecurityGroupId"]}]


def test_the_handler_s_role_holds_no_managed_policy() -> None:
    (handler,) = [role for role in eks().properties("AWS::IAM::Role") if role.get("Description") == "Applies Kubernetes manifests"]
    assert "ManagedPolicyArns" not in handler


def test_prerequisites_are_applied_after_access_the_namespace_first_and_stay() -> None:
    template = eks()
    resources = template.of("Custom::AWSCDK-EKS-KubernetesResource")
    found = manifests(template)
    (namespace,) = [id_ for id_, objects in found.items() if objects[0]["kind"] == "Namespace"]
    (rest,) = set(found) - {namespace}
    (access,) = [id_ for id_ in template.of("AWS::EKS::AccessEntry") if id_.startswith("Kubectl")]
    assert access in resources[namespace]["DependsOn"]
    assert namespace in resources[rest]["DependsOn"]
    assert [body["metadata"]["name"] for body in found[namespace]] == ["aws-hyperpod"]
    kinds = {(body["kind"], body["metadata"]["name"]) for body in found[rest]}
    assert {("DaemonSet", "health-monitoring-agent"), ("DaemonSet", "nvidia-device-plugin"), ("ClusterRole", "dpd-node-readers")} <= kinds
    for resource in resources.values():
        assert resource["DeletionPolicy"] == "Retain"
        assert resource["Properties"]["Overwrite"] is True
        assert "PruneLabel" not in resource["Properties"]
        assert not resource["Properties"].get("SkipValidation")


def test_an_adopted_cluster_is_left_as_it_is() -> None:
    assembly = changed({"cluster.existing": EXISTING})
    template = assembly.templates["eks"]
    for kind in ("AWS::EKS::Cluster", "AWS::EKS::Addon", "AWS::IAM::OIDCProvider"):
        assert not template.of(kind), kind
    assert {resource["Properties"]["ClusterName"] for resource in template.of("Custom::AWSCDK-EKS-KubernetesResource").values()} == {
        "shared"
    }
    arn = "arn:aws:eks:us-east-2:111122223333:cluster/shared"
    assert assembly.templates["hyperpod"].one("AWS::SageMaker::Cluster")["Orchestrator"] == {"Eks": {"ClusterArn": arn}}


def test_prerequisites_that_exist_are_not_installed_twice() -> None:
    template = eks({"cluster.existing": EXISTING | {"prerequisites": "exists"}})
    assert not template.of("Custom::AWSCDK-EKS-KubernetesResource")


def test_raw_properties_come_last() -> None:
    assert eks({"cluster.raw.eks": {"ZonalShiftConfig.Enabled": True}}).one("AWS::EKS::Cluster")["ZonalShiftConfig"] == {"Enabled": True}
