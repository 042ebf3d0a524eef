"""How far from an estimate the truth may be. No latency is printed without its band.

The uncalibrated bands are the errors of replayed published cases: 16 x H200 with gpt-oss-120b (llm-d), 2 x 8 H800 with
Qwen3-8B (Mooncake), hand-overs of vLLM's NIXL connector. Estimates are optimistic there, so the bands lean upwards.
"""

from dataclasses import dataclass
from typing import Final

from dpd.planning.candidate import Band, Outcome


@dataclass(frozen=True, slots=True)
class Bands:
    """Factors of TTFT, inter-token latency and capacity, and the milliseconds that a hand-over may add to TTFT."""

    ttft: Band
    itl: Band
    capacity: Band
    handover_ms: Band


UNCALIBRATED: Final = Bands(ttft=Band(1.0, 4.0), itl=Band(0.8, 1.7), capacity=Band(0.7, 1.05), handover_ms=Band(0.0, 250.0))
"""Until something is measured. Sources: the cases in ``tests/planning/cases.yaml``."""


@dataclass(frozen=True, slots=True)
class Banded:
    """The latencies of an outcome as ranges, in milliseconds, at p50 and at the percentile that was asked for."""

    ttft_p50: Band
    ttft_tail: Band
    itl_p50: Band
    itl_tail: Band
    e2e_p50: Band
    e2e_tail: Band
    goodput_per_second: Band


def banded(outcome: Outcome, bands: Bands, *, percentile: int = 99) -> Banded:
    """Put the bands around an outcome. A hand-over's milliseconds are added only where there are hand-overs."""
    plus = bands.handover_ms if outcome.candidate.prefillers else Band(0.0, 0.0)

    def ttft(at: int) -> Band:
        return bands.ttft.times(outcome.ttft_ms.at(at), plus=plus)

    def itl(at: int) -> Band:
        return bands.itl.times(outcome.itl_ms.at(at))

    def e2e(at: int) -> Band:
        first = min(outcome.ttft_ms.at(at), outcome.e2e_ms.at(at))
        return bands.itl.times(outcome.e2e_ms.at(at) - first, plus=bands.ttft.times(first, plus=plus))

    goodput = bands.capacity.times(outcome.goodput_per_second)
    return Banded(ttft(50), ttft(percentile), itl(50), itl(percentile), e2e(50), e2e(percentile), goodput)
