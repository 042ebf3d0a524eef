"""Entry points for the provider framework of the CDK.

Properties of the custom resource: ``ClusterName``; ``Groups``, from instance group to the least number of schedulable
nodes; ``Digest``, any text that changes when the gate must look again; optionally ``ToleratedTaints``, a list of taints
as kubectl writes them (``key=value:effect``) that do not make a node count as closed, and ``TimeoutSeconds``. Keep the
latter below the ``total_timeout`` of the provider: the framework's own time-out says nothing but "Operation timed out".

The event holds ``ResponseURL``, with which anybody could answer CloudFormation: it is never logged as a whole.
"""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import botocore.session
from eks_api import cluster
from eks_api.reasons import Denied, Waiting

from node_gate import kubernetes, nodes

DEFAULT_TIMEOUT_SECONDS: Final = 1500
"""Five minutes less than the provider framework waits when it is not told otherwise."""
GRACE_SECONDS: Final = 300
"""How long a refusal may be one of a permission that has not spread yet."""
CALL_SECONDS: Final = 20
"""How long one look may take."""
_RESERVE_SECONDS: Final = 2

_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)


class Context(Protocol):
    """What the gate needs of a Lambda context."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends the invocation."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What must be true before the gate opens."""

    cluster_name: str
    minimums: dict[str, int]
    tolerated: frozenset[str]
    timeout_seconds: int

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> "Gate":
        """Read the properties of the custom resource; CloudFormation sends every number as text. Raises ``ValueError``."""
        name, groups = properties.get("ClusterName"), properties.get("Groups")
        if not isinstance(name, str) or not name:
            raise ValueError("The property ClusterName must be the name of the EKS cluster.")
        if not isinstance(groups, dict) or not groups:
            raise ValueError("The property Groups must map at least one instance group to its least number of nodes.")
        minimums = {group: _number(f"Groups.{group}", minimum) for group, minimum in groups.items()}
        timeout = _number("TimeoutSeconds", properties.get("TimeoutSeconds", DEFAULT_TIMEOUT_SECONDS))
        # Without a value kubectl leaves the equals sign out; take it either way.
        tolerated = frozenset(taint.replace("=:", ":") for taint in properties.get("ToleratedTaints") or ())
        return cls(name, minimums, tolerated, timeout)


def _number(name: str, value: Any) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"The property {name} must be a whole number, not {text[:40]!r}.")
    return int(text)


def on_event(event: Mapping[str, Any], _context: Context) -> dict[str, Any]:
    """Start to wait. The id never changes, so that an update of the gate never deletes it."""
    known = event.get("PhysicalResourceId")
    if event["RequestType"] == "Delete":
        return {"PhysicalResourceId": known}
    gate = Gate.of(event["ResourceProperties"])
    return {"PhysicalResourceId": known or f"node-gate-{gate.cluster_name}", "Started": int(time.time())}


def is_complete(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Look once. Raises with the reason when waiting longer cannot help, or has lasted long enough."""
    if event["RequestType"] == "Delete":
        return {"IsComplete": True}
    gate = Gate.of(event["ResourceProperties"])
    waited = time.time() - event["Started"]
    deadline = time.monotonic() + min(CALL_SECONDS, context.get_remaining_time_in_millis() / 1000 - _RESERVE_SECONDS)
    try:
        groups = _look(gate, deadline)
        reason = nodes.missing(groups)
    except Denied as error:
        if waited >= GRACE_SECONDS:
            raise
        reason = str(error)
    except Waiting as error:
        reason = str(error)
    _log.info(json.dumps({"cluster": gate.cluster_name, "waited_seconds": round(waited), "missing": reason}))
    if not reason:
        return {"IsComplete": True, "Data": {"SchedulableNodes": str(sum(group.schedulable for group in groups))}}
    if waited >= gate.timeout_seconds:
        raise TimeoutError(f"Not enough schedulable nodes after {round(waited / 60)} minutes. {reason}")
    return {"IsComplete": False}


def _look(gate: Gate, deadline: float) -> list[nodes.Group]:
    session = botocore.session.get_session()
    found = cluster.find(session, gate.cluster_name)
    listed = kubernetes.nodes(found.endpoint, found.authority, cluster.token(session, found), deadline)
    return nodes.count(listed, gate.minimums, gate.tolerated)
