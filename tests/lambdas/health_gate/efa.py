"""The EFA devices of two nodes, as their sysfs shows them, each behind the real exporter."""

from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from runpy import run_path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any, Final

from tests.lambdas.health_gate.world import World, pod

EXPORTER: Final = Path(__file__).parents[3] / "charts" / "gate" / "efa_counters.py"
"""Run from its file, as a node does."""
NAMESPACE: Final = "dpd-gate"
LABELS: Final = {"app.kubernetes.io/name": "efa-counters"}
NODES: Final = {"prefill-0": "127.0.0.7", "decode-0": "127.0.0.8"}
DEVICES: Final = ("rdmap79s0", "rdmap80s0")
COUNTERS: Final = ("tx_bytes", "rx_bytes", "rdma_read_bytes", "rdma_write_bytes", "lifespan")


def sysfs(root: Path) -> Path:
    """A node's devices: two of EFA, and one that is none."""
    for device in DEVICES:
        folder = root / "devices" / device / "ports" / "1" / "hw_counters"
        folder.mkdir(parents=True)
        for name in COUNTERS:
            (folder / name).write_text("1000\n", encoding="ascii")
    other = root / "devices" / "ibp0" / "ports" / "1" / "hw_counters"
    other.mkdir(parents=True)
    (other / "out_of_buffer").write_text("5\n", encoding="ascii")
    classes = root / "class" / "infiniband"
    classes.mkdir(parents=True)
    for device in (*DEVICES, "ibp0"):
        (classes / device).symlink_to(Path("..", "..", "devices", device))
    return root


def add(root: Path, name: str, amount: int) -> None:
    """Spread an amount over the devices of a node."""
    for device in DEVICES:
        file = root / "devices" / device / "ports" / "1" / "hw_counters" / name
        file.write_text(f"{int(file.read_text(encoding='ascii')) + amount // len(DEVICES)}\n", encoding="ascii")


@dataclass
class Efa:
    """``share`` of the KV goes over EFA; ``counted`` names the counters that rise by node."""

    share: float = 1.0
    counted: dict[str, str] = field(default_factory=lambda: {"prefill-0": "tx_bytes", "decode-0": "rx_bytes"})
    servers: dict[str, ThreadingHTTPServer] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    disk: TemporaryDirectory[str] = field(default_factory=TemporaryDirectory)

    @property
    def folder(self) -> Path:
        """Of each node's sysfs, by its name."""
        return Path(self.disk.name)

    def carry(self, amount: int) -> None:
        with self.lock:
            self._carry(amount)

    def _carry(self, amount: int) -> None:
        for node, name in self.counted.items():
            add(self.folder / node, name, int(amount * self.share))

    def join(self, world: World) -> "Efa":
        """Make the world one with these exporters and a spec that knows them."""
        port, server = 0, run_path(str(EXPORTER))["server"]
        for node, ip in NODES.items():
            self.servers[node] = server(port, sysfs(self.folder / node), ip)
            port = self.servers[node].server_port
            Thread(target=self.servers[node].serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            world.pods.append(self._exporter(node, ip))
            world.ports[ip] = port
        world.engine.carry = self.carry
        world.closing.append(self.close)
        names = {"sent": "tx_bytes", "received": "rx_bytes", "rdma_written": "rdma_write_bytes"}
        series = {name: f"node_amazonefa_{counter}" for name, counter in names.items()}
        world.endpoint_changes["wire"] = {"namespace": NAMESPACE, "labels": LABELS, "port": port, **series}
        return self

    def _exporter(self, node: str, ip: str) -> dict[str, Any]:
        made = pod("efa-counters", ip, namespace=NAMESPACE, containers=1, name=f"efa-counters-{node}")
        made["metadata"]["labels"] = dict(LABELS)
        made["spec"]["nodeName"] = node
        return made

    def close(self) -> None:
        for each in self.servers.values():
            each.shutdown()
            each.server_close()
        self.disk.cleanup()
