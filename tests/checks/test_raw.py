"""Properties set by name: the smallest wrong one, and the nearest right one."""

from typing import Any

import pytest

from dpd.catalog.cloudformation import resource
from tests.support import findings

WRONG = [
    ("RAW001", "network.raw", {"InstanceTenency": "default"}, "did you mean InstanceTenancy?"),
    ("RAW001", "cluster.raw.eks", {"Nodes": 1}, "take a property of the list"),
    ("RAW001", "cluster.raw.hyperpod", {"Autoscaling.Mode": "Enable"}, "did you mean AutoScaling?"),
    ("RAW001", "cluster.groups.prefill.raw", {"MinInstances": 1}, "did you mean MinInstanceCount?"),
    ("RAW001", "storage.lustre.raw", {"LustreConfiguration.Zzip": "LZ4"}, "take a property of the list"),
    ("RAW002", "network.raw", {"CidrBlock": "10.0.0.0/16"}, "remove it"),
    ("RAW002", "cluster.raw.eks", {"AccessConfig.AuthenticationMode": "API"}, "remove it"),
    ("RAW002", "cluster.raw.hyperpod", {"VpcConfig.Subnets": []}, "remove it"),
    ("RAW002", "cluster.groups.decode.raw", {"ThreadsPerCore": 1}, "remove it"),
    ("RAW002", "storage.lustre.raw", {"LustreConfiguration": {"ImportPath": "s3://x"}}, "remove it"),
    ("RAW002", "cluster.raw.eks", {"Logging": {}}, "remove it"),
    ("RAW002", "cluster.raw.eks", {"KubernetesNetworkConfig.IpFamily": "ipv6"}, "remove it"),
    ("RAW001", "cluster.raw.eks", {"KubernetesNetworkConfig.ServiceIpv4Cdr": "10.9.0.0/16"}, "did you mean ServiceIpv4Cidr?"),
    ("RAW002", "storage.lustre.raw", {"StorageType": "HDD"}, "remove it"),
    ("RAW002", "storage.lustre.raw", {"FileSystemTypeVersion": "2.10"}, "remove it"),
    ("RAW002", "storage.lustre.raw", {"LustreConfiguration.DriveCacheType": "READ"}, "remove it"),
    ("RAW001", "storage.models.raw", {"Acceleration": {}}, "did you mean"),
    ("RAW001", "storage.raw", {"RotationPeriod": 90}, "did you mean RotationPeriodInDays?"),
    ("RAW002", "storage.certificates.raw", {"VersioningConfiguration.Status": "Suspended"}, "remove it"),
    ("RAW002", "storage.raw", {"EnableKeyRotation": False}, "remove it"),
    ("RAW003", "storage.lustre.raw", {"BackupId": "backup-0123456789"}, "keep it as it is"),
]
ADOPTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("storage.raw", {"MultiRegion": True}, {"storage.encryption_key": {"existing": "arn:aws:kms:us-east-2:111122223333:key/1"}}),
    (
        "storage.models.raw",
        {"AccelerateConfiguration.AccelerationStatus": "Enabled"},
        {"storage.models.bucket": {"existing": "our-weights", "region": "us-east-2"}},
    ),
    (
        "storage.node_scripts.raw",
        {"AccelerateConfiguration.AccelerationStatus": "Enabled"},
        {"storage.node_scripts.bucket": {"existing": "sagemaker-ours", "region": "us-east-2"}},
    ),
]
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("network.raw", {"InstanceTenancy": "default"}),
    ("cluster.raw.eks", {"UpgradePolicy.SupportType": "STANDARD"}),
    ("cluster.raw.hyperpod", {"AutoScaling.Mode": "Enable"}),
    ("cluster.groups.prefill.raw", {"MinInstanceCount": 1}),
    ("storage.lustre.raw", {"LustreConfiguration.DataCompressionType": "LZ4"}),
    ("storage.raw", {"RotationPeriodInDays": 90}),
    ("storage.models.raw", {"IntelligentTieringConfigurations": []}),
]


@pytest.mark.parametrize(("id", "place", "properties", "fix"), WRONG)
def test_wrong(id: str, place: str, properties: dict[str, Any], fix: str) -> None:
    (finding,) = findings({place: properties}, id=id)
    assert finding.path == f"{place}.{next(iter(properties))}"
    assert finding.fix.startswith(fix)


@pytest.mark.parametrize(("place", "properties"), RIGHT)
def test_right(place: str, properties: dict[str, Any]) -> None:
    assert not [finding for finding in findings({place: properties}) if finding.id.startswith("RAW")]


@pytest.mark.parametrize("kind", ["vpc", "eks", "hyperpod", "instance_group", "lustre", "bucket", "key"])
def test_managed_and_replacing_properties_are_settable_ones(kind: Any) -> None:
    facts = resource(kind)
    for path in (*facts.managed, *facts.replaces):
        first, *rest = path.split(".")
        assert first in facts.settable
        assert not rest or rest[0] in facts.settable[first]


@pytest.mark.parametrize(("place", "properties", "adopted"), ADOPTED, ids=[place for place, *_ in ADOPTED])
def test_an_adopted_resource_takes_no_properties(place: str, properties: dict[str, Any], adopted: dict[str, Any]) -> None:
    assert [found.path for found in findings({place: properties, **adopted}, id="RAW004")] == [f"{place}.{next(iter(properties))}"]
    assert not findings({place: properties}, id="RAW004")
