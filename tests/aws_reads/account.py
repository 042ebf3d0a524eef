"""An account that answers every question about one environment that adopts what can be adopted, and in which all is right."""

import io
import json
from datetime import UTC, datetime
from typing import Any

from aws_reads.session import Clients
from dpd.catalog import add_ons
from dpd.environment.environment import Environment
from tests.checks.cases import ADOPTED_CLUSTER, SELF
from tests.lambdas.health_gate.aws_calls import Answers, Calls, Refuse
from tests.support import environment

ACCOUNT, REGION, VPC = "111122223333", "us-east-2", "vpc-0123456789abcdef0"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
PLAN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-plan/llama-plan"
ACM = f"arn:aws:acm:{REGION}:{ACCOUNT}:certificate/12345678-1234-1234-1234-123456789012"
REPOSITORY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/vllm"
RULES = [{"direction": way, "protocol": "-1", "peer": SELF} for way in ("ingress", "egress")]
EVERYTHING: dict[str, Any] = {
    **ADOPTED_CLUSTER,
    "network.existing.security_groups": [{"id": SELF, "rules": RULES}],
    "cluster.groups.prefill.capacity": {"training_plan_arn": PLAN, "availability_zone_id": "use2-az1"},
    "cluster.groups.prefill.data_volume_gib": 500,
    "storage.encryption_key": {"existing": KEY},
    "storage.models.bucket": {"existing": "our-weights", "region": REGION, "kms_key_arn": KEY},
    "storage.staging": {"token_secret": "hub-token", "source_buckets": []},
    "storage.lustre": {
        "existing": {
            "file_system_id": "fs-0123456789abcdef0", "dns_name": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
            "mount_name": "abcd1234",
            "availability_zone_id": "use2-az1", "capacity_gib": 4800, "security_group_id": SELF,
        },
    },
    "endpoints[0].image": {"repository": REPOSITORY, "tag": "v1", "lmcache": "0.4.3", "vllm": "0.19.0", "nixl": "1.0.0"},
    "endpoints[0].environment": {"API_TOKEN": {"secret": "api", "key": "token"}},
    "endpoints[0].exposure.certificate": {"acm_arn": ACM, "domain_name": "llm.example.com"},
}  # fmt: skip
"""Changes of the example that make it ask every kind of question."""
WHEN = datetime(2026, 11, 1, tzinfo=UTC)
TAKEN = datetime(2026, 11, 29, 9, 30, 15, 123456, tzinfo=UTC)
P5 = "ml.p5.48xlarge for cluster usage"


def everything() -> Environment:
    """That environment."""
    return environment(EVERYTHING)


SUBNETS = {
    "subnet-0000000000000000a": ("use2-az2", "10.192.0.0/24"),
    "subnet-0000000000000000b": ("use2-az3", "10.192.1.0/24"),
    "subnet-0000000000000000c": ("use2-az1", "10.1.0.0/16"),
}


_CALLS = Calls({})
_CLIENTS: dict[tuple[str, str], Any] = {}
"""Making a client costs more than all that is asked of it, so a process makes each once. The newest account answers."""


