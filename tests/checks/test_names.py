"""Rules about names."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.checks.names import lora_names
from dpd.finding import Level
from tests.checks.cases import ADOPTED_CLUSTER, Case, source
from tests.support import base, environment, findings

SECOND = base()["endpoints"][0]


def second(**changes: Any) -> dict[str, Any]:
    """Add another endpoint like the first."""
    return {"endpoints[1]": {**SECOND, "name": "other", **changes}}


def served_at(domain_name: str) -> dict[str, Any]:
    """Two endpoints with certificates, the second for some domain name."""
    arn = "arn:aws:acm:us-east-2:111122223333:certificate/12345678-1234-1234-1234-123456789012"
    first = {"certificate": {"acm_arn": arn, "domain_name": "llm.example.com"}}
    return {"endpoints[0].exposure": first, **second(exposure={"certificate": {"acm_arn": arn, "domain_name": domain_name}})}


def adopted_name(name: str) -> dict[str, Any]:
    return {**ADOPTED_CLUSTER, "cluster.existing.name": name}


CASES = [
    # name and namespace: 47 together is one too many, 46 fit
    Case("NAM001", {"endpoints[0].name": "a" * 38}, "endpoints[0].name", "at most 46", {"endpoints[0].name": "a" * 37}),
    Case(
        "NAM001",
        {"endpoints[0].namespace": "a" * 38},
        "endpoints[0].name",
        "shorten name or namespace by 1",
        {"endpoints[0].namespace": "a" * 37},
    ),
    Case("NAM002", {"endpoints[0].name": "a" * 56}, "endpoints[0].name", "at most 55", {"endpoints[0].name": "a" * 55}),
    # hyperpod-tls-<app>-dev-111122223333-us-east-2 has 40 characters besides the app
    Case("NAM003", {"app": "a" * 24}, "app", "64 characters", {"app": "a" * 23}),
    Case(
        "NAM003",
        {"app": "a" * 23, "region": "ap-southeast-2"},
        "app",
        "cut 5 characters off",
        {"app": "a" * 18, "region": "ap-southeast-2"},
    ),
    Case("NAM004", second(name="llama-70b"), "endpoints[1].name", "endpoints[0] makes as well", second()),
    Case("NAM004", second(name="llama-70b", namespace="other"), "endpoints[1].name", "has the same name", second(namespace="other")),
    # the router's Service joins name and namespace
    Case(
        "NAM004",
        {"endpoints[0].name": "a-b", "endpoints[0].namespace": "c", **second(name="a", namespace="b-c")},
        "endpoints[1].name",
        "a-b-c-router",
        {"endpoints[0].name": "a-b", "endpoints[0].namespace": "c", **second(name="a", namespace="b-d")},
    ),
    Case(
        "NAM005",
        {"endpoints[0].exposure": {"sagemaker_endpoint": "Llama"}, **second(exposure={"sagemaker_endpoint": "llama"})},
        "endpoints[1].exposure.sagemaker_endpoint",
        "endpoints[0]",
        {"endpoints[0].exposure": {"sagemaker_endpoint": "llama"}, **second(exposure={"sagemaker_endpoint": "llama-2"})},
    ),
    *(
        Case("NAM006", {"endpoints[0].namespace": namespace}, "endpoints[0].namespace", f"belongs to {owner}")
        for namespace, owner in [
            ("kube-system", "Kubernetes"),
            ("kube-anything", "Kubernetes"),
            ("aws-hyperpod", "HyperPod"),
            ("hyperpod-inference-system", "the inference operator"),
            ("cert-manager", "the cert-manager add-on"),
            ("mount-s3", "the S3 CSI driver"),
        ]
    ),
    Case("NAM006", {"endpoints[0].namespace": "default"}, "endpoints[0].namespace", "where everything lands", level=Level.WARNING),
    *(
        Case("NAM007", {"endpoints[0].name": name}, "endpoints[0].name", f"{name.upper()}_PORT", {"endpoints[0].name": f"{name}-70b"})
        for name in ("vllm", "lmcache", "nixl", "nccl", "ucx")
    ),
    Case(
        "NAM012",
        served_at("llm.example.com"),
        "endpoints[1].exposure.certificate.domain_name",
        "endpoints[0] has",
        served_at("b.example.com"),
    ),
    Case(
        "NAM008",
        second(model={**SECOND["model"], "catalog": "qwen3-32b", "served_name": "llama-70b"}),
        "endpoints[1].model.served_name",
        "endpoints[0] serves another model",
        second(model={**SECOND["model"], "catalog": "qwen3-32b"}),
        Level.WARNING,
    ),
    Case(
        "NAM008",
        {"endpoints[0].decode.extra_args": ["--lora-modules", "sql=/adapters/sql", "llama-70b=/adapters/chat"]},
        "endpoints[0].decode.extra_args",
        "llama-70b",
        {"endpoints[0].decode.extra_args": ["--lora-modules", "sql=/adapters/sql", "chat=/adapters/chat"]},
    ),
    Case(
        "NAM008",
        {"endpoints[0].decode.extra_args": ["--lora-modules=sql=/a", "--lora-modules", "sql=/b"]},
        "endpoints[0].decode.extra_args",
        "sql",
        {"endpoints[0].decode.extra_args": ["--lora-modules=sql=/a"]},
    ),
    Case("NAM009", adopted_name("MyCluster"), "cluster.existing.name", "not lower case", adopted_name("my-cluster"), Level.WARNING),
    Case("NAM009", adopted_name("my_cluster"), "cluster.existing.name", "not lower case", adopted_name("my-cluster"), Level.WARNING),
    Case("NAM009", adopted_name("arn:aws:eks:x"), "cluster.existing.name", "not the ARN", adopted_name("x")),
    Case("NAM010", {"tags": {"Owner": "a", "owner": "b"}}, "tags.owner", "same tag as Owner", {"tags": {"owner": "b", "owners": "c"}}),
    Case("NAM010", {"tags": {"app": "x"}}, "tags.app", "set by this tool", {"tags": {"application": "x"}}),
    Case("NAM010", {"tags": {"Environment": "x"}}, "tags.Environment", "environment is set by this tool", {"tags": {"stage": "x"}}),
    Case(
        "NAM011",
        {**source("lustre", {"path": "/checkpoints/x"}), "endpoints[0].namespace": "a" * 43},
        "endpoints[0].namespace",
        "64 characters",
        {**source("lustre", {"path": "/checkpoints/x"}), "endpoints[0].namespace": "a" * 42},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()


def test_every_case_of_a_second_endpoint_alone_is_right() -> None:
    assert not [finding for finding in findings(second()) if finding.id.startswith("NAM")]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((), []),
        (("--lora-modules", "a=/x", "b=/y", "--enable-lora", "c=/z"), ["a", "b"]),
        (("--lora-modules a=/x b=/y",), ["a", "b"]),
        (("--lora-modules=a=/x",), ["a"]),
        (("--other", "a=/x"), []),
    ],
)
def test_lora_names(arguments: tuple[str, ...], names: list[str]) -> None:
    assert list(lora_names(arguments)) == names


@given(
    name=st.from_regex(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", fullmatch=True),
    namespace=st.from_regex(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", fullmatch=True),
)
def test_the_limit_of_name_and_namespace_is_exact(name: str, namespace: str) -> None:
    found = findings({"endpoints[0].name": name, "endpoints[0].namespace": namespace}, id="NAM001")
    assert bool(found) == (len(name) + len(namespace) > 46)


def test_a_long_environment_name_counts_as_the_app_does() -> None:
    from dpd.checks.registry import Context, run
    from tests.support import TODAY

    found = run(environment(name="a" * 30), Context(today=TODAY))
    assert "NAM003" in {finding.id for finding in found}
