"""The node gate as the provider framework calls it, against real servers and the real AWS client library."""

import base64
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore import session as botocore_session
from eks_api import cluster
from eks_api.reasons import Denied, Impossible, Waiting
from node_gate import handler, kubernetes

from tests.lambdas.fake_cluster import Answer, Fake, authority, node, node_list, running

SECRET_URL = "https://cloudformation-custom-resource-response.example/?signature=do-not-log"


class Context:
    def __init__(self, seconds: float = 60) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    with running() as servers:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_SESSION_TOKEN": "session-token",
            "AWS_DEFAULT_REGION": "us-east-2",
            "AWS_ENDPOINT_URL_EKS": servers.eks_url,
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
            "NO_PROXY": "*",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        yield servers


def event(request: str = "Create", *, waited: float = 0, **properties: Any) -> dict[str, Any]:
    """What the framework sends; CloudFormation turns every number into text."""
    content = {"ClusterName": "c", "Groups": {"system": "2"}, "Digest": "d", **properties}
    known = {} if request == "Create" else {"PhysicalResourceId": "node-gate-c"}
    return {"RequestType": request, "ResponseURL": SECRET_URL, "ResourceProperties": content, "Started": time.time() - waited, **known}


def look(_fake: Fake, *, waited: float = 0, context: Context | None = None, **properties: Any) -> dict[str, Any]:
    return handler.is_complete(event(waited=waited, **properties), context or Context())


# --- events


@pytest.mark.parametrize(
    ("given", "id"),
    [
        (event("Create"), "node-gate-c"),
        (event("Update"), "node-gate-c"),
        (event("Update", ClusterName="other"), "node-gate-c"),
        (event("Delete"), "node-gate-c"),
        (event("Delete", ClusterName=None, Groups=None), "node-gate-c"),
    ],
)
def test_the_physical_id_never_changes(given: dict[str, Any], id: str) -> None:
    assert handler.on_event(given, Context())["PhysicalResourceId"] == id


def test_start_of_waiting_is_handed_on_except_for_delete() -> None:
    assert handler.on_event(event("Create"), Context())["Started"] == pytest.approx(time.time(), abs=5)
    assert "Started" not in handler.on_event(event("Delete"), Context())


@pytest.mark.parametrize("properties", [{}, {"ClusterName": "c", "Groups": {"system": "nonsense"}}])
def test_delete_always_succeeds_without_asking_anyone(properties: dict[str, Any]) -> None:
    given = {"RequestType": "Delete", "ResponseURL": SECRET_URL, "ResourceProperties": properties}
    assert handler.on_event(given, Context()) == {"PhysicalResourceId": None}
    assert handler.is_complete(given, Context()) == {"IsComplete": True}


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"ClusterName": ""}, "ClusterName"),
        ({"ClusterName": None}, "ClusterName"),
        ({"Groups": {}}, "Groups"),
        ({"Groups": "system"}, "Groups"),
        ({"Groups": {"system": "-1"}}, "Groups.system"),
        ({"Groups": {"system": "two"}}, "Groups.system"),
        ({"Groups": {"system": "1.5"}}, "Groups.system"),
        ({"Groups": {"system": "²"}}, "Groups.system"),
        ({"TimeoutSeconds": "soon"}, "TimeoutSeconds"),
    ],
)
@pytest.mark.parametrize("request_type", ["Create", "Update"])
def test_wrong_properties_are_refused_before_waiting(request_type: str, properties: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"property {named} must"):
        handler.on_event(event(request_type, **properties), Context())


# --- opening


def test_opens_when_every_group_has_its_nodes(fake: Fake) -> None:
    fake.kubernetes = lambda _: node_list(node(), node(), node("prefill"))
    answer = look(fake, Groups={"system": "2", "prefill": "1"})
    assert answer == {"IsComplete": True, "Data": {"SchedulableNodes": "3"}}


def test_an_update_looks_again(fake: Fake) -> None:
    assert handler.is_complete(event("Update"), Context()) == {"IsComplete": False}
    fake.kubernetes = lambda _: node_list(node(), node())
    assert handler.is_complete(event("Update"), Context())["IsComplete"] is True


def test_taints_on_the_list_do_not_close_a_node(fake: Fake) -> None:
    taint = {"key": "role", "value": "prefill", "effect": "NoSchedule"}
    fake.kubernetes = lambda _: node_list(node("prefill", spec={"taints": [taint]}))
    assert look(fake, Groups={"prefill": "1"}) == {"IsComplete": False}
    assert look(fake, Groups={"prefill": "1"}, ToleratedTaints=["role=prefill:NoSchedule"])["IsComplete"] is True


