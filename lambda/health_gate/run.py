"""One run of the gate: every check in its order, each within its deadline, the first cause first."""

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from eks_api.reasons import Denied, Impossible, Waiting

from health_gate import answers, aws, cluster, kv, traffic, workload
from health_gate.report import Report
from health_gate.result import CHECKS, ENDPOINT_LAYERS, LAYERS, Check, Outcome, Patience, Result, failed, unknown
from health_gate.spec import Endpoint, Spec
from health_gate.view import Clients, Clock, EndpointView, Memory, SystemClock, View

MODULES: Final = (aws, cluster, workload, traffic, kv, answers)
"""Importing them is what registers the checks."""
ORDERED: Final = tuple(sorted(CHECKS.values(), key=lambda check: LAYERS.index(check.layer)))
"""Every check, in the order in which they run."""
PARALLEL: Final = 4
"""Endpoints that are examined at the same time; each has pods of its own."""
_SLACK_SECONDS: Final = 0.5
_DENIED: Final = (
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "403",
    "Forbidden",
    "ExpiredToken",
    "ExpiredTokenException",
)
_ABSENT: Final = ("NotFound", "NoSuch", "404", "ResourceNotFound")


def run(spec: Spec, clients: Clients, clock: Clock | None = None, *, keep_going: bool = False, seconds: float | None = None) -> Report:
    """Prove an environment, and say what is not proven. Raises nothing.

    A layer that is not proven stops those above it: their checks are UNKNOWN because of it. ``keep_going`` examines them
    all the same, which is what somebody who looks for a fault wants.
    """
    clock = clock or SystemClock()
    begin, started = time.monotonic(), clock.now()
    deadline = begin + (spec.deadlines.run_seconds if seconds is None else seconds)
    runner = _Runner(spec, clients, clock, deadline, keep_going=keep_going)
    try:
        shared = runner.environment()
        mine = runner.endpoints(shared)
    finally:
        runner.close()
    return Report(spec.environment, (*shared, *chain.from_iterable(mine)), started, time.monotonic() - begin)


