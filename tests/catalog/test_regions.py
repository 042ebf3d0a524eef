"""Regions: known answers, and what the whole table must keep."""

import re

import pytest

from dpd.catalog import regions
from dpd.catalog.sources import source_keys


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("use2-az1", "us-east-2"),
        ("apse2-az3", "ap-southeast-2"),
        ("aps1-az1", "ap-south-1"),
        ("ape1-az1", "ap-east-1"),
        ("usge1-az1", "us-gov-east-1"),
        ("cnnw1-az1", "cn-northwest-1"),
    ],
)
def test_an_az_id_belongs_to_one_region(zone: str, region: str) -> None:
    found = regions.of_zone(zone)
    assert found is not None
    assert found.name == region


@pytest.mark.parametrize("zone", ["", "use2", "use2a", "usw2-lax1-az1", "use22-az1", "us-east-2a", "xxx1-az1", "-az1"])
def test_no_region_for_something_else(zone: str) -> None:
    assert regions.of_zone(zone) is None


def test_unknown_region_is_none() -> None:
    assert regions.find("us-east-9") is None


def test_known_answers() -> None:
    ohio = regions.find("us-east-2")
    china = regions.find("cn-north-1")
    assert ohio is not None
    assert china is not None
    assert (ohio.operator, ohio.health_agent_account, ohio.efa_plugin_account) == (True, "851725546812", "602401143452")
    assert ohio.registry("602401143452") == "602401143452.dkr.ecr.us-east-2.amazonaws.com"
    assert china.registry("918309763551") == "918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn"
    assert china.partition == "aws-cn"
    assert not china.operator


def test_the_operator_serves_sixteen_regions_and_each_has_every_image() -> None:
    assert len(regions.operator_regions()) == 16
    for name in regions.operator_regions():
        region = regions.find(name)
        assert region is not None
        assert region.health_agent_account
        assert region.efa_plugin_account


def test_every_row_is_well_formed() -> None:
    rows = [region for name in regions.names() if (region := regions.find(name)) is not None]
    assert len({region.zone_prefix for region in rows}) == len(rows)
    for region in rows:
        assert region.sources
        assert set(region.sources) <= set(source_keys())
        for account in (region.health_agent_account, region.efa_plugin_account):
            assert re.fullmatch(r"|[0-9]{12}", account)
