"""Rules about add-ons."""

from typing import Any

import pytest

from dpd.catalog import add_ons
from dpd.catalog.controllers import all_controllers
from tests.checks.cases import ADOPTED_CLUSTER, Case
from tests.support import LLMD_EXAMPLE, base, findings


def add_on(name: str, **values: Any) -> dict[str, Any]:
    return {"cluster.add_ons": {name: values}}


INFERENCE = "amazon-sagemaker-hyperpod-inference"


CASES = [
    Case(
        "CLU007",
        add_on("cert-manger", version="v1.20.2-eksbuild.2"),
        "cluster.add_ons.cert-manger",
        "did you mean cert-manager?",
        add_on("cert-manager", version="v1.20.2-eksbuild.2"),
    ),
    Case("CLU007", add_on("something"), "cluster.add_ons.something", "outside of this tool"),
    *(
        Case("CLU008", add_on(name, version=wrong), f"cluster.add_ons.{name}.version", says, add_on(name, version=right))
        for name, wrong, says, right in [
            (INFERENCE, "v1.3.0-eksbuild.1", "v1.4.0-eksbuild.1 or newer", "v1.4.0-eksbuild.1"),
            (INFERENCE, "1.4.0", "v<major>", "v2.0.0-eksbuild.2"),
            (INFERENCE, "latest", "v<major>", "v10.0.0-eksbuild.1"),
            ("vpc-cni", "v1.18.2-eksbuild.9", "v1.18.3-eksbuild.1 or newer", "v1.18.3-eksbuild.1"),
            ("aws-fsx-csi-driver", "v1.5.9-eksbuild.1", "v1.6.0-eksbuild.1 or newer", "v1.6.0-eksbuild.1"),
            ("aws-mountpoint-s3-csi-driver", "v1.14.0-eksbuild.1", "or newer", "v1.14.1-eksbuild.1"),
            ("cert-manager", "v1.18.2-eksbuild.1", "or newer", "v1.18.2-eksbuild.2"),
            ("metrics-server", "v0.7.2-eksbuild.3", "or newer", "v0.7.2-eksbuild.4"),
            ("kube-proxy", "v1.35.3-eksbuild.29", "newer than Kubernetes 1.34", "v1.34.6-eksbuild.29"),
        ]
    ),
    Case(
        "CLU009",
        add_on("cert-manager", install=False),
        "cluster.add_ons.cert-manager.install",
        "made by this tool",
        {**ADOPTED_CLUSTER, **add_on("cert-manager", install=False)},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case} {case.says}")
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()


def test_add_ons_without_a_pin() -> None:
    found = findings({"cluster.kubernetes_version": "1.33"}, id="CLU010")
    unpinned = [one.name for one in add_ons.all_add_ons() if one.version_for("1.33") is None]
    assert [one.path for one in found] == [f"cluster.add_ons.{name}.version" for name in unpinned]
    pins = {name: {"version": "v1.33.1-eksbuild.1"} for name in unpinned}
    assert not findings({"cluster.kubernetes_version": "1.33", "cluster.add_ons": pins}, id="CLU010")
    assert not findings(id="CLU010")


LLMD = base(LLMD_EXAMPLE)["endpoints"][0]
GATEWAY = {"endpoints[0]": {**LLMD, "routing": {**LLMD["routing"], "gateway": {}}}}
OUR_OWN = {"cluster.add_ons": {name: {"install": False} for name in all_controllers()}}


def test_controllers_can_be_left_out_and_not_changed() -> None:
    assert not findings({**GATEWAY, **OUR_OWN}, id="CLU007")
    assert not findings({**GATEWAY, **OUR_OWN}, id="CLU009")
    (one,) = findings({**GATEWAY, **add_on("istio", version="1.30.0")}, id="CLU008")
    assert (one.path, one.limit) == ("cluster.add_ons.istio.version", all_controllers()["istio"].version)
    assert one.stops


def test_a_closed_network_fetches_no_controller() -> None:
    closed = {"network.egress": {"nat_gateways": 0, "interface_endpoints": True}}
    (one,) = findings({**GATEWAY, **closed}, id="CLU023")
    assert one.path == "network.egress.nat_gateways"
    assert "istio" in one.message
    assert not findings({**GATEWAY, **closed, **OUR_OWN}, id="CLU023")
    assert not findings(GATEWAY, id="CLU023")
    assert not findings({"endpoints[0]": LLMD, **closed}, id="CLU023")
