"""What is dangerous, by the smallest change that is and the nearest that is not."""

import copy
from typing import Any, Final

import pytest

from dpd.review.assembly import Assembly, Stack
from dpd.review.dangers import dangers
from dpd.review.library import Library
from dpd.review.templates import Effect, compare_templates
from tests.support import ROOT

CLUSTER: Final[dict[str, Any]] = {
    "Type": "AWS::SageMaker::Cluster",
    "Properties": {
        "ClusterName": "c",
        "Orchestrator": {"Eks": {"ClusterArn": "arn:aws:eks:us-east-2:111122223333:cluster/a"}},
        "NodeRecovery": "Automatic",
        "VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]},
        "InstanceGroups": [
            {"InstanceGroupName": "prefill", "InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "ExecutionRole": "r"},
            {"InstanceGroupName": "decode", "InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "ExecutionRole": "r"},
        ],
    },
}
BUCKET: Final[dict[str, Any]] = {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "b"}}
SUBNET: Final[dict[str, Any]] = {
    "Type": "AWS::EC2::Subnet",
    "Properties": {"VpcId": "vpc-1", "AvailabilityZoneId": "use2-az1", "CidrBlock": "10.0.0.0/24"},
}
ROLE: Final[dict[str, Any]] = {
    "Type": "AWS::IAM::Role",
    "Properties": {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []}},
}
GROUP: Final[dict[str, Any]] = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "g", "VpcId": "vpc-1"}}
LAMBDA: Final[dict[str, Any]] = {"Type": "Custom::Anything", "Properties": {"ServiceToken": "arn", "Value": "1"}}
RESOURCES: Final[dict[str, Any]] = {"Cluster": CLUSTER, "Bucket": BUCKET, "Subnet": SUBNET, "Role": ROLE, "Group": GROUP, "Custom": LAMBDA}


def assembly(resources: dict[str, Any], **others: dict[str, Any]) -> Assembly:
    stacks = {"dev/hyperpod": Stack("dev", "hyperpod", "app-dev-hyperpod", {"Resources": resources})}
    stacks |= {f"dev/{part}": Stack("dev", part, f"app-dev-{part}", template) for part, template in others.items()}
    return Assembly(ROOT, stacks, {})


def changed(place: str, value: Any) -> dict[str, Any]:
    """The resources with one property set, or with one resource or property taken away (``None``)."""
    result = copy.deepcopy(RESOURCES)
    *parents, last = place.split("/")
    at: Any = result
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    if value is None:
        del at[int(last) if isinstance(at, list) else last]
    else:
        at[last] = value
    return result


def kinds(before: Assembly, after: Assembly, library: Library) -> list[str]:
    return [found.kind for found in dangers(compare_templates(before, after, library), existing=frozenset(before.stacks))]


def policies(resource: str) -> list[dict[str, Any]]:
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": resource}
    return [{"PolicyName": "p", "PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]}}]


ADMIN: Final = policies("*")


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ("Cluster/Properties/ClusterName", "d", ["replaced"]),
        ("Cluster/Properties/VpcConfig/Subnets", ["subnet-2"], ["replaced"]),
        ("Cluster/Properties/Orchestrator/Eks/ClusterArn", "arn:aws:eks:us-east-2:111122223333:cluster/b", ["orchestrator changed"]),
        ("Cluster/Properties/InstanceGroups/1", None, ["instance group removed"]),
        ("Cluster/Properties/InstanceGroups/0/InstanceType", "ml.p5e.48xlarge", ["instance type changed"]),
        ("Cluster/Properties/InstanceGroups/0/OverrideVpcConfig", {"Subnets": ["subnet-2"]}, ["nodes moved"]),
        ("Cluster/Properties/InstanceGroups/0/InstanceCount", 2, []),
        ("Cluster/Properties/NodeRecovery", "None", []),
        ("Cluster", None, ["removed"]),
        ("Bucket/Properties/BucketName", "other", ["replaced"]),
        ("Bucket/Properties/VersioningConfiguration", {"Status": "Enabled"}, []),
        ("Bucket", None, ["removed"]),
        ("Subnet/Properties/AvailabilityZoneId", "use2-az2", ["replaced", "availability zone changed"]),
        ("Subnet/Properties/MapPublicIpOnLaunch", False, []),
        ("Role/Properties/ManagedPolicyArns", ["arn:aws:iam::aws:policy/AdministratorAccess"], ["more rights"]),
        ("Role/Properties/Policies", ADMIN, ["more rights"]),
        ("Role/Properties/Description", "words", []),
        ("Group/Properties/SecurityGroupIngress", [{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}], ["more open network"]),
        ("Group/Properties/Tags", [{"Key": "a", "Value": "b"}], []),
        ("Custom/Properties/Value", "2", []),
        ("Custom", None, []),
    ],
)
def test_the_smallest_dangerous_change_and_the_nearest_harmless_one(place: str, value: Any, expected: list[str], library: Library) -> None:
    assert kinds(assembly(RESOURCES), assembly(changed(place, value)), library) == expected


