"""Serves the EFA counters of a node as Prometheus text, and nothing else. Runs on the nodes, so it stands alone.

``python efa_counters.py PORT SYSFS`` reads ``SYSFS/class/infiniband/*/ports/*/hw_counters`` at each ``GET /metrics``.
"""

import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PREFIX = "node_amazonefa_"
NAME = re.compile(r"[a-z][a-z0-9_]*")
NOT_COUNTED = {"lifespan"}


def exposition(sysfs: Path) -> str:
    """Every counter of every EFA port. What cannot be read is left out: a missing series is no zero."""
    series: dict[str, list[str]] = {}
    for folder in sorted(sysfs.glob("class/infiniband/*/ports/*/hw_counters")):
        # Other RDMA devices, as a p6-b200's links between GPUs, do not count bytes here.
        if not (folder / "tx_bytes").exists():
            continue
        labels = f'device="{folder.parts[-4]}",port="{folder.parts[-2]}"'
        for file in sorted(folder.iterdir()):
            if not NAME.fullmatch(file.name) or file.name in NOT_COUNTED:
                continue
            try:
                value = int(file.read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue
            series.setdefault(f"{PREFIX}{file.name}", []).append(f"{{{labels}}} {value}")
    return "".join(f"# TYPE {name} counter\n" + "".join(f"{name}{line}\n" for line in lines) for name, lines in sorted(series.items()))


def server(port: int, sysfs: Path, host: str = "") -> ThreadingHTTPServer:
    """The server, not yet started."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            known = self.path == "/metrics"
            body = exposition(sysfs).encode() if known else b""
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a line for each reading would only fill the node's disk."""

    return ThreadingHTTPServer((host, port), Handler)


if __name__ == "__main__":
    server(int(sys.argv[1]), Path(sys.argv[2])).serve_forever()
