"""The custom resource that writes texts into a bucket: its own code, the way Lambda runs it, against recorded services."""

import hashlib
import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import boto3
import pytest
from botocore.stub import Stubber

from stacks.constructs.text_upload import _CODE, texts


@pytest.fixture(scope="module")
def function() -> ModuleType:
    spec = importlib.util.spec_from_file_location("put_objects", _CODE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CloudFormation(BaseHTTPRequestHandler):
    """The address at which CloudFormation waits for an answer."""

    answers: ClassVar[list[tuple[str | None, dict[str, Any]]]] = []

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answers.append((self.headers["Content-Type"], json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    CloudFormation.answers.clear()
    server = HTTPServer(("127.0.0.1", 0), CloudFormation)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/answer"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    client = boto3.client("s3", region_name="us-east-2", aws_access_key_id="none", aws_secret_access_key="none")
    monkeypatch.setattr(boto3, "client", lambda name: {"s3": client}[name])
    with Stubber(client) as stubber:
        yield stubber


def event(url: str, kind: str = "Create", **objects: str) -> dict[str, Any]:
    content = {key: {"Text": text, "Sha256": hashlib.sha256(text.encode()).hexdigest()} for key, text in objects.items()}
    return {
        "RequestType": kind,
        "ResponseURL": url,
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": "Scripts",
        "ResourceProperties": {"Bucket": "sagemaker-scripts", "Objects": content},
    }


def answer() -> dict[str, Any]:
    ((content_type, found),) = CloudFormation.answers
    assert content_type == ""
    assert (found["StackId"], found["RequestId"], found["LogicalResourceId"]) == ("stack", "request", "Scripts")
    return found


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_every_object_is_written_and_success_reported(function: ModuleType, s3: Stubber, url: str, kind: str) -> None:
    objects = {"lifecycle/a.sh": "echo ä\n", "lifecycle/b.sh": "exit 0\n"}
    for key, text in objects.items():
        expected = {"Bucket": "sagemaker-scripts", "Key": key, "Body": text.encode(), "ContentType": "text/plain; charset=utf-8"}
        s3.add_response("put_object", {}, expected)
    function.handler(event(url, kind, **objects), None)
    assert (answer()["Status"], answer()["PhysicalResourceId"]) == ("SUCCESS", "Scripts")
    s3.assert_no_pending_responses()


def test_deletion_leaves_the_objects(function: ModuleType, s3: Stubber, url: str) -> None:
    function.handler({**event(url, "Delete", a="b"), "PhysicalResourceId": "kept"}, None)
    assert (answer()["Status"], answer()["PhysicalResourceId"]) == ("SUCCESS", "kept")
    s3.assert_no_pending_responses()


def test_a_text_that_changed_on_its_way_is_refused_before_anything_is_written(function: ModuleType, s3: Stubber, url: str) -> None:
    request = event(url, first="exit 0", second="echo ä")
    request["ResourceProperties"]["Objects"]["second"]["Text"] = "echo ?"
    function.handler(request, None)
    assert answer()["Status"] == "FAILED"
    assert "second was changed on its way here" in answer()["Reason"]
    s3.assert_no_pending_responses()


def test_a_refusal_of_s3_is_the_reason_that_cloudformation_shows(function: ModuleType, s3: Stubber, url: str) -> None:
    s3.add_client_error("put_object", "AccessDenied", "kms:GenerateDataKey is not allowed")
    function.handler(event(url, a="b"), None)
    assert answer()["Status"] == "FAILED"
    assert "kms:GenerateDataKey is not allowed" in answer()["Reason"]


@pytest.mark.parametrize("properties", [{}, {"Objects": None}, {"Objects": {"a": {}}}])
def test_cloudformation_is_answered_whatever_it_sends(function: ModuleType, s3: Stubber, url: str, properties: dict[str, Any]) -> None:
    function.handler({**event(url), "ResourceProperties": properties}, None)
    assert answer()["Status"] == "FAILED"
    s3.assert_no_pending_responses()


def test_the_code_fits_into_a_template() -> None:
    """CloudFormation once took 4,096 characters at most, and a reviewer still does."""
    assert len(_CODE.read_text(encoding="utf-8")) <= 4096


def test_texts_of_a_folder_have_unix_line_ends(tmp_path: Path) -> None:
    (tmp_path / "b.sh").write_bytes(b"#!/bin/bash\r\nexit 0\r\n")
    (tmp_path / "a.txt").write_bytes("ä\n".encode())
    (tmp_path / "folder").mkdir()
    assert list(texts(tmp_path).items()) == [("a.txt", "ä\n"), ("b.sh", "#!/bin/bash\nexit 0\n")]
