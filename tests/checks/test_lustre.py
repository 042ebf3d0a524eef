"""Rules about FSx for Lustre."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dpd.catalog import lustre as catalog
from dpd.finding import Level
from tests.checks.cases import SELF, Case, source
from tests.support import REMOVE, environment, findings


def lustre(**values: Any) -> dict[str, Any]:
    return {"storage.lustre": {"capacity_gib": 4800, "throughput_mbps_per_tib": 500, **values}}


def efa(capacity_gib: int, throughput: int = 500) -> dict[str, Any]:
    return lustre(capacity_gib=capacity_gib, throughput_mbps_per_tib=throughput, efa=True)


def nodes(**values: int) -> dict[str, Any]:
    return {**efa(9600), **{f"cluster.groups.{name}.count": count for name, count in values.items()}}


def types(prefill: str, decode: str) -> dict[str, Any]:
    return {**efa(9600), "cluster.groups.prefill.instance_type": prefill, "cluster.groups.decode.instance_type": decode}


EXISTING: dict[str, Any] = {
    "file_system_id": "fs-0123456789abcdef0",
    "dns_name": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
    "mount_name": "abcdefgh",
    "availability_zone_id": "use2-az1",
    "capacity_gib": 1200,
    "security_group_id": SELF,
}
ADOPTED = {"storage.lustre": {"existing": EXISTING}}
ON_LUSTRE = source("lustre", {"path": "/models/llama"})
P5, G5, G6 = "ml.p5.48xlarge", "ml.g5.48xlarge", "ml.g6.48xlarge"
SIZE = "storage.lustre.capacity_gib"
CASES = [
    Case("LUS001", {**ADOPTED, SIZE: 4800}, SIZE, "an adopted file system", ADOPTED),
    Case("LUS001", {**ADOPTED, "storage.lustre.metadata_iops": 1500}, "storage.lustre.metadata_iops", "remove existing", ADOPTED),
    Case(
        "LUS001",
        {**ADOPTED, "storage.lustre.link": {"prefix": "a", "path": "/a"}},
        "storage.lustre.link",
        "link would be ignored",
        lustre(link={"prefix": "a", "path": "/a"}),
    ),
    *(
        Case(
            "LUS009",
            {**ADOPTED, "storage.lustre.existing.dns_name": wrong},
            "storage.lustre.existing.dns_name",
            EXISTING["dns_name"],
            ADOPTED,
        )
        for wrong in (
            EXISTING["dns_name"].replace("us-east-2", "us-west-2"),
            EXISTING["dns_name"].replace("fs-0", "fs-1"),
            "hello world",
        )
    ),
    Case("LUS001", {SIZE: REMOVE}, "storage.lustre", "capacity_gib is missing"),
    Case("LUS001", {"storage.lustre": {}}, "storage.lustre", "capacity_gib and throughput_mbps_per_tib are", {"storage.lustre": REMOVE}),
    *(
        Case(
            "LUS002",
            lustre(throughput_mbps_per_tib=wrong),
            "storage.lustre.throughput_mbps_per_tib",
            "125, 250, 500, 1000",
            lustre(throughput_mbps_per_tib=right),
        )
        for wrong, right in [(200, 250), (124, 125), (300, 500), (2000, 1000)]
    ),
    *(
        Case("LUS003", lustre(capacity_gib=wrong), SIZE, f"write {right}", lustre(capacity_gib=right))
        for wrong, right in [(1, 1200), (1199, 1200), (1201, 2400), (3600, 4800), (5000, 7200)]
    ),
    *(
        Case("LUS003", efa(wrong, speed), SIZE, f"write {right}, or set efa: false", efa(right, speed))
        for speed, wrong, right in [(125, 19200, 38400), (250, 9600, 19200), (500, 4800, 9600), (1000, 2400, 4800), (1000, 7200, 9600)]
    ),
    *(
        Case("LUS004", lustre(metadata_iops=wrong), "storage.lustre.metadata_iops", "1,500, 3,000, 6,000", lustre(metadata_iops=right))
        for wrong, right in [(1000, 1500), (4500, 6000), (18000, 24000), (204000, 192000)]
    ),
    Case("LUS005", types(G5, G5), "storage.lustre.efa", "prefill (ml.g5.48xlarge", types(P5, P5)),
    Case("LUS005", types(G5, P5), "cluster.groups.prefill.instance_type", "over TCP", types(G6, P5), Level.WARNING),
    # 8 connections on each p5 node: 128 nodes fit, 129 do not
    Case("LUS006", nodes(prefill=64, decode=65), "storage.lustre.efa", "64 x 8 (prefill) + 65 x 8 (decode)", nodes(prefill=64, decode=64)),
    Case("LUS006", {**nodes(prefill=64), "cluster.groups.decode.max_count": 65}, "storage.lustre.efa", "1,032", nodes(prefill=64)),
    Case("LUS007", {"storage.lustre.link.delete": True}, "storage.lustre.link.delete", "/checkpoints", level=Level.WARNING),
    Case(
        "LUS008",
        {**lustre(capacity_gib=1200), **ON_LUSTRE, "endpoints[0].model.parameters_billion": 1500},
        SIZE,
        "(/models/llama)",
        {**lustre(capacity_gib=4800), **ON_LUSTRE, "endpoints[0].model.parameters_billion": 1500},
    ),
    Case(
        "LUS008",
        {**ADOPTED, **ON_LUSTRE, "endpoints[0].model.parameters_billion": 1500},
        "storage.lustre.existing.capacity_gib",
        "1,200",
        {**ADOPTED, **ON_LUSTRE},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case} {case.says}")
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize("path", ["/", "checkpoints", "/a//b", "/a/", ""])
def test_a_link_is_a_directory_below_the_root(path: str) -> None:
    with pytest.raises(ValidationError):
        environment({"storage.lustre.link.path": path})


def test_no_lustre_no_rule() -> None:
    assert not [one for one in findings({"storage.lustre": REMOVE}) if one.id.startswith("LUS")]


@given(capacity=st.integers(1, 2_000_000), speed=st.sampled_from(catalog.throughputs()), over_efa=st.booleans())
def test_the_proposed_size_is_the_next_allowed_one(capacity: int, speed: int, over_efa: bool) -> None:
    proposed = catalog.next_capacity_gib(capacity, throughput_mbps_per_tib=speed, efa=over_efa)
    assert catalog.capacity_allowed(proposed, throughput_mbps_per_tib=speed, efa=over_efa)
    assert proposed >= capacity
    assert catalog.capacity_allowed(capacity, throughput_mbps_per_tib=speed, efa=over_efa) == (proposed == capacity)
