"""The storage stack: nothing in it may be lost, read in clear or reached from outside."""

import hashlib
from typing import Any, Final

import pytest
from aws_cdk import Stage

from dpd.environment.environment import Environment
from dpd.environment.names import NETWORK, STORAGE, Names
from stacks.network import NetworkStack
from stacks.storage import StorageStack
from tests.stacks.support import Assembly, Template, synthesized

SCRIPTS: Final = {"on_create.sh": "#!/bin/bash\nexit 0\n", "mount.sh": "#!/bin/bash\n# ünïcode\n"}
KEY: Final = "arn:aws:kms:us-east-2:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666"
OTHER_KEY: Final = KEY.replace("0a1b2c3d", "0a1b2c3e")
ADOPTED_BUCKET: Final = {"storage.models.bucket": {"existing": "our-weights", "region": "us-east-2"}}
ADOPTED_BUCKET_WITH_KEY: Final = {"storage.models.bucket": {"existing": "our-weights", "region": "us-east-2", "kms_key_arn": KEY}}
ADOPTED_KEY: Final = {"storage.encryption_key": {"existing": KEY}}
ADOPTED_LUSTRE: Final = {
    "storage.lustre": {
        "existing": {
            "file_system_id": "fs-0123456789abcdef0",
            "dns_name": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
            "mount_name": "abcdef12",
            "availability_zone_id": "use2-az1",
            "capacity_gib": 4800,
            "security_group_id": "sg-0123456789abcdef9",
        }
    }
}
NO_LUSTRE: Final = {"storage.lustre": None}
EFA: Final = {"storage.lustre.efa": True, "storage.lustre.capacity_gib": 9600}
EVERY: Final = [
    pytest.param({}, id="made"),
    pytest.param(EFA, id="Lustre over EFA"),
    pytest.param(NO_LUSTRE, id="without Lustre"),
    pytest.param(ADOPTED_BUCKET, id="adopted bucket"),
    pytest.param(ADOPTED_BUCKET_WITH_KEY, id="adopted bucket with its key"),
    pytest.param(ADOPTED_KEY, id="adopted key"),
    pytest.param(ADOPTED_LUSTRE, id="adopted Lustre"),
]
STATEFUL: Final = {
    "AWS::KMS::Key",
    "AWS::S3::Bucket",
    "AWS::S3::BucketPolicy",
    "AWS::FSx::FileSystem",
    "AWS::FSx::DataRepositoryAssociation",
    "AWS::Logs::LogGroup",
}
BUCKETS: Final = {
    "ModelBucket": "llama-dpd-dev-models-111122223333-us-east-2",
    "TlsBucket": "hyperpod-tls-llama-dpd-dev-111122223333-us-east-2",
    "LifecycleBucket": "sagemaker-llama-dpd-dev-111122223333-us-east-2",
    "LogBucket": "llama-dpd-dev-logs-111122223333-us-east-2",
}


def make(stage: Stage, environment: Environment) -> StorageStack:
    names = Names.of(environment)
    network = NetworkStack(stage, NETWORK, stack_name=names.stack(NETWORK), network=environment.network, names=names)
    return StorageStack(
        stage,
        STORAGE,
        stack_name=names.stack(STORAGE),
        storage=environment.storage,
        names=names,
        network=network.values,
        lifecycle_scripts=SCRIPTS,
        termination_protection=True,
    )


def build(stage: Stage, environment: Environment) -> None:
    make(stage, environment)


def assembly(changes: dict[str, Any]) -> Assembly:
    return synthesized(build, changes)


def template(changes: dict[str, Any]) -> Template:
    return assembly(changes).templates[STORAGE]


