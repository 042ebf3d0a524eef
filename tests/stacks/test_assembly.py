"""What must hold for every template of every environment, and for the assembly as a whole."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnOutput, Stack, Validations
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import ManualArgs, lint

from charts.render import render_all
from dpd.environment.names import PARTS, Names
from stacks.assembly import finish, unfit
from stacks.stage import EnvironmentStage
from tests.stacks.conftest import ENVIRONMENTS, Whole, changed, context, environments
from tests.support import ROOT

TEMPLATE_LIMIT = 1_000_000
PAYLOAD_LIMIT = 262_144
NO_CREDENTIALS = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")} | {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_CONFIG_FILE": os.devnull,
}


def test_every_environment_file_takes_part(whole: Whole) -> None:
    assert set(whole.templates) == {path.stem for path in ENVIRONMENTS}


def test_every_environment_has_every_stack_by_name_and_in_order(whole: Whole) -> None:
    for name, environment in whole.environments.items():
        manifest = json.loads((whole.folder / f"assembly-{name}" / "manifest.json").read_text(encoding="utf-8"))
        stacks = {id_: one for id_, one in manifest["artifacts"].items() if one["type"] == "aws:cloudformation:stack"}
        assert {one["properties"]["stackName"] for one in stacks.values()} == {Names.of(environment).stack(part) for part in PARTS}
        by_part = {one["displayName"].split(" ")[0].split("/")[-1]: (id_, one) for id_, one in stacks.items()}
        for before, after in pairwise(PARTS):
            assert by_part[before][0] in by_part[after][1]["dependencies"], f"{name}: {after} does not wait for {before}"


@pytest.mark.parametrize("part", PARTS)
def test_stacks_with_state_are_protected(whole: Whole, part: str) -> None:
    for name, environment in whole.environments.items():
        manifest = json.loads((whole.folder / f"assembly-{name}" / "manifest.json").read_text(encoding="utf-8"))
        (stack,) = [one for one in manifest["artifacts"].values() if one.get("displayName", "").split(" ")[0] == f"{name}/{part}"]
        stateful = part in {"network", "storage", "eks", "hyperpod"}
        assert stack["properties"].get("terminationProtection", False) == (environment.termination_protection and stateful)


def test_an_account_may_be_bootstrapped_with_its_own_qualifier() -> None:
    for qualifier, changes in (("hnb659fds", {}), ("mlplatform", {"bootstrap_qualifier": "mlplatform"})):
        roles = {stack["properties"]["assumeRoleArn"] for stack in changed(changes).stacks.values()}
        assert all(f"role/cdk-{qualifier}-deploy-role" in role for role in roles)


def test_nothing_is_looked_up(whole: Whole) -> None:
    for manifest in whole.folder.rglob("manifest.json"):
        assert not json.loads(manifest.read_text(encoding="utf-8")).get("missing")


def test_no_template_holds_a_placeholder(whole: Whole) -> None:
    for where, template in whole.all():
        assert "dummy" not in template.text.lower(), where


def test_a_placeholder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.template.json").write_text('{"Resources": {"S": {"AvailabilityZone": "dummy1a"}}}', encoding="utf-8")
    assert unfit(tmp_path) == ["a.template.json holds 'dummy1a', a placeholder"]
    (tmp_path / "a.template.json").write_text('{"Resources": {"S": {"AvailabilityZoneId": "use2-az1"}}}', encoding="utf-8")
    assert unfit(tmp_path) == []


def test_what_cdk_refuses_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = App(outdir=str(tmp_path), context=context(), analytics_reporting=False)
    stack = Stack(app, "Many")
    for index in range(201):
        CfnOutput(stack, f"Output{index}", value="a")
    assert finish(app, []) == 1
    assert "Template has 201 outputs, maximum is 200 (Many)" in capsys.readouterr().err


def test_a_template_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.template.json").write_text("x" * TEMPLATE_LIMIT, encoding="utf-8")
    assert unfit(tmp_path) == []
    (tmp_path / "a.template.json").write_text("x" * (TEMPLATE_LIMIT + 1), encoding="utf-8")
    assert len(unfit(tmp_path)) == 1


def test_templates_and_payloads_stay_well_below_their_limits(whole: Whole) -> None:
    for where, template in whole.all():
        assert len(template.text.encode()) < 0.8 * TEMPLATE_LIMIT, where
        for id_, resource in template.resources.items():
            if resource["Type"].startswith("Custom::"):
                assert len(json.dumps(resource["Properties"]).encode()) < 0.8 * PAYLOAD_LIMIT, f"{where}: {id_}"


def test_accounts_do_not_mix(whole: Whole) -> None:
    """An assembly is promoted from one account to the next: no template may name another one's."""
    accounts = {name: environment.account for name, environment in whole.environments.items()}
    for where, template in whole.all():
        for name, account in accounts.items():
            if account != accounts[where.split("/")[0]]:
                assert account not in template.text, f"{where} names the account of {name}"


def test_every_resource_that_can_have_tags_has_them(whole: Whole) -> None:
    for where, template in whole.all():
        environment = whole.environments[where.split("/")[0]]
        wanted = {**environment.tags, "app": environment.app, "environment": environment.name}
        for id_, resource in template.resources.items():
            tags = resource.get("Properties", {}).get("Tags")
            if isinstance(tags, list):
                assert wanted.items() <= {tag["Key"]: tag["Value"] for tag in tags}.items(), f"{where}: {id_}"


