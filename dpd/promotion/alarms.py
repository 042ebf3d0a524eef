"""What the alarms of an environment say while somebody watches."""

from collections.abc import Mapping

from dpd.finding import Finding
from dpd.promotion.faults import ALARM


def raised(states: Mapping[str, str], prefix: str, *, last: bool) -> list[Finding]:
    """What stands against going on. Only the ``last`` look wants every alarm to be quiet: a new one has no data at first."""
    if not states:
        return [ALARM.finding(f"{prefix}*", "there is no alarm to watch", "deploy the gate (gate.deploy), or watch for 0 minutes")]
    unquiet = ("ALARM", "INSUFFICIENT_DATA") if last else ("ALARM",)
    return [
        ALARM.finding(name, "is raised" if state == "ALARM" else "nobody knows its state", "cure the cause, and promote again", value=state)
        for name, state in sorted(states.items())
        if state in unquiet
    ]
