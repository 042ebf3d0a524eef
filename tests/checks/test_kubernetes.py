"""Rules about the Kubernetes version, against an injected clock."""

import re
from datetime import date

import pytest

from dpd.catalog import kubernetes
from dpd.finding import Level
from tests.checks.cases import Case
from tests.support import ROOT, findings


def version(text: str) -> dict[str, str]:
    return {"cluster.kubernetes_version": text}


PATH = "cluster.kubernetes_version"
CASES = [
    Case("K8S001", version("1.99"), PATH, "use 1.34", version("1.34")),
    Case("K8S001", version("1.30"), PATH, "1.31, 1.32", version("1.33")),
    Case("K8S002", version("1.35"), PATH, "1.31, 1.32, 1.33, 1.34", version("1.34"), Level.WARNING),
    Case("K8S002", version("1.36"), PATH, "use 1.34", version("1.33"), Level.WARNING),
    # extended support of 1.31 ended three days before the tests' date
    Case("K8S003", version("1.31"), PATH, "extended support ended on 2026-11-26", version("1.35")),
    Case("K8S003", version("1.33"), PATH, "standard support ended on 2026-07-29", version("1.35"), Level.WARNING),
    Case("K8S003", version("1.33"), PATH, "ends on 2026-07-29, then $0.60", version("1.34"), Level.WARNING, today=date(2026, 5, 1)),
    Case("K8S004", version("1.32"), PATH, "1.33 to 1.35", version("1.33"), Level.WARNING),
    Case("K8S004", version("1.36"), PATH, "lambda-layer-kubectl-v36", version("1.35"), Level.WARNING),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case} {case.wrong[PATH]} {case.today}")
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize(
    ("today", "level"),
    [
        (date(2026, 4, 30), None),  # 90 days before the end of standard support of 1.33
        (date(2026, 5, 1), Level.WARNING),
        (date(2026, 7, 29), Level.WARNING),
        (date(2027, 7, 28), Level.WARNING),
        (date(2027, 7, 29), Level.ERROR),
    ],
)
def test_the_days_at_which_1_33_changes(today: date, level: Level | None) -> None:
    assert [one.level for one in findings(version("1.33"), id="K8S003", today=today)] == ([level] if level else [])


def test_nothing_louder_than_an_information_where_nothing_newer_is_listed() -> None:
    (one,) = findings(version("1.34"), id="K8S003", today=date(2026, 11, 29))
    assert one.level is Level.INFO
    assert "nothing newer" in one.fix


def test_a_date_far_away_ends_everything_without_a_crash() -> None:
    for known in kubernetes.all_versions():
        assert [one.level for one in findings(version(known.version), id="K8S003", today=date(2040, 1, 1))] == [Level.ERROR]


def test_the_shipped_kubectl_is_the_installed_one() -> None:
    shipped = kubernetes.shipped_kubectl()
    pinned = re.search(rf'"{re.escape(shipped.kubectl_layer_package)}==([0-9.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert pinned
    assert pinned[1] == shipped.kubectl_layer_version
