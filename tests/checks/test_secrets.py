"""Rules about secrets: wherever they stand, whatever they look like, and never repeated."""

import json
from typing import Any

import pytest

from dpd.checks.registry import Context, run
from dpd.finding import HIDDEN, Finding
from tests.checks.cases import Case
from tests.support import TODAY, environment, findings

# Put together here so that no scanner takes them for real ones.
TOKENS = {
    "Hugging Face": "hf_" + "a1B2c3D4e5F6",
    "AWS access key": "AKIA" + "IOSFODNN7EXAMPLE",
    "AWS session key": "ASIA" + "IOSFODNN7EXAMPLE",
    "OpenAI style": "sk-" + "abcdefgh12345678",
    "GitHub": "ghp_" + "a" * 36,
    "Slack": "xoxb-" + "1234567890-abc",
    "web token": "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIx",
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "NVIDIA": "nvapi-" + "a1B2c3D4" * 3,
    "GitLab": "glpat-" + "a1B2c3D4" * 3,
    "Google": "AIza" + "a1B2c3D4" * 5,
    "npm": "npm_" + "a1B2c3D4" * 5,
    "Docker": "dckr_pat_" + "a1B2c3D4" * 3,
    "PyPI": "pypi-" + "a1B2c3D4" * 5,
    "header": "Bearer " + "a1B2c3D4" * 3,
    "signed URL": "https://example.com/a?x=1&X-Amz-Signature=" + "0a1b2c3d" * 8,
}
HUB = {"hub": {"model_id": "Qwen/Qwen3-32B", "revision": "a" * 40}}


def in_places(text: str) -> dict[str, dict[str, Any]]:
    """The same text in every place where the file takes the user's words: path of the finding -> changes."""
    return {
        "tags.note": {"tags": {"note": text.replace("-----", "")}},
        "endpoints[0].environment.NOTE": {"endpoints[0].environment": {"NOTE": text}},
        "endpoints[0].prefill.extra_args[1]": {"endpoints[0].prefill.extra_args": ["--note", text]},
        "endpoints[0].decode.node_selector.note": {"endpoints[0].decode.node_selector": {"note": text}},
        "endpoints[0].raw.spec.a.b[0].c": {"endpoints[0].raw": {"spec": {"a": {"b": [{"c": text}]}}}},
        "cluster.groups.decode.labels.note": {"cluster.groups.decode.labels": {"note": text}},
        "cluster.raw.eks.Logging": {"cluster.raw": {"eks": {"Logging": text}}},
        "acknowledge[0].reason": {"acknowledge": [{"id": "SEC001", "reason": f"we know {text}", "path": "nowhere"}]},
    }


def all_text(found: list[Finding]) -> str:
    return json.dumps([finding.as_dict() for finding in found])


@pytest.mark.parametrize("kind", TOKENS)
def test_every_kind_of_credential_is_found_and_never_repeated(kind: str) -> None:
    token = TOKENS[kind]
    found = run(environment({"endpoints[0].environment": {"NOTE": token}}), Context(today=TODAY))
    assert [(one.path, one.value) for one in found if one.id == "SEC001"] == [("endpoints[0].environment.NOTE", HIDDEN)]
    assert token not in all_text(found)


@pytest.mark.parametrize("path", in_places(""))
def test_a_credential_is_found_in_every_place(path: str) -> None:
    token = TOKENS["Hugging Face"]
    found = run(environment(in_places(token)[path]), Context(today=TODAY))
    assert [one.path for one in found if one.id == "SEC001"] == [path]
    assert token not in all_text(found)


def test_a_credential_as_a_key_is_not_repeated_in_the_path() -> None:
    token = TOKENS["Hugging Face"]
    for place in ("endpoints[0].environment", "cluster.groups.decode.labels", "cluster.add_ons", "endpoints[0].decode.node_selector"):
        found = run(environment({place: {token: {} if place == "cluster.add_ons" else "x"}}), Context(today=TODAY))
        assert [one.path for one in found if one.id == "SEC001"] == [f"{place}.{HIDDEN}"]
        assert token not in all_text(found)


def test_no_other_finding_repeats_what_a_flag_announces() -> None:
    found = run(environment({"endpoints[0].decode.extra_args": ["--api-key hunter22"]}), Context(today=TODAY))
    assert "hunter22" not in all_text(found)


def variable(value: Any, name: str = "HF_TOKEN") -> dict[str, Any]:
    return {"endpoints[0].environment": {name: value}}


