"""A day of traffic through two roles that are scaled: a fluid of tokens and sequences, with the fluctuations of a queue on top.

Every fifteen seconds, which is how often Kubernetes looks, tokens of prompts flow into the prefillers' queue and out at their velocity,
hand-overs flow to the decoders, and sequences leave when their answer is written, at the pace of a decode step over all that are at
work. Latency is the fluid's queue, plus the wait of an M/G/c queue of the moment, plus reading, hand-over and the first step.

What it leaves out makes it optimistic: pods share work evenly, nothing is preempted, no transfer fails. It compares policies; it
promises no milliseconds. The same input gives the same day.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from dpd.scaling.day import DAY_SECONDS, Day, Phase
from dpd.scaling.hpa import Autoscaler, Limits
from dpd.scaling.policy import HPA_PERIOD_SECONDS, RATE_SECONDS, SMOOTHING_SECONDS, TREND_SECONDS, Policy
from dpd.scaling.velocity import Pod
from dpd.sizing.transfer import Link, kv_bytes_moved

STEP_SECONDS: Final = HPA_PERIOD_SECONDS
Signals = list[tuple[float, float]]
_FULL: Final = 0.98
_ROUNDS: Final = 3
_GRAIN_TOKENS: Final = 64
_LOOK_BACK_SECONDS: Final = 60
"""How old a value of CloudWatch is when it is read."""
_TAIL: Final = 0.99


@dataclass(frozen=True, slots=True)
class System:
    """The endpoint as the replay knows it. Objectives in seconds; ``start_seconds`` from the decision until a pod is ready."""

    prefill: Pod
    decode: Pod
    prefill_gpus: int
    decode_gpus: int
    link: Link
    threshold_tokens: int
    ttft_seconds: float
    itl_seconds: float
    start_seconds: float

    def kv_bytes(self, tokens: float) -> float:
        """KV of a prompt, as it crosses the link."""
        return kv_bytes_moved(self.decode.engine.model, tokens, self.decode.engine.tensor_parallel, self.decode.engine.kv_dtype)


@dataclass(frozen=True, slots=True)
class Work:
    """What a request of a phase costs each role, in the mean."""

    remote: float
    """Share of the requests that go through a prefiller."""
    uncached: float
    """Prompt tokens that a prefiller computes for one of them."""
    read_seconds: float
    local_tokens: float
    """Prompt tokens that a decoder reads for one of the others, and how long that takes it."""
    local_seconds: float
    handover_seconds: float
    context_tokens: float
    output_tokens: float
    variation: float

    @classmethod
    def of(cls, phase: Phase, system: System) -> "Work":
        """The work of a phase's requests. What lies in a decoder's cache is left aside: prompts below the threshold are read whole."""
        remote, long = phase.longer_than(system.threshold_tokens), phase.mean_above(system.threshold_tokens)
        short = (phase.mean_input_tokens - remote * long) / (1 - remote) if remote < 1 - 1e-9 else 0.0
        cached = phase.cached_share * long
        return cls(
            remote=remote,
            uncached=max(1.0, long - cached),
            read_seconds=system.prefill.read_seconds(long, cached),
            local_tokens=short,
            local_seconds=system.decode.read_seconds(short) if short >= 1 else 0.0,
            handover_seconds=system.link.handover_seconds(system.kv_bytes(long)),
            context_tokens=phase.mean_input_tokens + phase.output_tokens / 2,
            output_tokens=phase.output_tokens,
            variation=phase.variation,
        )

    def pods(self, rate: float, system: System, utilization: float) -> tuple[float, float]:
        """Prefillers and decoders that a rate keeps busy, each by its own velocity: the matched rates of the two roles."""
        prefill = rate * self.remote * self.read_seconds / utilization
        velocity = system.decode.write_velocity(self.context_tokens, system.itl_seconds)
        reading = rate * (1 - self.remote) * self.local_seconds
        return prefill, (rate * self.output_tokens / velocity + reading) / utilization


@dataclass(frozen=True, slots=True)
class ByTokens:
    """The signals of the policy, as they are asked for on a cluster: divided by velocities that the file states, whatever the traffic."""

    prefill: Policy
    decode: Policy
    prefill_velocity: float
    decode_velocity: float
    local_velocity: float

    def signals(self, seen: "Seen", system: System) -> tuple[Signals, Signals]:
        """Signals of prefill and of decode, each with its target."""
        load, soon = seen.read / self.prefill_velocity, seen.read_soon(self.prefill.lead_seconds) / self.prefill_velocity
        due = seen.due_soon(self.decode.lead_seconds) / self.decode_velocity + seen.local / self.local_velocity
        full = self.decode.full
        return (
            [
                (soon, self.prefill.full),
                (load + math.sqrt(load), 1.0),
                (seen.backlog / self.prefill_velocity, self.prefill.backlog_seconds),
            ],
            [(due, full), (seen.kv / system.decode.kv_tokens, full), (seen.held / system.decode.most_sequences, full)],
        )


ByRequests = tuple[float, float]
"""Requests a second of one prefiller and of one decoder, for what looks at requests alone."""


@dataclass(frozen=True, slots=True)
class Targets:
    """How an arm scales: the limits of both roles, and what it looks at."""

    prefill: Limits
    decode: Limits
    by: ByTokens | ByRequests


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the day. Without ``targets`` the pods stay as they begin."""

    name: str
    prefillers: int
    decoders: int
    targets: Targets | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """What one step was like. ``prefillers`` and ``decoders`` are ready ones; latencies in seconds."""

    second: float
    rate: float
    prefillers: int
    decoders: int
    queued_tokens: float
    waiting: float
    """Sequences that wait for a place on a decoder."""
    ttft: float
    ttft_tail: float
    itl: float
    good_share: float


