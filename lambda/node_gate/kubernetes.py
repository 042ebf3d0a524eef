"""The one question the gate asks of Kubernetes: which nodes are there."""

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

from eks_api.http import OK, Failed, Server, Untrusted
from eks_api.reasons import Denied, Waiting

_PAGE: Final = 100
_MESSAGE: Final = 300
_UNAUTHORIZED, _FORBIDDEN, _GONE = 401, 403, 410


def nodes(endpoint: str, authority: str, token: str, deadline: float) -> Iterator[dict[str, Any]]:
    """Yield every node, page by page. ``deadline`` is in seconds of ``time.monotonic``, for all pages together.

    Raises ``Denied`` for 401 and 403, ``Waiting`` for everything else that is not a list of nodes in time.
    """
    server = Server(endpoint, authority=authority)
    seen: set[str] = {""}
    query: dict[str, str | int] = {"limit": _PAGE}
    try:
        while True:
            page = _get(server, f"/api/v1/nodes?{urlencode(query)}", token, deadline)
            items = page.get("items") or []
            if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                raise Waiting("The Kubernetes API answered with something else than a list of nodes.")
            yield from items
            following = (page.get("metadata") or {}).get("continue") or ""
            if not following:
                return
            if following in seen:
                raise Waiting("The Kubernetes API repeats a page of its list of nodes.")
            seen.add(following)
            query["continue"] = following
    finally:
        server.close()


def _get(server: Server, path: str, token: str, deadline: float) -> dict[str, Any]:
    try:
        reply = server.send("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"}, deadline=deadline)
    except Untrusted as error:
        raise Waiting(f"The Kubernetes API shows a certificate that the cluster's authority did not sign ({error}).") from None
    except Failed as error:
        raise Waiting(
            f"The Kubernetes API at {server.host} did not answer ({error}); the cluster's security group must admit "
            "the function on port 443, and a private endpoint needs DNS support in the VPC."
        ) from None
    if reply.status != OK:
        raise _refusal(reply.status, reply.body)
    return _object(reply.body)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Waiting("The Kubernetes API answered with something else than a JSON object.")
    return value


def _refusal(status: int, body: bytes) -> Waiting:
    try:
        said = str(json.loads(body).get("message", ""))[:_MESSAGE]
    except (ValueError, AttributeError):
        said = ""
    if status == _UNAUTHORIZED:
        return Denied("The Kubernetes API does not know the function's role (401): the cluster has no access entry for it.")
    if status == _FORBIDDEN:
        return Denied(
            "The Kubernetes API lets the function's role in, but not list nodes (403): its access entry lacks the Kubernetes "
            f"group of the node readers, or their ClusterRoleBinding is missing. {said}".rstrip()
        )
    if status == _GONE:
        return Waiting("The list of nodes changed while it was read (410).")
    return Waiting(f"The Kubernetes API answered {status}. {said}".rstrip())
