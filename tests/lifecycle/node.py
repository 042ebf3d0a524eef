"""A node made of files: what the scripts read of a machine, and programs that note how they were called."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support import ROOT

SCRIPTS: Final = ROOT / "lifecycle"
_STUB: Final = """#!/bin/bash
echo "{name} $*" >>"$CALLS"
{body}
"""
_BODIES: Final = {
    # A service is active when the node has a file of its name; a mount unit mounts what it says.
    "systemctl": """
        case "$1 $2" in
          "is-active --quiet") [[ -e "$DPD_ROOT/run/active/$3" ]] ;;
          "enable --now")
            unit="$DPD_ROOT/etc/systemd/system/$3"
            [[ -n "${NO_MOUNT:-}" ]] || echo "$(sed -n 's/^What=//p' "$unit") $(sed -n 's/^Where=//p' "$unit") none bind 0 0" \\
              >>"$DPD_ROOT/proc/mounts" ;;
        esac""",
    "modprobe": """[[ "$1" != "${NO_MODULE:-}" ]]""",
    # LNet as far as the script looks: networks added, networks shown.
    "lnetctl": """
        state="$DPD_ROOT/run/lnet"
        case "$*" in
          "net show --net efa") cat "$state" 2>/dev/null ;;
          "net add --net efa "*) [[ -n "${LNET_LOSES:-}" ]] || echo "        - nid: 10.0.0.$6@efa" >>"$state" ;;
          "net del --net tcp") exit 1 ;;
          "lnet unconfigure") rm -f "$state" ;;
        esac""",
}


@dataclass
class Node:
    """A folder that stands for a node."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, instance_type: str = "p5.48xlarge") -> "Node":
        """A node with a root volume, a network interface and both services stopped."""
        node = cls(folder / "node")
        node.write("proc/mounts", "/dev/root / xfs rw 0 0\n")
        node.write("proc/net/route", "Iface\tDestination\tGateway\nens32\t0000000A\t0\nens33\t00000000\t0\n")
        node.write("sys/devices/virtual/dmi/id/product_name", instance_type + "\n")
        node.write("var/lib/containerd/images/blob", "image")
        node.write("var/lib/kubelet/config", "kubelet")
        node.write("run/boot-id", "1")
        node.disk("Amazon Elastic Block Store")
        for name, body in _BODIES.items():
            program = node.write(f"../programs/{name}", _STUB.format(name=name, body=body))
            program.chmod(0o755)
        shutil.copytree(SCRIPTS, folder / "scripts")
        return node

    @property
    def scripts(self) -> Path:
        """The node's own copy of the scripts."""
        return self.root.parent / "scripts"

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def disk(self, model: str) -> None:
        """One more disk."""
        number = len(list((self.root / "sys/block").glob("nvme*"))) if (self.root / "sys/block").exists() else 0
        self.write(f"sys/block/nvme{number}n1/device/model", model + "\n")

    def mount(self, folder: str) -> None:
        (self.root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        self.write("proc/mounts", self.read("proc/mounts") + f"/dev/some {folder} ext4 rw 0 0\n")

    def nvme(self) -> None:
        """Mounted instance storage."""
        self.disk("Amazon EC2 NVMe Instance Storage")
        self.mount("/opt/dlami/nvme")

    def device(self, name: str, address: str, driver: str = "efa") -> None:
        """A device that shows as InfiniBand."""
        place = self.root / "sys/devices" / address
        place.mkdir(parents=True)
        (self.root / "sys/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (place / "driver").symlink_to(self.root / "sys/drivers" / driver)
        shown = self.root / "sys/class/infiniband" / name
        shown.mkdir(parents=True)
        (shown / "device").symlink_to(place)

    def devices(self, count: int) -> None:
        """EFA devices at rising addresses, whose names do not sort that way."""
        for number in range(count):
            self.device(f"rdmap{(number * 7) % count}s0", f"0000:{number:02x}:00.0")

    def settings(self, text: str) -> None:
        (self.scripts / "settings.conf").write_text(text, encoding="utf-8")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as the node would, with nothing of this machine's environment but its programs."""
        environment = {
            "PATH": f"{self.root.parent / 'programs'}:{os.environ['PATH']}",
            "DPD_ROOT": str(self.root),
            "DPD_FAILURE_WAIT_SECONDS": "0",
            "DPD_MOUNT_WAIT_SECONDS": "0",
            "CALLS": str(self.root / "calls"),
            **self.environment,
        }
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60, cwd=self.scripts)

    def create(self) -> subprocess.CompletedProcess[str]:
        """What HyperPod does with a new node."""
        return self.run("./on_create.sh")

    def function(self, file: str, call: str, stdin: str = "") -> str:
        """Output of one function of one file."""
        prelude = f'HERE="{self.scripts}"; source "$HERE/common.sh"; source "$HERE/{file}"'
        done = self.run("bash", "-c", f"{prelude}; {call} <<<'{stdin}'" if stdin else f"{prelude}; {call}")
        assert not done.stderr, done.stderr
        return done.stdout.strip()

    @property
    def log(self) -> str:
        return self.read("var/log/provision/provisioning.log")

    @property
    def calls(self) -> list[str]:
        file = self.root / "calls"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
