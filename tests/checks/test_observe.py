"""The rules of observability: the smallest wrong file, and the nearest right one."""

from typing import Any

import pytest

from dpd.catalog import observability
from dpd.checks.observe import MOST_ENDPOINTS_OF_A_STACK as MOST
from dpd.checks.observe import RULES_OF_AN_ENDPOINT
from dpd.observe import rules
from tests.observe.support import EXAMPLES, one
from tests.support import base, findings

HERE = "arn:aws:aps:us-east-2:111122223333:workspace/ws-1"
MANY = int(observability.managed_prometheus()["rules_per_workspace"]) // RULES_OF_AN_ENDPOINT + 1
MANAGED = {"observe.metrics": "managed_prometheus"}


@pytest.mark.parametrize(
    ("id", "wrong", "right"),
    [
        ("OBS001", {"observe.metrics": "none"}, MANAGED),
        ("OBS002", {"observe.workspace": HERE}, MANAGED | {"observe.workspace": HERE}),
        ("OBS002", {"observe.metrics": "in_cluster", "observe.notify": ["a@example.com"]}, MANAGED | {"observe.notify": ["a@example.com"]}),
        (
            "OBS002",
            MANAGED | {"observe.add_on_version": "v1.0.4"},
            {"observe.metrics": "hyperpod_add_on", "observe.add_on_version": "v1.0.4"},
        ),
        ("OBS002", MANAGED | {"observe.workspace": HERE, "observe.retention_days": 30}, MANAGED | {"observe.retention_days": 30}),
        (
            "OBS002",
            MANAGED | {"observe.dashboard_config_maps": True},
            {"observe.metrics": "in_cluster", "observe.dashboard_config_maps": True},
        ),
        ("OBS003", MANAGED | {"observe.workspace": HERE.replace("us-east-2", "us-west-2")}, MANAGED | {"observe.workspace": HERE}),
        ("OBS003", MANAGED | {"observe.workspace": HERE.replace("1111", "9999", 1)}, MANAGED | {"observe.workspace": HERE}),
        ("OBS006", MANAGED | {"gate.efa_counters": False}, MANAGED),
    ],
)
def test_rules(id: str, wrong: dict[str, Any], right: dict[str, Any]) -> None:
    assert findings(wrong, id=id)
    assert not findings(right, id=id)


@pytest.mark.parametrize(
    ("id", "endpoints", "expected"), [("OBS004", 1, 0), ("OBS004", MANY, 1), ("OBS005", MOST, 0), ("OBS005", MOST + 1, 1)]
)
def test_rules_of_many_endpoints(id: str, endpoints: int, expected: int) -> None:
    many = {f"endpoints[{index}]": {**base()["endpoints"][0], "name": f"llama-{index}"} for index in range(endpoints)}
    assert len(findings(MANAGED | many, id=id)) == expected


def test_an_endpoint_has_no_more_rules_than_the_check_counts() -> None:
    for kind in EXAMPLES:
        assert sum(len(group["rules"]) for group in rules.groups(one(kind))) <= RULES_OF_AN_ENDPOINT
