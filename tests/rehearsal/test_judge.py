"""The gate's own checks reach processes, and each fault of a hand-over is found by its own check."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from health_gate.report import Report
from health_gate.result import failed

from rehearsal.drive import Driver
from rehearsal.front import Counted, Front, Routes
from rehearsal.judge import LAYERS, Stand, first_cause, judge
from rehearsal.stage import Script
from tests.rehearsal.engines import BLOCK, Engine, serving
from tests.rehearsal.support import plan

PREFILL, DECODE, FRONT = "127.0.11.1", "127.0.11.2", "127.0.11.3"


@dataclass
class Scene:
    script: Script
    front: Front
    prefill: Engine
    decode: Engine
    stands: list[Stand]
    stack: ExitStack

    def judged(self) -> Report:
        return judge(self.script.spec, self.stands, self.front, impatient=True)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    script, _ = plan()
    (endpoint,) = script.spec.endpoints
    # What the gate waits for are real clusters; here everything is there at once.
    quick = replace(script.spec, deadlines=replace(script.spec.deadlines, settle_seconds=0.3))
    script = replace(script, spec=quick)
    log = tmp_path / "log"
    log.write_text("started\n")
    assert endpoint.decisions
    with ExitStack() as stack:
        engines = {
            role: stack.enter_context(serving(Engine(), (address, endpoint.pods[role].port)))
            for role, address in (("prefill", PREFILL), ("decode", DECODE))
        }
        routes = Routes([engines["prefill"].url], [engines["decode"].url], script.threshold_tokens, endpoint.characters_per_token)
        places = [(FRONT, endpoint.pods["router"].port), (FRONT, endpoint.pods[endpoint.decisions.role].port)]
        front = stack.enter_context(Front(routes, places, Counted(endpoint.decisions.split[0], endpoint.decisions.whole[0])))
        stands = [Stand("prefill-0", "prefill", PREFILL, log), Stand("decode-0", "decode", DECODE, log)]
        yield Scene(script, front, engines["prefill"], engines["decode"], stands, stack)


def test_everything_passes_and_only_what_can_be_judged_is(scene: Scene) -> None:
    report = scene.judged()
    assert first_cause(report) == "", report.table()
    named = replace(report, results=(replace(failed("no", "try"), id="traffic.stream"), *report.results))
    assert (first_cause(named), first_cause(named, besides={"traffic.stream"})) == ("traffic.stream", "")
    assert {result.id.partition(".")[0] for result in report.results} == set(LAYERS)
    assert not any(result.skipped for result in report.results)


def test_a_threshold_above_the_prompt_is_found_by_traffic(scene: Scene) -> None:
    scene.front.routes.threshold_tokens *= 100
    assert first_cause(scene.judged()) == "traffic.long"


def test_a_threshold_below_the_short_prompt_is_found_by_traffic(scene: Scene) -> None:
    scene.front.routes.threshold_tokens = 1
    assert first_cause(scene.judged()) == "traffic.short"


def test_other_weights_are_found_by_the_answers(scene: Scene) -> None:
    scene.decode.weights = "two"
    assert first_cause(scene.judged()) == "answers.match"


def test_a_missing_connector_is_found_by_the_kv(scene: Scene) -> None:
    scene.decode.deaf = True
    assert first_cause(scene.judged()) == "kv.moved"


def test_a_decoder_that_does_all_alone_is_found_by_traffic(scene: Scene) -> None:
    scene.front.routes.prefill, scene.front.routes.no_prefiller = ["http://127.0.11.1:1"], "fallback"
    assert first_cause(scene.judged()) == "traffic.long"


@pytest.mark.parametrize(("weights", "equal"), [("one", True), ("two", False)])
def test_the_driver_sees_bytes_ways_and_answers(scene: Scene, weights: str, equal: bool) -> None:
    scene.decode.weights = weights
    (endpoint,) = scene.script.spec.endpoints
    driver = Driver(endpoint, scene.front, [scene.prefill.url], [scene.decode.url], BLOCK, lambda _: None)
    long, short = driver.samples(1, 1)
    assert (long.split, long.exact, long.equal, long.external_tokens) == (True, True, equal, long.prompt_tokens)
    assert (short.split, short.kv_bytes, short.equal, short.external_tokens) == (False, 0, None, 0)
    assert long.kv_bytes > 0


def test_each_worker_gets_a_first_prompt(scene: Scene) -> None:
    (endpoint,) = scene.script.spec.endpoints
    Driver(endpoint, scene.front, [scene.prefill.url], [scene.decode.url], BLOCK, lambda _: None).warm()
    assert (scene.prefill.requests, scene.decode.requests, scene.front.trips) == (1, 1, [])


def test_the_benchmark_shares_colocated_requests_out_to_all_workers(scene: Scene) -> None:
    (endpoint,) = scene.script.spec.endpoints
    driver = Driver(endpoint, scene.front, [scene.prefill.url], [scene.decode.url], BLOCK, lambda _: None)
    cost = driver.cost(2)
    assert (scene.prefill.requests, scene.decode.requests) == (4 + 2, 4 + 2)
    assert cost.throughput_ratio == cost.disaggregated.requests_per_second / cost.colocated.requests_per_second
    assert cost.handover_ms == cost.disaggregated.ttft_ms - cost.colocated.ttft_ms