@pytest.mark.parametrize("written", ["gpu:NoExecute", "gpu=:NoExecute"])
def test_a_taint_without_value_may_be_written_either_way(fake: Fake, written: str) -> None:
    fake.kubernetes = lambda _: node_list(node(spec={"taints": [{"key": "gpu", "effect": "NoExecute"}]}))
    assert look(fake, Groups={"system": "1"}, ToleratedTaints=[written])["IsComplete"] is True


def test_all_pages_are_read_and_each_asks_for_the_next(fake: Fake) -> None:
    pages = {"": node_list(node(), following="second page&/"), "second page&/": node_list(node())}
    fake.kubernetes = lambda following: pages[following]
    assert look(fake)["IsComplete"] is True
    asked = [parse_qs(urlsplit(path).query) for path, _ in fake.requests if path.startswith("/api/")]
    assert asked == [{"limit": ["100"]}, {"limit": ["100"], "continue": ["second page&/"]}]


def test_the_response_is_small(fake: Fake) -> None:
    minimums = {f"group-{number:03}-" + "x" * 50: "1" for number in range(100)}
    fake.kubernetes = lambda _: node_list(*(node(name) for name in minimums))
    assert len(json.dumps(look(fake, Groups=minimums))) < 400


# --- not yet


@pytest.mark.parametrize(
    "answer",
    [
        node_list(),
        node_list(node()),
        node_list(node(), node(spec={"unschedulable": True})),
        Answer(body=b'{"items": null}'),
        Answer(500, b"oops"),
        Answer(500, b'{"message": "etcd is away"}'),
        Answer(503),
        Answer(429),
        Answer(410),
        Answer(302, headers={"Location": "https://elsewhere.example/"}),
        Answer(401),
        Answer(403, b'{"message": "nodes is forbidden"}'),
        Answer(403, b"[]"),
        Answer(body=b"<html>"),
        Answer(body=b"[]"),
        Answer(body=b""),
        Answer(body=b'{"items": {}}'),
        Answer(body=b'{"items": ["node"]}'),
        node_list(following="same page for ever"),
    ],
)
def test_not_yet(fake: Fake, answer: Answer) -> None:
    fake.kubernetes = lambda _: answer
    assert look(fake) == {"IsComplete": False}


@pytest.mark.parametrize("stall", ["before", "drip"])
def test_a_slow_api_is_left_at_the_deadline(fake: Fake, stall: str) -> None:
    fake.kubernetes = lambda _: Answer(stall=stall)
    with pytest.raises(TimeoutError, match=r"did not answer \(timed out"):
        look(fake, waited=10, context=Context(seconds=2.6), TimeoutSeconds="0")


def test_no_time_left_is_not_yet(fake: Fake) -> None:
    assert look(fake, context=Context(seconds=1)) == {"IsComplete": False}


def test_an_api_that_cannot_be_reached(fake: Fake) -> None:
    fake.eks = fake.cluster(endpoint="https://127.0.0.1:1")
    with pytest.raises(TimeoutError, match="security group must admit"):
        look(fake, TimeoutSeconds="0")


def test_a_stranger_with_another_certificate_never_sees_the_token(fake: Fake) -> None:
    fake.eks = fake.cluster(certificateAuthority={"data": base64.b64encode(_public_authority().encode()).decode()})
    with pytest.raises(TimeoutError, match="authority did not sign"):
        look(fake, TimeoutSeconds="0")
    assert not [path for path, _ in fake.requests if path.startswith("/api/")]


def _public_authority() -> str:
    import botocore.httpsession

    text = Path(botocore.httpsession.DEFAULT_CA_BUNDLE).read_text(encoding="utf-8")
    begin = text.index("-----BEGIN CERTIFICATE-----")
    return text[begin : text.index("-----END CERTIFICATE-----", begin)] + "-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("status", ["CREATING", "PENDING"])
def test_a_cluster_in_the_making_is_not_yet(fake: Fake, status: str) -> None:
    fake.eks = fake.cluster(status=status, endpoint=None, certificateAuthority=None)
    assert look(fake) == {"IsComplete": False}


def test_no_answer_from_eks_is_not_yet(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_EKS", "http://127.0.0.1:1")
    with pytest.raises(TimeoutError, match="interface endpoint for eks"):
        look(fake, TimeoutSeconds="0")
    assert look(fake) == {"IsComplete": False}


# --- never


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Answer(401, b"Unauthorized"), "no access entry"),
        (Answer(403, b'{"message": "User x cannot list resource nodes"}'), "group of the node readers.*User x cannot list"),
    ],
)
def test_refusals_end_the_wait_after_the_grace(fake: Fake, answer: Answer, cause: str) -> None:
    fake.kubernetes = lambda _: answer
    assert look(fake, waited=handler.GRACE_SECONDS - 60) == {"IsComplete": False}
    with pytest.raises(Denied, match=cause):
        look(fake, waited=handler.GRACE_SECONDS + 1)


