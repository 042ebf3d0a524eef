"""The gate's stack: when it runs, how long it waits, whom it reaches, who hears of it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from health_gate.spec import Spec

from tests.stacks.conftest import changed
from tests.stacks.support import Template
from tests.stacks.test_addons import joined
from tests.support import environment

FRAMEWORK = "framework"


def gate(changes: dict[str, Any] | None = None) -> Template:
    return changed(changes).templates["gate"]


def proven(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    return gate(changes).one("Custom::DpdHealthGate")


def read(event: Mapping[str, Any], changes: dict[str, Any] | None = None) -> Spec:
    """The spec that the gate reads for an event, which names an object and values for its marks."""
    text = changed(changes).documents[event["SpecUri"].rpartition("/")[2]]
    for name, value in event["Values"].items():
        assert f"${{{name}}}" in text
        text = text.replace(f"${{{name}}}", joined(value))
    assert "${" not in text
    return Spec.parse(text)


def ours(template: Template) -> dict[str, dict[str, Any]]:
    """Our own functions by what they handle."""
    functions = [function for id_, function in template.of("AWS::Lambda::Function").items() if FRAMEWORK not in id_]
    return {function["Properties"]["Handler"].rpartition(".")[2]: function["Properties"] for function in functions}


def test_the_gate_reads_the_spec_that_it_is_given() -> None:
    spec = read(proven())
    assert spec.security_groups == ("REF",)
    assert spec.lustre is not None
    assert spec.lustre.file_system_id == "REF"
    assert spec.reports.topic_arn
    assert set(proven()) == {"ServiceToken", "ServiceTimeout", "SpecUri", "Values", "Digest"}


def test_the_gate_may_read_its_own_spec_and_no_other_object() -> None:
    template = gate()
    bucket, _, key = proven()["SpecUri"].removeprefix("s3://").partition("/")
    role = json.dumps(template.resources["Role"]["Properties"]["Policies"])
    assert f'"s3:GetObject"], "Resource": ["arn:aws:s3:::{bucket}/{key}"]' in role
    assert role.count("s3:GetObject") == 1


def test_events_and_template_do_not_grow_with_the_endpoints() -> None:
    """Step Functions and the scheduler hand on at most 256 KiB, and a template may have 1 MB."""
    shipped = environment().endpoints[0].model_dump(mode="json", exclude_unset=True)
    many = {"endpoints": [{**shipped, "name": f"llama-{number}"} for number in range(60)]}
    spec = read(proven(many), many)
    assert len(spec.endpoints) == 60
    assert max(map(len, changed(many).documents.values())) > 150_000
    assert len(json.dumps(proven(many))) == len(json.dumps(proven()))
    (small,), (large,) = (gate(each).properties("AWS::Scheduler::Schedule") for each in (None, many))
    assert len(json.dumps(small)) == len(json.dumps(large)) < 4096


def test_time_runs_out_for_the_gate_first_and_for_cloudformation_last() -> None:
    template = gate()
    spec = read(proven())
    assert int(proven()["ServiceTimeout"]) == 3600
    machine = json.loads(joined(template.one("AWS::StepFunctions::StateMachine")["DefinitionString"]))
    retry = machine["States"]["framework-isComplete-task"]["Retry"][0]
    # An attempt is a pause and a run, so the framework gives up no sooner than after the pauses alone.
    assert retry["IntervalSeconds"] * retry["MaxAttempts"] >= 3600
    assert retry["BackoffRate"] == 1
    worst = spec.deadlines.wait_seconds + 2 * spec.deadlines.run_seconds + retry["IntervalSeconds"]
    assert worst < 3600
    assert spec.deadlines.run_seconds + 15 < ours(template)["is_complete"]["Timeout"] <= 900


def test_functions_are_small_and_only_what_looks_is_in_the_vpc() -> None:
    functions = ours(gate())
    assert set(functions) == {"on_event", "is_complete", "canary"}
    for name, function in functions.items():
        assert (function["Runtime"], function["MemorySize"]) == ("python3.14", 256)
        assert ("VpcConfig" in function) == (name != "on_event")
        assert function["LoggingConfig"] == {"LogGroup": {"Ref": "Logs6819BB44"}}
    assert len(functions["canary"]["VpcConfig"]["SubnetIds"]) == 2


def test_nothing_is_proven_before_the_gate_may_look() -> None:
    template = gate()
    ((_, resource),) = template.of("Custom::DpdHealthGate").items()
    needed = {*template.of("AWS::EKS::AccessEntry"), *template.of("Custom::AWSCDK-EKS-KubernetesResource")}
    assert needed | set(template.of("AWS::EC2::SecurityGroupIngress")) <= set(resource["DependsOn"])
    entry = template.one("AWS::EKS::AccessEntry")
    assert entry["KubernetesGroups"] == ["dpd:gate-readers"]
    assert "AccessPolicies" not in entry


def test_only_named_ports_are_open_and_only_to_the_gate() -> None:
    template = gate()
    rules = template.properties("AWS::EC2::SecurityGroupIngress")
    assert [(rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) for rule in rules] == [("tcp", p, p) for p in (443, 8000, 8001, 9109)]
    assert all(rule["SourceSecurityGroupId"] == {"Fn::GetAtt": ["SecurityGroup", "GroupId"]} for rule in rules)
    group = template.one("AWS::EC2::SecurityGroup")
    assert "SecurityGroupIngress" not in group
    outside = [rule for rule in group["SecurityGroupEgress"] if "CidrIp" in rule]
    assert [(rule["FromPort"], rule["ToPort"]) for rule in outside] == [(443, 443)]


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoints[0].decode.extra_args": ["--enforce-eager"]},
        {"endpoints[0].prefill.extra_args": ["--enforce-eager"]},
        {"endpoints[0].environment": {"NCCL_DEBUG": "INFO"}},
    ],
)
def test_one_argument_more_proves_again(changes: dict[str, Any]) -> None:
    assert proven(changes)["Digest"] != proven()["Digest"]
    assert proven(changes)["SpecUri"] == proven()["SpecUri"], "the digest alone says that pods have changed"


@pytest.mark.parametrize(
    "changes",
    [{"tags": {"owner": "somebody-else"}}, {"gate.schedule_minutes": 30}, {"gate.notify": ["a@example.com"]}, {"network.flow_logs": False}],
)
def test_what_changes_no_pod_proves_nothing_again(changes: dict[str, Any]) -> None:
    assert proven(changes) == proven()


def test_the_schedule_starts_after_the_first_proof_and_never_repeats_by_itself() -> None:
    template = gate({"gate.schedule_minutes": 30})
    ((_, schedule),) = template.of("AWS::Scheduler::Schedule").items()
    assert schedule["Properties"]["ScheduleExpression"] == "rate(30 minutes)"
    assert schedule["Properties"]["Target"]["RetryPolicy"] == {"MaximumRetryAttempts": 0}
    assert set(template.of("Custom::DpdHealthGate")) <= set(schedule["DependsOn"])
    event = json.loads(joined(schedule["Properties"]["Target"]["Input"]))
    assert set(event) == {"SpecUri", "Values", "Digest"}
    assert read(event) == read(proven())
    assert template.one("AWS::Lambda::EventInvokeConfig")["MaximumRetryAttempts"] == 0
    role = template.resources["HealthGateScheduleRole084FF025"]["Properties"]
    assert role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"Service": "scheduler.amazonaws.com"}
    (statement,) = role["Policies"][0]["PolicyDocument"]["Statement"]
    assert statement["Action"] == "lambda:InvokeFunction"
    assert statement["Resource"] == {"Fn::GetAtt": ["HealthGateCanary76ECFA4C", "Arn"]}


@pytest.mark.parametrize(
    ("minutes", "period", "missing"), [(60, 7200, "breaching"), (720, 86400, "breaching"), (None, 3600, "notBreaching")]
)
def test_a_failure_and_silence_raise_the_alarm(minutes: int | None, period: int, missing: str) -> None:
    template = gate({"gate.schedule_minutes": minutes})
    alarm = template.one("AWS::CloudWatch::Alarm")
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("HyperPodDPD", "GateFailed", "Maximum")
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)
    assert (alarm["Period"], alarm["TreatMissingData"]) == (period, missing)
    assert alarm["Dimensions"] == [{"Name": "Environment", "Value": "llama-dpd-dev"}]
    (topic,) = template.of("AWS::SNS::Topic")
    assert alarm["AlarmActions"] == alarm["OKActions"] == [{"Ref": topic}]
    assert bool(template.of("AWS::Scheduler::Schedule")) == (minutes is not None)


def test_messages_are_encrypted_and_only_alarms_of_this_environment_may_send_them() -> None:
    template = gate({"gate.notify": ["a@example.com", "b@example.com"]})
    assert "KmsMasterKeyId" in template.one("AWS::SNS::Topic")
    allow, deny = template.one("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    assert allow["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allow["Condition"]["StringEquals"] == {"aws:SourceAccount": "111122223333"}
    assert allow["Condition"]["ArnLike"]["aws:SourceArn"].endswith(":alarm:llama-dpd-dev-*")
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert [each["Endpoint"] for each in template.properties("AWS::SNS::Subscription")] == ["a@example.com", "b@example.com"]


def test_the_log_outlives_the_stack() -> None:
    (group,) = [group for id_, group in gate().of("AWS::Logs::LogGroup").items() if FRAMEWORK not in id_]
    assert group["DeletionPolicy"] == "Retain"
    assert "KmsKeyId" in group["Properties"]


def test_there_is_none_when_the_file_says_so() -> None:
    assert "gate" not in changed({"gate.deploy": False}).templates


def test_a_cluster_without_endpoints_is_proven_too() -> None:
    spec = read(proven({"endpoints": []}), {"endpoints": []})
    assert spec.endpoints == ()
    assert not [rule for rule in gate({"endpoints": []}).properties("AWS::EC2::SecurityGroupIngress") if rule["FromPort"] != 443]