class _Runner:
    def __init__(self, spec: Spec, clients: Clients, clock: Clock, deadline: float, *, keep_going: bool) -> None:
        self._spec, self._clients, self._clock, self._deadline, self._keep_going = spec, clients, clock, deadline, keep_going
        self._memory = Memory()

    def environment(self) -> list[Result]:
        """The layers that all endpoints share."""

        def view(until: float) -> View:
            return View(self._spec, self._clients, self._clock, self._memory, until)

        return self._layers([layer for layer in LAYERS if layer not in ENDPOINT_LAYERS], [], view)

    def endpoints(self, shared: list[Result]) -> list[list[Result]]:
        """The layers of each endpoint, in the order of the spec."""
        todo: SimpleQueue[int] = SimpleQueue()
        for place in range(len(self._spec.endpoints)):
            todo.put(place)
        found: list[list[Result]] = [[] for _ in self._spec.endpoints]

        def work() -> None:
            while True:
                try:
                    place = todo.get_nowait()
                except Empty:
                    return
                found[place] = self._endpoint(self._spec.endpoints[place], shared)

        workers = [Thread(target=work, daemon=True) for _ in range(min(PARALLEL, len(found)))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return found

    def close(self) -> None:
        """Close the connections to the cluster."""
        if kubernetes := self._memory.peek("kubernetes"):
            kubernetes.close()

    def _endpoint(self, endpoint: Endpoint, shared: list[Result]) -> list[Result]:
        def view(until: float) -> View:
            return EndpointView(self._spec, self._clients, self._clock, self._memory, until, endpoint=endpoint)

        return [replace(result, endpoint=endpoint.key) for result in self._layers(list(ENDPOINT_LAYERS), shared, view)]

    def _layers(self, layers: list[str], before: list[Result], view: Callable[[float], View]) -> list[Result]:
        found: list[Result] = []
        for layer in layers:
            cause = None if self._keep_going else next(_open(before + found), None)
            found += self._layer(layer, cause, view)
        return found

    def _layer(self, layer: str, cause: Result | None, view: Callable[[float], View]) -> list[Result]:
        found: dict[str, Result] = {}
        for check in (each for each in ORDERED if each.layer == layer):
            needed = cause or next((found[id] for id in check.needs if id in found and not found[id].passed), None)
            result = _skipped(needed) if needed else self._examine(check, view)
            if result is not None:
                found[check.id] = replace(result, id=check.id)
        return list(found.values())

    def _examine(self, check: Check, view: Callable[[float], View]) -> Result | None:
        begin = time.monotonic()
        allowed = min(self._spec.deadlines.checks.get(check.id, check.seconds), self._deadline - begin)
        if allowed <= 0:
            return unknown("There was no time left in this run.", "Give the run more time, or look why the checks before it are slow.")
        result = within(check, view(begin + allowed), allowed + _SLACK_SECONDS)
        return None if result is None else replace(result, seconds=round(time.monotonic() - begin, 3))


def _open(results: list[Result]) -> Iterator[Result]:
    return (result for result in results if not result.passed and not result.skipped)


def _skipped(cause: Result) -> Result:
    text = f"Not examined, because {cause.id} did not pass." if not cause.skipped else cause.summary
    return Result(Outcome.UNKNOWN, text, patience=cause.patience, skipped=True)


def within(check: Check, view: View, seconds: float) -> Result | None:
    """Call a check and take its result if it comes in time. Its thread is left alone otherwise: it holds nothing that others need."""
    results: SimpleQueue[Result | None] = SimpleQueue()

    def work() -> None:
        try:
            results.put(check.function(view))
        except Exception as error:
            results.put(explained(error))

    Thread(target=work, daemon=True, name=check.id).start()
    try:
        return results.get(timeout=seconds)
    except Empty:
        return unknown(f"It did not end within {seconds:.0f} seconds.", "Something does not answer: look at the checks before this one.")


def explained(error: Exception) -> Result:
    """What an exception means. Messages of unknown exceptions are not shown: they may hold what must not be logged."""
    response = getattr(error, "response", None)
    if isinstance(response, dict) and "Error" in response:
        return _refused(str(response["Error"].get("Code", "")), getattr(error, "operation_name", "an operation"))
    if isinstance(error, Impossible):
        return failed(str(error), "Correct the spec or the environment.")
    if isinstance(error, Denied):
        return unknown(str(error), "Give the caller an access entry and the gate's read-only rights.", patience=Patience.GRACE)
    if isinstance(error, Waiting):
        return unknown(str(error), "Check the way to the cluster: security groups, private endpoint and DNS.")
    return _surprise(error)


def _surprise(error: Exception) -> Result:
    if isinstance(error, TimeoutError):
        return unknown("It did not end within its time.", "Something does not answer: look at the checks before this one.")
    if type(error).__name__ == "ParamValidationError":
        return failed("The spec holds a value that AWS does not take.", "Correct the names and ids of this check in the spec.")
    if type(error).__module__.startswith("botocore"):
        text = f"AWS did not answer ({type(error).__name__})."
        return unknown(text, "Check credentials, and the way to the service: a NAT gateway or an interface endpoint.")
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = f"The check itself failed: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}."
    remedy = "This is a fault of the gate, or something answered in a form that nobody expected. Please report it."
    return unknown(text, remedy, patience=Patience.GRACE)


def _refused(code: str, operation: str) -> Result:
    if code in _DENIED:
        return unknown(
            f"The caller may not call {operation} ({code}).", f"Allow {operation} to the caller's role.", patience=Patience.GRACE
        )
    if any(word in code for word in _ABSENT):
        return failed(f"{operation}: {code}.", "It does not exist: correct its name, or deploy it first.")
    return unknown(f"{operation} failed: {code}.", "Try again; see the service's status.")
