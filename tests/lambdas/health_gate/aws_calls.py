"""AWS without AWS: the real client library, its request checks included, with answers that are held against its own shapes."""

import io
import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from botocore.awsrequest import AWSResponse
from botocore.loaders import create_loader
from botocore.session import Session
from botocore.validate import validate_parameters

_LOADER = create_loader()
"""Reads the service descriptions once for all tests."""
Answers = dict[str, Callable[[dict[str, Any]], dict[str, Any]]]


class Refuse(Exception):  # noqa: N818
    """The service answers with this error code."""

    def __init__(self, code: str, status: int = 400, message: str = "as the test wants") -> None:
        super().__init__(code)
        self.code, self.status, self.message = code, status, message


class Calls:
    """A session whose clients are answered by ``answers``, by operation name."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.made: list[tuple[str, dict[str, Any]]] = []
        self.used: set[tuple[str, str]] = set()
        self.session = Session()
        self.session.register_component("data_loader", _LOADER)
        self.session.set_credentials("testing", "testing", "session-token-of-the-test")
        self.session.set_config_variable("region", "us-east-2")
        self.session.register("before-parameter-build", self._remember)
        self.session.register("before-call", self._answer)

    def of(self, operation: str) -> list[dict[str, Any]]:
        return [params for name, params in self.made if name == operation]

    def _remember(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        # By now the library has wrapped a body into a file.
        asked = {name: value.read() if isinstance(value, io.BytesIO) else value for name, value in params.items()}
        context["asked"] = asked
        self.made.append((model.name, asked))
        self.used.add((model.service_model.service_name, model.name))

    def _answer(self, model: Any, context: dict[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
        try:
            value = self.answers[model.name](context["asked"])
        except Refuse as error:
            return AWSResponse("", error.status, {}, io.BytesIO()), {"Error": {"Code": error.code, "Message": error.message}}
        if model.output_shape is not None and model.name != "GetObject":
            validate_parameters(value, model.output_shape)
        return AWSResponse("", 200, {}, io.BytesIO()), {**value, "ResponseMetadata": {"HTTPStatusCode": 200}}


SELF, ACCOUNT, REGION = "sg-0123456789abcdef0", "111122223333", "us-east-2"
EKS_ARN = f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/dpd-dev"
SUBNETS = {"subnet-0123456789abcdef0": "use2-az1", "subnet-0fedcba9876543210": "use2-az3"}


def rule(*groups: str, anyone: bool = False, protocol: str = "-1") -> dict[str, Any]:
    """A permission of a security group."""
    return {
        "IpProtocol": protocol,
        "UserIdGroupPairs": [{"GroupId": group, "UserId": ACCOUNT} for group in groups],
        "IpRanges": [{"CidrIp": "0.0.0.0/0"}] if anyone else [],
    }


def security_group(
    id: str = SELF, *, ingress: list[dict[str, Any]] | None = None, egress: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {
        "GroupId": id,
        "IpPermissions": [rule(id)] if ingress is None else ingress,
        "IpPermissionsEgress": [rule(id), rule(anyone=True)] if egress is None else egress,
    }


def instance_group(name: str, kind: str, count: int) -> dict[str, Any]:
    return {
        "InstanceGroupName": name,
        "InstanceType": kind,
        "CurrentCount": count,
        "TargetCount": count,
        "OverrideVpcConfig": {"SecurityGroupIds": [SELF], "Subnets": ["subnet-0123456789abcdef0"]},
    }


def cluster_node(group: str, number: int, status: str = "Running", message: str = "") -> dict[str, Any]:
    return {
        "InstanceGroupName": group,
        "InstanceId": f"i-{group}-{number}",
        "InstanceType": "ml.p5.48xlarge",
        "LaunchTime": 0,
        "InstanceStatus": {"Status": status, "Message": message},
    }


def trust(
    service: str = "sagemaker.amazonaws.com", subject: str = "system:serviceaccount:hyperpod-inference-system:controller"
) -> dict[str, Any]:
    return {
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"},
            {
                "Effect": "Allow",
                "Principal": {"Federated": "arn"},
                "Action": "sts:AssumeRoleWithWebIdentity",
                "Condition": {"StringEquals": {"oidc:aud": "sts.amazonaws.com"}, "StringLike": {"oidc:sub": subject}},
            },
        ]
    }


class Things:
    """What exists in AWS; a test changes it before a run."""

    def __init__(self, groups: dict[str, tuple[str, int]]) -> None:
        self.cluster: dict[str, Any] = {
            "ClusterArn": f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:cluster/abcdefghijkl",
            "ClusterStatus": "InService",
            "Orchestrator": {"Eks": {"ClusterArn": EKS_ARN}},
            "VpcConfig": {"SecurityGroupIds": [SELF], "Subnets": ["subnet-0123456789abcdef0"]},
            "InstanceGroups": [instance_group(name, kind, count) for name, (kind, count) in groups.items()],
        }
        self.nodes = [cluster_node(name, number) for name, (_, count) in groups.items() for number in range(count)]
        self.node_page = 100
        self.security_groups = [security_group()]
        self.file_system: dict[str, Any] = {
            "FileSystemId": "fs-0123456789abcdef0",
            "Lifecycle": "AVAILABLE",
            "SubnetIds": ["subnet-0123456789abcdef0"],
        }
        self.associations: list[dict[str, Any]] = [{"AssociationId": "dra-0123456789abcdef0", "Lifecycle": "AVAILABLE"}]
        self.bucket_region = REGION
        self.objects: list[dict[str, Any]] = [{"Key": "llama/", "Size": 0}, {"Key": "llama/model.safetensors", "Size": 10}]
        self.trust: Any = trust()
        self.add_on: dict[str, Any] = {"addonName": "inference", "status": "ACTIVE", "addonVersion": "v1.4.0-eksbuild.1"}
        self.endpoint: dict[str, Any] | None = {"EndpointStatus": "InService"}
        self.api = ("https://localhost:1", "")
        self.stored: dict[str, bytes] = {}
        self.answers: Answers = {
            "DescribeCluster": lambda asked: self._eks() if "name" in asked else self.cluster,
            "ListClusterNodes": self._nodes,
            "DescribeSecurityGroups": self._groups,
            "DescribeSubnets": lambda asked: {
                "Subnets": [{"SubnetId": id, "AvailabilityZoneId": SUBNETS[id]} for id in asked["SubnetIds"]]
            },
            "DescribeFileSystems": lambda _: {"FileSystems": [self.file_system]},
            "DescribeDataRepositoryAssociations": lambda _: {"Associations": self.associations},
            "HeadBucket": lambda _: {"BucketRegion": self.bucket_region},
            "ListObjectsV2": lambda asked: {"Contents": [each for each in self.objects if each["Key"].startswith(asked["Prefix"])]},
            "GetRole": self._role,
            "DescribeAddon": lambda _: {"addon": self.add_on},
            "DescribeEndpoint": self._endpoint,
            "PutObject": self._put,
            "PutMetricData": lambda _: {},
            "Publish": lambda _: {"MessageId": "m"},
            "GetObject": lambda asked: {"Body": io.BytesIO(self.stored[asked["Key"]])},
        }

    def _eks(self) -> dict[str, Any]:
        endpoint, authority = self.api
        data = b64encode(authority.encode()).decode()
        return {
            "cluster": {"name": "dpd-dev", "arn": EKS_ARN, "status": "ACTIVE", "endpoint": endpoint, "certificateAuthority": {"data": data}}
        }

    def _nodes(self, asked: dict[str, Any]) -> dict[str, Any]:
        start = int(asked.get("NextToken", 0))
        end = start + self.node_page
        return {"ClusterNodeSummaries": self.nodes[start:end], **({"NextToken": str(end)} if end < len(self.nodes) else {})}

    def _groups(self, asked: dict[str, Any]) -> dict[str, Any]:
        known = {group["GroupId"]: group for group in self.security_groups}
        if set(asked["GroupIds"]) - set(known):
            raise Refuse("InvalidGroup.NotFound")
        return {"SecurityGroups": [known[id] for id in asked["GroupIds"]]}

    def _role(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["RoleName"]
        when = "2026-01-01T00:00:00Z"
        role = {
            "Path": "/",
            "RoleName": name,
            "RoleId": "AROA0123456789ABCDEF",
            "Arn": f"arn:aws:iam::{ACCOUNT}:role/{name}",
            "CreateDate": when,
        }
        return {"Role": {**role, "AssumeRolePolicyDocument": quote(json.dumps(self.trust))}}

    def _endpoint(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self.endpoint is None:
            raise Refuse("ValidationException")
        name = asked["EndpointName"]
        arn = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint/{name}"
        return {"EndpointName": name, "EndpointArn": arn, "CreationTime": 0, "LastModifiedTime": 0, **self.endpoint}

    def _put(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.stored[asked["Key"]] = bytes(asked["Body"])
        return {}
