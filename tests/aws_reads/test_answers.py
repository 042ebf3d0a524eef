"""What the answers of AWS become."""

from datetime import UTC, datetime
from typing import Any

import pytest

from aws_reads.asking import Ask
from aws_reads.gather import ASKERS, gather
from dpd.environment.environment import Environment
from dpd.preflight.facts import Bucket, Decisions, Facts, Nodes
from dpd.preflight.questions import DEPLOYER, EXECUTION, Kind, Question
from dpd.staging import record_key
from tests.aws_reads.account import ACM, EVERYTHING, KEY, P5, PLAN, REPOSITORY, TAKEN, Account, encrypted, everything, index
from tests.checks.cases import SELF
from tests.support import environment

FOLDER = "our-weights/Llama-3.3-70B-Instruct/"
PREFIX = "Llama-3.3-70B-Instruct/"
ROLE = "cdk-hnb659fds-cfn-exec-role-111122223333-us-east-2"
SPECIAL = "model.safetensors.index.json"


@pytest.fixture
def account() -> Account:
    return Account()


def answer(account: Account, kind: Kind, subject: str, path: str = "", asked: Environment | None = None) -> Any:
    return ASKERS[kind][1](Ask(account.clients, Question(kind, subject, path), asked or everything()))


@pytest.mark.parametrize(
    ("kind", "subject", "operation", "code"),
    [
        ("zone", "use2-az9", "DescribeAvailabilityZones", "InvalidParameterValue"),
        ("training_plan", PLAN, "DescribeTrainingPlan", "ResourceNotFound"),
        ("subnet", "subnet-0000000000000000a", "DescribeSubnets", "InvalidSubnetID.NotFound"),
        ("security_group", SELF, "DescribeSecurityGroups", "InvalidGroup.NotFound"),
        ("bucket", "our-weights", "HeadBucket", "404"),
        ("folder", FOLDER, "ListObjectsV2", "NoSuchBucket"),
        ("key", KEY, "DescribeKey", "NotFoundException"),
        ("file_system", "fs-0123456789abcdef0", "DescribeFileSystems", "FileSystemNotFound"),
        ("kubernetes", "1.99", "DescribeClusterVersions", "InvalidParameterException"),
        ("eks_cluster", "platform", "DescribeCluster", "ResourceNotFoundException"),
        ("image", f"{REPOSITORY}:v1", "DescribeImages", "ImageNotFoundException"),
        ("image", f"{REPOSITORY}:v1", "DescribeImages", "RepositoryNotFoundException"),
        ("secret", "hub-token", "DescribeSecret", "ResourceNotFoundException"),
        ("certificate", ACM, "DescribeCertificate", "ResourceNotFoundException"),
        ("service_linked_role", "AWSServiceRoleForAmazonEKS", "GetRole", "NoSuchEntity"),
        ("bootstrap", "hnb659fds", "GetParameter", "ParameterNotFound"),
        ("permissions", EXECUTION, "GetRole", "NoSuchEntity"),
    ],
)  # fmt: skip
def test_what_is_not_there(account: Account, kind: Kind, subject: str, operation: str, code: str) -> None:
    account.refuse(operation, code)
    assert answer(account, kind, subject) is None


def test_the_granted_quota_stands_before_the_default(account: Account) -> None:
    assert answer(account, "quota", P5).limit == 64
    account.granted[P5] = 8.0
    found = answer(account, "quota", P5)
    assert (found.limit, found.code, found.name) == (8, "L-00000000", P5)
    assert answer(account, "quota", "ml.p9.metal for cluster usage") is None
    assert len(account.calls.of("ListAWSDefaultServiceQuotas")) == 3  # pages, read once


def test_nodes_of_this_cluster_and_of_others(account: Account) -> None:
    account.clusters = {
        "llama-dpd-dev": [{"InstanceType": "ml.p5.48xlarge", "CurrentCount": 1, "TargetCount": 2}],
        "other": [
            {"InstanceType": "ml.p5.48xlarge", "CurrentCount": 3, "TargetCount": 1},
            {"InstanceType": "ml.p5.48xlarge", "CurrentCount": 1},
            {"CurrentCount": 9},
        ],
    }
    assert answer(account, "nodes", "llama-dpd-dev") == Nodes(own={"ml.p5.48xlarge": 2}, others={"ml.p5.48xlarge": 4})


def test_ec2_knows_types_without_their_beginning(account: Account) -> None:
    assert answer(account, "offering", "ml.p5.48xlarge").zones == ("use2-az1", "use2-az2")
    (asked,) = account.calls.of("DescribeInstanceTypeOfferings")
    assert asked == {"LocationType": "availability-zone-id", "Filters": [{"Name": "instance-type", "Values": ["p5.48xlarge"]}]}