def values(changes: dict[str, Any]) -> Any:
    """What the stack hands on, with references resolved."""
    found: list[Any] = []

    def keep(stage: Stage, environment: Environment) -> None:
        stack = make(stage, environment)
        given = stack.values
        lustre = given.lustre
        fields = {
            "key": given.key_arn,
            "model_bucket": given.model_bucket.name,
            "model_key": given.model_bucket.key_arn,
            "tls": given.tls_bucket_name,
            "lifecycle": [given.lifecycle_bucket.name, given.lifecycle_uri],
            "lustre": [lustre.file_system_id, lustre.dns_name, lustre.mount_name] if lustre else None,
        }
        found.append(stack.resolve(fields))

    synthesized(keep, changes)
    return found[0]


# --- What must not be lost ---


@pytest.mark.parametrize("changes", EVERY)
def test_state_is_kept_when_the_stack_goes_or_a_resource_is_replaced(changes: dict[str, Any]) -> None:
    stateful = [resource for resource in template(changes).resources.values() if resource["Type"] in STATEFUL]
    assert stateful
    for resource in stateful:
        assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain"), resource["Type"]


def test_logical_ids_of_state_never_change() -> None:
    """Changing one of these makes a new, empty resource beside the old one in every deployed environment."""
    assert {id_: resource["Type"] for id_, resource in template({}).resources.items() if resource["Type"] in STATEFUL} == {
        "EncryptionKey": "AWS::KMS::Key",
        "LogBucket": "AWS::S3::Bucket",
        "LogBucketPolicy": "AWS::S3::BucketPolicy",
        "TlsBucket": "AWS::S3::Bucket",
        "TlsBucketPolicy": "AWS::S3::BucketPolicy",
        "LifecycleBucket": "AWS::S3::Bucket",
        "LifecycleBucketPolicy": "AWS::S3::BucketPolicy",
        "ModelBucket": "AWS::S3::Bucket",
        "ModelBucketPolicy": "AWS::S3::BucketPolicy",
        "LustreFileSystem": "AWS::FSx::FileSystem",
        "LustreLink": "AWS::FSx::DataRepositoryAssociation",
    }


def test_the_stack_has_its_name_and_refuses_deletion() -> None:
    made = assembly({}).stacks[STORAGE]["properties"]
    assert (made["stackName"], made["terminationProtection"]) == ("llama-dpd-dev-storage", True)


@pytest.mark.parametrize("changes", EVERY)
def test_nothing_is_looked_up_or_packed(changes: dict[str, Any]) -> None:
    made = assembly(changes)
    assert (made.missing, made.warnings) == ((), ())
    assert [name for name in made.files if "asset." in name] == []


# --- Key ---


def test_key_rotates_and_serves_only_whom_it_must() -> None:
    key = template({}).one("AWS::KMS::Key")
    assert (key["EnableKeyRotation"], key["PendingWindowInDays"]) == (True, 30)
    account, logs, alarms, workspaces, lustre = key["KeyPolicy"]["Statement"]
    assert workspaces["Principal"] == {"Service": "aps.amazonaws.com"}
    assert workspaces["Condition"]["ArnLike"]["aws:SourceArn"].endswith(":workspace/*")
    assert account["Principal"]["AWS"] == "arn:aws:iam::111122223333:root"
    assert logs["Principal"] == {"Service": "logs.us-east-2.amazonaws.com"}
    context = logs["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"]
    assert context == "arn:aws:logs:us-east-2:111122223333:log-group:*llama-dpd-dev*"
    assert lustre["Condition"]["StringEquals"] == {"kms:CallerAccount": "111122223333", "kms:ViaService": "s3.us-east-2.amazonaws.com"}
    assert lustre["Condition"]["ArnLike"]["aws:PrincipalArn"].endswith("/AWSServiceRoleForFSxS3Access_fs-*")
    assert lustre["Condition"]["StringLike"]["kms:EncryptionContext:aws:s3:arn"] == f"arn:aws:s3:::{BUCKETS['ModelBucket']}"
    assert alarms["Condition"]["ArnLike"]["aws:SourceArn"] == "arn:aws:cloudwatch:us-east-2:111122223333:alarm:llama-dpd-dev-*"
    for statement in (logs, alarms, lustre):
        assert "kms:*" not in statement["Action"]


