"""The gate as the provider framework and a schedule call it."""

import json
import logging
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from health_gate import handler
from health_gate.handler import GateFailed
from health_gate.reading import BadSpec

from tests.lambdas.health_gate.aws_calls import Refuse, rule, security_group
from tests.lambdas.health_gate.engine import SECRET
from tests.lambdas.health_gate.world import World

LAMBDA = Path(__file__).parents[2] / "lambda"
RESPONSE_URL = "https://cloudformation-custom-resource-response.example/?signature=do-not-log"


class Context:
    def __init__(self, seconds: float = 120) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


@pytest.fixture
def deployed(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(botocore.session, "get_session", lambda: world.calls.session)
    return world


def event(world: World, request: str = "Create", *, waited: float = 0, **properties: Any) -> dict[str, Any]:
    given = {"Spec": json.dumps(world.document()), "Digest": "d", **properties}
    known = {} if request == "Create" else {"PhysicalResourceId": "health-gate-dpd-dev"}
    return {"RequestType": request, "ResponseURL": RESPONSE_URL, "ResourceProperties": given, "Started": time.time() - waited, **known}


# --- events


@pytest.mark.parametrize("request_type", ["Create", "Update"])
def test_the_physical_id_never_changes(world: World, request_type: str) -> None:
    answer = handler.on_event(event(world, request_type), Context())
    assert answer["PhysicalResourceId"] == "health-gate-dpd-dev"
    assert answer["Started"] == pytest.approx(time.time(), abs=5)


@pytest.mark.parametrize("known", [None, "health-gate-dpd-dev", "AWSCDK::CustomResourceProviderFramework::CREATE_FAILED"])
@pytest.mark.parametrize("properties", [{}, {"Spec": "nonsense"}, {"SpecUri": "s3://gone/spec.json"}])
def test_delete_always_succeeds_also_of_what_was_never_created(known: str | None, properties: dict[str, str]) -> None:
    given = {"RequestType": "Delete", "ResponseURL": RESPONSE_URL, "ResourceProperties": properties}
    if known:
        given["PhysicalResourceId"] = known
    assert handler.on_event(given, Context()) == {"PhysicalResourceId": known or "health-gate"}
    assert handler.is_complete(given, Context()) == {"IsComplete": True}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"Spec": ""}, "need Spec"),
        ({"Spec": "", "SpecUri": "s3://bucket"}, "need Spec"),
        ({"Spec": "{"}, "not JSON"),
        ({"Spec": "[]"}, "spec must be an object"),
        ({"Spec": "{}"}, "spec.environment is missing"),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused_before_waiting(world: World, properties: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSpec, match=words):
        handler.on_event(event(world, **properties), Context())


def test_the_spec_may_be_an_object_in_s3(deployed: World) -> None:
    deployed.aws.stored["gate/spec.json"] = json.dumps(deployed.document()).encode()
    given = event(deployed, Spec="", SpecUri="s3://assets/gate/spec.json")
    assert handler.on_event(given, Context())["PhysicalResourceId"] == "health-gate-dpd-dev"
    (asked,) = deployed.calls.of("GetObject")
    assert (asked["Bucket"], asked["Key"]) == ("assets", "gate/spec.json")


# --- proven, not yet, never


@pytest.mark.parametrize("request_type", ["Create", "Update"])
def test_a_proven_environment_completes(deployed: World, request_type: str) -> None:
    answer = handler.is_complete(event(deployed, request_type), Context())
    assert answer["IsComplete"] is True
    assert answer["Data"]["Outcome"] == "PASS"
    (stored,) = deployed.calls.of("PutObject")
    assert (stored["ServerSideEncryption"], stored["SSEKMSKeyId"]) == ("aws:kms", "arn:aws:kms:k")
    assert answer["Data"]["Report"] == f"s3://reports/{stored['Key']}"
    assert json.loads(stored["Body"])["counts"] == {"PASS": 37, "FAIL": 0, "UNKNOWN": 0}
    assert json.loads(stored["Body"])["digest"] == "d", "a promotion asks what was proven"
    assert deployed.calls.of("Publish") == []
    assert len(json.dumps(answer)) < 500


def test_a_loading_model_is_not_yet_and_nobody_is_told(deployed: World) -> None:
    deployed.container("decode", ready=False)
    assert handler.is_complete(event(deployed, waited=1500), Context()) == {"IsComplete": False}
    assert not [name for name, _ in deployed.calls.made if name in {"PutObject", "PutMetricData", "Publish"}]


