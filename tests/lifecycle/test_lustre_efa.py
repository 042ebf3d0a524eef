"""Lustre over EFA: which interfaces are chosen, in which order LNet is told, and that a failure is loud and leaves TCP."""

from pathlib import Path

import pytest

from tests.lifecycle.node import SCRIPTS, Node

UNIT = "etc/systemd/system/hyperpod-dpd-lustre-efa.service"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node.make(tmp_path)
    made.settings("# on\nlustre_efa=off\nlustre_efa=on\n")
    return made


def added(node: Node) -> list[str]:
    return [call.split()[6] for call in node.calls if call.startswith("lnetctl net add --net efa")]


def test_lnet_is_told_in_the_right_order(node: Node) -> None:
    node.device("rdmap1s0", "0000:10:00.0")
    assert node.create().returncode == 0
    assert [call for call in node.calls if not call.startswith("systemctl") and "net show" not in call] == [
        "modprobe lnet",
        "modprobe kefalnd ipif_name=ens33",
        "modprobe ksocklnd",
        "lnetctl lnet configure",
        "lnetctl net del --net tcp",
        "lnetctl net add --net tcp --if ens33",
        "lnetctl net add --net efa --if rdmap1s0 --peer-credits 32",
        "lnetctl set discovery 1",
        "lnetctl udsp add --src efa --priority 0",
        "modprobe lustre",
    ]
    assert "INFO Lustre uses EFA (rdmap1s0)" in node.log


def test_devices_are_chosen_by_driver_in_the_order_of_the_bus(node: Node) -> None:
    node.device("rdmap2s0", "0000:20:00.0")
    node.device("ibp1s0", "0000:01:00.0", driver="mlx5_core")
    node.device("rdmap9s0", "0000:03:00.0")
    assert node.function("lustre_efa.sh", "efa_devices").split() == ["rdmap9s0", "rdmap2s0"]


@pytest.mark.parametrize(
    ("lines", "count", "kept"),
    [
        (range(32), 8, range(0, 32, 4)),
        (range(16), 8, range(0, 16, 2)),
        (range(16), 16, range(16)),
        (range(4), 2, [0, 2]),
        (range(3), 2, [0, 1]),
        (range(1), 2, [0]),
        (range(5), 0, []),
    ],
)
def test_interfaces_are_spread_over_the_buses(node: Node, lines: range, count: int, kept: list[int]) -> None:
    found = node.function("lustre_efa.sh", f"spread {count}", "\n".join(map(str, lines)))
    assert found.split() == [str(number) for number in kept]


@pytest.mark.parametrize(
    ("type", "devices", "used"),
    [
        ("p5.48xlarge", 32, 8),
        ("p5e.48xlarge", 32, 8),
        ("p5en.48xlarge", 16, 8),
        ("p6-b200.48xlarge", 8, 8),
        ("p6-b300.48xlarge", 16, 16),
        ("p4d.24xlarge", 4, 2),
        ("g6.8xlarge", 1, 1),
        ("unheard.of", 4, 2),
        ("p5", 4, 2),
    ],
)
def test_number_of_interfaces(tmp_path: Path, type: str, devices: int, used: int) -> None:
    node = Node.make(tmp_path, instance_type=type)
    node.settings("lustre_efa=on\n")
    node.devices(devices)
    node.create()
    assert len(added(node)) == used
    assert len(set(added(node))) == used


def test_the_table_names_numbers_only() -> None:
    lines = (SCRIPTS / "lustre_efa_interfaces.conf").read_text(encoding="ascii").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert all(len(row) == 2 and row[1].isdigit() for row in rows)
    assert not [row for row in rows if row[0].startswith("ml.")]


def test_it_comes_again_at_every_boot(node: Node) -> None:
    node.devices(2)
    node.create()
    assert "systemctl enable hyperpod-dpd-lustre-efa.service" in node.calls
    assert "ExecStart=/bin/bash /opt/hyperpod-dpd/lustre_efa.sh" in node.read(UNIT).splitlines()
    # After a boot LNet knows nothing, and the script finds all it needs in the folder it was copied to.
    (node.root / "run/lnet").unlink()
    before = len(node.calls)
    done = node.run("bash", str(node.root / "opt/hyperpod-dpd/lustre_efa.sh"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([call for call in node.calls[before:] if "--peer-credits" in call]) == 2


def test_a_second_run_leaves_lnet_alone(node: Node) -> None:
    node.devices(2)
    node.create()
    before = len(node.calls)
    assert node.create().returncode == 0
    assert [call for call in node.calls[before:] if not call.startswith("systemctl")] == ["lnetctl net show --net efa"]
    assert "Lustre uses EFA already" in node.log


def test_a_node_without_efa_is_no_failure(node: Node) -> None:
    node.device("ibp1s0", "0000:01:00.0", driver="mlx5_core")
    assert node.create().returncode == 0
    assert "no EFA device: this node reads Lustre over TCP" in node.log
    assert "FAILED" not in node.log
    assert added(node) == []


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [
        ({"NO_MODULE": "kefalnd"}, "modprobe kefalnd"),
        ({"NO_MODULE": "lustre"}, "modprobe lustre"),
        ({"LNET_LOSES": "yes"}, "LNet lists 0 EFA interfaces instead of 2"),
    ],
)
def test_a_failure_is_loud_names_its_cause_and_leaves_tcp(node: Node, trouble: dict[str, str], cause: str) -> None:
    node.devices(2)
    node.environment.update(trouble)
    assert node.create().returncode == 0
    assert "LUSTRE-EFA FAILED: this node reads Lustre over TCP" in node.log
    assert cause in node.log
    assert node.calls[-1] == "lnetctl lnet unconfigure"
    assert not (node.root / UNIT).exists()


def test_no_default_route_is_a_loud_failure(node: Node) -> None:
    node.devices(2)
    node.write("proc/net/route", "Iface\tDestination\tGateway\n")
    assert node.create().returncode == 0
    assert "no network interface has the default route" in node.log
    assert "LUSTRE-EFA FAILED" in node.log
