"""Networks that may join a VPC, as the VPC guide's table has them."""

from ipaddress import IPv4Network

import pytest

from dpd.catalog import network


@pytest.mark.parametrize(
    ("primary", "secondary", "allowed"),
    [
        ("10.192.0.0/16", "10.1.0.0/16", True),
        ("10.192.0.0/16", "10.0.0.0/16", True),
        ("10.1.0.0/16", "10.0.0.0/16", False),
        ("10.192.0.0/16", "172.16.0.0/16", False),
        ("10.192.0.0/16", "192.168.0.0/24", False),
        ("10.192.0.0/16", "198.19.0.0/16", False),
        ("10.192.0.0/16", "100.64.0.0/16", True),
        ("10.192.0.0/16", "203.0.113.0/24", True),
        ("172.16.0.0/16", "172.20.0.0/16", True),
        ("172.16.0.0/16", "172.31.0.0/16", False),
        ("172.16.0.0/16", "10.0.0.0/16", False),
        ("192.168.0.0/20", "192.168.64.0/18", True),
        ("192.168.0.0/20", "172.16.0.0/16", False),
        ("198.19.0.0/20", "10.0.0.0/16", False),
        ("198.19.0.0/20", "100.64.0.0/16", True),
        ("100.64.0.0/16", "10.0.0.0/16", False),
        ("100.64.0.0/16", "100.65.0.0/16", True),
        ("203.0.113.0/24", "198.19.0.0/16", False),
    ],
)
def test_association(primary: str, secondary: str, allowed: bool) -> None:
    assert (network.association_conflict(IPv4Network(primary), IPv4Network(secondary)) is None) is allowed


@pytest.mark.parametrize(("gib", "addresses"), [(1, 2), (1200, 2), (1201, 3), (4800, 5), (38400, 33)])
def test_addresses_of_a_file_system(gib: int, addresses: int) -> None:
    assert network.lustre_addresses(gib) == addresses
