"""Rules about adopted security groups."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.checks.cases import ADOPTED_NETWORK, SELF, Case
from tests.support import findings

IN = {"direction": "ingress", "protocol": "-1", "peer": SELF}
OUT = {"direction": "egress", "protocol": "-1", "peer": SELF}
OPEN = {"direction": "egress", "protocol": "-1", "peer": "0.0.0.0/0"}
OTHER = "sg-00000000000000001"


def group(*rules: dict[str, str], id: str = SELF) -> dict[str, Any]:
    return {"id": id, "rules": list(rules)}


def groups(*listed: dict[str, Any]) -> dict[str, Any]:
    return {**ADOPTED_NETWORK, "network.existing.security_groups": list(listed)}


def several(count: int) -> dict[str, Any]:
    ids = [f"sg-0000000000000000{number}" for number in range(count)]
    return groups(*(group({**IN, "peer": id}, {**OUT, "peer": id}, id=id) for id in ids))


GOOD = groups(group(IN, OUT))
PLACE = "network.existing.security_groups[0]"
CASES = [
    # the best known failure: egress to everywhere, none to itself
    Case("SGR001", groups(group(IN, OPEN)), f"{PLACE}.rules", "0.0.0.0/0 does not count", groups(group(IN, OPEN, OUT))),
    Case("SGR001", groups(group(IN)), f"{PLACE}.rules", f"{SELF} does not allow all traffic to itself", GOOD),
    Case("SGR001", groups(group(OUT)), f"{PLACE}.rules", f"{SELF} does not allow all traffic from itself", GOOD),
    Case("SGR001", groups(group(IN, {**OUT, "protocol": "tcp"})), f"{PLACE}.rules", "only protocol tcp", GOOD),
    Case("SGR001", groups(group(IN, {**OUT, "protocol": "all"})), f"{PLACE}.rules", "only protocol all", GOOD),
    Case("SGR001", groups(group(IN, {**OUT, "peer": OTHER})), f"{PLACE}.rules", "authorize-security-group-egress", GOOD),
    # the first group is right; that does not help the second
    Case(
        "SGR001",
        groups(group(IN, OUT), group(IN, OUT, {**IN, "peer": OTHER}, id=OTHER)),
        "network.existing.security_groups[1].rules",
        OTHER,
        groups(group(IN, OUT), group({**IN, "peer": OTHER}, {**OUT, "peer": OTHER}, id=OTHER)),
    ),
    Case("SGR002", several(5), "network.existing.security_groups", "at most 4", several(4)),
    Case("SGR002", groups(group(IN, OUT), group(IN, OUT)), "network.existing.security_groups[1].id", f"first at {PLACE}", GOOD),
    *(
        Case(
            "SGR003",
            groups(group(IN, OUT, {**OUT, field: wrong})),
            f"{PLACE}.rules[2].{field}",
            says,
            groups(group(IN, OUT, {**OUT, field: right})),
        )
        for field, wrong, says, right in [
            ("protocol", "all", '"-1" (all)', "-1"),
            ("protocol", "TCP", "tcp, udp", "tcp"),
            ("protocol", "", "tcp", "17"),
            ("peer", "self", "a security group id", SELF),
            ("peer", f"{SELF} ", "a security group id", "pl-0123456789abcdef0"),
            ("peer", "10.0.0.1/8", "a network", "10.0.0.0/8"),
            ("peer", "fe80::1/8", "a network", "::/0"),
        ]
        if wrong
    ),
    Case(
        "SGR004",
        groups(group(IN, OUT, {**IN, "peer": "0.0.0.0/0"})),
        f"{PLACE}.rules[2].peer",
        "everywhere",
        groups(group(IN, OUT, OPEN)),
        Level.WARNING,
    ),
    Case(
        "SGR004",
        groups(group(IN, OUT, {**IN, "peer": "::/0"})),
        f"{PLACE}.rules[2].peer",
        "everywhere",
        groups(group(IN, OUT, {**IN, "peer": "10.0.0.0/8"})),
        Level.WARNING,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case} {case.says}")
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()


def test_a_group_without_rules_misses_both_directions() -> None:
    found = findings(groups(group()), id="SGR001")
    assert [one.limit for one in found] == [f"an {direction} rule with protocol -1 and peer {SELF}" for direction in ("ingress", "egress")]


def test_good_groups_are_right() -> None:
    assert not [one for one in findings(GOOD) if one.id.startswith("SGR")]