REFERENCE = variable({"secret": "hub", "key": "token"})
CASES = [
    *(
        Case("SEC002", variable("hunter22", name), f"endpoints[0].environment.{name}", "written out", REFERENCE)
        for name in (
            "HF_TOKEN",
            "DB_PASSWORD",
            "API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "MY_SECRET",
            "DB_PASS",
            "MYSQL_PWD",
            "HTTP_AUTHORIZATION",
            "PRIVATE_KEY",
            "PASSWORD",
            "hub_token",
        )
    ),
    Case("SEC002", {"tags": {"api-key": "hunter22"}}, "tags.api-key", "written out", {"tags": {"api": "hunter22"}}),
    Case(
        "SEC002",
        {"endpoints[0].decode.extra_args": ["--api-key", "hunter22"]},
        "endpoints[0].decode.extra_args[1]",
        "written out",
        {"endpoints[0].decode.extra_args": ["--max-loras", "4"]},
    ),
    Case("SEC002", {"endpoints[0].decode.extra_args": ["--api-key=hunter22"]}, "endpoints[0].decode.extra_args[0]", "written out"),
    Case("SEC002", {"endpoints[0].decode.extra_args": ["--api-key hunter22"]}, "endpoints[0].decode.extra_args[0]", "written out"),
    Case(
        "SEC002",
        variable('{"redis": {"password": "hunter22"}}', "LMCACHE_EXTRA_CONFIG"),
        "endpoints[0].environment.LMCACHE_EXTRA_CONFIG",
        "written out",
        variable('{"redis": {"host": "a"}}', "LMCACHE_EXTRA_CONFIG"),
    ),
    Case(
        "SEC002",
        {"endpoints[0].decode.extra_args": ['--additional-config={"api_key": "hunter22"}']},
        "endpoints[0].decode.extra_args[0]",
        "written out",
    ),
    Case("SEC002", {"endpoints[0].raw": {"spec": {"x": {"apiKey": "hunter22"}}}}, "endpoints[0].raw.spec.x.apiKey", "written out"),
    Case("SEC002", {"endpoints[0].raw": {"spec": {"x": {"hfToken": "hunter22"}}}}, "endpoints[0].raw.spec.x.hfToken", "written out"),
    Case(
        "SEC002",
        {"endpoints[0].raw": {"spec": {"worker": {"environmentVariables": [{"name": "HF_TOKEN", "value": "hunter22"}]}}}},
        "endpoints[0].raw.spec.worker.environmentVariables[0].value",
        "written out",
        {"endpoints[0].raw": {"spec": {"worker": {"environmentVariables": [{"name": "HF_HOME", "value": "hunter22"}]}}}},
    ),
    *(
        Case("SEC003", variable(value), "endpoints[0].environment.HF_TOKEN", "says nothing", REFERENCE)
        for value in ("", "None", "null", " none ", "changeme")
    ),
    Case(
        "SEC004",
        variable("redis://user:hunter22@cache:6379", "CACHE_URL"),
        "endpoints[0].environment.CACHE_URL",
        "URL with a password",
        variable("redis://cache:6379", "CACHE_URL"),
    ),
    Case(
        "SEC004",
        variable("http://u:p@proxy", "HTTPS_PROXY"),
        "endpoints[0].environment.HTTPS_PROXY",
        "password",
        variable("http://proxy", "P"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()
    assert "hunter22" not in all_text([one for one in findings(case.wrong) if one.id.startswith("SEC")])


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoints[0].model.source": {"hub": {**HUB["hub"], "token": {"secret": "hub", "key": "token"}}}},
        {"cluster.groups.decode.taints": [{"key": "example.com/token", "value": "x", "effect": "NoSchedule"}]},
        {"endpoints[0].raw": {"spec": {"x": {"matchExpressions": [{"key": "zone", "values": ["a"]}]}}}},
        {"endpoints[0].raw": {"spec": {"x": {"topologyKey": "topology.kubernetes.io/zone"}}}},
        {"endpoints[0].raw": {"spec": {"x": {"tokenSecretRef": {"name": "hub", "key": "token"}}}}},
        {"storage.encryption_key": {"existing": "arn:aws:kms:us-east-2:111122223333:key/1234"}},
        variable("512", "MAX_TOKEN"),
        variable("true", "TRUST_TOKEN"),
        variable("arn:aws:secretsmanager:us-east-2:111122223333:secret:x", "DB_SECRET"),
        variable("false", "TOKENIZERS_PARALLELISM"),
        {"endpoints[0].decode.extra_args": ["--max-num-batched-tokens", "8192"]},
    ],
    ids=str,
)
def test_what_only_sounds_like_a_secret(changes: dict[str, Any]) -> None:
    assert not [one for one in findings(changes) if one.id.startswith("SEC")]
