"""The whole answer to CloudFormation, made by the provider framework as CDK ships it, stays below 4 KB."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from health_gate import handler
from health_gate.handler import REASON_BYTES
from hypothesis import given
from hypothesis import strategies as st

from tests.stacks.conftest import Whole

LIMIT = 4096
"""https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/crpg-ref-responses.html"""
HARNESS = Path(__file__).with_name("framework.cjs")
EVENT: dict[str, Any] = {
    "RequestType": "Update",
    "ResponseURL": f"https://cloudformation-custom-resource-response-useast2.s3.amazonaws.com/{'a' * 300}?X-Amz-Signature={'b' * 900}",
    "StackId": f"arn:aws:cloudformation:us-east-2:111122223333:stack/{'s' * 128}/12345678-1234-1234-1234-123456789012",
    "RequestId": "12345678-1234-1234-1234-123456789012",
    "LogicalResourceId": "L" * 255,
    "PhysicalResourceId": f"health-gate-{'e' * 63}",
    "ResourceType": "Custom::DpdHealthGate",
    "ResourceProperties": {"SpecUri": "s3://bucket/key", "Digest": "d"},
}
"""With the longest names that AWS allows."""
WORST = {
    "letters": "x",
    "umlauts": "ü",
    "quotation marks": '"',
    "backslashes": "\\",
    "line ends": "\n",
    "controls": "\x01",
    "emoji": "\U0001f600",
    "separators": "\u2028",
}


@pytest.fixture(scope="session")
def framework(whole: Whole) -> Path:
    """The framework's code in the assembly."""
    found = [file.parent for file in whole.folder.rglob("framework.js")]
    assert found
    return found[0]


def answered(framework: Path, event: dict[str, Any], result: dict[str, Any]) -> bytes:
    # As the bridge to CDK, it may be beside Python alone.
    node = shutil.which("node", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    command = [str(node), str(HARNESS), str(framework), "isComplete", json.dumps(event), json.dumps(result)]
    return subprocess.run(command, capture_output=True, check=True).stdout


def failed(reason: str) -> dict[str, Any]:
    """What Lambda hands on when the gate raises."""
    said = {"errorMessage": reason, "errorType": "GateFailed", "requestId": "r", "stackTrace": ["  File handler.py"] * 5}
    return {"FunctionError": "Unhandled", "Payload": list(json.dumps(said).encode())}


@pytest.mark.parametrize("kind", WORST)
def test_a_failure_fits_whatever_is_in_its_text(framework: Path, kind: str) -> None:
    reason = handler._reason(WORST[kind] * 10_000)
    body = answered(framework, EVENT, failed(reason))
    answer = json.loads(body)
    assert answer["Status"] == "FAILED"
    assert reason in answer["Reason"]
    assert len(body) < LIMIT
    assert EVENT["ResponseURL"].encode() not in body


def test_without_the_bound_it_would_not_fit(framework: Path) -> None:
    assert len(answered(framework, EVENT, failed("x" * 10_000))) > LIMIT


def test_a_success_fits(framework: Path) -> None:
    data = {"Outcome": "PASS", "Checks": "9999", "Report": f"s3://{'b' * 63}/health-gate/{'e' * 63}/2026/11/29/153747.json"}
    done = {"IsComplete": True, "Data": data}
    body = answered(framework, EVENT, {"Payload": list(json.dumps(done).encode())})
    assert json.loads(body)["Status"] == "SUCCESS"
    assert len(body) < LIMIT


@given(st.text(max_size=4000))
def test_a_reason_is_the_beginning_of_its_text(text: str) -> None:
    short = handler._reason(text)
    assert len(json.dumps(short, ensure_ascii=False).encode("utf-8", "surrogatepass")) - 2 <= REASON_BYTES
    assert short == text or text.startswith(short.removesuffix("..."))
