"""The PD buffer: LMCache's slots, and the least that works."""

import math

import pytest

from dpd.catalog import models
from dpd.catalog.models import ModelShape
from dpd.sizing.buffer import Buffer
from dpd.sizing.memory import GIB

FOUND = models.find("llama-3.3-70b-instruct")
assert FOUND is not None
LLAMA: ModelShape = FOUND


def test_slots_of_the_whole_model() -> None:
    """One GPU: a slot is 80 MiB; LMCache's default of 2 GiB has 25, 6,400 tokens, and no prompt of 8,000 fits."""
    buffer = Buffer(LLAMA, 1)
    assert buffer.slot_bytes == 80 * (1 << 20)
    assert buffer.slots(2) == 25
    assert buffer.prompt_slots(8000) == 32
    assert buffer.prompts(2, 6400) == 1
    assert buffer.prompts(2, 6401) == 0
    assert buffer.floor_gib(8000) == 5


def test_a_rank_holds_its_share() -> None:
    buffer = Buffer(LLAMA, 8)
    assert buffer.prompts(2, 8000) == 6
    assert buffer.prompts_by_whole_model(2, 8000) == 0
    assert buffer.prompts_by_whole_model(2.5, 8000) == 1


@pytest.mark.parametrize(("in_flight", "gib"), [(0, 5), (1.2, 5), (2, 5), (8.5, 22.5)])
def test_the_floor_holds_what_is_in_flight(in_flight: float, gib: float) -> None:
    """At 50 GB/s two hand-overs are in flight, at 1 GB/s nine: 5.0 and 22.5 GiB."""
    assert Buffer(LLAMA, 1).floor_gib(8000, in_flight) == math.ceil(gib)


def test_fp8_halves_it() -> None:
    assert Buffer(LLAMA, 8, "fp8").prompt_bytes(8192) * 2 == Buffer(LLAMA, 8).prompt_bytes(8192) == 8192 * 40_960
    assert Buffer(LLAMA, 8).prompt_bytes(1) == 256 * 40_960 < GIB
