"""The KV link: shares of a node's EFA devices are enough, a handful is not."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.support import findings

PREFILL, DECODE = "endpoints[0].prefill", "endpoints[0].decode"
FLEET = {"cluster.groups.prefill.count": 8, f"{PREFILL}.replicas": 8}


@pytest.mark.parametrize(
    ("changes", "path", "level"),
    [
        ({f"{PREFILL}.efa_devices": 1}, f"{PREFILL}.efa_devices", Level.WARNING),
        ({f"{DECODE}.efa_devices": 1}, f"{DECODE}.efa_devices", Level.WARNING),
        ({f"{PREFILL}.efa_devices": 4}, f"{PREFILL}.efa_devices", Level.INFO),
        ({**FLEET, f"{DECODE}.efa_devices": 8}, f"{DECODE}.efa_devices", Level.WARNING),
    ],
)
def test_too_few_devices(changes: dict[str, Any], path: str, level: Level) -> None:
    (finding,) = findings(changes, id="KVL001")
    assert (finding.path, finding.level) == (path, level)
    assert "GB/s" in finding.message
    assert finding.fix.startswith("remove efa_devices")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        FLEET,
        {f"{PREFILL}.efa_devices": 32, f"{DECODE}.efa_devices": 32},
        {f"{PREFILL}.tensor_parallel": 4, f"{DECODE}.tensor_parallel": 4},
        # nobody measured it, or there is no link: other rules speak of that
        {"cluster.groups.prefill.instance_type": "ml.g4dn.12xlarge", "cluster.groups.decode.instance_type": "ml.g4dn.12xlarge"},
        {f"{PREFILL}.efa_devices": 0},
    ],
)
def test_enough(changes: dict[str, Any]) -> None:
    assert findings(changes, id="KVL001") == []
