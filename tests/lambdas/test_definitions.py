"""The function that applies custom resource definitions, against real servers and the real AWS client library."""

import hashlib
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from definitions import handler
from eks_api.reasons import Impossible

from tests.lambdas.fake_cluster import Answer, Fake, running

SECRET_URL = "https://cloudformation-custom-resource-response.example/?signature=do-not-log"
BODY = b"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: as.example.com\n"
DIGEST = hashlib.sha256(BODY).hexdigest()
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/as.example.com?fieldManager=hyperpod-dpd&force=true"


class Context:
    def get_remaining_time_in_millis(self) -> int:
        return 60_000


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    with running() as servers:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-2",
            "AWS_ENDPOINT_URL_EKS": servers.eks_url,
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
            "NO_PROXY": "*",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        servers.files["/a.yaml"] = Answer(body=BODY)
        servers.kubernetes = lambda _token: Answer(body=b"{}")
        yield servers


def event(fake: Fake, request: str = "Create", *, waited: float = 0, sha256: str = DIGEST, path: str = "/a.yaml") -> dict[str, Any]:
    """What the framework sends; CloudFormation turns every number into text."""
    wanted = {"as.example.com": {"Url": f"{fake.eks_url}{path}", "Sha256": sha256}}
    known = {} if request == "Create" else {"PhysicalResourceId": "definitions-c"}
    properties = {"ClusterName": "c", "Definitions": wanted, "TimeoutSeconds": "600"}
    return {"RequestType": request, "ResponseURL": SECRET_URL, "ResourceProperties": properties, "Started": time.time() - waited, **known}


def look(fake: Fake, **changes: Any) -> dict[str, Any]:
    return handler.is_complete(event(fake, **changes), Context())


def test_a_file_with_the_right_digest_is_applied_as_it_is(fake: Fake) -> None:
    assert look(fake) == {"IsComplete": True}
    assert fake.patches == [(PATH, BODY)]
    _, headers = next((path, headers) for path, headers in fake.requests if path == PATH)
    assert headers["Content-Type"] == "application/apply-patch+yaml"
    assert headers["Authorization"].startswith("Bearer k8s-aws-v1.")


@pytest.mark.parametrize(
    ("changes", "says"), [({"sha256": "0" * 64}, "It is not applied"), ({"path": "/gone.yaml"}, "There is no file at")]
)
def test_another_file_or_none_changes_nothing(fake: Fake, changes: dict[str, Any], says: str) -> None:
    fake.files["/gone.yaml"] = Answer(404)
    with pytest.raises(Impossible, match=says):
        look(fake, **changes)
    assert not fake.patches


def test_the_token_goes_to_the_cluster_alone(fake: Fake) -> None:
    look(fake)
    for path, headers in fake.requests:
        assert ("Bearer" in headers.get("Authorization", "")) == (path == PATH)


@pytest.mark.parametrize("status", [401, 403, 409, 429, 500, 503])
def test_what_may_pass_is_waited_for_until_the_time_is_over(fake: Fake, status: int) -> None:
    fake.kubernetes = lambda _token: Answer(status, json.dumps({"message": "not now"}).encode())
    assert look(fake) == {"IsComplete": False}
    with pytest.raises(TimeoutError, match="not now"):
        look(fake, waited=601)


def test_what_the_server_refuses_is_said_at_once(fake: Fake) -> None:
    fake.kubernetes = lambda _token: Answer(422, json.dumps({"message": "spec is wrong"}).encode())
    with pytest.raises(Impossible, match="spec is wrong"):
        look(fake)


def test_a_server_of_files_that_is_ill_is_asked_again(fake: Fake) -> None:
    fake.files["/a.yaml"] = Answer(503)
    assert look(fake) == {"IsComplete": False}


def test_nothing_is_ever_deleted(fake: Fake) -> None:
    assert look(fake, request="Delete") == {"IsComplete": True}
    assert not fake.requests


@pytest.mark.parametrize("request_type", ["Create", "Update", "Delete"])
def test_the_physical_id_never_changes(fake: Fake, request_type: str) -> None:
    assert handler.on_event(event(fake, request_type), Context())["PhysicalResourceId"] == "definitions-c"


def test_the_address_that_answers_cloudformation_is_not_logged(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    look(fake)
    assert "signature" not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("definitions"))
