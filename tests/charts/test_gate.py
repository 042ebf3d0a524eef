"""The exporter of EFA's counters: what it says, and how little it may do."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import kubernetes_validate
import pytest

from charts.gate import gate_objects
from tests.lambdas.health_gate.efa import EXPORTER, add, sysfs
from tests.support import environment


def objects(changes: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    return {manifest.kind: manifest.body for manifest in gate_objects(environment(changes)) if "rbac" not in manifest.body["apiVersion"]}


def pod(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = objects(changes)["DaemonSet"]["spec"]["template"]["spec"]
    return spec


def test_the_namespace_comes_first_and_holds_nothing_else() -> None:
    assert list(objects()) == ["Namespace", "ConfigMap", "DaemonSet"]
    assert {body["metadata"].get("namespace", "dpd-gate") for body in objects().values()} == {"dpd-gate"}


def test_every_object_is_one_that_kubernetes_takes() -> None:
    for body in objects().values():
        kubernetes_validate.validate(body, "1.34", strict=True)


def test_it_may_read_counters_and_nothing_else() -> None:
    spec = pod()
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName", "priorityClassName"} & set(spec)
    security = container["securityContext"]
    assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, True, False)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in security
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert [volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume] == ["/sys/class/infiniband", "/sys/devices"]
    assert "limits" in container["resources"]
    assert "env" not in container


def test_links_of_one_folder_lead_into_the_other_as_on_the_node() -> None:
    """The first folder of sysfs holds links to ``../../devices``, so both must lie at the same distance."""
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in pod()["volumes"] if "hostPath" in volume}
    places = {volumes[mount["name"]]: mount["mountPath"] for mount in pod()["containers"][0]["volumeMounts"] if mount["name"] in volumes}
    root = pod()["containers"][0]["command"][-1]
    assert {inside: f"{root}{outside.removeprefix('/sys')}" for outside, inside in places.items()} == {
        each: each for each in places.values()
    }


def test_the_image_is_pinned_and_may_come_from_a_mirror() -> None:
    image = pod()["containers"][0]["image"]
    assert image.startswith("public.ecr.aws/docker/library/python:3.13-alpine@sha256:")
    mirror = "111122223333.dkr.ecr.us-east-2.amazonaws.com/python"
    assert pod({"cluster.agent_repositories": {"efa_counters": mirror}})["containers"][0]["image"].startswith(
        f"{mirror}:3.13-alpine@sha256:"
    )


def test_it_runs_on_every_kind_of_node_with_efa_and_bears_its_taints() -> None:
    changes = {"cluster.groups.decode.instance_type": "ml.p5en.48xlarge"}
    (term,) = pod(changes)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["ml.p5.48xlarge", "ml.p5en.48xlarge"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod()["tolerations"]


def test_other_code_makes_other_pods() -> None:
    body = objects()
    assert body["ConfigMap"]["data"] == {"efa_counters.py": EXPORTER.read_text(encoding="utf-8")}
    annotations = body["DaemonSet"]["spec"]["template"]["metadata"]["annotations"]
    assert len(annotations["dpd/code"]) == 16


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def read(port: int, path: str = "/metrics") -> str:
    for _ in range(100):
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
                return str(reply.read(), "utf-8")
        except HTTPError:
            raise
        except URLError:
            time.sleep(0.05)
    raise AssertionError("the exporter does not answer")


def test_the_process_of_the_manifest_serves_a_node_s_counters(tmp_path: Path, port: int) -> None:
    """The very command of the DaemonSet, with this machine's Python, code and port."""
    sysfs(tmp_path)
    python, *flags = pod()["containers"][0]["command"]
    assert python == "python"
    command = [sys.executable, *flags[:2], str(EXPORTER), str(port), str(tmp_path)]
    assert flags[2:3] == ["/code/efa_counters.py"]
    with subprocess.Popen(command) as process:
        try:
            first = read(port)
            add(tmp_path, "tx_bytes", 500)
            second = read(port)
            with pytest.raises(HTTPError, match="404"):
                read(port, "/")
        finally:
            process.terminate()
    assert 'node_amazonefa_tx_bytes{device="rdmap79s0",port="1"} 1000' in first.splitlines()
    assert 'node_amazonefa_tx_bytes{device="rdmap79s0",port="1"} 1250' in second.splitlines()
    assert first.count("# TYPE node_amazonefa_tx_bytes counter") == 1
    assert "ibp0" not in first
    assert "lifespan" not in first


@pytest.mark.parametrize("broken", ["not a number", ""])
def test_what_cannot_be_read_is_left_out_and_the_rest_is_not(tmp_path: Path, port: int, broken: str) -> None:
    sysfs(tmp_path)
    (tmp_path / "devices" / "rdmap79s0" / "ports" / "1" / "hw_counters" / "rx_bytes").write_text(broken, encoding="ascii")
    with subprocess.Popen([sys.executable, "-I", "-B", str(EXPORTER), str(port), str(tmp_path)]) as process:
        try:
            said = read(port)
        finally:
            process.terminate()
    assert 'rx_bytes{device="rdmap79s0"' not in said
    assert 'rx_bytes{device="rdmap80s0"' in said
    assert 'tx_bytes{device="rdmap79s0"' in said


def test_a_node_without_devices_says_nothing(tmp_path: Path, port: int) -> None:
    with subprocess.Popen([sys.executable, "-I", "-B", str(EXPORTER), str(port), str(tmp_path)]) as process:
        try:
            assert read(port) == ""
        finally:
            process.terminate()
