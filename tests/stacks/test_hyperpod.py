"""The HyperPod stack: one subnet for all nodes, capacity kinds, and a node role that may do what nodes do."""

from typing import Any

import pytest

from tests.stacks.conftest import changed
from tests.stacks.support import Template
from tests.stacks.test_network import ADOPTED

PLAN = "arn:aws:sagemaker:us-east-2:111122223333:training-plan/p5-in-december"


def hyperpod(changes: dict[str, Any] | None = None) -> Template:
    return changed(changes).templates["hyperpod"]


def groups(changes: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    cluster = hyperpod(changes).one("AWS::SageMaker::Cluster")
    return {group["InstanceGroupName"]: group for group in cluster["InstanceGroups"]}


def allowed(changes: dict[str, Any] | None = None) -> dict[str, list[Any]]:
    """What the node role may do: resources by action."""
    found: dict[str, list[Any]] = {}
    for policy in hyperpod(changes).one("AWS::IAM::Role")["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            for action in statement["Action"]:
                found.setdefault(action, []).extend(statement["Resource"])
    return found


def test_the_cluster_is_provisioned_continuously_and_recovers() -> None:
    cluster = hyperpod().one("AWS::SageMaker::Cluster")
    assert cluster["NodeProvisioningMode"] == "Continuous"
    assert cluster["NodeRecovery"] == "Automatic"
    assert cluster["ClusterName"] == "llama-dpd-dev"
    assert hyperpod({"cluster.node_recovery": "none"}).one("AWS::SageMaker::Cluster")["NodeRecovery"] == "None"


def test_the_logical_id_of_the_cluster_never_changes() -> None:
    assert list(hyperpod().of("AWS::SageMaker::Cluster")) == ["HyperPodCluster"]


def test_every_group_is_in_the_one_gpu_subnet_with_the_efa_group() -> None:
    places = [group["OverrideVpcConfig"] for group in groups().values()]
    assert len(places) == 3
    assert all(place == places[0] for place in places)
    (subnet,), (security_group,) = places[0]["Subnets"], places[0]["SecurityGroupIds"]
    assert subnet["Fn::GetStackOutput"]["OutputName"].startswith("PublishOutputFnGetAttGpuSubnet")
    assert security_group["Fn::GetStackOutput"]["OutputName"].startswith("PublishOutputFnGetAttEfaSecurityGroup")


def test_a_later_security_group_replaces_no_cluster() -> None:
    """VpcConfig is create-only: what may change stands in the groups alone."""
    before = {"network": {"existing": {**ADOPTED["network"]["existing"], "security_groups": []}}}
    frozen = [hyperpod(changes).one("AWS::SageMaker::Cluster")["VpcConfig"] for changes in (before, ADOPTED)]
    assert frozen[0] == frozen[1]
    places = [group["OverrideVpcConfig"] for group in groups(ADOPTED).values()]
    assert [place["Subnets"] for place in places] == [["subnet-0123456789abcdef0"]] * 3
    assert [place["SecurityGroupIds"][1:] for place in places] == [["sg-0123456789abcdef0"]] * 3


def test_every_group_says_its_threads_and_its_lifecycle_script() -> None:
    for group in groups().values():
        assert group["ThreadsPerCore"] == 2
        assert group["LifeCycleConfig"]["OnCreate"] == "on_create.sh"
        assert group["LifeCycleConfig"]["SourceS3Uri"].startswith("s3://sagemaker-")


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        ("on_demand", {"CapacityRequirements": {"OnDemand": {}}}),
        ("spot", {"CapacityRequirements": {"Spot": {}}}),
        ({"training_plan_arn": PLAN, "availability_zone_id": "use2-az1"}, {"TrainingPlanArn": PLAN}),
        (None, {}),
    ],
)
def test_capacity_kinds(capacity: Any, expected: dict[str, Any]) -> None:
    group = groups({"cluster.groups.prefill.capacity": capacity})["prefill"]
    assert {key: value for key, value in group.items() if key in {"CapacityRequirements", "TrainingPlanArn"}} == expected


