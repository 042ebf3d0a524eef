"""Faults that the gate must find, each for its own reason: a gate that has never said no proves nothing."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from health_gate.spec import DECODE, PREFILL

from rehearsal import model
from rehearsal.judge import first_cause, judge
from rehearsal.stage import Handover, Stage

_OTHER_SEED: Final = 2
_SEED: Final = 1
_TIMED: Final = frozenset({"traffic.stream", "traffic.latency"})
"""Whether pieces come apart is judged before anything is broken; beside engines that start, busy cores deliver several at once."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is broken, and the check that must be the first to say so."""

    id: str
    title: str
    expected: str
    broken: Callable[[Stage], Iterator[None]]
    impatient: bool = False
    handovers: tuple[Handover, ...] = ("nixl", "lmcache")


@dataclass(frozen=True, slots=True)
class Found:
    """What the gate said of a fault."""

    fault: Fault
    cause: str
    summary: str
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the gate failed for the right reason."""
        return self.cause == self.fault.expected


def _up(stage: Stage, *roles: str, without: Iterable[str] = ()) -> None:
    """Start all of some roles that are down, side by side. ``without``: flags that decoders are started without."""
    down = [name for role in roles for name in stage.names(role) if name not in stage.processes.running]
    if down:
        stage.start(*down, without={name: tuple(without) for name in stage.names(DECODE)})
        stage.driver().warm([each.url for each in stage.instances if each.name in down])


def _down(stage: Stage, role: str) -> None:
    """Stop those of a role that run."""
    stage.stop(*(name for name in stage.names(role) if name in stage.processes.running))


def _threshold(stage: Stage) -> Iterator[None]:
    _up(stage, PREFILL, DECODE)
    routes = stage.front.routes
    routes.threshold_tokens, kept = 10 * stage.script.max_model_len, routes.threshold_tokens
    yield
    routes.threshold_tokens = kept


def _killed(stage: Stage, policy: Literal["fail", "fallback"] = "fail") -> Iterator[None]:
    _up(stage, DECODE)
    _down(stage, PREFILL)
    stage.front.routes.no_prefiller = policy
    yield
    stage.front.routes.no_prefiller = stage.script.no_prefiller


def _fallback(stage: Stage) -> Iterator[None]:
    """No prefiller runs, and the router sends long prompts to the decoder alone: every answer is 200 and right."""
    return _killed(stage, "fallback")


def _no_connector(stage: Stage) -> Iterator[None]:
    """The decoder has no KV connector: it answers, and computes every prompt again."""
    _down(stage, DECODE)
    _up(stage, PREFILL, DECODE, without=["--kv-transfer-config"])
    yield
    _down(stage, DECODE)


def _other_weights(stage: Stage) -> Iterator[None]:
    """The decoder reads other weights under the same name, as after a changed bucket: the hand-over's own checks see nothing."""
    _down(stage, DECODE)
    model.write_weights(stage.model, _OTHER_SEED)
    _up(stage, PREFILL, DECODE)
    yield
    _down(stage, DECODE)
    model.write_weights(stage.model, _SEED)


FAULTS: Final = (
    Fault("threshold", "threshold above the prompt", "traffic.long", _threshold),
    Fault("prefiller", "prefiller killed", "traffic.long", _killed, impatient=True),
    Fault("fallback", "router falls back to the decoder alone", "traffic.long", _fallback),
    Fault("weights", "decoder with other weights", "answers.match", _other_weights, handovers=("nixl",)),
    Fault("connector", "KV connector missing at the decoder", "kv.moved", _no_connector, handovers=("nixl",)),
)
"""In the order that starts least. Each starts what it needs and is down, so any of them may be made alone. The last one leaves KV at
the prefiller that nobody fetches, and whose end of lease would be another fault in a later one."""


def provoke(stage: Stage, fault: Fault) -> Found:
    """Break something, let the gate look, and put settings and weights back."""
    stage.say(f"fault: {fault.title}; {fault.expected} must say so")
    with contextmanager(fault.broken)(stage):
        report = judge(stage.script.spec, stage.stands(), stage.front, impatient=fault.impatient)
    cause = first_cause(report, besides=_TIMED)
    summary = next((result.summary for result in report.results if result.id == cause), "everything passed")
    found = Found(fault, cause, summary, report.seconds)
    stage.say(f"{'as it must' if found.right else 'WRONG'}: {cause or 'nothing'}: {summary}")
    return found
