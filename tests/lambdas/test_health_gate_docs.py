"""The documentation says what the code does."""

import re
from pathlib import Path

from health_gate import sinks
from health_gate.run import ORDERED

from tests.lambdas.health_gate.world import World

TEXT = (Path(__file__).parents[2] / "docs" / "health-gate.md").read_text(encoding="utf-8")
ACTIONS = {
    "HeadBucket": "ListBucket",
    "ListObjectsV2": "ListBucket",
}
"""S3's operations whose permission has another name."""


def test_the_table_is_the_list_of_checks() -> None:
    rows = [line for line in TEXT.splitlines() if re.match(r"\| `\w+\.\w+` \|", line)]
    assert rows == [f"| `{check.id}` | {check.proves} | {check.cannot} | {check.seconds:g} |" for check in ORDERED]


def test_every_check_says_what_it_proves_and_what_it_cannot() -> None:
    for check in ORDERED:
        assert check.proves.endswith("."), check.id
        assert check.cannot.endswith("."), check.id
        assert "|" not in check.proves + check.cannot, check.id


def test_the_permissions_are_those_that_a_run_and_its_report_use(world: World) -> None:
    report = world.run()
    spec = world.spec()
    failed = world.run(seconds=0)
    for each in (report, failed):
        sinks.deliver(each, spec.reports, lambda service: world.calls.session.create_client(service, region_name=spec.region))
    used = {f"{service}:{ACTIONS.get(operation, operation)}" for service, operation in world.calls.used}
    assert set(re.findall(r"^- `([a-z0-9]+:\w+)`$", TEXT, re.MULTILINE)) == used | {"s3:GetObject"}