@pytest.mark.parametrize("changes", [NO_LUSTRE, ADOPTED_BUCKET, ADOPTED_LUSTRE, {"storage.lustre.link": None}])
def test_lustre_may_use_the_key_only_for_a_linked_bucket_of_this_stack(changes: dict[str, Any]) -> None:
    statements = template(changes).one("AWS::KMS::Key")["KeyPolicy"]["Statement"]
    assert [entry["Sid"] for entry in statements] == ["DecidedByIam", "LogGroups", "Alarms", "Workspaces"]


def test_an_adopted_key_encrypts_everything() -> None:
    made = template(ADOPTED_KEY)
    assert made.of("AWS::KMS::Key") == made.of("AWS::KMS::Alias") == {}
    assert made.one("AWS::FSx::FileSystem")["KmsKeyId"] == KEY
    assert _default_encryption(made, "ModelBucket") == ("aws:kms", KEY)
    assert _default_encryption(made, "LifecycleBucket") == ("aws:kms", KEY)


# --- Buckets ---


def _default_encryption(made: Template, bucket: str) -> tuple[str, Any]:
    (rule,) = made.resources[bucket]["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    default = rule["ServerSideEncryptionByDefault"]
    assert rule["BucketKeyEnabled"] == ("KMSMasterKeyID" in default)
    return default["SSEAlgorithm"], default.get("KMSMasterKeyID")


@pytest.mark.parametrize(("bucket", "name"), BUCKETS.items())
def test_bucket_is_closed_versioned_and_tidy(bucket: str, name: str) -> None:
    made = template({}).resources[bucket]["Properties"]
    assert made["BucketName"] == name
    assert set(made["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(made["PublicAccessBlockConfiguration"]) == 4
    assert made["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    assert made["VersioningConfiguration"] == {"Status": "Enabled"}
    rules = {rule["Id"]: rule for rule in made["LifecycleConfiguration"]["Rules"]}
    assert rules["UnfinishedUploads"]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert rules["OldVersions"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    assert ("OldLogs" in rules) == (bucket == "LogBucket")


@pytest.mark.parametrize("bucket", BUCKETS)
def test_bucket_refuses_everything_without_tls(bucket: str) -> None:
    policy = template({}).resources[f"{bucket}Policy"]["Properties"]
    assert policy["Bucket"] == {"Ref": bucket}
    deny = policy["PolicyDocument"]["Statement"][0]
    assert (deny["Effect"], deny["Principal"], deny["Action"]) == ("Deny", {"AWS": "*"}, "s3:*")
    assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    own = {"Fn::GetAtt": [bucket, "Arn"]}
    assert deny["Resource"] == [own, {"Fn::Join": ["", [own, "/*"]]}]


def test_encryption_of_each_bucket() -> None:
    made, ours = template({}), ("aws:kms", {"Fn::GetAtt": ["EncryptionKey", "Arn"]})
    assert {bucket: _default_encryption(made, bucket) for bucket in BUCKETS} == {
        "ModelBucket": ours,
        "LifecycleBucket": ours,
        "TlsBucket": ("AES256", None),
        "LogBucket": ("AES256", None),
    }


def test_every_access_is_logged_and_only_by_these_buckets() -> None:
    made = template({})
    for bucket in ("ModelBucket", "TlsBucket", "LifecycleBucket"):
        logging = made.resources[bucket]["Properties"]["LoggingConfiguration"]
        assert logging == {"DestinationBucketName": {"Ref": "LogBucket"}, "LogFilePrefix": f"{BUCKETS[bucket]}/"}
    assert "LoggingConfiguration" not in made.resources["LogBucket"]["Properties"]
    allow = made.resources["LogBucketPolicy"]["Properties"]["PolicyDocument"]["Statement"][1]
    assert allow["Principal"] == {"Service": "logging.s3.amazonaws.com"}
    assert allow["Condition"]["StringEquals"] == {"aws:SourceAccount": "111122223333"}
    logged = sorted(set(BUCKETS.values()) - {BUCKETS["LogBucket"]})
    assert allow["Condition"]["ArnLike"]["aws:SourceArn"] == [f"arn:aws:s3:::{name}" for name in logged]
    assert allow["Resource"] == [f"arn:aws:s3:::{BUCKETS['LogBucket']}/{name}/*" for name in logged]


@pytest.mark.parametrize("changes", [ADOPTED_BUCKET, ADOPTED_BUCKET_WITH_KEY])
def test_an_adopted_bucket_is_not_touched(changes: dict[str, Any]) -> None:
    made = template(changes)
    assert set(made.of("AWS::S3::Bucket")) == {"LogBucket", "TlsBucket", "LifecycleBucket"}
    assert set(made.of("AWS::S3::BucketPolicy")) == {"LogBucketPolicy", "TlsBucketPolicy", "LifecycleBucketPolicy"}
    link = made.resources["LustreLink"]
    assert link["Properties"]["DataRepositoryPath"] == "s3://our-weights/checkpoints/"
    assert "DependsOn" not in link


SIDE: Final = {
    "storage.certificates": {"bucket": {"existing": "hyperpod-tls-ours", "region": "us-east-2"}},
    "storage.node_scripts": {"bucket": {"existing": "sagemaker-ours", "region": "us-east-2"}},
}


def test_adopted_buckets_of_certificates_and_scripts_are_used_and_not_made() -> None:
    made = template(SIDE)
    assert set(made.of("AWS::S3::Bucket")) == {"LogBucket", "ModelBucket"}
    upload = made.one("Custom::Texts")
    assert upload["Bucket"] == "sagemaker-ours"
    assert {key.rpartition("/")[0] for key in upload["Objects"]} == {"llama-dpd-dev/lifecycle"}
    (policy,) = made.one("AWS::IAM::Role")["Policies"]
    (put,) = policy["PolicyDocument"]["Statement"]
    assert all(arn.startswith("arn:aws:s3:::sagemaker-ours/llama-dpd-dev/lifecycle/") for arn in put["Resource"])
    handed_on = values(SIDE)
    assert handed_on["tls"] == "hyperpod-tls-ours"
    assert handed_on["lifecycle"] == ["sagemaker-ours", "s3://sagemaker-ours/llama-dpd-dev/lifecycle"]


def test_scripts_in_an_adopted_bucket_are_encrypted_with_its_key() -> None:
    made = template({**SIDE, "storage.node_scripts.bucket.kms_key_arn": OTHER_KEY})
    (policy,) = made.one("AWS::IAM::Role")["Policies"]
    assert policy["PolicyDocument"]["Statement"][1]["Resource"] == OTHER_KEY


# --- Lifecycle scripts ---


def test_scripts_are_in_the_template_with_their_digests() -> None:
    upload = template({}).one("Custom::Texts")
    assert upload["Bucket"] == {"Ref": "LifecycleBucket"}
    assert upload["ServiceTimeout"] == 120
    assert upload["Objects"] == {
        f"lifecycle/{name}": {"Text": text, "Sha256": hashlib.sha256(text.encode()).hexdigest()} for name, text in SCRIPTS.items()
    }


@pytest.mark.parametrize(
    ("changes", "last"),
    [({}, {"LustreFileSystem", "LustreLink"}), ({"storage.lustre.link": None}, {"LustreFileSystem"}), (NO_LUSTRE, set())],
)
def test_scripts_are_uploaded_when_nothing_else_can_fail(changes: dict[str, Any], last: set[str]) -> None:
    """A bucket with scripts in it could not be taken back when Lustre fails, and would hold its name against the next attempt."""
    ((id_, upload),) = template(changes).of("Custom::Texts").items()
    assert set(upload.get("DependsOn", [])) == last
    assert id_ not in str([resource.get("DependsOn") for resource in template(changes).resources.values()])


def test_the_upload_may_write_these_objects_and_nothing_else() -> None:
    made = template({})
    (policy,) = made.one("AWS::IAM::Role")["Policies"]
    put, encrypt = policy["PolicyDocument"]["Statement"]
    assert put["Action"] == "s3:PutObject"
    assert put["Resource"] == [f"arn:aws:s3:::{BUCKETS['LifecycleBucket']}/lifecycle/{name}" for name in SCRIPTS]
    assert encrypt["Action"] == "kms:GenerateDataKey"
    assert encrypt["Resource"] == {"Fn::GetAtt": ["EncryptionKey", "Arn"]}
    assert "ManagedPolicyArns" not in made.one("AWS::IAM::Role")


# --- Lustre ---


def test_lustre_is_where_the_nodes_are() -> None:
    made = template({}).one("AWS::FSx::FileSystem")
    assert (made["FileSystemType"], made["FileSystemTypeVersion"], made["StorageType"]) == ("LUSTRE", "2.15", "SSD")
    assert made["StorageCapacity"] == 4800
    assert len(made["SubnetIds"]) == len(made["SecurityGroupIds"]) == 1
    assert "GpuSubnet" in str(made["SubnetIds"])
    assert "EfaSecurityGroup" in str(made["SecurityGroupIds"])
    assert made["KmsKeyId"] == {"Fn::GetAtt": ["EncryptionKey", "Arn"]}
    assert made["LustreConfiguration"] == {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": 500,
        "EfaEnabled": False,
        "MetadataConfiguration": {"Mode": "AUTOMATIC"},
        "AutomaticBackupRetentionDays": 0,
        "WeeklyMaintenanceStartTime": "7:03:00",
    }


def test_lustre_over_efa() -> None:
    made = template(EFA).one("AWS::FSx::FileSystem")["LustreConfiguration"]
    assert (made["EfaEnabled"], made["MetadataConfiguration"], made["DeploymentType"]) == (True, {"Mode": "AUTOMATIC"}, "PERSISTENT_2")


def test_provisioned_metadata_operations() -> None:
    made = template({"storage.lustre.metadata_iops": 6000}).one("AWS::FSx::FileSystem")["LustreConfiguration"]
    assert made["MetadataConfiguration"] == {"Mode": "USER_PROVISIONED", "Iops": 6000}


def test_properties_by_name_are_set_last() -> None:
    made = template({"storage.lustre.raw": {"LustreConfiguration.DataCompressionType": "LZ4"}}).one("AWS::FSx::FileSystem")
    assert made["LustreConfiguration"]["DataCompressionType"] == "LZ4"
    assert made["LustreConfiguration"]["DeploymentType"] == "PERSISTENT_2"


def test_properties_of_buckets_and_key_by_name_are_set_last() -> None:
    made = template(
        {"storage.raw": {"RotationPeriodInDays": 90}, "storage.models.raw": {"AccelerateConfiguration.AccelerationStatus": "Enabled"}}
    )
    assert made.one("AWS::KMS::Key")["RotationPeriodInDays"] == 90
    buckets = made.of("AWS::S3::Bucket")
    assert buckets["ModelBucket"]["Properties"]["AccelerateConfiguration"] == {"AccelerationStatus": "Enabled"}
    assert "AccelerateConfiguration" not in buckets["TlsBucket"]["Properties"]


@pytest.mark.parametrize(("delete", "events"), [(False, ["NEW", "CHANGED"]), (True, ["NEW", "CHANGED", "DELETED"])])
def test_link_repeats_deletions_only_on_request(delete: bool, events: list[str]) -> None:
    link = template({"storage.lustre.link.delete": delete}).one("AWS::FSx::DataRepositoryAssociation")
    assert link["S3"] == {"AutoImportPolicy": {"Events": events}, "AutoExportPolicy": {"Events": events}}


@pytest.mark.parametrize("prefix", ["checkpoints", "checkpoints/", "runs/7/"])
def test_link_joins_a_directory_and_a_prefix(prefix: str) -> None:
    link = template({"storage.lustre.link.prefix": prefix}).one("AWS::FSx::DataRepositoryAssociation")
    assert link["FileSystemPath"] == "/checkpoints"
    assert link["DataRepositoryPath"] == f"s3://{BUCKETS['ModelBucket']}/{prefix.rstrip('/')}/"
    assert (link["BatchImportMetaDataOnCreate"], link["FileSystemId"]) == (True, {"Ref": "LustreFileSystem"})


def test_link_waits_for_the_policy_of_its_bucket() -> None:
    assert template({}).resources["LustreLink"]["DependsOn"] == ["ModelBucketPolicy"]


def test_no_lustre_no_link() -> None:
    made = template(NO_LUSTRE)
    assert made.of("AWS::FSx::FileSystem") == made.of("AWS::FSx::DataRepositoryAssociation") == {}


TCP: Final = [("tcp", 988, 988), ("tcp", 1018, 1023)]


@pytest.mark.parametrize(("efa", "rules"), [(False, TCP), (True, [("-1", None, None)])])
def test_an_adopted_file_system_lets_the_nodes_in_both_ways(efa: bool, rules: list[Any]) -> None:
    made = template({"storage.lustre": {**ADOPTED_LUSTRE["storage.lustre"], "efa": efa}})
    theirs = "sg-0123456789abcdef9"
    assert made.of("AWS::FSx::FileSystem") == {}
    for type_, peer in (("Ingress", "SourceSecurityGroupId"), ("Egress", "DestinationSecurityGroupId")):
        found = made.properties(f"AWS::EC2::SecurityGroup{type_}")
        for own in (True, False):
            side = [rule for rule in found if (rule["GroupId"] == theirs) is own]
            assert [(rule["IpProtocol"], rule.get("FromPort"), rule.get("ToPort")) for rule in side] == rules
            assert all(("EfaSecurityGroup" in str(rule[peer])) is own for rule in side)
            assert all((rule[peer] == theirs) is not own for rule in side)


def test_an_adopted_file_system_can_be_linked() -> None:
    link = {"prefix": "models/", "path": "/models"}
    made = template({"storage.lustre": {**ADOPTED_LUSTRE["storage.lustre"], "link": link}})
    assert made.one("AWS::FSx::DataRepositoryAssociation")["FileSystemId"] == "fs-0123456789abcdef0"


# --- Values ---


def test_made_and_adopted_storage_hand_on_the_same_values() -> None:
    made = values({})
    key = {"Fn::GetAtt": ["EncryptionKey", "Arn"]}
    lifecycle = BUCKETS["LifecycleBucket"]
    assert made == {
        "key": key,
        "model_bucket": BUCKETS["ModelBucket"],
        "model_key": key,
        "tls": BUCKETS["TlsBucket"],
        "lifecycle": [lifecycle, f"s3://{lifecycle}/lifecycle"],
        "lustre": [
            {"Ref": "LustreFileSystem"},
            {"Fn::GetAtt": ["LustreFileSystem", "DNSName"]},
            {"Fn::GetAtt": ["LustreFileSystem", "LustreMountName"]},
        ],
    }
    adopted = values({**ADOPTED_BUCKET_WITH_KEY, **ADOPTED_LUSTRE, "storage.encryption_key": {"existing": OTHER_KEY}})
    assert adopted == {
        **made,
        "key": OTHER_KEY,
        "model_bucket": "our-weights",
        "model_key": KEY,
        "lustre": ["fs-0123456789abcdef0", "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com", "abcdef12"],
    }


def test_values_without_key_or_lustre_say_so() -> None:
    assert values(NO_LUSTRE).get("lustre") is None
    assert values(ADOPTED_BUCKET).get("model_key") is None
