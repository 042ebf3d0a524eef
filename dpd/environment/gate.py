"""The gate part: what proves a deployment, how often it looks again, and who hears of it."""

from typing import Annotated

from pydantic import Field

from dpd.environment.types import Many, Part, Text

EmailAddress = Annotated[Text, Field(pattern=r"^[^@\s,;<>]+@[^@\s,;<>]+\.[^@\s,;<>]+$", max_length=254)]


class Gate(Part):
    """The health gate: a deployment fails unless KV crossed EFA, prefill was used and the answers are right."""

    deploy: bool = True
    """Whether the stack `gate` exists. Without it a deployment that serves nothing, or serves over TCP, succeeds."""
    schedule_minutes: Annotated[int, Field(ge=15, le=720)] | None = 60
    """Minutes between two runs on a schedule, which sends a handful of prompts each time. `null`: only after deployments."""
    efa_counters: bool = True
    """Whether a small exporter runs on every node with EFA, from which the gate reads sent and received bytes. It sees
    counters of the devices alone. Without it only the connector's own figures show that KV crossed EFA."""
    notify: Annotated[Many[EmailAddress], Field(max_length=10)] = ()
    """E-mail addresses that hear of failures. Each confirms its subscription once."""
