"""The KV link: published line rates and sizes, and what makes it slower."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpd.catalog import instances, models
from dpd.catalog.instances import Instance
from dpd.catalog.models import ModelShape
from dpd.sizing.cliff import cliff_per_second
from dpd.sizing.ratio import decode_workers, prefill_workers, start_ratio
from dpd.sizing.transfer import Link, kv_bytes_moved, kv_link, line_rate_gb_per_second


def instance(name: str) -> Instance:
    found = instances.find(name)
    assert found is not None
    return found


def model(name: str) -> ModelShape:
    found = models.find(name)
    assert found is not None
    return found


P5, LLAMA = instance("ml.p5.48xlarge"), model("llama-3.3-70b-instruct")


@pytest.mark.parametrize(("devices", "gb_per_second"), [(32, 400), (16, 200), (4, 50), (1, 12.5), (0, 0), (64, 400)])
def test_line_rate_of_p5(devices: int, gb_per_second: float) -> None:
    assert line_rate_gb_per_second(P5, devices) == gb_per_second


def test_nodes_without_efa_have_no_link() -> None:
    bare = instance("ml.g5.xlarge")
    assert line_rate_gb_per_second(bare, 1) == 0
    assert kv_link(bare, 1).wire_seconds(1) == math.inf
    assert kv_link(bare, 1).utilisation(1) == math.inf


def test_single_digit_milliseconds_need_all_devices() -> None:
    """8,000 tokens of Llama 70B are 2.62 GB: 6.55 ms at line rate, under 10 ms at 78 % of it, 210 ms over one device."""
    size = kv_bytes_moved(LLAMA, 8000, 8)
    assert size == 8000 * 327_680
    assert size / 400e9 == pytest.approx(6.55e-3, rel=0.01)
    assert kv_link(P5, 32).wire_seconds(size) < 10e-3
    assert kv_link(P5, 16).wire_seconds(size) > 10e-3
    assert kv_link(P5, 1, efficiency=1).wire_seconds(size) == pytest.approx(0.210, rel=0.01)


def test_overhead_is_a_term_of_its_own() -> None:
    link = Link(300, 0.001, overhead_seconds=0.2)
    assert link.handover_seconds(3e9) - link.wire_seconds(3e9) == pytest.approx(0.2)
    assert link.wire_seconds(0) == 0.001


def test_copies_of_kv_heads_are_sent_too() -> None:
    """Eight ranks hold four KV heads twice: Qwen3-235B's published transfers are of twice its KV."""
    from dataclasses import replace

    four = replace(LLAMA, kv_heads=4)
    assert kv_bytes_moved(four, 1, 8) == 2 * kv_bytes_moved(four, 1, 4)
    latent = model("deepseek-v3")
    assert kv_bytes_moved(latent, 1, 8) == 8 * kv_bytes_moved(latent, 1, 1)


@given(size=st.floats(0, 1e12), more=st.floats(0, 1e12), devices=st.integers(1, 31))
def test_more_bytes_or_fewer_devices_never_take_less(size: float, more: float, devices: int) -> None:
    link = kv_link(P5, devices)
    assert link.wire_seconds(size) <= link.wire_seconds(size + more)
    assert kv_link(P5, devices + 1).wire_seconds(size) <= link.wire_seconds(size)


def test_the_cliff_of_two_p5_nodes() -> None:
    assert cliff_per_second(2, 13.7e-3) == pytest.approx(1.46, abs=0.01)
    assert cliff_per_second(2, 13.7e-3, percentile=95) == pytest.approx(5 * 1.46, abs=0.05)
    assert cliff_per_second(2, 13.7e-3, chunks=8) == pytest.approx(1.46 / 8, abs=0.01)


def test_the_ratio_to_start_from() -> None:
    """3 prefillers of 0.55 s a prompt and 1 decoder are busy at 4 requests/s with 256 tokens every 21 ms, 25 at once."""
    prefill, decode = prefill_workers(4, 0.55), decode_workers(4, 256, 0.021, 25)
    assert start_ratio(4, prefill, decode) == (3, 1)


@given(workers=st.integers(2, 64), prefill=st.floats(0, 100), decode=st.floats(0, 100))
def test_both_roles_have_a_worker(workers: int, prefill: float, decode: float) -> None:
    prefillers, decoders = start_ratio(workers, prefill, decode)
    assert prefillers + decoders == workers
    assert prefillers >= 1
    assert decoders >= 1


def test_one_worker_cannot_have_two_roles() -> None:
    with pytest.raises(ValueError, match="two workers"):
        start_ratio(1, 1, 1)