class Account:
    """Answers by operation; a test changes one of them, or refuses it."""

    def __init__(self) -> None:
        size = int(everything().endpoints[0].model.shape.weight_bytes)
        self.caller = {"Account": ACCOUNT, "UserId": "U", "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/Deployer/me"}
        self.quotas = {
            P5: 64.0,
            "ml.c5.4xlarge for cluster usage": 10.0,
            "Maximum number instances allowed per SageMaker HyperPod cluster": 20.0,
            "Total number of instances allowed across SageMaker HyperPod clusters": 30.0,
            "Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance": 1024.0,
        }
        self.granted: dict[str, float] = {}
        self.clusters: dict[str, list[dict[str, Any]]] = {}
        self.objects = {
            "Llama-3.3-70B-Instruct/config.json": 800,
            "Llama-3.3-70B-Instruct/model.safetensors": size,
            "Llama-3.3-70B-Instruct/original/consolidated.00.pth": 10**10,
        }
        self.bodies: dict[str, bytes] = {}
        self.denied: dict[str, str] = {}
        self.missing: set[str] = set()
        """Operations, or names of roles, that find nothing."""
        self.answers: Answers = {
            "GetCallerIdentity": lambda _: self.caller,
            "ListAWSDefaultServiceQuotas": self._defaults,
            "GetServiceQuota": self._quota,
            "ListClusters": lambda _: {"ClusterSummaries": [self._summary(name) for name in self.clusters]},
            "DescribeCluster": self._cluster,
            "DescribeInstanceTypeOfferings": lambda _: {
                "InstanceTypeOfferings": [{"Location": "use2-az2"}, {"Location": "use2-az1"}, {"Location": "use2-az1"}]
            },
            "DescribeAvailabilityZones": lambda _: {"AvailabilityZones": [{"ZoneName": "us-east-2a", "State": "available"}]},
            "DescribeTrainingPlan": lambda _: self.plan(),
            "DescribeSubnets": self._subnet,
            "DescribeSecurityGroups": lambda asked: {"SecurityGroups": [{"GroupId": asked["GroupIds"][0], "VpcId": VPC}]},
            "DescribeSecurityGroupRules": lambda _: {
                "SecurityGroupRules": [
                    {"IsEgress": egress, "IpProtocol": "-1", "ReferencedGroupInfo": {"GroupId": SELF}} for egress in (True, False)
                ]
            },
            "HeadBucket": lambda _: {"BucketRegion": REGION},
            "GetBucketEncryption": lambda _: encrypted(KEY),
            "ListObjectsV2": lambda asked: {
                "Contents": [{"Key": key, "Size": size} for key, size in self.objects.items() if key.startswith(asked["Prefix"])]
            },
            "GetObject": self._object,
            "DescribeKey": lambda _: {
                "KeyMetadata": {
                    "KeyId": KEY.rpartition("/")[2], "Arn": KEY, "KeyState": "Enabled", "KeyUsage": "ENCRYPT_DECRYPT",
                    "KeySpec": "SYMMETRIC_DEFAULT",
                }
            },
            "DescribeFileSystems": lambda _: {
                "FileSystems": [
                    {
                        "Lifecycle": "AVAILABLE", "DNSName": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com", "StorageCapacity": 4800,
                        "LustreConfiguration": {"MountName": "abcd1234"},
                    }
                ]
            },
            "DescribeSecret": lambda asked: {"Name": asked["SecretId"]},
            "DescribeClusterVersions": lambda asked: {
                "clusterVersions": [{"clusterVersion": asked["clusterVersions"][0], "versionStatus": "STANDARD_SUPPORT"}]
            },
            "DescribeAddonVersions": self._add_on,
            "DescribeImages": lambda _: {"imageDetails": [{"imageDigest": f"sha256:{'a' * 64}", "imagePushedAt": WHEN}]},
            "DescribeCertificate": lambda _: {"Certificate": {"Status": "ISSUED", "NotAfter": datetime(2027, 6, 1, tzinfo=UTC)}},
            "GetRole": self._role,
            "GetParameter": lambda _: {"Parameter": {"Value": "28"}},
            "DescribeStacks": lambda asked: {
                "Stacks": [{"StackName": asked["StackName"], "CreationTime": WHEN, "StackStatus": "CREATE_COMPLETE"}]
            },
            "SimulatePrincipalPolicy": self._simulate,
        }  # fmt: skip
        self.calls = _CALLS
        self.calls.answers = self.answers
        self.calls.made.clear()
        self.calls.used.clear()
        self.clients = Clients(self.calls.session, REGION)
        self.clients._known = _CLIENTS

    def refuse(self, operation: str, code: str, status: int = 400) -> None:
        """Let an operation fail with a code of AWS."""

        def fail(_: dict[str, Any]) -> dict[str, Any]:
            raise Refuse(code, status)

        self.answers[operation] = fail

    def plan(self, **given: Any) -> dict[str, Any]:
        reserved = {
            "ReservedCapacityArn": f"{PLAN.replace('training-plan/llama-plan', 'reserved-capacity/abcdef012345')}",
            "InstanceType": "ml.p5.48xlarge", "TotalInstanceCount": 4, "Status": "Active", "AvailabilityZone": "us-east-2a",
            "AvailabilityZoneId": "use2-az1",
        }  # fmt: skip
        return {
            "TrainingPlanArn": PLAN, "TrainingPlanName": "llama-plan", "Status": "Active", "EndTime": datetime(2027, 1, 1, tzinfo=UTC),
            "TotalInstanceCount": 4, "InUseInstanceCount": 0, "TargetResources": ["hyperpod-cluster"],
            "ReservedCapacitySummaries": [reserved], **given,
        }  # fmt: skip

    def _defaults(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["ServiceCode"] == "sagemaker"
        start = int(asked.get("NextToken", 0))
        listed = [
            {"QuotaName": name, "QuotaCode": f"L-{index:08}", "Value": value, "Adjustable": True}
            for index, (name, value) in enumerate(self.quotas.items())
        ]
        return {"Quotas": listed[start : start + 2], **({"NextToken": str(start + 2)} if start + 2 < len(listed) else {})}

    def _quota(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = list(self.quotas)[int(asked["QuotaCode"][2:])]
        if name not in self.granted:
            raise Refuse("NoSuchResourceException")
        return {"Quota": {"QuotaName": name, "QuotaCode": asked["QuotaCode"], "Value": self.granted[name]}}

    def _summary(self, name: str) -> dict[str, Any]:
        return {"ClusterName": name, "ClusterArn": cluster_arn(name), "CreationTime": WHEN, "ClusterStatus": "InService"}

    def _cluster(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "name" in asked:
            return {
                "cluster": {
                    "name": asked["name"], "status": "ACTIVE", "version": "1.34",
                    "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
                    "identity": {"oidc": {"issuer": "https://oidc.eks.us-east-2.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF"}},
                    "resourcesVpcConfig": {"clusterSecurityGroupId": SELF, "vpcId": VPC},
                }
            }  # fmt: skip
        name = next(name for name in self.clusters if cluster_arn(name) == asked["ClusterName"])
        return {"ClusterArn": asked["ClusterName"], "ClusterStatus": "InService", "InstanceGroups": self.clusters[name]}

    def _subnet(self, asked: dict[str, Any]) -> dict[str, Any]:
        zone, cidr = SUBNETS[asked["SubnetIds"][0]]
        return {"Subnets": [{"VpcId": VPC, "AvailabilityZoneId": zone, "CidrBlock": cidr, "AvailableIpAddressCount": 60_000}]}

    def _object(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["Key"] not in self.bodies:
            raise Refuse("NoSuchKey", 404)
        return {"Body": io.BytesIO(self.bodies[asked["Key"]])}

    def _add_on(self, asked: dict[str, Any]) -> dict[str, Any]:
        known = add_ons.find(asked["addonName"])
        pinned = known and known.version_for(asked["kubernetesVersion"])
        return {"addons": [{"addonName": asked["addonName"], "addonVersions": [{"addonVersion": pinned or "v1.0.0-eksbuild.1"}]}]}

    def _role(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["RoleName"]
        if name in self.missing:
            raise Refuse("NoSuchEntity", 404)
        arn = f"arn:aws:iam::{ACCOUNT}:role/team/{name}"
        return {"Role": {"Path": "/team/", "RoleName": name, "RoleId": "AROA0123456789ABCDEF", "Arn": arn, "CreateDate": WHEN}}

    def _simulate(self, asked: dict[str, Any]) -> dict[str, Any]:
        resources = asked.get("ResourceArns", [])
        return {
            "EvaluationResults": [
                {
                    "EvalActionName": action, "EvalResourceName": "*", "EvalDecision": self.denied.get(action, "allowed"),
                    "ResourceSpecificResults": [
                        {"EvalResourceName": arn, "EvalResourceDecision": self.denied.get(arn.rpartition("/")[2], "allowed")}
                        for arn in resources
                    ],
                }
                for action in asked["ActionNames"]
            ],
            "IsTruncated": False,
        }  # fmt: skip


def cluster_arn(name: str) -> str:
    """An ARN for a HyperPod cluster."""
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:cluster/{name.replace('-', '')[:12]:a<12}"


def encrypted(key: str | None) -> dict[str, Any]:
    """The default encryption of a bucket."""
    by = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key} if key else {"SSEAlgorithm": "AES256"}
    return {"ServerSideEncryptionConfiguration": {"Rules": [{"ApplyServerSideEncryptionByDefault": by}]}}


def index(*shards: str) -> bytes:
    """An index of safetensors."""
    return json.dumps({"weight_map": {f"layer.{number}": shard for number, shard in enumerate(shards)}}).encode()
