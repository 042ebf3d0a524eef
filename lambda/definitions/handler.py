"""Entry points for the provider framework of the CDK.

Properties of the custom resource: ``ClusterName``; ``Definitions``, from the name of a definition to ``{"Url", "Sha256"}``;
``TimeoutSeconds``. A definition is never deleted: with it every object of its kind would go, whoever made it.

The event holds ``ResponseURL``, with which anybody could answer CloudFormation: it is never logged as a whole.
"""

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

import botocore.session
from eks_api import cluster
from eks_api.http import OK, Failed, Server, Untrusted
from eks_api.reasons import Denied, Impossible, Waiting

CALL_SECONDS: Final = 40
"""How long one look may take."""
_RESERVE_SECONDS: Final = 2
_MANAGER: Final = "hyperpod-dpd"
_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CREATED, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_MANY, _FAULT = 201, 401, 403, 404, 409, 429, 500
_MESSAGE: Final = 300

_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)


class Context(Protocol):
    """What is needed of a Lambda context."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends the invocation."""


def on_event(event: Mapping[str, Any], _context: Context) -> dict[str, Any]:
    """Start. The id never changes, so that an update never deletes."""
    known = event.get("PhysicalResourceId")
    if event["RequestType"] == "Delete":
        return {"PhysicalResourceId": known}
    return {"PhysicalResourceId": known or f"definitions-{event['ResourceProperties']['ClusterName']}", "Started": int(time.time())}


def is_complete(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Apply all. Raises with the reason when waiting cannot help, or has lasted long enough."""
    if event["RequestType"] == "Delete":
        return {"IsComplete": True}
    properties = event["ResourceProperties"]
    deadline = time.monotonic() + min(CALL_SECONDS, context.get_remaining_time_in_millis() / 1000 - _RESERVE_SECONDS)
    try:
        for name in apply(properties["ClusterName"], properties["Definitions"], deadline):
            _log.info(json.dumps({"applied": name}))
    except Waiting as error:
        _log.info(json.dumps({"missing": str(error)}))
        if time.time() - event["Started"] >= int(properties["TimeoutSeconds"]):
            raise TimeoutError(str(error)) from None
        return {"IsComplete": False}
    return {"IsComplete": True}


def apply(cluster_name: str, definitions: Mapping[str, Mapping[str, str]], deadline: float) -> list[str]:
    """Fetch every file before the first is applied, so that a wrong one changes nothing. Returns the names."""
    files = {name: fetched(wanted["Url"], wanted["Sha256"], deadline) for name, wanted in definitions.items()}
    session = botocore.session.get_session()
    found = cluster.find(session, cluster_name)
    token = cluster.token(session, found)
    server = Server(found.endpoint, authority=found.authority)
    for name, body in files.items():
        put(server, token, name, body, deadline)
    return list(files)


def fetched(url: str, sha256: str, deadline: float) -> bytes:
    """A file with the expected digest.

    Raises ``Impossible`` for a file that is not there or is another one, and ``Waiting`` when nothing answers.
    """
    address = urlsplit(url)
    server = Server(f"{address.scheme}://{address.netloc}")
    try:
        reply = server.send("GET", address.path, deadline=deadline)
    except Failed as error:
        raise Waiting(f"{address.netloc} did not answer ({error}); the function's subnets need a way to the internet.") from None
    finally:
        server.close()
    if reply.status == _NOT_FOUND:
        raise Impossible(f"There is no file at {url}.")
    if reply.status != OK:
        raise Waiting(f"{address.netloc} answered {reply.status} for {url}.")
    digest = hashlib.sha256(reply.body).hexdigest()
    if digest != sha256:
        raise Impossible(f"The file at {url} has the digest {digest} and not {sha256}. It is not applied.")
    return reply.body


def put(server: Server, token: str, name: str, body: bytes, deadline: float) -> None:
    """Apply one definition on the server's side, which takes YAML as it is and leaves what others set."""
    path = f"{_PATH}/{quote(name)}?fieldManager={_MANAGER}&force=true"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/apply-patch+yaml", "Accept": "application/json"}
    try:
        reply = server.send("PATCH", path, headers=headers, body=body, deadline=deadline)
    except Untrusted as error:
        raise Waiting(f"The Kubernetes API shows a certificate that the cluster's authority did not sign ({error}).") from None
    except Failed as error:
        raise Waiting(f"The Kubernetes API at {server.host} did not answer ({error}).") from None
    if reply.status in (OK, _CREATED):
        return
    said = _said(reply.body)
    if reply.status in (_UNAUTHORIZED, _FORBIDDEN):
        raise Denied(f"The Kubernetes API does not let the function's role apply {name} ({reply.status}). {said}".rstrip())
    if reply.status in (_CONFLICT, _TOO_MANY) or reply.status >= _FAULT:
        raise Waiting(f"The Kubernetes API answered {reply.status} for {name}. {said}".rstrip())
    raise Impossible(f"The Kubernetes API refuses {name} ({reply.status}). {said}".rstrip())


def _said(body: bytes) -> str:
    try:
        return str(json.loads(body).get("message", ""))[:_MESSAGE]
    except (ValueError, AttributeError):
        return ""
