"""What carries a release: the pipeline, its access to the accounts, and the roles of GitHub Actions."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import ManualArgs, lint

from charts.render import render_all
from dpd.environment.environment import Environment
from dpd.promotion.settings import ReleaseSettings
from stacks.constructs.stage_conditions import Condition
from stacks.github_roles import subjects
from stacks.release import release_stacks
from stacks.stage import EnvironmentStage
from tests.stacks.conftest import context
from tests.stacks.support import Template
from tests.support import ROOT, environment

ACCOUNTS = {"dev": "111122223333", "staging": "222233334444", "prod": "333344445555"}
PIPELINE = "444455556666"
READER = "arn:aws:iam::222233334444:role/llama-dpd-staging-release-reader"
ISSUER = "token.actions.githubusercontent.com"


def settings(**changes: Any) -> ReleaseSettings:
    content = yaml.safe_load((ROOT / "docs" / "pipeline.yaml").read_text(encoding="utf-8"))
    return ReleaseSettings.model_validate({**content, **changes})


def environments() -> list[Environment]:
    return [environment({"account": account}, name=name) for name, account in ACCOUNTS.items()]


def synthesized(folder: Path, given: ReleaseSettings, *, checked: bool = False) -> dict[str, Template]:
    """Templates of the release's own stacks by construct id, and the nested assemblies beside them."""
    app = App(outdir=str(folder), context=context(), analytics_reporting=False)
    stages = [EnvironmentStage(app, each, render_all(each)) for each in environments()]
    release_stacks(app, given, stages, cli_version="2.1148.1")
    if checked:
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    return {file.name.partition(".")[0]: Template(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.template.json"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("release")


@pytest.fixture(scope="module")
def made(folder: Path) -> dict[str, Template]:
    """With cdk-nag, which the first test reads; it changes no template."""
    return synthesized(folder, settings(), checked=True)


def pipeline(made: dict[str, Template]) -> dict[str, Any]:
    return made["pipeline"].one("AWS::CodePipeline::Pipeline")


def stages(made: dict[str, Template]) -> dict[str, dict[str, Any]]:
    return {stage["Name"]: stage for stage in pipeline(made)["Stages"]}


def projects(made: dict[str, Template]) -> dict[str, dict[str, Any]]:
    """Projects of our own steps by the name of the step."""
    found = made["pipeline"].properties("AWS::CodeBuild::Project")
    return {each["Name"].removeprefix("llama-dpd-release-"): each for each in found if "Name" in each}


def commands(project: dict[str, Any]) -> list[str]:
    text = project["Source"]["BuildSpec"]
    assert isinstance(text, str)
    return list(json.loads(text)["phases"]["build"]["commands"])


def statements(template: Template) -> Iterator[dict[str, Any]]:
    for properties in template.properties("AWS::IAM::Role"):
        for policy in properties.get("Policies", []):
            yield from policy["PolicyDocument"]["Statement"]
    for properties in template.properties("AWS::IAM::Policy"):
        yield from properties["PolicyDocument"]["Statement"]


def many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_cdk_nag_finds_nothing_that_is_not_accepted_with_a_reason(made: dict[str, Template], folder: Path) -> None:
    assert made
    reports = json.loads((folder / "validation-report.json").read_text(encoding="utf-8"))["pluginReports"]
    assert [report["pluginName"] for report in reports] == ["AwsSolutions"]
    assert [violation["ruleName"] for report in reports for violation in report["violations"]] == []


def test_cfn_lint_finds_nothing(made: dict[str, Template]) -> None:
    """W3005 and E3703: CDK repeats dependencies that a reference implies, and joins where it could substitute."""
    for name, template in made.items():
        found = lint(template.text, config=ManualArgs(ignore_checks=["W3005", "E3703"], regions=["us-east-2"]))
        assert not [f"{match.rule.id} {match.message}" for match in found], name


def test_a_release_passes_the_stages_in_order_with_looking_before_and_proving_after(made: dict[str, Template]) -> None:
    names = list(stages(made))
    assert names[:4] == ["Source", "Build", "UpdatePipeline", "Assets"]
    assert names[4:] == [part for env in ACCOUNTS for part in (f"Enter-{env}", env, f"Leave-{env}")]


def test_the_pipeline_is_of_type_v2_queues_and_encrypts_with_a_rotated_key_across_accounts(made: dict[str, Template]) -> None:
    assert pipeline(made)["PipelineType"] == "V2"
    assert pipeline(made)["ExecutionMode"] == "QUEUED"
    keys = made["pipeline"].properties("AWS::KMS::Key")
    assert len(keys) == 2
    assert all(key["EnableKeyRotation"] for key in keys)
    assert pipeline(made)["ArtifactStore"]["EncryptionKey"]["Type"] == "KMS"
    for account in ACCOUNTS.values():
        assert f"cdk-hnb659fds-deploy-role-{account}-us-east-2" in made["pipeline"].text


def test_every_stage_deploys_the_templates_of_the_one_assembly(made: dict[str, Template], folder: Path) -> None:
    """The files that the pipeline deploys are those that synthesis wrote, stack by stack, the gate last."""
    for name in ACCOUNTS:
        prepared = [action for action in stages(made)[name]["Actions"] if action["Name"].endswith("Prepare")]
        assert [action["Name"].split(".")[0].rpartition("-")[2] for action in prepared][-1] == "gate"
        for action in prepared:
            artifact, _, file = action["Configuration"]["TemplatePath"].partition("::")
            assert artifact == "Synth_Output"
            assert (folder / file).is_file()
            assert action["InputArtifacts"] == [{"Name": "Synth_Output"}]


def test_the_source_is_a_connection_without_history(made: dict[str, Template]) -> None:
    (action,) = stages(made)["Source"]["Actions"]
    assert action["Configuration"]["ConnectionArn"].startswith("arn:aws:codeconnections:")
    assert action["Configuration"]["FullRepositoryId"] == "example/llama-dpd"
    assert action["Configuration"]["BranchName"] == "main"


def test_tests_and_checks_come_before_the_one_synthesis(made: dict[str, Template]) -> None:
    (synth,) = [each for each in made["pipeline"].properties("AWS::CodeBuild::Project") if "make test" in json.dumps(each)]
    said = commands(synth)
    assert said.index("make test") < said.index("dpd check") < said.index(said[-1])
    assert "pipeline.py" in said[-1]
    assert "--strict" in said[-1]


def test_the_command_line_that_changes_the_pipeline_is_pinned(made: dict[str, Template]) -> None:
    assert "npm install -g aws-cdk@2.1148.1" in made["pipeline"].text


@pytest.mark.parametrize(
    ("step", "command"),
    [
        ("Preflight-staging", f"dpd preflight -e staging --role-arn {READER}"),
        ("Review-staging", ".ci/review"),
        (
            "Prove-staging",
            f"dpd promote --from staging --to prod --assembly ../release --watch-minutes 60 --role-arn {READER}",
        ),
        ("Record-prod", ".ci/record"),
    ],
)
def test_each_step_runs_one_command(made: dict[str, Template], step: str, command: str) -> None:
    assert commands(projects(made)[step])[-1] == command


def test_the_last_environment_proves_nothing_to_a_next_one(made: dict[str, Template]) -> None:
    assert "Prove-prod" not in projects(made)


def test_a_failed_stage_rolls_back_and_an_alarm_of_the_soak_too(made: dict[str, Template]) -> None:
    rule = {
        "Name": "Soak",
        "RuleTypeId": {"Category": "Rule", "Owner": "AWS", "Provider": "CloudWatchAlarm", "Version": "1"},
        "Configuration": {"AlarmName": "llama-dpd-soak-staging", "AlarmStates": "ALARM", "WaitTime": "60"},
    }
    staging = stages(made)["staging"]
    assert staging["OnFailure"] == {"Result": "ROLLBACK"}
    assert staging["OnSuccess"] == {"Conditions": [{"Result": "ROLLBACK", "Rules": [rule]}]}
    assert "OnSuccess" not in stages(made)["dev"], "dev has no soak"


def test_looking_and_approving_never_roll_anything_back(made: dict[str, Template]) -> None:
    for name, stage in stages(made).items():
        assert ("OnFailure" in stage) == (name in ACCOUNTS), name


@pytest.mark.parametrize(
    ("condition", "keys", "result"),
    [
        (Condition(rolls_back=True), {"OnFailure"}, None),
        (Condition(rolls_back=False), set(), None),
        (Condition(False, "alarm", 30), {"OnSuccess"}, "FAIL"),
        (Condition(True, "alarm", 30), {"OnFailure", "OnSuccess"}, "ROLLBACK"),
    ],
)
def test_conditions(condition: Condition, keys: set[str], result: str | None) -> None:
    found = condition.properties()
    assert set(found) == keys
    if result:
        assert found["OnSuccess"]["Conditions"][0]["Result"] == result


def test_the_soak_alarm_reads_the_gate_of_the_other_account_and_takes_silence_for_failure(made: dict[str, Template]) -> None:
    alarms = {each["AlarmName"]: each for each in made["pipeline"].properties("AWS::CloudWatch::Alarm")}
    assert set(alarms) == {"llama-dpd-soak-staging", "llama-dpd-soak-prod"}
    (metric,) = alarms["llama-dpd-soak-prod"]["Metrics"]
    assert metric["AccountId"] == ACCOUNTS["prod"]
    assert metric["MetricStat"]["Metric"]["Dimensions"] == [{"Name": "Environment", "Value": "llama-dpd-prod"}]
    assert alarms["llama-dpd-soak-prod"]["TreatMissingData"] == "breaching"


def test_somebody_approves_production_with_the_page_of_this_run_at_hand(made: dict[str, Template]) -> None:
    actions = {action["Name"]: action for action in stages(made)["Enter-prod"]["Actions"]}
    approval, review = actions["Approve-prod"], actions["Review-prod"]
    assert approval["ActionTypeId"]["Category"] == "Approval"
    assert approval["RunOrder"] > review["RunOrder"]
    assert approval["RunOrder"] > actions["Preflight-prod"]["RunOrder"]
    link = approval["Configuration"]["ExternalEntityLink"]
    assert link.endswith("prefix=reviews/#{codepipeline.PipelineExecutionId}/prod.html")
    assert "llama-dpd-release-reviews-444455556666-us-east-2" in link
    assert approval["Configuration"]["NotificationArn"]
    run = [each for each in json.loads(review["Configuration"]["EnvironmentVariables"]) if each["name"] == "RUN"]
    assert run[0]["value"] == "#{codepipeline.PipelineExecutionId}"
    assert not [
        name
        for name in stages(made)
        if any("Approve" in action["Name"] for action in stages(made)[name]["Actions"]) and name != "Enter-prod"
    ]


def test_the_steps_may_read_the_accounts_write_reviews_and_nothing_else(made: dict[str, Template]) -> None:
    template = made["pipeline"]
    ((id_, _),) = [
        (id_, each)
        for id_, each in template.of("AWS::IAM::Role").items()
        if each["Properties"].get("RoleName") == "llama-dpd-release-steps"
    ]
    (policy,) = [each for each in template.properties("AWS::IAM::Policy") if {"Ref": id_} in each["Roles"]]
    actions = {action for statement in policy["PolicyDocument"]["Statement"] for action in many(statement["Action"])}
    assert actions == {
        "sts:AssumeRole", "s3:ListBucket", "s3:GetObject", "s3:GetObjectVersion", "s3:PutObject", "kms:Decrypt", "kms:GenerateDataKey",
        "logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents",
    }  # fmt: skip
    taken = [statement["Resource"] for statement in policy["PolicyDocument"]["Statement"] if statement["Action"] == "sts:AssumeRole"]
    assert taken == [[f"arn:aws:iam::{account}:role/llama-dpd-{name}-release-reader" for name, account in ACCOUNTS.items()]]


def test_no_resource_of_ours_is_everything(made: dict[str, Template]) -> None:
    """Only calls that describe and list may name no resource."""
    for name, template in made.items():
        for statement in statements(template) if name != "pipeline" else ():
            if "*" in many(statement["Resource"]):
                verbs = {action.partition(":")[2] for action in many(statement["Action"])}
                assert all(re.match("Describe|List|Get", verb) for verb in verbs), (name, statement)


@pytest.mark.parametrize("name", ACCOUNTS)
def test_a_reader_role_trusts_the_steps_of_the_pipeline_alone(made: dict[str, Template], name: str) -> None:
    role = made[f"access-{name}"].one("AWS::IAM::Role")
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"AWS": f"arn:aws:iam::{PIPELINE}:root"}
    assert trust["Condition"] == {"ArnEquals": {"aws:PrincipalArn": f"arn:aws:iam::{PIPELINE}:role/llama-dpd-release-steps"}}
    link = made[f"access-{name}"].one("AWS::Oam::Link")
    assert link["ResourceTypes"] == ["AWS::CloudWatch::Metric"]
    assert link["LinkConfiguration"] == {"MetricConfiguration": {"Filter": "Namespace IN ('HyperPodDPD')"}}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_github_can_be_one_environment_of_one_repository_and_nothing_by_wildcard(made: dict[str, Template], name: str) -> None:
    template = made[f"github-{name}"]
    (trust,) = template.one("AWS::IAM::Role")["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Action"] == "sts:AssumeRoleWithWebIdentity"
    assert trust["Principal"] == {"Federated": f"arn:aws:iam::{ACCOUNTS[name]}:oidc-provider/{ISSUER}"}
    assert trust["Condition"] == {
        "StringEquals": {
            f"{ISSUER}:aud": "sts.amazonaws.com",
            f"{ISSUER}:sub": [f"repo:example/llama-dpd:environment:{name}", f"repo:example@583231/llama-dpd@1296269:environment:{name}"],
        }
    }
    assert "*" not in json.dumps(trust)
    provider = template.one("AWS::IAM::OIDCProvider")
    assert provider == {
        "Url": f"https://{ISSUER}",
        "ClientIdList": ["sts.amazonaws.com"],
        **{key: provider[key] for key in provider if key == "Tags"},
    }


def test_github_deploys_by_becoming_cdks_roles_of_its_own_account_and_region(made: dict[str, Template]) -> None:
    taken = [many(statement["Resource"]) for statement in statements(made["github-prod"]) if statement["Action"] == "sts:AssumeRole"]
    roles = ("deploy", "file-publishing", "image-publishing", "lookup")
    assert taken == [[f"arn:aws:iam::333344445555:role/cdk-hnb659fds-{role}-role-333344445555-us-east-2" for role in roles]]
    writes = {
        action
        for statement in statements(made["github-prod"])
        for action in many(statement["Action"])
        if not re.match(r"\w+:(Describe|List|Get|Simulate)|kms:Decrypt|sts:AssumeRole", action)
    }
    assert writes == set()


def test_reports_are_decrypted_through_s3_with_the_environments_key(made: dict[str, Template]) -> None:
    (statement,) = [each for each in statements(made["github-dev"]) if each["Action"] == "kms:Decrypt"]
    assert statement["Condition"] == {
        "StringEquals": {"kms:ViaService": "s3.us-east-2.amazonaws.com"},
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": "alias/llama-dpd-dev-storage"},
    }


def test_both_forms_of_a_subject() -> None:
    assert subjects("o/r", "1", "2", "prod") == ["repo:o/r:environment:prod", "repo:o@1/r@2:environment:prod"]


def test_without_a_sink_nothing_is_watched_from_the_pipeline_and_without_codepipeline_there_is_none(tmp_path: Path) -> None:
    content = yaml.safe_load((ROOT / "docs" / "pipeline.yaml").read_text(encoding="utf-8"))
    content["codepipeline"].pop("monitoring_sink_arn")
    content["stages"][2] |= {"on_failure": "stop", "allow_replace": "a new cluster, agreed on Monday"}
    content["github"] |= {"provider": "existing"}
    found = synthesized(tmp_path / "a", ReleaseSettings.model_validate(content))
    assert all("OnSuccess" not in stage for stage in stages(found).values())
    assert "OnFailure" not in stages(found)["prod"]
    assert not found["access-dev"].of("AWS::Oam::Link")
    assert not found["github-dev"].of("AWS::IAM::OIDCProvider")
    review = projects(found)["Review-prod"]["Environment"]["EnvironmentVariables"]
    assert {"Name": "ALLOW_REPLACE", "Type": "PLAINTEXT", "Value": "a new cluster, agreed on Monday"} in review
    content.pop("codepipeline")
    only = synthesized(tmp_path / "b", ReleaseSettings.model_validate(content))
    assert set(only) == {f"github-{name}" for name in ACCOUNTS}
