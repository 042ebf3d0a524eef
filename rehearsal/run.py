"""A rehearsal from the environment to the result: start, traffic, benchmark, gate, faults."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from health_gate.report import Report

from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from rehearsal.drive import Cost, Sample
from rehearsal.faults import FAULTS, Fault, Found, provoke
from rehearsal.install import Engines
from rehearsal.judge import judge, spec_of
from rehearsal.manifests import workers
from rehearsal.parsers import Parsed, read
from rehearsal.say import Say
from rehearsal.stage import Script, Stage
from rehearsal.substitutions import MOST_TOKENS, Substitution, together

Value = TypeVar("Value")

_BLOCK: Final = 128
"""vLLM's own block size on CPUs."""
_LONG, _SHORT, _MEASURED = 3, 2, 5


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that a rehearsal found. Times in seconds of ``time.monotonic``."""

    environment: str
    endpoint: str
    backend: str
    engines: Engines
    threshold_tokens: int
    substitutions: tuple[Substitution, ...]
    started: Mapping[str, float]
    samples: tuple[Sample, ...]
    cost: Cost | None
    gate: Report
    faults: tuple[Found, ...]
    not_covered: tuple[str, ...]
    parsed: tuple[Parsed, ...]
    events: tuple[tuple[str, float, float], ...]
    seconds: float
    excused: Mapping[str, str]

    @property
    def wrong(self) -> list[str]:
        """What is not as it must be, in words; empty: the rehearsal succeeded."""
        found = [f"{result.id}: {result.summary}" for result in self.gate.open if result.id not in self.excused]
        found += [
            f"fault {each.fault.id}: {each.cause or 'nothing'} said so, not {each.fault.expected}" for each in self.faults if not each.right
        ]
        found += [
            f"{sample.kv_bytes:,} bytes of KV moved, not {sample.kv_bytes_computed:,}" for sample in self.samples if self._off(sample)
        ]
        found += ["an answer differs from the decoder's own" for sample in self.samples if sample.equal is False]
        return found + [f"{each.what}: {text}" for each in self.parsed for text in each.complaints]

    def _off(self, sample: Sample) -> bool:
        return self.backend == "llm-d" and not sample.exact


_NOT_COVERED: Final[Mapping[str, tuple[str, ...]]] = {
    "llm-d": (
        "LIBFABRIC, the NIXL backend of the manifests: its plug-in does not load without libfabric and CUDA.",
        "The sidecar and the picker: their images are not run. The front has the picker's threshold, vllm-router hands over.",
    ),
    "operator": (
        "LMCache's PD backend, which the operator configures in its pods: it needs a GPU. KV goes through one LMCache server instead.",
        "With it NIXL and PD_BUFFER_SIZE, and the bytes of KV, which no counter of that server's connector gives the decoder.",
        "What the operator itself makes of its resource: pods, their environment, router.",
    ),
}
_EXCUSED: Final[Mapping[str, Mapping[str, str]]] = {
    "llm-d": {},
    "operator": {
        "kv.throughput": "the LMCache server's connector exports neither bytes nor a rate to the decoder",
        "kv.failures": "it exports no failure counters, and its log has no line for each transfer as the PD backend's has",
    },
}
"""Checks that cannot pass here, by backend, and why."""


def script(
    environment: Environment, endpoint: Endpoint, objects: Iterable[Mapping[str, Any]], *, prefillers: int = 1, decoders: int = 1
) -> tuple[Script, list[Substitution]]:
    """What of an endpoint is rehearsed, and what of its gate's spec is not. ``objects`` are its synthesized ones."""
    longest = min(endpoint.model.max_model_len, MOST_TOKENS)
    threshold = endpoint.routing.threshold_tokens * longest // endpoint.model.max_model_len
    spec, seen = spec_of(environment, endpoint.name, max_model_len=longest, threshold_tokens=threshold)
    made = Script(
        spec, tuple(objects), threshold, longest, endpoint.kv.block_size or _BLOCK, endpoint.routing.no_prefiller,
        "nixl" if endpoint.backend == "llm-d" else "lmcache", prefillers, decoders,
    )  # fmt: skip
    return made, seen


def rehearse(
    plan: Script, seen: Iterable[Substitution], endpoint: Endpoint, engines: Engines, folder: Path, say: Say, *,
    environment: str, faults: Iterable[Fault] = FAULTS, benchmark: bool = True,
) -> Result:  # fmt: skip
    """Hold a rehearsal. Raises ``Unable`` when it cannot be held, ``Broken`` when something does not come up."""
    acts = _Acts(say)
    folder.mkdir(parents=True, exist_ok=True)
    stage = Stage(plan, engines, folder, say)
    substitutions = (*stage.substitutions, *seen)
    for each in together(substitutions):
        say(f"substituted, {each.role}: {each.name}: {each.manifest} -> {each.here} ({each.why})")
    say("the real parsers read what the manifests say")
    parsed = acts("parsers", lambda: read(engines, workers(plan.objects, stage.endpoint).values(), folder))
    for one in parsed:
        say(f"{one.what}, {one.parser}: {'; '.join(one.complaints) or 'accepted'}")
    with acts.during("start", stage):
        acts("first prompts", stage.driver().warm)
        samples = acts("traffic", lambda: stage.driver().samples(_LONG, _SHORT))
        say("the health gate looks at traffic, KV and answers")
        report = acts("gate", lambda: judge(plan.spec, stage.stands(), stage.front))
        say(report.table().rstrip())
        cost = acts("benchmark", lambda: stage.driver().cost(_MEASURED)) if benchmark else None
        found = [acts(f"fault: {fault.title}", partial(provoke, stage, fault)) for fault in faults if plan.handover in fault.handovers]
    return Result(
        environment, endpoint.name, endpoint.backend, engines, plan.threshold_tokens, substitutions, stage.seconds, tuple(samples), cost,
        report, tuple(found), _NOT_COVERED[endpoint.backend], tuple(parsed), tuple(acts.events), acts.seconds, _EXCUSED[endpoint.backend],
    )  # fmt: skip


class _Acts:
    """What takes time, for the timeline."""

    def __init__(self, say: Say) -> None:
        self._say, self._begin = say, time.monotonic()
        self.events: list[tuple[str, float, float]] = []

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begin

    def __call__(self, name: str, act: Callable[[], Value]) -> Value:
        """Do something and note from when to when."""
        at = self.seconds
        value = act()
        self.events.append((name, at, self.seconds))
        return value

    @contextmanager
    def during(self, name: str, stage: Stage) -> Iterator[None]:
        """Enter a stage, which is an act, and leave it."""
        with ExitStack() as stack:
            self(name, lambda: stack.enter_context(stage))
            yield
