"""A day of traffic that asks each role for something else: a ramp, a burst, prompts that share a prefix, and a wave of long ones."""

import math
import random
from dataclasses import dataclass
from typing import Final

HOUR: Final = 3600
DAY_SECONDS: Final = 24 * HOUR
_SPREAD: Final = 0.6
"""Standard deviation of the logarithm of prompt lengths: one in twenty is longer than 2.7 times the median."""
_NOISE: Final = 0.1
_MEMORY: Final = 0.8
_LONG_TIMES: Final = 3.0
_LONG_SHARE: Final = 0.6
"""Median of the long-context wave: three times the ordinary one, at most this share of what the model takes."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the day. The rate goes in a line from ``rate`` to ``rate_at_end``, requests a second; lengths are medians."""

    name: str
    begins: float
    ends: float
    rate: float
    rate_at_end: float
    input_tokens: float
    output_tokens: float
    cached_share: float = 0.0
    """Share of the prompt tokens that a prefiller finds in its cache."""

    @property
    def mean_rate(self) -> float:
        """Requests a second in the mean."""
        return (self.rate + self.rate_at_end) / 2

    @property
    def mean_input_tokens(self) -> float:
        """Mean of the lognormal lengths."""
        return self.input_tokens * math.exp(_SPREAD**2 / 2)

    def longer_than(self, tokens: float) -> float:
        """Share of the prompts with at least so many tokens."""
        return 1.0 if tokens <= 1 else _normal((math.log(self.input_tokens) - math.log(tokens)) / _SPREAD)

    def mean_above(self, tokens: float) -> float:
        """Mean length of the prompts with at least so many tokens; the mean of all when none is that long."""
        share = self.longer_than(tokens)
        if tokens <= 1 or share <= 0:
            return self.mean_input_tokens
        return self.mean_input_tokens * _normal((math.log(self.input_tokens) - math.log(tokens)) / _SPREAD + _SPREAD) / share

    @property
    def variation(self) -> float:
        """Squared coefficient of variation of the lengths."""
        return math.exp(_SPREAD**2) - 1


def _normal(value: float) -> float:
    return (1 + math.erf(value / math.sqrt(2))) / 2


@dataclass(frozen=True, slots=True)
class Day:
    """The phases of a day in their order, and how much each minute differs from the line. Drawn by seed."""

    phases: tuple[Phase, ...]
    noise: tuple[float, ...]

    @classmethod
    def of(cls, *, peak_rate: float, input_tokens: float, output_tokens: float, longest: float, seed: int = 0) -> "Day":
        """A day whose burst reaches ``peak_rate`` requests a second. Lengths are medians of ordinary requests."""
        long = max(input_tokens, min(_LONG_TIMES * input_tokens, _LONG_SHARE * longest))
        heavy = input_tokens / long

        def phase(
            name: str, begins: float, ends: float, rates: tuple[float, float], tokens: float = input_tokens, cached: float = 0.0
        ) -> Phase:
            return Phase(name, begins * HOUR, ends * HOUR, rates[0] * peak_rate, rates[1] * peak_rate, tokens, output_tokens, cached)

        phases = (
            phase("night", 0, 7, (0.12, 0.12)),
            phase("ramp", 7, 10, (0.12, 0.6)),
            phase("day", 10, 12, (0.6, 0.6)),
            phase("burst", 12, 12.5, (1.0, 1.0)),
            phase("day", 12.5, 14, (0.6, 0.6)),
            phase("shared prefixes", 14, 16.5, (0.9, 0.9), cached=0.8),
            phase("day", 16.5, 18, (0.6, 0.6)),
            phase("long contexts", 18, 20.5, (0.75 * heavy, 0.75 * heavy), long),
            phase("evening", 20.5, 24, (0.5, 0.12)),
        )
        return cls(phases, _minutes(seed))

    def phase_at(self, second: float) -> Phase:
        """The phase of a moment."""
        return next(phase for phase in self.phases if second < phase.ends)

    def rate_at(self, second: float) -> float:
        """Requests a second at a moment."""
        phase = self.phase_at(second)
        line = phase.rate + (phase.rate_at_end - phase.rate) * (second - phase.begins) / (phase.ends - phase.begins)
        return line * self.noise[int(second // 60)]


def _minutes(seed: int) -> tuple[float, ...]:
    """Factors of each minute, whose logarithm remembers the minute before."""
    source, value, found = random.Random(f"{seed}:day"), 0.0, []  # noqa: S311 (traffic, no secret)
    for _ in range(DAY_SECONDS // 60):
        value = _MEMORY * value + source.gauss(0, _NOISE * math.sqrt(1 - _MEMORY**2))
        found.append(math.exp(value - _NOISE**2 / 2))
    return tuple(found)