@pytest.mark.parametrize(
    ("policy", "expected"), [("Retain", ["left behind"]), ("RetainExceptOnCreate", ["left behind"]), ("Delete", ["removed"])]
)
def test_a_bucket_that_is_kept_is_left_behind(policy: str, expected: list[str], library: Library) -> None:
    kept = copy.deepcopy(RESOURCES)
    kept["Bucket"]["DeletionPolicy"] = policy
    assert kinds(assembly(kept), assembly(changed("Bucket", None)), library) == expected


def test_what_is_new_cannot_lose_anything(library: Library) -> None:
    empty = Assembly(ROOT, {}, {})
    found = compare_templates(empty, assembly(changed("Role/Properties/Policies", ADMIN)), library)
    assert dangers(found, existing=frozenset()) == ()
    assert {change.effect for change in found.resources} == {Effect.ADDED}


@pytest.mark.parametrize(("before", "after", "expected"), [("a" * 64, "b" * 64, []), ("a" * 64, "*", ["more rights"])])
def test_a_new_version_of_a_file_is_no_new_right(before: str, after: str, expected: list[str], library: Library) -> None:
    old, new = (changed("Role/Properties/Policies", policies(f"arn:aws:s3:::assets/{name}")) for name in (before, after))
    assert kinds(assembly(old), assembly(new), library) == expected


def test_a_custom_resource_that_changes_is_run_again_although_the_library_sees_no_change(library: Library) -> None:
    (change,) = compare_templates(assembly(RESOURCES), assembly(changed("Custom/Properties/Value", "2")), library).resources
    assert (change.effect, [str(leaf) for leaf in change.leaves]) == (Effect.RUN_AGAIN, ["Value: 1 -> 2"])


def use(part: str) -> dict[str, Any]:
    return {"Fn::GetStackOutput": {"StackName": f"app-dev-{part}", "Region": "us-east-2", "OutputName": "Id"}}


def network(zone: str) -> dict[str, Any]:
    subnet = copy.deepcopy(SUBNET)
    subnet["Properties"]["AvailabilityZoneId"] = zone
    return {"Resources": {"Subnet": subnet}, "Outputs": {"Id": {"Value": {"Fn::GetAtt": ["Subnet", "SubnetId"]}}}}


def storage() -> dict[str, Any]:
    lustre = {"Type": "AWS::FSx::FileSystem", "Properties": {"FileSystemType": "LUSTRE", "SubnetIds": [use("network")]}}
    return {"Resources": {"Lustre": lustre}, "Outputs": {"Id": {"Value": {"Ref": "Lustre"}}}}


def link() -> dict[str, Any]:
    made = {"Type": "AWS::FSx::DataRepositoryAssociation", "Properties": {"FileSystemId": use("storage"), "DataRepositoryPath": "s3://b/p"}}
    return {"Resources": {"Link": made}}


def test_a_replacement_is_followed_from_stack_to_stack(library: Library) -> None:
    cluster = copy.deepcopy(RESOURCES)
    cluster["Cluster"]["Properties"]["InstanceGroups"][0]["OverrideVpcConfig"] = {"Subnets": [use("network")]}
    before = assembly(cluster, network=network("use2-az1"), storage=storage(), addons=link())
    after = assembly(cluster, network=network("use2-az2"), storage=storage(), addons=link())
    found = compare_templates(before, after, library)
    effects = {f"{change.stack} {change.id}": change.effect for change in found.resources}
    assert effects == {
        "dev/network Subnet": Effect.REPLACED,
        "dev/storage Lustre": Effect.REPLACED,
        "dev/hyperpod Cluster": Effect.CHANGED,
        "dev/addons Link": Effect.REPLACED,
    }
    told = [danger.kind for danger in dangers(found, existing=frozenset(before.stacks))]
    assert told == ["replaced", "replaced", "replaced", "availability zone changed", "nodes moved"]


def test_a_change_that_keeps_the_id_is_not_followed(library: Library) -> None:
    same = network("use2-az1")
    other = copy.deepcopy(same)
    other["Resources"]["Subnet"]["Properties"]["MapPublicIpOnLaunch"] = False
    found = compare_templates(assembly({}, network=same, storage=storage()), assembly({}, network=other, storage=storage()), library)
    assert [change.id for change in found.resources] == ["Subnet"]
