"""Namespaces and the Lustre volume of a namespace."""

import kubernetes_validate
import pytest

from charts.namespace import namespace
from charts.render import render
from charts.site import LustreSite
from charts.volumes import lustre_objects
from tests.support import environment

LUSTRE = LustreSite("fs-0123456789abcdef0", "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com", "abcdefgh", 4800)


def test_volume_and_claim_are_bound_to_each_other() -> None:
    volume, claim = lustre_objects("app-dev", "inference", LUSTRE)
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"] == "app-dev-inference-lustre"
    assert volume["spec"]["claimRef"] == {"namespace": "inference", "name": claim["metadata"]["name"]}
    assert volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"] == ""
    assert volume["spec"]["capacity"] == claim["spec"]["resources"]["requests"] == {"storage": "4800Gi"}


def test_data_outlives_the_volume() -> None:
    volume, _ = lustre_objects("app-dev", "inference", LUSTRE)
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


def test_the_driver_finds_the_file_system() -> None:
    volume, _ = lustre_objects("app-dev", "inference", LUSTRE)
    assert volume["spec"]["csi"] == {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": "fs-0123456789abcdef0",
        "volumeAttributes": {"dnsname": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com", "mountname": "abcdefgh"},
    }


def test_namespaces_do_not_share_a_volume() -> None:
    names = {lustre_objects("app-dev", name, LUSTRE)[0]["metadata"]["name"] for name in ("a", "b")}
    assert len(names) == 2


@pytest.mark.parametrize("version", ["1.33", "1.34"])
def test_objects_are_legal(version: str) -> None:
    for body in (namespace("inference"), *lustre_objects("app-dev", "inference", LUSTRE)):
        kubernetes_validate.validate(body, version, strict=True)


def test_built_in_namespaces_are_not_made() -> None:
    assert render(environment({"endpoints[0].namespace": "default"})).namespaces == {}


def test_a_built_in_namespace_still_gets_its_claim() -> None:
    changes = {"endpoints[0].namespace": "default", "endpoints[0].model.source": {"lustre": {"path": "/a"}}}
    (volume, claim) = render(environment(changes)).namespaces["default"]
    assert (volume.kind, claim.kind) == ("PersistentVolume", "PersistentVolumeClaim")
