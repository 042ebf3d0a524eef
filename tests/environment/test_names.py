"""The one place of names and labels."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpd.environment import names
from dpd.environment.names import EndpointNames, Names
from tests.support import environment

LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


@given(st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_dns_name_is_a_label_or_says_why_not(parts: list[str]) -> None:
    try:
        made = names.dns_name(*parts)
    except ValueError:
        made = ""
    assert made == "" or DNS_LABEL.fullmatch(made)


@given(LABEL)
def test_dns_name_leaves_a_legal_name_alone(text: str) -> None:
    assert names.dns_name(text) == text


@pytest.mark.parametrize(
    ("text", "name"), [("Qwen2.5-72B", "qwen2-5-72b"), ("model_v1", "model-v1"), ("meta-llama/Llama-3.3", "meta-llama-llama-3-3")]
)
def test_dns_name_of_model_names(text: str, name: str) -> None:
    assert names.dns_name(text) == name


@pytest.mark.parametrize("text", ["", "---", "a" * 64, "日本"])
def test_dns_name_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="characters"):
        names.dns_name(text)


@given(st.text(max_size=200))
def test_label_value_is_legal(text: str) -> None:
    assert LABEL_VALUE.fullmatch(names.label_value(text))


@given(st.text(alphabet=st.sampled_from("abzAZ09-_."), max_size=63))
def test_label_value_keeps_what_is_legal(text: str) -> None:
    assume(LABEL_VALUE.fullmatch(text))
    assert names.label_value(text) == text


@given(st.text(max_size=200))
def test_sagemaker_model_name_is_legal_or_empty(text: str) -> None:
    assert re.fullmatch(r"([a-zA-Z0-9](-*[a-zA-Z0-9]){0,62})?", names.sagemaker_model_name(text))


@given(LABEL, LABEL)
def test_volumes_of_two_namespaces_differ(one: str, other: str) -> None:
    assume(one != other)
    assert names.lustre_volume("app-dev", one) != names.lustre_volume("app-dev", other)


@given(LABEL, LABEL)
def test_every_name_of_an_environment_holds_app_and_environment(app: str, name: str) -> None:
    made = Names(app=app, environment=name, account="111122223333", region="us-east-2")
    stacks = [made.stack(part) for part in names.PARTS]
    for text in (*stacks, *made.buckets, made.eks_cluster, made.hyperpod_cluster, made.operator_role):
        assert f"{app}-{name}" in text
    assert len({*stacks, *made.buckets}) == len(stacks) + len(made.buckets)
    assert made.longest_stack in stacks
    assert len(made.longest_stack) == max(map(len, stacks))


def test_names_that_policies_of_aws_demand() -> None:
    made = Names.of(environment())
    assert made.tls_bucket.startswith("hyperpod-tls")
    assert made.lifecycle_bucket.startswith("sagemaker-")
    assert made.operator_role.startswith("SageMakerHyperPodInference")
    assert made.prefix == "llama-dpd-dev"


def test_names_that_the_operator_makes() -> None:
    made = EndpointNames.of(environment().endpoints[0])
    assert made.routing_service == "llama-70b-inference-routing-service"
    assert made.routing_host == "llama-70b-inference-routing-service.hyperpod-inference-system.svc.cluster.local"
    assert made.ingress == "alb-llama-70b-inference"
    assert made.router == "llama-70b-inference-router"
    assert [made.workload(role) for role in ("prefill", "decode")] == ["prefill-llama-70b", "decode-llama-70b"]


def test_labels_are_label_values() -> None:
    for labels in (EndpointNames.of(environment().endpoints[0]).labels(), names.cluster_labels()):
        assert all(LABEL_VALUE.fullmatch(value) and value for value in labels.values())


@pytest.mark.parametrize(
    ("text", "legal"),
    [("a", True), ("a-1", True), ("1a", True), ("A", False), ("a_b", False), ("-a", False), ("a" * 64, False), ("", False)],
)
def test_is_dns_label(text: str, legal: bool) -> None:
    assert names.is_dns_label(text) is legal


@pytest.mark.parametrize(
    ("text", "legal"), [("My_Cluster-1", True), ("a" * 100, True), ("a" * 101, False), ("_a", False), ("a.b", False), ("", False)]
)
def test_is_eks_cluster_name(text: str, legal: bool) -> None:
    assert names.is_eks_cluster_name(text) is legal
