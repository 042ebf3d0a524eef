"""The order in which an environment goes, and what stays."""

from pathlib import Path
from typing import Any

import pytest

from dpd.environment.names import PARTS
from dpd.promotion.teardown import teardown
from dpd.review.assembly import NotAnAssemblyError, read
from tests.promotion.made import assembly, typed

OBJECT = "Custom::AWSCDK-EKS-KubernetesResource"
TEMPLATES: dict[str, dict[str, Any]] = {
    "network": {"Vpc": {"Type": "AWS::EC2::VPC", "Properties": {}}},
    "storage": {
        "ModelBucket": {"Type": "AWS::S3::Bucket", "DeletionPolicy": "RetainExceptOnCreate", "Properties": {"BucketName": "weights"}},
        "ModelBucketPolicy": {"Type": "AWS::S3::BucketPolicy", "DeletionPolicy": "RetainExceptOnCreate"},
        "Scratch": {"Type": "AWS::S3::Bucket", "DeletionPolicy": "Delete", "Properties": {"BucketName": "scratch"}},
        "Snapshotted": {"Type": "AWS::FSx::FileSystem", "DeletionPolicy": "Snapshot", "Properties": {}},
    },
    "eks": {"Cluster": {"Type": "AWS::EKS::Cluster", "Properties": {"Name": "own-name"}}},
    "hyperpod": {"HyperPodCluster": {"Type": "AWS::SageMaker::Cluster", "Properties": {"ClusterName": "pods"}}},
    "addons": {},
    "serving": {"Namespace": {"Type": OBJECT, "DeletionPolicy": "Retain", "Properties": {}}},
    "gate": {},
}
ENDPOINT = {"endpoints[0].exposure": {"sagemaker_endpoint": "llama-public"}}


def test_custom_resources_go_first_then_add_ons_then_hyperpod_then_eks_and_the_network_last(tmp_path: Path) -> None:
    plan = teardown(read(assembly(tmp_path / "out", typed("dev"), templates=TEMPLATES)), "dev")
    assert (
        [step.part for step in plan.steps]
        == list(reversed(PARTS))
        == ["gate", "serving", "addons", "hyperpod", "eks", "storage", "network"]
    )
    assert [step.key for step in plan.steps][:2] == ["dev/gate", "dev/serving"]
    assert plan.steps[0].stack == "llama-dpd-dev-gate"


def test_a_stack_that_no_part_names_goes_before_what_it_waits_for(tmp_path: Path) -> None:
    plan = teardown(read(assembly(tmp_path / "out", typed("dev"), templates={**TEMPLATES, "weights": {}})), "dev")
    parts = [step.part for step in plan.steps]
    assert parts.index("weights") < parts.index("storage")
    assert parts[-1] == "network"


def test_what_is_kept_is_read_from_the_templates(tmp_path: Path) -> None:
    plan = teardown(read(assembly(tmp_path / "out", typed("dev"), templates=TEMPLATES)), "dev")
    kept = [(each.type, each.name or each.id, each.how) for step in plan.steps for each in step.kept]
    assert kept == [("AWS::S3::Bucket", "weights", "RetainExceptOnCreate"), ("AWS::FSx::FileSystem", "Snapshotted", "Snapshot")]


def test_objects_on_an_adopted_cluster_stay(tmp_path: Path) -> None:
    adopted = {part: resources for part, resources in TEMPLATES.items() if part != "eks"} | {"eks": {}}
    plan = teardown(read(assembly(tmp_path / "out", typed("dev"), templates=adopted)), "dev")
    assert OBJECT in [each.type for step in plan.steps for each in step.kept]


def test_what_the_operator_made_is_named_with_the_way_to_find_it(tmp_path: Path) -> None:
    plan = teardown(read(assembly(tmp_path / "out", typed("dev", ENDPOINT), templates=TEMPLATES)), "dev")
    assert plan.sagemaker_endpoints == ("llama-public",)
    find = "\n".join(each.find for each in plan.left)
    assert "elbv2.k8s.aws/cluster,Values=own-name" in find
    assert "describe-endpoint --endpoint-name llama-public" in find
    assert "/aws/sagemaker/Clusters/pods/" in find


def test_protected_stacks_are_told(tmp_path: Path) -> None:
    plan = teardown(read(assembly(tmp_path / "out", typed("dev"), templates=TEMPLATES, protected=("storage", "network"))), "dev")
    assert [step.part for step in plan.protected] == ["storage", "network"]


def test_an_unknown_environment_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NotAnAssemblyError, match="it has: dev"):
        teardown(read(assembly(tmp_path / "out", typed("dev"))), "prod")
