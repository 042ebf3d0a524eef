"""Where the nodes' EFA counters are read: this tool's own exporter, one pod a node."""

from dataclasses import dataclass
from typing import Final

from dpd.environment.names import EFA_COUNTERS_LABELS, GATE_NAMESPACE

PORT: Final = 9109
"""Where the exporter listens. Not 9100: node exporters of others have that."""
PREFIX: Final = "node_amazonefa_"
"""As AWS's own exporter names the series, so that its dashboards show these:
https://github.com/awslabs/awsome-distributed-ai/tree/main/4.validation_and_observability/3.efa-node-exporter"""


@dataclass(frozen=True, slots=True)
class Wire:
    """The exporter, as the gate's spec describes it (``lambda/health_gate/spec.py``)."""

    namespace: str
    labels: dict[str, str]
    port: int
    sent: str
    received: str
    rdma_written: str


def wire() -> Wire:
    """Sent and received bytes of a port hold those of RDMA reads and writes too; written ones are shown beside them."""
    return Wire(GATE_NAMESPACE, EFA_COUNTERS_LABELS, PORT, f"{PREFIX}tx_bytes", f"{PREFIX}rx_bytes", f"{PREFIX}rdma_write_bytes")