def test_a_training_plan(account: Account) -> None:
    found = answer(account, "training_plan", PLAN)
    assert (found.status, found.total, found.targets, found.end) == ("Active", 4, ("hyperpod-cluster",), datetime(2027, 1, 1, tzinfo=UTC))
    (reserved,) = found.reserved
    assert (reserved.instance_type, reserved.count, reserved.zone_id) == ("ml.p5.48xlarge", 4, "use2-az1")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"IsEgress": False, "IpProtocol": "tcp", "CidrIpv4": "10.0.0.0/8"}, ("ingress", "tcp", "10.0.0.0/8")),
        ({"IsEgress": True, "IpProtocol": "-1", "CidrIpv6": "::/0"}, ("egress", "-1", "::/0")),
        ({"IsEgress": True, "IpProtocol": "-1", "PrefixListId": "pl-0123456789abcdef0"}, ("egress", "-1", "pl-0123456789abcdef0")),
        ({"IsEgress": True, "IpProtocol": "-1", "ReferencedGroupInfo": {"GroupId": SELF}}, ("egress", "-1", SELF)),
    ],
)
def test_rules_are_as_the_file_writes_them(account: Account, rule: dict[str, Any], expected: tuple[str, str, str]) -> None:
    account.answers["DescribeSecurityGroupRules"] = lambda _: {"SecurityGroupRules": [rule, rule]}
    assert answer(account, "security_group", SELF).rules == (expected,)


@pytest.mark.parametrize(
    ("key", "expected"),
    [(KEY, KEY), (None, ""), ("arn:aws:kms:us-east-2:111122223333:alias/aws/s3", ""), ("alias/ours", KEY), (KEY.rpartition("/")[2], KEY)],
)
def test_the_key_of_a_bucket(account: Account, key: str | None, expected: str) -> None:
    account.answers["GetBucketEncryption"] = lambda _: encrypted(key)
    assert answer(account, "bucket", "our-weights", "storage.models.bucket") == Bucket(region="us-east-2", key_arn=expected)


def test_a_bucket_without_encryption_and_one_that_this_tool_makes(account: Account) -> None:
    account.refuse("GetBucketEncryption", "ServerSideEncryptionConfigurationNotFoundError", 404)
    assert answer(account, "bucket", "our-weights", "storage.models.bucket") == Bucket(region="us-east-2")
    account.refuse("GetBucketEncryption", "AccessDenied", 403)
    assert answer(account, "bucket", "llama-dpd-dev-logs", "storage") == Bucket(region="us-east-2")


def test_what_lies_in_a_folder(account: Account) -> None:
    found = answer(account, "folder", FOLDER)
    size = account.objects[f"{PREFIX}model.safetensors"]
    assert (found.objects, found.weights_bytes, found.weight_files, found.config) == (3, size, 1, True)
    assert found.bytes == size + 800 + 10**10
    account.objects = {f"{PREFIX}deeper/config.json": 1, f"{PREFIX}deeper/a.safetensors": 2, f"{PREFIX[:-1]}-FP8/config.json": 3}
    found = answer(account, "folder", FOLDER)
    assert (found.objects, found.weight_files, found.config) == (2, 0, False)
    account.objects = {}
    assert answer(account, "folder", FOLDER).objects == 0


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        (index("model.safetensors"), ()),
        (index("model.safetensors", "model-2.safetensors", "model-3.safetensors"), ("model-2.safetensors", "model-3.safetensors")),
        (b"not json", (f"{SPECIAL} (cannot be read)",)),
        (b"[]", (f"{SPECIAL} (cannot be read)",)),
        (b"{}", (f"{SPECIAL} (cannot be read)",)),
        (b'{"weight_map": []}', (f"{SPECIAL} (cannot be read)",)),
    ],
)
def test_shards_that_the_index_names(account: Account, content: bytes, missing: tuple[str, ...]) -> None:
    account.objects[f"{PREFIX}{SPECIAL}"] = len(content)
    account.bodies[f"{PREFIX}{SPECIAL}"] = content
    assert answer(account, "folder", FOLDER).index_missing == missing


@pytest.mark.parametrize(
    ("record", "incomplete"), [(b'{"complete": true}', False), (b'{"complete": false}', True), (b"{", True), (b"[]", True)]
)
def test_a_copy_that_has_not_ended(account: Account, record: bytes, incomplete: bool) -> None:
    account.bodies[record_key(PREFIX)] = record
    assert answer(account, "folder", FOLDER).incomplete is incomplete


def test_a_secret_that_goes(account: Account) -> None:
    assert not answer(account, "secret", "hub-token").deleted
    account.answers["DescribeSecret"] = lambda asked: {"Name": asked["SecretId"], "DeletedDate": TAKEN}
    assert answer(account, "secret", "hub-token").deleted


@pytest.mark.parametrize(("reference", "id"), [(f"{REPOSITORY}:v1", {"imageTag": "v1"}), (REPOSITORY, {"imageTag": "latest"})])
def test_an_image_by_its_tag(account: Account, reference: str, id: dict[str, str]) -> None:
    assert answer(account, "image", reference).digest == f"sha256:{'a' * 64}"
    (asked,) = account.calls.of("DescribeImages")
    assert asked == {"registryId": "111122223333", "repositoryName": "vllm", "imageIds": [id]}