def _eks_error(code: str, status: int = 400) -> Answer:
    return Answer(status, json.dumps({"message": "m"}).encode(), {"x-amzn-ErrorType": code, "Content-Type": "application/json"})


def test_a_role_that_may_not_describe_the_cluster(fake: Fake) -> None:
    fake.eks = _eks_error("AccessDeniedException", 403)
    assert look(fake) == {"IsComplete": False}
    with pytest.raises(Denied, match="eks:DescribeCluster"):
        look(fake, waited=handler.GRACE_SECONDS + 1)


def test_other_errors_of_eks_are_not_yet(fake: Fake) -> None:
    fake.eks = _eks_error("InvalidRequestException")
    assert look(fake, waited=handler.GRACE_SECONDS + 1) == {"IsComplete": False}


def test_no_such_cluster_ends_the_wait_at_once(fake: Fake) -> None:
    fake.eks = _eks_error("ResourceNotFoundException", 404)
    with pytest.raises(Impossible, match="no EKS cluster 'c'"):
        look(fake)


@pytest.mark.parametrize("status", ["DELETING", "FAILED"])
def test_a_cluster_that_goes_away_ends_the_wait_at_once(fake: Fake, status: str) -> None:
    fake.eks = fake.cluster(status=status)
    with pytest.raises(Impossible, match=status):
        look(fake)


def test_the_time_out_says_what_was_missing(fake: Fake) -> None:
    fake.kubernetes = lambda _: node_list(node(), node(status={}))
    with pytest.raises(TimeoutError, match=r"after 26 minutes\. group system: 1 of 2 nodes schedulable \(1 not Ready\)"):
        look(fake, waited=26 * 60)


def test_enough_nodes_open_the_gate_even_after_the_time_out(fake: Fake) -> None:
    fake.kubernetes = lambda _: node_list(node(), node())
    assert look(fake, waited=10**6)["IsComplete"] is True


# --- secrets


@pytest.mark.usefixtures("fake")
def test_the_token_is_a_presigned_request_for_this_cluster_only() -> None:
    session = botocore_session.get_session()
    token = cluster.token(session, cluster.Cluster("c", "us-east-2", "", ""))
    prefix, _, body = token.partition(".")
    assert prefix == "k8s-aws-v1"
    assert "=" not in body
    url = urlsplit(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode())
    query = parse_qs(url.query)
    assert (url.scheme, url.netloc, url.path) == ("https", "sts.us-east-2.amazonaws.com", "/")
    assert query["Action"] == ["GetCallerIdentity"]
    assert query["X-Amz-SignedHeaders"] == ["host;x-k8s-aws-id"]
    assert query["X-Amz-Expires"] == ["60"]
    assert query["X-Amz-Credential"][0].endswith("/us-east-2/sts/aws4_request")


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("region", "host"), [("cn-north-1", "sts.cn-north-1.amazonaws.com.cn"), ("us-gov-west-1", "sts.us-gov-west-1.amazonaws.com")]
)
def test_the_token_of_another_partition(region: str, host: str) -> None:
    body = cluster.token(botocore_session.get_session(), cluster.Cluster("c", region, "", "")).partition(".")[2]
    assert urlsplit(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()).netloc == host


@pytest.mark.parametrize(
    "answer", [node_list(), Answer(401), Answer(500, b"x"), Answer(302, headers={"Location": "https://elsewhere.example/"})]
)
def test_neither_token_nor_response_url_is_ever_written(fake: Fake, answer: Answer, caplog: pytest.LogCaptureFixture) -> None:
    fake.kubernetes = lambda _: answer
    with caplog.at_level(logging.INFO):
        look(fake)
    (sent,) = (headers["Authorization"] for path, headers in fake.requests if path.startswith("/api/"))
    assert sent.startswith("Bearer k8s-aws-v1.")
    assert caplog.records
    assert "k8s-aws" not in caplog.text
    assert "do-not-log" not in caplog.text
    assert authority().splitlines()[1] not in repr(cluster.Cluster("c", "r", "e", authority()))


def test_a_client_without_a_cluster_behind_it_names_the_port() -> None:
    with pytest.raises(Waiting, match="port 443"):
        list(kubernetes.nodes("https://127.0.0.1:1", authority(), "t", time.monotonic() + 5))
