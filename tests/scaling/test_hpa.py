"""The autoscaler: tolerance, window and pace, as Kubernetes documents them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.scaling.hpa import Autoscaler, Limits
from dpd.scaling.policy import wanted


def scaler(**more: float) -> Autoscaler:
    given = {
        "least": 1, "most": 10, "down_window_seconds": 300, "up_pods": 2, "up_share": 0.0, "up_period_seconds": 60, "down_pods": 1,
        "down_period_seconds": 100, **more,
    }  # fmt: skip
    return Autoscaler(Limits(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("signal", "pods", "count"), [(1.0, 1, 1), (1.1, 1, 1), (1.11, 1, 2), (0.0, 3, 0), (2.7, 3, 3), (2.69, 3, 3), (1.9, 3, 2), (5.2, 4, 6)]
)
def test_what_is_wanted_of_a_sum(signal: float, pods: int, count: int) -> None:
    assert wanted(signal, 1.0, pods) == count


def test_pods_come_at_once_and_no_faster_than_allowed() -> None:
    it = scaler()
    counts, pods = [], 1
    for now in range(0, 180, 15):
        pods = it.decide(now, pods, [(9.0, 1.0)])
        counts.append(pods)
    assert counts == [3, 3, 3, 3, 5, 5, 5, 5, 7, 7, 7, 7]


def test_pods_go_after_the_window_one_at_a_time() -> None:
    it, pods, went = scaler(), 5, []
    it.decide(0, pods, [(5.0, 1.0)])
    for now in range(15, 900, 15):
        before, pods = pods, it.decide(now, pods, [(2.0, 1.0)])
        if pods < before:
            went.append(now)
    assert pods == 2
    assert went[0] >= 300
    assert all(later - earlier >= 100 for earlier, later in pairwise(went))


def test_one_look_at_load_within_the_window_keeps_the_pods() -> None:
    it, pods = scaler(), 4
    for now in range(0, 3000, 15):
        pods = it.decide(now, pods, [(4.0 if now % 285 == 0 else 1.0, 1.0)])
    assert pods == 4


def test_the_signal_that_asks_for_most_counts() -> None:
    assert scaler().decide(0, 2, [(1.0, 1.0), (3.5, 1.0), (0.0, 1.0)]) == 4


@given(st.lists(st.floats(0, 100), min_size=1, max_size=80))
def test_bounds_hold_whatever_is_asked(signals: list[float]) -> None:
    it, pods = scaler(least=2, most=6), 3
    for number, signal in enumerate(signals):
        pods = it.decide(15.0 * number, pods, [(signal, 1.0)])
        assert 2 <= pods <= 6


def test_kubernetes_own_pace() -> None:
    it = Autoscaler(Limits.default(1, 100))
    assert it.decide(0, 1, [(50.0, 1.0)]) == 5
    assert it.decide(15, 5, [(50.0, 1.0)]) == 10