def test_waiting_ends(deployed: World) -> None:
    deployed.container("decode", ready=False)
    with pytest.raises(GateFailed, match=r"^Not proven after 91 minutes\. FAIL workload\.pods llm/chat: Roles without all"):
        handler.is_complete(event(deployed, waited=91 * 60), Context())
    assert len(deployed.calls.of("Publish")) == 1


def test_a_definite_failure_ends_it_at_once(deployed: World) -> None:
    deployed.aws.security_groups = [security_group(egress=[rule(anyone=True)])]
    with pytest.raises(GateFailed, match=r"^FAIL aws.security_groups: EFA cannot work.* s3://reports/"):
        handler.is_complete(event(deployed), Context())


def test_a_definite_failure_is_named_before_what_may_pass(deployed: World) -> None:
    deployed.aws.cluster["InstanceGroups"][1]["InstanceType"] = "ml.p5e.48xlarge"
    deployed.aws.file_system["Lifecycle"] = "CREATING"
    deployed.aws.security_groups = [security_group(egress=[])]
    with pytest.raises(GateFailed, match=r"^FAIL aws.groups.* \| FAIL aws.security_groups.* \| FAIL aws.lustre"):
        handler.is_complete(event(deployed), Context())


def test_a_permission_may_take_minutes_to_spread(deployed: World) -> None:
    deployed.refuse_tokens = 10**6
    assert handler.is_complete(event(deployed, waited=200), Context()) == {"IsComplete": False}
    with pytest.raises(GateFailed, match=r"^UNKNOWN cluster.api"):
        handler.is_complete(event(deployed, waited=400), Context())


def test_unknown_fails(deployed: World) -> None:
    deployed.engine.faults = {"salt_ignored"}
    assert handler.is_complete(event(deployed), Context()) == {"IsComplete": False}
    for lines in deployed.engine.logs.values():
        lines[:] = [line for line in lines if "pd_role" in line]
    with pytest.raises(GateFailed, match=r"UNKNOWN answers\.match"):
        handler.is_complete(event(deployed, waited=10**5), Context())


def test_the_gate_ends_before_lambda_does(deployed: World) -> None:
    deployed.stalled = {"/api/v1/nodes"}
    begin = time.monotonic()
    assert handler.is_complete(event(deployed), Context(seconds=17)) == {"IsComplete": False}
    assert time.monotonic() - begin < 10


def test_the_reason_is_short_however_much_is_wrong(deployed: World) -> None:
    deployed.engine.faults = {"500"}
    document = deployed.document()
    many = [{**document["endpoints"][0], "name": f"endpoint-{number:02}-{'ü' * 200}"} for number in range(40)]
    deployed.changes["endpoints"] = many
    with pytest.raises(GateFailed) as caught:
        handler.is_complete(event(deployed), Context())
    reason = str(caught.value)
    assert len(reason.encode()) <= handler.REASON_BYTES < 4096
    assert reason.startswith("FAIL traffic.short llm/endpoint-00-")
    (stored,) = deployed.calls.of("PutObject")
    assert len(stored["Body"]) > 100_000


def test_metrics_of_every_check(deployed: World) -> None:
    handler.is_complete(event(deployed), Context())
    (sent,) = deployed.calls.of("PutMetricData")
    names = {(each["MetricName"], each["Dimensions"][-1]["Value"]): each["Value"] for each in sent["MetricData"]}
    assert sent["Namespace"] == "HyperPodDPD"
    assert names["GateFailed", "dpd-dev"] == 0
    assert names["CheckFailed", "aws.security_groups"] == 0
    assert names["gb_per_second", "llm/chat"] == 176
    assert names["ttft_ms", "llm/chat"] > 0
    assert sum(name == "CheckFailed" for name, _ in names) == 37


@pytest.mark.parametrize("operation", ["PutObject", "PutMetricData", "Publish"])
def test_a_report_that_is_lost_hides_nothing(deployed: World, operation: str, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: Any) -> Any:
        raise Refuse("AccessDenied", 403)

    deployed.aws.answers[operation] = refuse
    deployed.aws.objects = []
    with caplog.at_level(logging.INFO), pytest.raises(GateFailed, match=r"^FAIL aws.weights"):
        handler.is_complete(event(deployed), Context())
    assert '"lost"' in caplog.text
    assert "AccessDenied" in caplog.text


# --- schedule


def test_the_canary_tells_and_does_not_raise(deployed: World) -> None:
    deployed.engine.faults = {"corrupt"}
    answer = handler.canary({"Spec": json.dumps(deployed.document())}, Context())
    assert answer["Outcome"] == "FAIL"
    assert answer["Summary"].startswith("FAIL answers.match llm/chat")
    (told,) = deployed.calls.of("Publish")
    assert told["Subject"] == "Health gate FAIL: dpd-dev answers.match"
    (sent,) = deployed.calls.of("PutMetricData")
    assert {each["MetricName"]: each["Value"] for each in sent["MetricData"]}["GateFailed"] == 1


