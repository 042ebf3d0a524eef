"""The same day for several ways to scale: the policy, pods that stay as they are, and what KEDA does by default."""

import math
from dataclasses import dataclass
from typing import Final

from dpd.environment.endpoint import Endpoint
from dpd.scaling.day import Day, Phase
from dpd.scaling.hpa import Limits
from dpd.scaling.policy import Policy
from dpd.scaling.replay import Arm, ByTokens, Played, System, Targets, Work, play

POLICY, STATIC, EQUAL, DEFAULTS = "token policy", "fixed, all pods", "fixed, as many GPU-hours", "KEDA defaults"
_ORDINARY: Final = "day"


@dataclass(frozen=True, slots=True)
class Matched:
    """What a phase asks of each role: pods by their velocities, unrounded."""

    phase: Phase
    prefillers: float
    decoders: float


@dataclass(frozen=True, slots=True)
class Replay:
    """The day, what it asks for, and how each arm lived it; the policy first."""

    day: Day
    system: System
    prefill: Policy
    decode: Policy
    prefill_velocity: float
    decode_velocity: float
    matched: tuple[Matched, ...]
    played: tuple[Played, ...]


def peak_rate(system: System, most_prefillers: int, most_decoders: int, phase: Phase, utilization: float) -> float:
    """Requests a second of a phase's kind that all pods together take at this share of their velocity."""
    prefill, decode = Work.of(phase, system).pods(1.0, system, utilization)
    return min(most_prefillers / prefill if prefill else float("inf"), most_decoders / decode if decode else float("inf"))


def rehearse(day: Day, system: System, endpoint: Endpoint, prefill: Policy, decode: Policy, velocity: tuple[float, float]) -> Replay:
    """Live the day with each arm. ``velocity`` is what the signals are divided by: of a prefiller and of a decoder."""
    matched = tuple(_matched(system, prefill.full, phase) for phase in day.phases)
    ordinary = next(one for one in matched if one.phase.name == _ORDINARY)
    by_tokens = ByTokens(prefill, decode, *velocity, local_velocity=system.decode.read_velocity(max(1, system.threshold_tokens)))
    targets = Targets(Limits.of(prefill), Limits.of(decode), by_tokens)
    begin = endpoint.prefill.replicas, endpoint.decode.replicas
    ours = play(day, system, Arm(POLICY, *_within(begin, prefill, decode), targets))
    defaults = Targets(
        Limits.default(prefill.least, prefill.most), Limits.default(decode.least, decode.most),
        (ordinary.phase.rate / ordinary.prefillers, ordinary.phase.rate / ordinary.decoders),
    )  # fmt: skip
    return Replay(
        day, system, prefill, decode, *velocity, matched,
        (
            ours,
            play(day, system, Arm(DEFAULTS, *_within(begin, prefill, decode), defaults)),
            play(day, system, Arm(EQUAL, *_as_many(ours, system, ordinary, prefill, decode))),
            play(day, system, Arm(STATIC, prefill.most, decode.most)),
        ),
    )  # fmt: skip


def _within(pods: tuple[int, int], prefill: Policy, decode: Policy) -> tuple[int, int]:
    return min(prefill.most, max(prefill.least, pods[0])), min(decode.most, max(decode.least, pods[1]))


def _matched(system: System, utilization: float, phase: Phase) -> Matched:
    return Matched(phase, *Work.of(phase, system).pods(phase.mean_rate, system, utilization))


def _as_many(ours: Played, system: System, ordinary: Matched, prefill: Policy, decode: Policy) -> tuple[int, int]:
    """Pods that stay, of as many GPU-hours as the policy took as the ceilings allow, as near the ratio of an ordinary hour as that is."""
    mean_gpus = ours.gpu_hours / 24
    prefillers = range(1, prefill.most + 1)
    pairs = [(count, _beside(count, mean_gpus, system, decode.most)) for count in prefillers]
    off = {pair: abs(system.prefill_gpus * pair[0] + system.decode_gpus * pair[1] - mean_gpus) for pair in pairs}
    near = min(off.values()) + min(system.prefill_gpus, system.decode_gpus) / 2
    wanted = ordinary.prefillers / ordinary.decoders
    return min((pair for pair in pairs if off[pair] <= near), key=lambda pair: (abs(math.log(pair[0] / pair[1] / wanted)), off[pair]))


def _beside(prefillers: int, gpus: float, system: System, most: int) -> int:
    """Decoders that take what the prefillers leave of some GPUs."""
    return min(most, max(1, round((gpus - system.prefill_gpus * prefillers) / system.decode_gpus)))