def test_log_groups_are_encrypted_and_end(whole: Whole) -> None:
    for where, template in whole.all():
        for id_, group in template.of("AWS::Logs::LogGroup").items():
            if "framework" in id_:
                continue  # CDK's provider framework logs only what broke it; its key cannot be chosen
            assert group["Properties"]["KmsKeyId"], f"{where}: {id_}"
            assert group["Properties"]["RetentionInDays"] == 90, f"{where}: {id_}"


def statements(template: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every statement that allows something, of roles and policies."""
    for id_, resource in template["Resources"].items():
        properties = resource.get("Properties", {})
        documents = [policy["PolicyDocument"] for policy in properties.get("Policies", [])] if resource["Type"] == "AWS::IAM::Role" else []
        if resource["Type"] in {"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"}:
            documents.append(properties["PolicyDocument"])
        for document in documents:
            for statement in document["Statement"]:
                yield id_, statement


def test_no_role_may_do_anything_by_wildcard(whole: Whole) -> None:
    for where, template in whole.all():
        for id_, statement in statements(template.content):
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            assert not [action for action in actions if "*" in action], f"{where}: {id_}"


def test_inline_policies_fit_into_a_role(whole: Whole) -> None:
    """IAM counts the inline policies of a role without white space: 10,240 characters."""
    for where, template in whole.all():
        for id_, resource in template.of("AWS::IAM::Role").items():
            text = "".join(json.dumps(policy["PolicyDocument"]) for policy in resource["Properties"].get("Policies", []))
            assert len(re.sub(r"\s", "", text)) < 10_240, f"{where}: {id_}"


def test_cfn_lint_finds_nothing(whole: Whole) -> None:
    """W3005: CDK repeats dependencies that a reference implies already. E3644 is ignored where a type is newer than its list."""
    for where, template in whole.all():
        found = lint(template.text, config=ManualArgs(ignore_checks=["W3005"], regions=[whole.environments[where.split("/")[0]].region]))
        assert not [f"{match.rule.id} {match.message}" for match in found], where


def test_cdk_nag_finds_nothing_that_is_not_accepted_with_a_reason(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), context=context(), analytics_reporting=False)
    for environment in environments():
        EnvironmentStage(app, environment, render_all(environment))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    reports = json.loads((tmp_path / "validation-report.json").read_text(encoding="utf-8"))["pluginReports"]
    assert [report["pluginName"] for report in reports] == ["AwsSolutions"]
    assert [violation["ruleName"] for report in reports for violation in report["violations"]] == []
    reasons = list(_reasons(tmp_path))
    assert reasons
    assert [reason for reason in reasons if len(reason) < 20] == []


def _reasons(folder: Path) -> Iterator[str]:
    for file in folder.rglob("*.metadata.json"):
        for entries in json.loads(file.read_text(encoding="utf-8")).values():
            for entry in entries:
                if "acknowledged" in entry["type"].lower():
                    yield from entry["data"].values() if isinstance(entry["data"], dict) else [str(entry["data"])]


def run(command: list[str], outdir: Path, *, seed: str = "0", env: str = "", cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run in the project with no AWS credentials in sight."""
    extra = {"CDK_OUTDIR": str(outdir), "PYTHONHASHSEED": seed}
    if env:
        extra["CDK_CONTEXT_JSON"] = json.dumps({"env": env})
    return subprocess.run(command, cwd=cwd, env=NO_CREDENTIALS | extra, capture_output=True, text=True, check=False)


def test_the_command_line_synthesizes_strictly_without_credentials(whole: Whole, tmp_path: Path) -> None:
    """The templates are byte for byte those of the session, which another process made with another hash seed."""
    cdk = shutil.which("cdk", path=f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert cdk is not None, "the CDK command line is installed by: make setup"
    done = run([cdk, "synth", "--strict", "--quiet", "--no-notices", "--output", str(tmp_path)], tmp_path, seed="4711")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
    compared = 0
    for file in sorted(whole.folder.rglob("*")):
        if file.suffix in {".yaml"} or file.name.endswith(".template.json"):
            other = tmp_path / file.relative_to(whole.folder)
            assert other.read_bytes() == file.read_bytes(), file.name
            compared += 1
    assert compared > len(PARTS) * len(ENVIRONMENTS)


def test_one_environment_can_be_chosen(tmp_path: Path) -> None:
    name = ENVIRONMENTS[0].stem
    done = run([sys.executable, "app.py"], tmp_path, env=name)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.glob("assembly-*")] == [f"assembly-{name}"]
    assert [path.name for path in (tmp_path / "manifests").iterdir()] == [name]


def test_an_unknown_environment_names_the_known_ones(tmp_path: Path) -> None:
    done = run([sys.executable, "app.py"], tmp_path, env="porduction")
    assert done.returncode == 1
    assert "porduction" in done.stderr
    assert all(path.stem in done.stderr for path in ENVIRONMENTS)
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_wrong_file_stops_before_a_stack_is_built(tmp_path: Path) -> None:
    (tmp_path / "environments").mkdir()
    text = ENVIRONMENTS[0].read_text(encoding="utf-8")
    (tmp_path / "environments" / "dev.yaml").write_text(text.replace("use2-az1", "usw2-az1"), encoding="utf-8")
    (tmp_path / "environments" / "broken.yaml").write_text("version: [", encoding="utf-8")
    done = run([sys.executable, str(ROOT / "app.py")], tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 1
    assert "environments/broken.yaml" in done.stderr
    assert "environments/dev.yaml" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "out").iterdir())
