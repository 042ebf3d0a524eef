"""The lifecycle script on a node made of files: what it moves, what it logs, and how it fails."""

from pathlib import Path

import pytest

from tests.lifecycle.node import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node.make(tmp_path)


def test_a_node_with_nothing_to_do_joins_and_leaves_a_log(node: Node) -> None:
    done = node.create()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "start of on_create.sh on p5.48xlarge" in node.log
    assert "WARN no data disk is mounted" in node.log
    assert "Lustre over EFA is off" in node.log
    assert node.log == done.stdout
    assert node.calls == []


def test_images_and_pod_data_move_to_nvme(node: Node) -> None:
    node.nvme()
    assert node.create().returncode == 0
    assert node.read("opt/dlami/nvme/containerd/images/blob") == "image"
    assert node.read("opt/dlami/nvme/kubelet/config") == "kubelet"
    assert node.calls == [
        "systemctl is-active --quiet kubelet",
        "systemctl is-active --quiet containerd",
        "systemctl daemon-reload",
        "systemctl enable --now var-lib-containerd.mount",
        "systemctl daemon-reload",
        "systemctl enable --now var-lib-kubelet.mount",
    ]
    unit = node.read("etc/systemd/system/var-lib-kubelet.mount").splitlines()
    for line in (
        "What=/opt/dlami/nvme/kubelet",
        "Where=/var/lib/kubelet",
        "Options=bind",
        "After=dlami-nvme.service",
        "ConditionPathIsMountPoint=/opt/dlami/nvme",
        "DefaultDependencies=no",
        "WantedBy=multi-user.target",
    ):
        assert line in unit
    assert "INFO images and pod data are on /opt/dlami/nvme" in node.log


def test_no_configuration_of_containerd_is_written(node: Node) -> None:
    node.nvme()
    node.create()
    assert not (node.root / "etc/containerd").exists()
    assert not list(node.root.rglob("*.toml"))


def test_running_services_stop_before_the_copy_and_start_after_it(node: Node) -> None:
    node.nvme()
    node.write("run/active/kubelet", "")
    node.write("run/active/containerd", "")
    node.create()
    verbs = [call for call in node.calls if call.split()[1] in {"stop", "start", "enable"}]
    assert verbs == [
        "systemctl stop kubelet",
        "systemctl stop containerd",
        "systemctl enable --now var-lib-containerd.mount",
        "systemctl enable --now var-lib-kubelet.mount",
        "systemctl start containerd",
        "systemctl start kubelet",
    ]


def test_a_second_run_changes_nothing(node: Node) -> None:
    node.nvme()
    node.create()
    node.write("opt/dlami/nvme/containerd/new", "made since")
    before, mounts = len(node.calls), node.read("proc/mounts")
    assert node.create().returncode == 0
    assert node.calls[before:] == []
    assert node.read("proc/mounts") == mounts
    assert node.read("opt/dlami/nvme/containerd/new") == "made since"
    assert "on a data disk already" in node.log


def test_a_run_that_was_cut_short_is_taken_up_again(node: Node) -> None:
    node.nvme()
    node.write("opt/dlami/nvme/containerd/half", "copied")
    node.write("opt/dlami/nvme/kubelet/made since", "kept")
    node.mount("/var/lib/kubelet")
    assert node.create().returncode == 0
    assert not (node.root / "opt/dlami/nvme/containerd/half").exists()
    assert node.read("opt/dlami/nvme/containerd/images/blob") == "image"
    assert node.read("opt/dlami/nvme/kubelet/made since") == "kept"
    assert [call for call in node.calls if "enable" in call] == ["systemctl enable --now var-lib-containerd.mount"]


@pytest.mark.parametrize(
    ("disks", "mounts", "chosen"),
    [
        ([], [], ""),
        ([], ["/opt/sagemaker"], ""),
        (["Amazon Elastic Block Store"], ["/opt/sagemaker"], "/opt/sagemaker"),
        (["Amazon Elastic Block Store"], [], ""),
        (["Amazon EC2 NVMe Instance Storage"], ["/opt/dlami/nvme"], "/opt/dlami/nvme"),
        (["Amazon EC2 NVMe Instance Storage", "Amazon Elastic Block Store"], ["/opt/sagemaker", "/opt/dlami/nvme"], "/opt/dlami/nvme"),
        (["Amazon EC2 NVMe Instance Storage", "Amazon Elastic Block Store"], ["/opt/sagemaker"], "/opt/sagemaker"),
        (["Amazon EC2 NVMe Instance Storage"], ["/opt/dlami/nvme2"], ""),
    ],
)
def test_choice_of_the_disk(node: Node, disks: list[str], mounts: list[str], chosen: str) -> None:
    for disk in disks:
        node.disk(disk)
    for folder in mounts:
        node.mount(folder)
    assert node.function("data_disk.sh", "data_disk") == chosen


# --- failures


@pytest.mark.parametrize("missing", ["common.sh", "data_disk.sh"])
def test_a_missing_neighbour_fails_and_is_named_in_the_log(node: Node, missing: str) -> None:
    (node.scripts / missing).unlink()
    assert node.create().returncode != 0
    assert missing in node.log
    assert "waiting 0 s so that this log reaches CloudWatch" in node.log


def test_a_mount_that_does_not_come_about_fails_the_node(node: Node) -> None:
    node.nvme()
    node.environment["NO_MOUNT"] = "yes"
    assert node.create().returncode != 0
    assert "ERROR var-lib-containerd.mount did not mount /opt/dlami/nvme/containerd" in node.log
    assert "end of on_create.sh" not in node.log


@pytest.mark.parametrize("text", ["lustre_efa=\n", "lustre_efa=yes\n", "", "lustre_efa=on\r\n", "lustre_efa=$(touch executed)\n"])
def test_wrong_settings_fail_the_node(node: Node, text: str) -> None:
    node.settings(text)
    assert node.create().returncode != 0
    assert "settings.conf: lustre_efa must be on or off" in node.log
    assert not (node.scripts / "executed").exists()


def test_it_runs_from_any_folder(node: Node) -> None:
    done = node.run("bash", "-c", f"cd / && bash {node.scripts / 'on_create.sh'}")
    assert done.returncode == 0, done.stdout + done.stderr
