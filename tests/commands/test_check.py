"""``dpd check`` on real files."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.checks.cases import ADOPTED_NETWORK
from tests.commands.support import Dpd
from tests.support import ROOT, base, edited

REPORT = json.loads((ROOT / "docs" / "check-report.schema.json").read_text(encoding="utf-8"))
SECRET = "hf_" + "a1B2" * 8


def written(folder: Path, name: str, content: Any) -> Path:
    """A file with a content, or with a text."""
    file = folder / name
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return file


def test_the_shipped_environments_are_checked_by_default(dpd: Dpd) -> None:
    outcome = dpd("check")
    assert (outcome.code, outcome.err) == (0, "")
    files = [f"environments/{file.name}" for file in (ROOT / "environments").glob("*.yaml")]
    assert {"environments/dev.yaml", "environments/staging.yaml", "environments/prod.yaml"} <= {*files}
    assert outcome.out.splitlines()[-1].startswith(f"{len(files)} files checked: ")
    assert all(file in outcome.out for file in files)


def test_all_findings_of_all_files_are_shown_in_order(dpd: Dpd, tmp_path: Path) -> None:
    first = written(tmp_path, "a.yaml", edited({"regoin": "x", "endpoints[0].kv.buffer_gib": 0}))
    second = written(tmp_path, "b.yaml", "")
    outcome = dpd("check", second, first)
    assert outcome.code == 1
    places = [line.split()[:3] for line in outcome.out.splitlines() if line.startswith("  error")]
    assert [place[:2] for place in places] == [["error", "CFG005"], ["error", "CFG003"], ["error", "CFG001"]]
    assert places[0][2].startswith(f"{first}:")
    assert outcome.out.splitlines()[-1] == "2 files checked: 3 errors."


def test_a_finding_shows_its_parts(dpd: Dpd, tmp_path: Path) -> None:
    file = written(tmp_path, "dev.yaml", edited({"endpoints[0].prefill.replicas": 0}))
    line = 1 + file.read_text(encoding="utf-8").splitlines().index("    replicas: 0")
    assert dpd("check", file).out == (
        f"{file}\n"
        f"  error CFG005 {file}:{line} endpoints[0].prefill.replicas\n"
        "      must be at least 1\n"
        "      value: 0\n"
        "      limit: at least 1\n"
        "      fix: choose a value inside the limit\n"
        "      see: docs/configuration.md\n"
        "\n"
        "1 file checked: 1 error.\n"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("a: [\n", "is not valid YAML"),
        ("- a\n", "must be a mapping"),
        ("a: 1\na: 2\n", "stands twice"),
        ("version: 1\n", "is required and missing"),
        ("a: 1\n---\nb: 1\n", "more than one YAML document"),
        (f"? {'x' * 10_000}\n: {'y' * 10_000}\n", "is not a key"),
        (f"app: {'x' * 10_000}\n", "must have at most 1,024 characters"),
        ('app: "\\e[2J\\u202e"\n', "must be a DNS label"),
    ],
)
def test_a_bad_file_is_answered_in_words(dpd: Dpd, tmp_path: Path, text: str, says: str) -> None:
    outcome = dpd("check", written(tmp_path, "dev.yaml", text))
    assert outcome.code == 1
    assert says in outcome.out
    assert len(outcome.out) < 20_000
    assert all(line.isprintable() for line in outcome.out.splitlines())


def test_a_path_that_is_no_file_is_a_finding(dpd: Dpd, tmp_path: Path) -> None:
    outcome = dpd("check", tmp_path / "none.yaml", tmp_path)
    assert outcome.code == 1
    assert "no such file" in outcome.out
    assert "is a folder, not a file" in outcome.out


def test_without_files_it_says_where_it_looked(dpd: Dpd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = dpd("check")
    assert (outcome.code, outcome.out) == (1, "")
    assert "environments/*.yaml matches nothing here" in outcome.err


def test_a_credential_is_not_repeated(dpd: Dpd, tmp_path: Path) -> None:
    content = edited({"app": SECRET, SECRET: 1, "endpoints[0].prefill.extra_args": [f"--token={SECRET}"], "region": f"x {SECRET}"})
    for text in (content, f"a: {SECRET}: b\n", f"{SECRET}"):
        for arguments in ((), ("--json",)):
            outcome = dpd("check", written(tmp_path, "dev.yaml", text), *arguments)
            assert outcome.code == 1
            assert SECRET not in outcome.out + outcome.err


def test_the_report_for_machines_is_as_documented(dpd: Dpd, tmp_path: Path) -> None:
    bad = written(tmp_path, "bad.yaml", edited({"regoin": 1}))
    accepted = {"acknowledge": [{"id": "INS009", "reason": "the quota was raised in June"}]}
    good = written(tmp_path, "good.yaml", edited({**accepted, "app": "other"}))
    outcome = dpd("check", "--json", bad, good)
    report = json.loads(outcome.out)
    jsonschema.validate(report, REPORT)
    assert (outcome.code, report["ok"], report["today"]) == (1, False, "2026-11-29")
    assert report["files"] == [{"file": str(bad), "environment": None}, {"file": str(good), "environment": "good"}]
    assert report["summary"]["errors"] == 1
    assert report["summary"]["acknowledged"] == 1
    assert [finding["id"] for finding in report["findings"] if finding["level"] == "error"] == ["CFG003"]
    assert [finding["acknowledged"] for finding in report["findings"] if finding["id"] == "INS009"] == ["the quota was raised in June"]
    assert dpd("check", "--json", bad, good).out == outcome.out


def test_an_accepted_finding_is_shown_with_its_reason_and_stops_nothing(dpd: Dpd, tmp_path: Path) -> None:
    file = written(tmp_path, "dev.yaml", edited({"endpoints[0].kv.buffer_gib": 60}))
    stopped = json.loads(dpd("check", "--json", file).out)["findings"]
    ids = {finding["id"] for finding in stopped if finding["level"] == "error"}
    assert ids
    content = edited(
        {"endpoints[0].kv.buffer_gib": 60, "acknowledge": [{"id": id_, "reason": "measured on our nodes"} for id_ in sorted(ids)]}
    )
    outcome = dpd("check", written(tmp_path, "dev.yaml", content))
    assert outcome.code == 0
    assert "accepted: measured on our nodes" in outcome.out
    assert f"{len([f for f in stopped if f['id'] in ids])} accepted" in outcome.out.splitlines()[-1]


def test_warnings_fail_only_when_asked(dpd: Dpd, tmp_path: Path) -> None:
    file = written(tmp_path, "dev.yaml", edited({"acknowledge": [{"id": "MEM001", "reason": "it never occurs"}]}))
    assert dpd("check", file).code == 0
    assert dpd("check", "--strict", file).code == 1
    assert json.loads(dpd("check", "--strict", "--json", file).out)["ok"] is False


def test_two_files_with_one_environment_name(dpd: Dpd, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    files = [written(tmp_path / folder, "dev.yaml", edited({"account": account})) for folder, account in (("a", "1" * 12), ("b", "2" * 12))]
    outcome = dpd("check", *files)
    assert outcome.code == 1
    assert [line.split()[1] for line in outcome.out.splitlines() if line.startswith("  error")] == ["CFG008"]
    assert f"so does {files[0]}" in outcome.out


@pytest.mark.parametrize(
    ("first", "second", "ids"),
    [
        ({}, {}, ["CFG009"]),
        ({}, {"account": "1" * 12}, []),
        ({}, {"app": "other"}, []),
        ({}, {"region": "us-west-2"}, []),
    ],
)
def test_two_files_that_would_own_the_same_names(
    dpd: Dpd, tmp_path: Path, first: dict[str, Any], second: dict[str, Any], ids: list[str]
) -> None:
    """The environments ``b-c`` of app ``a`` and ``c`` of app ``a-b`` have one prefix."""
    files = [
        written(tmp_path, "b-c.yaml", edited({"app": "a", **first})),
        written(tmp_path, "c.yaml", edited({"app": "a-b", **second})),
    ]
    report = json.loads(dpd("check", "--json", *files).out)
    assert [finding["id"] for finding in report["findings"] if finding["id"].startswith("CFG")] == ids


def test_two_environments_on_one_adopted_eks_cluster(dpd: Dpd, tmp_path: Path) -> None:
    existing = {
        "name": "shared", "security_group_id": "sg-0123456789abcdef0", "prerequisites": "install", "authentication_mode": "API",
        "oidc_issuer": "https://oidc.eks.us-east-2.amazonaws.com/id/ABCDEF0123456789ABCDEF0123456789",
        "oidc_provider_arn": "arn:aws:iam::111122223333:oidc-provider/oidc.eks.us-east-2.amazonaws.com/id/ABCDEF0123456789ABCDEF0123456789",
    }  # fmt: skip
    files = [written(tmp_path, f"{name}.yaml", edited({"cluster.existing": existing})) for name in ("one", "two")]
    report = json.loads(dpd("check", "--json", *files).out)
    assert [(finding["id"], finding["path"]) for finding in report["findings"] if finding["id"] == "CFG009"] == [
        ("CFG009", "cluster.existing.name")
    ]


def test_what_two_environments_of_different_names_contend_for(dpd: Dpd, tmp_path: Path) -> None:
    arn = "arn:aws:acm:us-east-2:111122223333:certificate/12345678-1234-1234-1234-123456789012"
    exposure = {"sagemaker_endpoint": "llama", "certificate": {"acm_arn": arn, "domain_name": "llm.example.com"}}
    network = {**ADOPTED_NETWORK, "network.existing.s3_gateway_endpoint": "create"}

    def contended(second: dict[str, Any]) -> list[str]:
        files = [
            written(tmp_path, "one.yaml", edited({**network, "endpoints[0].exposure": exposure})),
            written(tmp_path, "two.yaml", edited({**network, "endpoints[0].exposure": exposure, **second})),
        ]
        report = json.loads(dpd("check", "--json", *files).out)
        return sorted(finding["path"] for finding in report["findings"] if finding["id"] == "CFG009")

    domain, name = "endpoints[0].exposure.certificate.domain_name", "endpoints[0].exposure.sagemaker_endpoint"
    assert contended({}) == [domain, name, "network.existing.route_table_ids[0]"]
    assert contended({"network.existing.s3_gateway_endpoint": "exists", domain: "b.example.com", name: "other"}) == []


def test_a_file_that_is_given_twice_is_read_once(dpd: Dpd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "dev.yaml", base())
    monkeypatch.chdir(tmp_path)
    assert dpd("check", file, "dev.yaml").out.splitlines()[-1].startswith("1 file checked")