# --- secrets


@pytest.mark.parametrize("request_type", ["Create", "Update"])
@pytest.mark.parametrize("faults", [set(), {"500"}, {"error_in_body"}, {"error_in_stream"}, {"corrupt"}, {"html"}])
def test_neither_url_nor_tokens_nor_prompts_are_ever_written(
    deployed: World, faults: set[str], request_type: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the first event to the last answer, as the provider framework hands one on to the other."""
    deployed.engine.faults = set(faults)
    given, said = {**event(deployed, request_type), "StackId": "arn:stack"}, ""
    with caplog.at_level(logging.DEBUG, logger="health_gate"):
        begun = handler.on_event(given, Context())
        try:
            said = json.dumps(handler.is_complete({**given, **begun}, Context()))
        except GateFailed as error:
            said = str(error)
    # The framework logs and keeps what the first function answers.
    said += json.dumps(begun) + "".join(capsys.readouterr())
    stored = b"".join(deployed.aws.stored.values()).decode()
    told = json.dumps(deployed.calls.of("Publish"))
    assert caplog.records
    tokens = {headers["Authorization"].removeprefix("Bearer ") for _, headers in deployed.requests}
    assert tokens
    prompts = [body["messages"][0]["content"] for body in deployed.engine.prompts]
    own = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("health_gate"))
    for text in (said, stored, told, own):
        assert "do-not-log" not in text
        assert SECRET not in text
        assert not [token for token in tokens if token in text]
        assert not [prompt for prompt in prompts if prompt[:40] in text]
        assert not re.search(r"w\d+ w\d+ w\d+", text)


def test_every_line_of_the_log_is_json(deployed: World, caplog: pytest.LogCaptureFixture) -> None:
    deployed.engine.faults = {"500"}
    with caplog.at_level(logging.INFO, logger="health_gate"), pytest.raises(GateFailed):
        handler.is_complete(event(deployed), Context())
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "health_gate"]
    assert lines[0]["check"] == "traffic.short"
    assert lines[-1]["outcome"] == "FAIL"


@pytest.mark.parametrize(
    "properties", [{"Spec": "{"}, {"Spec": "{}"}, {"Spec": "", "SpecUri": "s3://gone/spec.json"}, {"Spec": "${TOKEN}"}]
)
@pytest.mark.parametrize("request_type", ["Create", "Update"])
def test_an_event_that_fails_at_its_start_shows_no_address_either(
    deployed: World, properties: dict[str, Any], request_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {**event(deployed, request_type, **properties), "StackId": "arn:stack"}
    with caplog.at_level(logging.DEBUG, logger="health_gate"), pytest.raises((BadSpec, KeyError)) as caught:
        handler.on_event(given, Context())
    own = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("health_gate"))
    assert "do-not-log" not in own + str(caught.value)


# --- marks


def test_values_stand_for_the_marks_of_a_spec_in_s3(deployed: World) -> None:
    document = deployed.document()
    document["security_groups"] = ["${GROUP}"]
    document["reports"]["topic_arn"] = "${TOPIC}"
    deployed.aws.stored["spec.json"] = json.dumps(document).encode()
    values = {"GROUP": "sg-0123456789abcdef0", "TOPIC": 'arn:"odd"'}
    spec = handler._spec({"SpecUri": "s3://assets/spec.json", "Values": values})
    assert spec.security_groups == ("sg-0123456789abcdef0",)
    assert spec.reports.topic_arn == 'arn:"odd"'
    with pytest.raises(BadSpec, match=r"nobody says what stands for \$\{TOPIC\}"):
        handler._spec({"SpecUri": "s3://assets/spec.json", "Values": {"GROUP": "sg-0123456789abcdef0"}})


# --- start


def test_a_start_imports_nothing_but_the_standard_library() -> None:
    """botocore comes with the first check: a Delete must not wait for it."""
    code = "import sys; old = set(sys.modules); import health_gate.handler; print(*{m.partition('.')[0] for m in set(sys.modules) - old})"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(LAMBDA)}, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - {"health_gate", "eks_api"} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("folder", ["health_gate", "eks_api"])
def test_the_folder_stands_alone(folder: str) -> None:
    words = set()
    for path in (LAMBDA / folder).glob("*.py"):
        words |= set(re.findall(r"^\s*(?:from|import) ([a-z_0-9]+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert words - {"health_gate", "eks_api", "botocore"} <= set(sys.stdlib_module_names)
