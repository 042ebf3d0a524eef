"""The policy: when a role is full, how long it may take to notice, and how slowly it lets go.

Each role has three signals, and the one that asks for most pods counts.

- prefill, rate: uncached prompt tokens read a second, over the velocity: pods that are busy reading, of which ``full`` is a pod's share.
- prefill, spread: the same, and its square root. Prompts come when they like, and few pods must stand idle more than many to keep the
  wait short (square-root staffing, https://doi.org/10.1287/opre.29.3.567).
- prefill, backlog: uncached prompt tokens that wait or are being read, over the velocity: seconds of reading.
- decode, rate: requests a second that prefill hands over, or that are finished if those are more, times the mean answer, over the
  velocity; and what decoders read themselves. What prefill finishes now is what decode must write next, so decode follows prefill
  without a controller that couples them.
- decode, KV: the sum of the shares of KV cache in use: caches that are full.
- decode, places: sequences at work and waiting, over the most that a pod takes: where that limit is low, its KV cache never fills.

Rates count as they will be when a pod that is asked for now is ready. Each signal is a sum over pods, which KEDA divides by the target
of one pod; an average would say the same for two pods as for four.
"""

import math
from dataclasses import dataclass
from typing import Final

from dpd.environment.endpoint import Autoscaling, Endpoint, TokenScaling
from dpd.sizing.startup import startup_budget_seconds

HPA_TOLERANCE: Final = 0.1
"""By how much a signal must pass its target before Kubernetes acts (https://kubernetes.io/docs/concepts/workloads/autoscaling/)."""
HPA_PERIOD_SECONDS: Final = 15
"""How often Kubernetes looks."""
SHORTEST_WINDOW_SECONDS: Final = 300
"""Kubernetes' own window before a pod goes."""
LONGEST_WINDOW_SECONDS: Final = 3600
"""The longest one that Kubernetes takes."""
SMOOTHING_SECONDS: Final = 120
"""Over which gauges are averaged: a prefill takes a second or two, and most samples of a gauge would fall between two of them."""
RATE_SECONDS: Final = 300
"""Over which counters are turned into rates: ten samples of a scrape every 30 seconds."""
TREND_SECONDS, TREND_STEP_SECONDS = 900, 60
"""Over which the trend of a rate is taken, and how often it is looked at for that."""
UP_PODS, UP_PERIOD_SECONDS = 2, 60
"""At most so many pods come in so many seconds: a burst is met at once, and a wrong signal does not fill the cluster in a minute."""
DOWN_PODS: Final = 1
_ROUNDING: Final = 1e-9
DEFAULT_UTILIZATION: Final[float] = TokenScaling.model_fields["utilization"].default
_QUEUE_SHARE: Final = 2 / 3
"""Of the time that the TTFT objective leaves beside reading: half of the objective's percentile lies behind it (our choice, llm-d's
guide says 60 to 70 percent)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One role's. ``full`` is the share of its velocity, and of a decoder's KV cache and places, at which a pod counts as full."""

    least: int
    most: int
    full: float
    backlog_seconds: float
    """Seconds of reading that may wait for a prefiller."""
    lead_seconds: int
    """How far ahead rates are looked at: as long as a pod may take to start."""
    down_window_seconds: int


def down_window_seconds(endpoint: Endpoint, scaling: Autoscaling) -> int:
    """How long the load must be lower before a pod goes: what the file says, else as long as a pod may take to come back."""
    if scaling.scale_down_stabilization_seconds is not None:
        return scaling.scale_down_stabilization_seconds
    return min(LONGEST_WINDOW_SECONDS, max(SHORTEST_WINDOW_SECONDS, startup_budget_seconds(endpoint.model.shape)))


def down_period_seconds(window_seconds: int) -> int:
    """Time between two pods that go, after the window: a third of it, at least a minute and at most half an hour (Kubernetes' limit)."""
    return min(1800, max(60, window_seconds // 3))


def backlog_target(endpoint: Endpoint, scaling: Autoscaling, velocity: float) -> float:
    """Seconds of reading that may wait for a prefiller, at least a tenth of a second.

    ``(TTFT objective - time to read a prompt) x 2/3``, the prompt as long as one step takes. Beyond it the objective is missed.
    """
    said = scaling.tokens.backlog_seconds if scaling.tokens else None
    if said is not None:
        return said
    typical = min(endpoint.model.max_model_len, max(endpoint.routing.threshold_tokens, 1))
    return max(0.1, round((endpoint.objectives.ttft_p99_ms / 1e3 - typical / velocity) * _QUEUE_SHARE, 2))


def of_role(endpoint: Endpoint, role_name: str, scaling: Autoscaling, velocity: float) -> Policy:
    """The policy of a role that has a velocity."""
    full = scaling.tokens.utilization if scaling.tokens else DEFAULT_UTILIZATION
    return Policy(
        least=scaling.min_replicas,
        most=scaling.max_replicas,
        full=full,
        backlog_seconds=backlog_target(endpoint, scaling, velocity) if role_name == "prefill" else math.inf,
        lead_seconds=startup_budget_seconds(endpoint.model.shape),
        down_window_seconds=down_window_seconds(endpoint, scaling),
    )


def wanted(signal: float, target: float, pods: int) -> int:
    """What Kubernetes asks for of a summed signal: ``ceil(signal / target)``, or the same as now within its tolerance."""
    ratio = signal / target
    if pods and abs(ratio / pods - 1) <= HPA_TOLERANCE + _ROUNDING:
        return pods
    return math.ceil(ratio - _ROUNDING)
