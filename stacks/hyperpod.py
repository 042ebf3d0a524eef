"""The HyperPod cluster: instance groups in one subnet of one AZ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from aws_cdk import Stack
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct, IDependable

from dpd.catalog import instances
from dpd.environment.cluster import InstanceGroup, TrainingPlan
from stacks.acknowledgements import BUILT_IN, accept, accept_newer_properties
from stacks.constructs.node_role import node_role
from stacks.values import EksValues, NetworkValues, StorageValues

LIFECYCLE_SCRIPT: Final = "on_create.sh"
_DEEP_HEALTH_CHECKS: Final = {"instance_stress": "InstanceStress", "instance_connectivity": "InstanceConnectivity"}
_TYPES: Final = "E3644"
"""Rule about instance types."""
_CAPACITY: Final[dict[str, dict[str, Any]]] = {"on_demand": {"onDemand": {}}, "spot": {"spot": {}}}


class HyperPodStack(Stack):
    """A HyperPod cluster on EKS, continuously provisioned: it is made even while capacity is still missing."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        cluster_name: str,
        groups: Mapping[str, InstanceGroup],
        node_recovery: str,
        tiered_storage_memory_percent: int | None,
        image_release_version: str | None,
        raw: Mapping[str, Any],
        network: NetworkValues,
        storage: StorageValues,
        eks: EksValues,
        after: Sequence[IDependable],
        **stack: Any,
    ) -> None:
        super().__init__(scope, id_, **stack)
        role = node_role(
            self,
            "NodeRole",
            cluster_arn=eks.arn,
            vpc_id=network.vpc_id,
            subnet_ids=(network.gpu_subnet_id, *network.control_plane_subnet_ids),
            security_group_ids=network.node_security_group_ids,
            lifecycle_bucket_name=storage.lifecycle_bucket.name,
            key_arn=storage.key_arn,
            lifecycle_key_arn=storage.lifecycle_bucket.key_arn,
            lustre=storage.lustre is not None,
        )
        common = {
            "executionRole": role.attr_arn,
            "imageReleaseVersion": image_release_version,
            "lifeCycleConfig": {"sourceS3Uri": storage.lifecycle_uri, "onCreate": LIFECYCLE_SCRIPT},
            "overrideVpcConfig": {"subnets": [network.gpu_subnet_id], "securityGroupIds": list(network.node_security_group_ids)},
            # The console's default is 1, which halves a node's CPUs; leaving it out of an update sets it back.
            "threadsPerCore": 2,
        }
        cluster = sagemaker.CfnCluster(
            self,
            "Cluster",
            cluster_name=cluster_name,
            orchestrator={"eks": {"clusterArn": eks.arn}},
            node_provisioning_mode="Continuous",
            node_recovery=node_recovery.capitalize(),
            # Can never change without a new cluster, so it holds what never changes: not the adopted groups, of which one
            # may be added later. The instance groups override it.
            vpc_config={"subnets": list(network.control_plane_subnet_ids), "securityGroupIds": [network.efa_security_group_id]},
            instance_groups=[{**common, **_group(name, group, storage.key_arn)} for name, group in groups.items()],
            tiered_storage_config=(
                {"mode": "Enable", "instanceMemoryAllocationPercentage": tiered_storage_memory_percent}
                if tiered_storage_memory_percent
                else None
            ),
        )
        cluster.override_logical_id("HyperPodCluster")
        for path, value in [*raw.items(), *_raw_of_groups(groups)]:
            cluster.add_property_override(path, value)
        if any(not _lint_knows(group) for group in groups.values()):
            # The API takes the type; only the list of types of cfn-lint, and of CDK's validation after it, is older.
            cluster.add_metadata("cfn-lint", {"config": {"ignore_checks": [_TYPES]}})
            accept(cluster, {_TYPES: "the API takes the instance type; the linter's list is older"}, pack=BUILT_IN)
        if image_release_version or raw or any(group.raw for group in groups.values()):
            accept_newer_properties(cluster)
        cluster.node.add_dependency(*after)
        self.cluster_arn: Final = cluster.attr_cluster_arn


def _lint_knows(group: InstanceGroup) -> bool:
    known = instances.find(group.instance_type)
    return known is not None and known.lint_known


def _group(name: str, group: InstanceGroup, key_arn: str) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [{"ebsVolumeConfig": {"rootVolume": True, "volumeKmsKeyId": key_arn}}]
    if group.data_volume_gib:
        volumes.append({"ebsVolumeConfig": {"volumeSizeInGb": group.data_volume_gib, "volumeKmsKeyId": key_arn}})
    kubernetes: dict[str, Any] = {}
    if group.labels:
        kubernetes["labels"] = dict(group.labels)
    if group.taints:
        kubernetes["taints"] = [
            {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})} for taint in group.taints
        ]
    return {
        "instanceGroupName": name,
        "instanceType": group.instance_type,
        "instanceCount": group.count,
        "instanceStorageConfigs": volumes,
        "kubernetesConfig": kubernetes or None,
        "networkInterface": {"interfaceType": group.network_interface.replace("_", "-")} if group.network_interface else None,
        "onStartDeepHealthChecks": [_DEEP_HEALTH_CHECKS[check] for check in group.deep_health_checks] or None,
        "capacityRequirements": _CAPACITY[group.capacity] if isinstance(group.capacity, str) else None,
        "trainingPlanArn": group.capacity.training_plan_arn if isinstance(group.capacity, TrainingPlan) else None,
    }


def _raw_of_groups(groups: Mapping[str, InstanceGroup]) -> Iterator[tuple[str, Any]]:
    for index, group in enumerate(groups.values()):
        for path, value in group.raw.items():
            yield f"InstanceGroups.{index}.{path}", value
