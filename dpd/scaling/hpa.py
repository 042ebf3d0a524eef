"""Kubernetes' autoscaler, as far as it decides: tolerance, the window before pods go, and how many may come or go in a time."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from dpd.scaling.policy import DOWN_PODS, UP_PERIOD_SECONDS, UP_PODS, Policy, down_period_seconds, wanted


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds and pace. ``up_share`` is how much a role may grow in a period besides ``up_pods``: the larger counts."""

    least: int
    most: int
    down_window_seconds: float
    up_pods: int
    up_share: float
    up_period_seconds: float
    down_pods: int
    down_period_seconds: float

    @classmethod
    def of(cls, policy: Policy) -> "Limits":
        """What this tool writes into a ScaledObject."""
        window = policy.down_window_seconds
        return cls(policy.least, policy.most, window, UP_PODS, 0.0, UP_PERIOD_SECONDS, DOWN_PODS, down_period_seconds(window))

    @classmethod
    def default(cls, least: int, most: int) -> "Limits":
        """What Kubernetes does unless it is told: 4 pods or as many again every 15 seconds; after 300 seconds all that are too many go."""
        return cls(least, most, 300, 4, 1.0, 15, most, 15)


@dataclass(slots=True)
class Autoscaler:
    """Of one role. Times are in seconds and only grow."""

    limits: Limits
    _asked: deque[tuple[float, int]] = field(default_factory=deque)
    _changes: deque[tuple[float, int]] = field(default_factory=deque)

    def decide(self, now: float, pods: int, signals: Iterable[tuple[float, float]]) -> int:
        """Pods to have from now on, of signals with their targets. The signal that asks for most counts."""
        limits = self.limits
        asked = min(limits.most, max(limits.least, *(wanted(signal, target, pods) for signal, target in signals)))
        self._asked.append((now, asked))
        while self._asked and self._asked[0][0] <= now - limits.down_window_seconds:
            self._asked.popleft()
        # Up at once; down to the most that anything asked for within the window.
        steady = asked if asked >= pods else min(pods, max(count for _, count in self._asked))
        result = min(steady, self._most_after(now, pods)) if steady > pods else max(steady, self._least_after(now, pods))
        if result != pods:
            self._changes.append((now, result - pods))
        return result

    def _moved(self, now: float, seconds: float, *, up: bool) -> int:
        while self._changes and self._changes[0][0] <= now - max(self.limits.up_period_seconds, self.limits.down_period_seconds):
            self._changes.popleft()
        return sum(abs(change) for at, change in self._changes if at > now - seconds and (change > 0) == up)

    def _most_after(self, now: float, pods: int) -> int:
        limits = self.limits
        came = self._moved(now, limits.up_period_seconds, up=True)
        before = pods - came
        return max(before + limits.up_pods, int(before * (1 + limits.up_share)), pods)

    def _least_after(self, now: float, pods: int) -> int:
        went = self._moved(now, self.limits.down_period_seconds, up=False)
        return min(pods + went - self.limits.down_pods, pods)
