"""Gaps between tokens from first and last tokens, on made-up workers whose every step is known."""

import pytest

from dpd.planning.gaps import Written, pace


def test_a_worker_alone_has_even_gaps() -> None:
    found = pace([Written(0, 0.0, 100.0, 1090.0, 100, 1)])
    assert found.gap_ms.p50 == found.gap_ms.p99 == pytest.approx(10.0)
    assert found.request_gap_ms == pytest.approx((10.0,))


def test_a_prompt_read_beside_is_one_long_gap_in_the_other() -> None:
    # 198 gaps of 10 ms and one of 300, while the second request's prompt is read.
    first = Written(0, 0.0, 100.0, 100.0 + 198 * 10 + 300, 200, 1)
    second = Written(0, 500.0, 800.0, 800.0, 1, 1)
    found = pace([first, second])
    assert found.gap_ms.p50 == pytest.approx(10.0)
    assert found.gap_ms.p99 == pytest.approx(10.0)
    assert found.gap_mean_ms == pytest.approx(2280 / 199)
    short = pace([Written(0, 0.0, 100.0, 100.0 + 48 * 10 + 300, 50, 1), second])
    assert short.gap_ms.p99 == pytest.approx(300.0)


def test_chunks_are_several_shorter_gaps() -> None:
    first = Written(0, 0.0, 100.0, 100.0 + 30 * 10 + 4 * 75, 35, 1)
    found = pace([first, Written(0, 200.0, 500.0, 500.0, 1, 4)])
    assert found.gap_ms.p95 == pytest.approx(75.0)
    assert found.gap_ms.p50 == pytest.approx(10.0)


def test_another_workers_prompt_holds_nobody_up() -> None:
    found = pace([Written(0, 0.0, 100.0, 1090.0, 100, 1), Written(1, 200.0, 500.0, 500.0, 1, 1)])
    assert found.gap_ms.p99 == pytest.approx(10.0)


def test_a_handed_over_prompt_costs_the_others_nothing() -> None:
    # The simulator spends 12 ms on reading the last block again; that time is taken off.
    first = Written(0, 0.0, 100.0, 100.0 + 98 * 10 + 12, 100, 0)
    found = pace([first, Written(0, 500.0, 512.0, 512.0, 1, 0)])
    assert found.gap_ms.p99 == pytest.approx(10.0)
    assert found.late_ms[0] == pytest.approx(2.0)
    assert found.request_gap_ms[0] == pytest.approx(990 / 99)


def test_prompts_of_one_step_are_one_gap() -> None:
    first = Written(0, 0.0, 100.0, 100.0 + 8 * 10 + 200, 10, 1)
    together = [Written(0, 110.0, 310.0, 310.0, 1, 1), Written(0, 110.0, 310.0, 310.0, 1, 1)]
    found = pace([first, *together])
    assert found.gap_ms.p99 == pytest.approx(200.0)
    assert found.gap_ms.p50 == pytest.approx(10.0)


def test_answers_of_one_token_have_no_gaps() -> None:
    found = pace([Written(0, 0.0, 100.0, 100.0, 1, 1)])
    assert found.gap_ms.p99 == 0.0
    assert found.gap_mean_ms == 0.0
