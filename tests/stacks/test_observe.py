"""The stack of metrics: what each path makes, how little it may do, and that nothing of it is public."""

import base64
import json
from typing import Any

import pytest
import yaml

from dpd.checks.observe import MOST_ENDPOINTS_OF_A_STACK
from dpd.observe import rules
from tests.observe.support import EXAMPLES, one
from tests.stacks.conftest import changed
from tests.stacks.support import Template
from tests.stacks.test_addons import joined

WORKSPACE = "arn:aws:aps:us-east-2:111122223333:workspace/ws-11111111-2222-3333-4444-555555555555"


def observed(path: str, more: dict[str, Any] | None = None) -> Template:
    return changed({"observe.metrics": path, **(more or {})}).templates["observe"]


def test_nothing_is_made_unless_somebody_collects() -> None:
    assert "observe" not in changed().templates


def test_a_workspace_is_encrypted_logs_its_errors_and_stays() -> None:
    template = observed("managed_prometheus")
    workspace = template.one("AWS::APS::Workspace")
    assert workspace["KmsKeyArn"]
    assert workspace["LoggingConfiguration"]["LogGroupArn"]
    assert workspace["WorkspaceConfiguration"] == {"RetentionPeriodInDays": 150}
    assert next(r for r in template.resources.values() if r["Type"] == "AWS::APS::Workspace")["DeletionPolicy"] == "RetainExceptOnCreate"
    assert template.one("AWS::Logs::LogGroup")["LogGroupName"].startswith("/aws/vendedlogs/")


def test_alerts_go_to_an_encrypted_topic() -> None:
    template = observed("managed_prometheus", {"observe.notify": ["ops@example.com"]})
    text = joined(template.one("AWS::APS::Workspace")["AlertManagerDefinition"])
    config = yaml.safe_load(yaml.safe_load(text)["alertmanager_config"])
    assert config["route"]["receiver"] == config["receivers"][0]["name"]
    assert template.one("AWS::SNS::Topic")["KmsMasterKeyId"]
    assert template.one("AWS::SNS::Subscription")["Endpoint"] == "ops@example.com"
    (statement,) = [s for s in template.one("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"] if s["Sid"] == "Workspaces"]
    assert statement["Principal"] == {"Service": "aps.amazonaws.com"}
    assert statement["Condition"]["ArnLike"]["aws:SourceArn"].endswith(":workspace/*")


def test_the_rules_are_those_that_are_tested() -> None:
    data = observed("managed_prometheus").one("AWS::APS::RuleGroupsNamespace")
    assert yaml.safe_load(data["Data"]) == {"groups": rules.groups(one("operator", "managed_prometheus"))}


@pytest.mark.parametrize(("path", "exporters"), [("managed_prometheus", True), ("hyperpod_add_on", False)])
def test_the_collector_reads_what_nobody_else_does(path: str, exporters: bool) -> None:
    scraper = observed(path).one("AWS::APS::Scraper")
    content = yaml.safe_load(base64.b64decode(scraper["ScrapeConfiguration"]["ConfigurationBlob"]))
    jobs = {job["job_name"] for job in content["scrape_configs"]}
    assert {"dpd-llm-d", "dpd-pickers", "dpd-efa"} <= jobs
    assert ("kube-state-metrics" in jobs, "dcgm-exporter" in jobs) == (exporters, exporters)
    assert len(scraper["Source"]["EksConfiguration"]["SubnetIds"]) >= 2
    for job in content["scrape_configs"]:
        assert job["relabel_configs"][0]["action"] == "keep"


def test_the_add_on_has_network_and_scaling_raised_and_may_only_write() -> None:
    template = observed("hyperpod_add_on")
    add_on = template.one("AWS::EKS::Addon")
    values = json.loads(joined(add_on["ConfigurationValues"]))
    levels = {name: provider["level"] for name, provider in values["metricsProvider"].items()}
    assert (levels["networkMetrics"], levels["scalingMetrics"]) == ("ADVANCED", "ADVANCED")
    (association,) = add_on["PodIdentityAssociations"]
    assert association["ServiceAccount"] == "hyperpod-observability-operator-otel-collector"
    role = template.one("AWS::IAM::Role")
    (policy,) = role["Policies"]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement["Action"] == ["aps:RemoteWrite"]
    assert "*" not in json.dumps(statement["Resource"])
    assert "aws:SourceArn" in json.dumps(role["AssumeRolePolicyDocument"])


def test_a_workspace_that_is_adopted_is_left_as_it_is() -> None:
    template = observed("managed_prometheus", {"observe.workspace": WORKSPACE})
    assert not template.of("AWS::APS::Workspace")
    assert template.one("AWS::APS::RuleGroupsNamespace")["Workspace"] == WORKSPACE


def test_in_cluster_applies_monitors_and_makes_no_workspace() -> None:
    template = observed("in_cluster")
    assert not template.of("AWS::APS::Workspace")
    assert "PrometheusRule" in json.dumps(template.resources)
    assert "PodMonitor" in json.dumps(template.resources)


def test_no_rule_lets_the_world_in() -> None:
    template = observed("managed_prometheus")
    for rule in template.of("AWS::EC2::SecurityGroupIngress").values():
        assert "CidrIp" not in rule["Properties"]
        assert rule["Properties"]["FromPort"] == rule["Properties"]["ToPort"]


def test_as_many_endpoints_as_the_check_admits_fit_into_a_template() -> None:
    largest = max(len(json.dumps(rules.compact(one(kind)))) for kind in EXAMPLES)
    assert MOST_ENDPOINTS_OF_A_STACK * largest < 950_000
