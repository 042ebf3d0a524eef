"""The rehearsal itself, with vLLM, NIXL and LMCache: minutes, and gigabytes once. ``make rehearse`` runs it, ``make test`` does not.

One rehearsal for each backend; every test looks at one thing of it. Skipped with the reason where it cannot be held.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from charts.render import render_endpoint
from dpd.backends.site import Site
from rehearsal import report
from rehearsal.faults import FAULTS
from rehearsal.install import engines
from rehearsal.processes import MARK
from rehearsal.run import Result, rehearse, script
from rehearsal.say import Timed, Unable
from tests.rehearsal.support import BACKENDS, made
from tests.support import ROOT

pytestmark = pytest.mark.rehearsal

OUTPUT = ROOT / "build" / "rehearsal"


def held(backend: str, out: Callable[[str], None]) -> Result:
    environment = made(BACKENDS[backend]).named(BACKENDS[backend].stem)
    endpoint = environment.endpoints[0]
    objects = [manifest.body for manifest in render_endpoint(endpoint, Site.of(environment))]
    plan, seen = script(environment, endpoint, objects)
    say, folder = Timed(out), OUTPUT / environment.name / endpoint.name
    result = rehearse(plan, seen, endpoint, engines(say, lmcache=plan.handover == "lmcache"), folder, say, environment=environment.name)
    report.write(result, folder)
    out(report.summary(result))
    return result


@pytest.fixture(scope="module")
def results(pytestconfig: pytest.Config) -> dict[str, Result | str]:
    """Each backend's rehearsal, or why there is none; told on the terminal while it is held."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    found: dict[str, Result | str] = {}
    with capture.global_and_fixture_disabled():
        for backend in BACKENDS:
            try:
                found[backend] = held(backend, lambda text: print(text, flush=True))
            except Unable as error:
                found[backend] = str(error)
                print(f"No rehearsal of {backend}: {error}", flush=True)
    return found


@pytest.fixture(params=BACKENDS)
def result(request: pytest.FixtureRequest, results: dict[str, Result | str]) -> Result:
    found = results[request.param]
    if isinstance(found, str):
        pytest.skip(found)
    return found


def test_long_prompts_take_all_their_kv_from_prefill(result: Result) -> None:
    long = [sample for sample in result.samples if sample.split]
    assert long
    for sample in long:
        assert sample.external_tokens >= sample.prompt_tokens - 1 - (0 if result.backend == "llm-d" else 256)


def test_exactly_the_computed_bytes_move(result: Result) -> None:
    if result.backend != "llm-d":
        pytest.skip("the connector of the LMCache server counts no bytes")
    assert all(sample.exact for sample in result.samples)


def test_short_prompts_move_nothing(result: Result) -> None:
    short = [sample for sample in result.samples if not sample.split]
    assert short
    assert all((sample.kv_bytes, sample.external_tokens) == (0, 0) for sample in short)


def test_answers_are_the_decoders_own(result: Result) -> None:
    assert [sample.equal for sample in result.samples if sample.split] == [True] * sum(sample.split for sample in result.samples)


def test_the_gate_passes_but_for_what_is_excused(result: Result) -> None:
    assert {each.id for each in result.gate.open} <= result.excused.keys()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_gate_fails_for_the_right_reason(result: Result, fault: object) -> None:
    found = [each for each in result.faults if each.fault is fault]
    if not found:
        pytest.skip(f"not made with {result.backend}")
    assert found[0].cause == found[0].fault.expected, found[0].summary


def test_the_real_parsers_take_what_the_manifests_say(result: Result) -> None:
    assert result.parsed
    assert [each for each in result.parsed if each.complaints] == []


def test_the_report_says_what_was_not_covered(result: Result) -> None:
    folder = OUTPUT / result.environment / result.endpoint
    said = json.loads((folder / report.JSON).read_text())
    assert said["passed"] is True, said["wrong"]
    assert any("EFA" in text for text in said["not_covered"])
    assert (folder / report.MARKDOWN).read_text().startswith("# Rehearsal of")


def test_nothing_runs_any_more(result: Result) -> None:
    mine = f"{MARK}={OUTPUT / result.environment / result.endpoint / 'logs'}".encode()
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mine in (folder / "environ").read_bytes().split(b"\0"):
                left.append(folder.name)
        except OSError:
            continue
    assert left == []
