"""The one question the gate asks of Kubernetes: which nodes are there.

``http.client`` and not ``urllib.request``: it follows no redirect and uses no proxy, so the token only ever goes to
the cluster, and one connection serves all pages.
"""

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from node_gate.reasons import Denied, Waiting

_PAGE: Final = 100
_CHUNK: Final = 1 << 16
_MESSAGE: Final = 300
_OK, _UNAUTHORIZED, _FORBIDDEN, _GONE = 200, 401, 403, 410


def nodes(endpoint: str, authority: str, token: str, deadline: float) -> Iterator[dict[str, Any]]:
    """Yield every node, page by page. ``deadline`` is in seconds of ``time.monotonic``, for all pages together.

    Raises ``Denied`` for 401 and 403, ``Waiting`` for everything else that is not a list of nodes in time.
    """
    address = urlsplit(endpoint)
    context = ssl.create_default_context(cadata=authority)
    connection = http.client.HTTPSConnection(address.netloc, context=context)
    seen: set[str] = {""}
    query: dict[str, str | int] = {"limit": _PAGE}
    try:
        while True:
            page = _get(connection, f"/api/v1/nodes?{urlencode(query)}", token, deadline)
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
        connection.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _get(connection: http.client.HTTPSConnection, path: str, token: str, deadline: float) -> dict[str, Any]:
    try:
        connection.timeout = _left(deadline)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
        body = bytearray()
        with connection.getresponse() as response:
            while chunk := response.read1(_CHUNK):
                body += chunk
                _left(deadline)
    except ssl.SSLCertVerificationError as error:
        raise Waiting(
            f"The Kubernetes API shows a certificate that the cluster's authority did not sign ({error.verify_message})."
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise Waiting(
            f"The Kubernetes API at {connection.host} did not answer ({_why(error)}); the cluster's security group must admit "
            "the function on port 443, and a private endpoint needs DNS support in the VPC."
        ) from None
    if response.status != _OK:
        raise _refusal(response.status, bytes(body))
    return _object(bytes(body))


def _why(error: Exception) -> str:
    return "timed out" if isinstance(error, TimeoutError) else str(error)[:_MESSAGE] or type(error).__name__


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