@dataclass(frozen=True, slots=True)
class Played:
    """A day as one arm lived it."""

    arm: Arm
    moments: tuple[Moment, ...]
    requests: float
    good: float
    gpu_hours: float
    changes: int
    """How often the number of pods of a role changed."""

    @property
    def goodput_share(self) -> float:
        """Share of the requests within both objectives."""
        return self.good / self.requests if self.requests else 1.0

    @property
    def good_per_gpu_hour(self) -> float:
        """Requests within both objectives for each GPU-hour."""
        return self.good / self.gpu_hours if self.gpu_hours else 0.0

    @property
    def worst_queue_seconds(self) -> float:
        """The longest mean TTFT of a step."""
        return max(moment.ttft for moment in self.moments)


@dataclass(slots=True)
class _Mean:
    """The mean of a value over the last seconds, and where its line leads."""

    seconds: float
    _values: deque[float] = field(default_factory=deque)
    _sum: float = 0.0
    _past: deque[float] = field(default_factory=lambda: deque(maxlen=TREND_SECONDS // STEP_SECONDS))
    now: float = 0.0

    def add(self, value: float) -> None:
        """One more step."""
        self._values.append(value)
        self._sum += value
        if len(self._values) > self.seconds / STEP_SECONDS:
            self._sum -= self._values.popleft()
        self.now = max(0.0, self._sum / len(self._values))
        self._past.append(self.now)

    def soon(self, seconds: float) -> float:
        """The mean after some seconds, on the line of least squares through the last quarter of an hour; never less than now."""
        count = len(self._past)
        if count < 2:  # noqa: PLR2004 (a line has two points)
            return self.now
        middle, mean = (count - 1) / 2, sum(self._past) / count
        slope = sum((at - middle) * value for at, value in enumerate(self._past)) / (count * (count * count - 1) / 12)
        return max(self.now, mean + slope * (middle + seconds / STEP_SECONDS))


class Seen:
    """What Prometheus has seen until now."""

    def __init__(self) -> None:
        self._means = {name: _Mean(seconds) for name, seconds in _MEANS.items()}
        self._late: deque[float] = deque()

    def add(self, **values: float) -> None:
        """One more step."""
        for name, value in values.items():
            self._means[name].add(value)
        self._late.append(self._means["requests"].now)
        if len(self._late) > 1 + _LOOK_BACK_SECONDS / STEP_SECONDS:
            self._late.popleft()

    def __getattr__(self, name: str) -> float:
        return self._means[name].now

    def read_soon(self, seconds: float) -> float:
        """Prompt tokens that are read a second, when a pod that is asked for now is ready."""
        return self._means["read"].soon(seconds)

    def due_soon(self, seconds: float) -> float:
        """Answer tokens that are due a second, then."""
        return self._means["due"].soon(seconds)

    @property
    def requests_late(self) -> float:
        """Requests a second, as CloudWatch says."""
        return self._late[0]


@dataclass(slots=True)
class _Pods:
    """Pods of a role: those that are ready, and when the others will be."""

    ready: int
    starting: list[float] = field(default_factory=list)

    @property
    def all(self) -> int:
        return self.ready + len(self.starting)

    def arrive(self, now: float) -> None:
        """Count those that have started."""
        self.ready += sum(at <= now for at in self.starting)
        self.starting = [at for at in self.starting if at > now]

    def scale(self, count: int, ready_at: float) -> None:
        """Ask for a number of pods. Those that have not started go first."""
        if count >= self.all:
            self.starting += [ready_at] * (count - self.all)
            return
        for _ in range(self.all - count):
            if self.starting:
                self.starting.pop()
            else:
                self.ready -= 1


def play(day: Day, system: System, arm: Arm) -> Played:
    """Live a day."""
    return _Run(day, system, arm).whole()


class _Run:
    def __init__(self, day: Day, system: System, arm: Arm) -> None:
        self._day, self._system, self._arm = day, system, arm
        self._work = {id(phase): Work.of(phase, system) for phase in day.phases}
        self._prefill, self._decode = _Pods(arm.prefillers), _Pods(arm.decoders)
        self._scalers = (Autoscaler(arm.targets.prefill), Autoscaler(arm.targets.decode)) if arm.targets else None
        self._queued = 0.0
        self._active, self._kv, self._waiting = 0.0, 0.0, 0.0
        self._seen = Seen()
        self._gaps: dict[tuple[int, int], float] = {}

    def whole(self) -> Played:
        moments, requests, good, gpu_seconds, changes = [], 0.0, 0.0, 0.0, 0
        for step in range(DAY_SECONDS // STEP_SECONDS):
            now = float(step * STEP_SECONDS)
            self._prefill.arrive(now)
            self._decode.arrive(now)
            moment = self._flow(now)
            gpus = self._prefill.all * self._system.prefill_gpus + self._decode.all * self._system.decode_gpus
            gpu_seconds += gpus * STEP_SECONDS
            requests += moment.rate * STEP_SECONDS
            good += moment.rate * STEP_SECONDS * moment.good_share
            changes += self._scale(now)
            moments.append(moment)
        return Played(self._arm, tuple(moments), requests, good, gpu_seconds / 3600, changes)

    def _flow(self, now: float) -> Moment:
        system, work, rate = self._system, self._work[id(self._day.phase_at(now))], self._day.rate_at(now)
        prefillers, decoders = max(1, self._prefill.ready), max(1, self._decode.ready)
        velocity = prefillers * work.uncached / work.read_seconds
        coming = rate * work.remote * work.uncached
        read = min(self._queued / STEP_SECONDS + coming, velocity)
        self._queued = max(0.0, self._queued + (coming - read) * STEP_SECONDS)
        handed_over = read / work.uncached

        busy = min(_FULL, rate * (1 - work.remote) * work.local_seconds / decoders)
        starts, finished, gap = self._write(work, handed_over + rate * (1 - work.remote), decoders, busy)

        load = coming / velocity
        chance, decay = _wait(prefillers, load, work)
        first = work.read_seconds + work.handover_seconds + 1.5 * gap
        fluid = self._queued / velocity + (self._waiting / starts if self._waiting > 1 and starts else 0.0)
        remote = _within(system.ttft_seconds - fluid - first, chance, decay)
        local = float(
            work.local_seconds / (1 - busy) + 1.5 * gap + (self._waiting / starts if self._waiting > 1 and starts else 0.0)
            <= system.ttft_seconds
        )
        good = (work.remote * remote + (1 - work.remote) * local) if gap <= system.itl_seconds else 0.0
        wait, tail = chance / decay if decay else 0.0, math.log(chance / (1 - _TAIL)) / decay if decay and chance > 1 - _TAIL else 0.0
        moment = Moment(
            now,
            rate,
            self._prefill.ready,
            self._decode.ready,
            self._queued,
            self._waiting,
            fluid + wait + first,
            fluid + tail + first,
            gap,
            good,
        )
        in_service = read * (work.read_seconds + (wait if load < 1 else 0.0))
        self._seen.add(
            read=read, backlog=self._queued + in_service, local=rate * (1 - work.remote) * work.local_tokens,
            due=max(handed_over + rate * (1 - work.remote), finished) * work.output_tokens,
            kv=min(decoders * system.decode.kv_tokens, self._kv), held=self._active + self._waiting, requests=rate,
        )  # fmt: skip
        return moment

    def _write(self, work: Work, arriving: float, decoders: int, busy: float) -> tuple[float, float, float]:
        """Move sequences through the decoders: those that start and that finish, a second, and the gap between two of their tokens.

        Sequences at work approach what the arrivals keep busy, or all places, as fast as answers end: ``A' = starts - A / duration``.
        """
        demand = arriving + self._waiting / STEP_SECONDS
        middle, kept = self._active, 0.0
        for _ in range(_ROUNDS):
            context = self._kv / self._active if self._active >= 1 else work.context_tokens
            gap = self._gap(middle / decoders, context) / (1 - busy)
            duration = work.output_tokens * gap
            kept = math.exp(-STEP_SECONDS / duration)
            goal = min(decoders * self._system.decode.places(context), demand * duration)
            middle = goal + (self._active - goal) * (1 - kept) * duration / STEP_SECONDS
        finished, last = middle / duration, goal + (self._active - goal) * kept
        starts = min(demand, max(0.0, (last - self._active) / STEP_SECONDS + finished))
        self._kv = goal * work.context_tokens + (self._kv - goal * work.context_tokens) * kept
        self._active, self._waiting = last, max(0.0, (demand - starts) * STEP_SECONDS)
        return starts, finished, gap

    def _gap(self, sequences: float, context_tokens: float) -> float:
        key = round(sequences * 4), round(context_tokens / _GRAIN_TOKENS)
        if key not in self._gaps:
            self._gaps[key] = self._system.decode.gap_seconds(key[0] / 4, key[1] * _GRAIN_TOKENS)
        return self._gaps[key]

    def _scale(self, now: float) -> int:
        targets = self._arm.targets
        if targets is None or self._scalers is None:
            return 0
        if isinstance(targets.by, ByTokens):
            both = targets.by.signals(self._seen, self._system)
        else:
            late = self._seen.requests_late
            both = [(late, targets.by[0])], [(late, targets.by[1])]
        changes = 0
        for pods, scaler, asked in zip((self._prefill, self._decode), self._scalers, both, strict=True):
            count = scaler.decide(now, pods.all, asked)
            changes += count != pods.all
            pods.scale(count, now + self._system.start_seconds)
        return changes


_MEANS: Final = {
    "read": RATE_SECONDS, "local": RATE_SECONDS, "due": RATE_SECONDS, "requests": RATE_SECONDS,
    "backlog": SMOOTHING_SECONDS, "kv": SMOOTHING_SECONDS, "held": SMOOTHING_SECONDS,
}  # fmt: skip


def _wait(servers: int, load: float, work: Work) -> tuple[float, float]:
    """The chance to wait at all and how fast that wait decays, of an M/G/c queue (Erlang C with Allen and Cunneen's correction)."""
    if load >= _FULL:
        return 1.0, 0.0
    term, total = 1.0, 1.0
    for count in range(1, servers):
        term *= load * servers / count
        total += term
    last = term * load * servers / servers / (1 - load)
    return last / (total + last), 2 * servers * (1 - load) / (work.read_seconds * (1 + work.variation))


def _within(room: float, chance: float, decay: float) -> float:
    """Share of the requests whose wait is no longer than ``room``."""
    if room < 0:
        return 0.0
    return 1 - chance * math.exp(-decay * room) if decay else 1.0