def test_an_image_by_its_digest(account: Account) -> None:
    digest = f"sha256:{'b' * 64}"
    for reference in (f"{REPOSITORY}@{digest}", f"{REPOSITORY}:v1@{digest}"):
        answer(account, "image", reference)
    assert [asked["imageIds"] for asked in account.calls.of("DescribeImages")] == [[{"imageDigest": digest}]] * 2


@pytest.mark.parametrize("host", ["public.ecr.aws", "ghcr.io", "docker.io", "registry.example.com"])
def test_images_of_which_no_call_tells(account: Account, host: str) -> None:
    facts = gather(environment({**EVERYTHING, "endpoints[0].image.repository": f"{host}/vllm"}), account.clients, TAKEN)
    (found,) = [one for one in facts.unanswered if one.kind == "image"]
    assert (found.reason, host in found.said) == ("no_call", True)


@pytest.mark.parametrize(("value", "version"), [("28", 28), ("", 0), ("latest", 0)])
def test_the_version_of_the_bootstrap(account: Account, value: str, version: int) -> None:
    account.answers["GetParameter"] = lambda _: {"Parameter": {"Value": value}}
    assert answer(account, "bootstrap", "ours").version == version
    assert account.calls.of("GetParameter") == [{"Name": "/cdk-bootstrap/ours/version"}]


@pytest.mark.parametrize(("status", "there"), [("UPDATE_COMPLETE", True), ("ROLLBACK_COMPLETE", True), ("REVIEW_IN_PROGRESS", False)])
def test_a_stack(account: Account, status: str, there: bool) -> None:
    found = {"CreationTime": TAKEN, "StackStatus": status}
    account.answers["DescribeStacks"] = lambda asked: {"Stacks": [{"StackName": asked["StackName"], **found}]}
    assert (answer(account, "stack", "x") is not None) is there


def test_what_cdk_s_execution_role_may(account: Account) -> None:
    account.denied = {"eks:CreateAddon": "explicitDeny"}
    found = answer(account, "permissions", EXECUTION)
    assert isinstance(found, Decisions)
    assert found.denied == {"eks:CreateAddon": "explicitDeny"}
    assert found.principal == f"arn:aws:iam::111122223333:role/team/{ROLE}"
    assert "sagemaker:CreateCluster" in found.allowed
    # what is adopted is not made
    assert not {"eks:CreateCluster", "ec2:CreateVpc", "fsx:CreateFileSystem", "kms:CreateKey"} & set(found.allowed)
    made = answer(account, "permissions", EXECUTION, asked=environment())
    assert {"eks:CreateCluster", "ec2:CreateVpc", "fsx:CreateFileSystem", "kms:CreateKey"} <= set(made.allowed)


def test_what_the_caller_may(account: Account) -> None:
    deploy = "cdk-hnb659fds-deploy-role-111122223333-us-east-2"
    account.denied = {deploy: "implicitDeny"}
    found = answer(account, "permissions", DEPLOYER)
    assert found.principal == "arn:aws:iam::111122223333:role/team/Deployer"  # the role of the session, with its path
    assert found.denied == {f"sts:AssumeRole {deploy}": "implicitDeny"}
    assert len(found.allowed) == 2


@pytest.mark.parametrize(
    ("arn", "reason"),
    [("arn:aws:iam::111122223333:root", "root user"), ("arn:aws:sts::111122223333:assumed-role/Gone/me", "Gone is not in this account")],
)
def test_callers_that_cannot_be_simulated(account: Account, arn: str, reason: str) -> None:
    account.caller["Arn"] = arn
    account.missing.add("Gone")
    facts: Facts = gather(everything(), account.clients, TAKEN)
    (found,) = [one for one in facts.unanswered if one.kind == "permissions"]
    assert (found.reason, reason in found.said) == ("no_call", True)


def test_a_user_is_simulated_as_it_is(account: Account) -> None:
    account.caller["Arn"] = "arn:aws:iam::111122223333:user/someone"
    assert answer(account, "permissions", DEPLOYER).principal == "arn:aws:iam::111122223333:user/someone"


def test_an_add_on_that_is_not_offered(account: Account) -> None:
    account.answers["DescribeAddonVersions"] = lambda _: {"addons": []}
    assert answer(account, "add_on", "vpc-cni 1.34").versions == ()
    account.refuse("DescribeAddonVersions", "InvalidParameterException")
    assert answer(account, "add_on", "vpc-cni 1.34").versions == ()
    assert account.calls.of("DescribeAddonVersions")[0] == {"addonName": "vpc-cni", "kubernetesVersion": "1.34"}


@pytest.mark.parametrize(
    ("found", "status"), [({"versionStatus": "EXTENDED_SUPPORT"}, "EXTENDED_SUPPORT"), ({"status": "standard-support"}, "STANDARD_SUPPORT")]
)
def test_a_kubernetes_version(account: Account, found: dict[str, str], status: str) -> None:
    account.answers["DescribeClusterVersions"] = lambda _: {"clusterVersions": [{"clusterVersion": "1.34", **found}]}
    assert answer(account, "kubernetes", "1.34").status == status
    account.answers["DescribeClusterVersions"] = lambda _: {"clusterVersions": []}
    assert answer(account, "kubernetes", "1.34") is None