def test_efa_devices_can_do_without_addresses() -> None:
    assert "NetworkInterface" not in groups()["decode"]
    group = groups({"cluster.groups.decode.network_interface": "efa_only"})["decode"]
    assert group["NetworkInterface"] == {"InterfaceType": "efa-only"}


def test_labels_and_taints() -> None:
    assert "KubernetesConfig" not in groups()["decode"]
    group = groups(
        {
            "cluster.groups.decode.labels": {"team": "a"},
            "cluster.groups.decode.taints": [{"key": "gpu", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoExecute"}],
        }
    )["decode"]
    assert group["KubernetesConfig"] == {
        "Labels": {"team": "a"},
        "Taints": [{"Effect": "NoSchedule", "Key": "gpu"}, {"Effect": "NoExecute", "Key": "a", "Value": "b"}],
    }


def test_volumes_are_encrypted_with_the_environment_s_key() -> None:
    group = groups({"cluster.groups.decode.data_volume_gib": 500})["decode"]
    root, data = [volume["EbsVolumeConfig"] for volume in group["InstanceStorageConfigs"]]
    assert root["RootVolume"] is True
    assert "VolumeSizeInGB" not in root
    assert data["VolumeSizeInGB"] == 500
    assert root["VolumeKmsKeyId"] == data["VolumeKmsKeyId"]
    assert len(groups()["decode"]["InstanceStorageConfigs"]) == 1


def test_options_of_the_cluster() -> None:
    assembly = {
        "cluster.tiered_storage_memory_percent": 20,
        "cluster.image_release_version": "1.2.3",
        "cluster.groups.decode.deep_health_checks": ["instance_stress", "instance_connectivity"],
        "cluster.groups.decode.raw": {"MinInstanceCount": 1},
        "cluster.raw.hyperpod": {"AutoScaling.Mode": "Disable"},
    }
    cluster = hyperpod(assembly).one("AWS::SageMaker::Cluster")
    assert cluster["TieredStorageConfig"] == {"InstanceMemoryAllocationPercentage": 20, "Mode": "Enable"}
    assert cluster["AutoScaling"] == {"Mode": "Disable"}
    decode = groups(assembly)["decode"]
    assert decode["OnStartDeepHealthChecks"] == ["InstanceStress", "InstanceConnectivity"]
    assert decode["MinInstanceCount"] == 1
    assert {group["ImageReleaseVersion"] for group in groups(assembly).values()} == {"1.2.3"}
    assert not {"TieredStorageConfig", "AutoScaling"} & set(hyperpod().one("AWS::SageMaker::Cluster"))


@pytest.mark.parametrize(("instance_type", "ignored"), [("ml.p5.48xlarge", False), ("ml.p5e.48xlarge", True)])
def test_the_linter_is_quiet_only_about_types_that_it_does_not_know(instance_type: str, ignored: bool) -> None:
    cluster = hyperpod({"cluster.groups.decode.instance_type": instance_type}).resources["HyperPodCluster"]
    ignores = cluster.get("Metadata", {}).get("cfn-lint", {}).get("config", {}).get("ignore_checks", [])
    assert ignores == (["E3644"] if ignored else [])


def test_the_node_role_reads_lustre_only_where_there_is_one() -> None:
    assert allowed()["fsx:DescribeFileSystems"] == ["*"]
    assert "fsx:DescribeFileSystems" not in allowed({"storage.lustre": None})


def test_the_node_role_is_narrow() -> None:
    actions = allowed()
    bucket = "arn:aws:s3:::sagemaker-llama-dpd-dev-111122223333-us-east-2"
    assert actions["s3:GetObject"] == [f"{bucket}/*"]
    assert actions["s3:ListBucket"] == [bucket]
    assert actions["eks-auth:AssumeRoleForPodIdentity"] == ["arn:aws:eks:us-east-2:111122223333:cluster/llama-dpd-dev"]
    assert "*" not in actions["ec2:CreateNetworkInterface"]
    assert "*" not in actions["kms:Decrypt"]
    assert "cloudwatch:DescribeAlarms" in actions
