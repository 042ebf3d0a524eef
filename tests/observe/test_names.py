"""Every name in every question is one that the pinned software exports, of the kind that it is asked as."""

import pytest

from dpd.observe import rules
from dpd.observe.alarms import alarms
from dpd.observe.panels import endpoint_dashboard, fleet_dashboard
from dpd.observe.records import records
from dpd.observe.watched import Watched
from tests.observe.support import EXAMPLES, PATHS, PROMETHEUS_OWN, changed, kind_of, listed, names, one, parsed, selectors


def expressions(it: Watched) -> list[str]:
    pages = [endpoint_dashboard(it), fleet_dashboard([it], it.environment)]
    return [
        *(record.expression for record in records(it)),
        *(alarm.expression for alarm in alarms(it)),
        *(query.expression for page in pages for query in page.queries()),
    ]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_question_is_promql_and_asks_for_what_is_exported(kind: str, path: str) -> None:
    it = one(kind, path)
    recorded = {record.name for record in records(it)}
    asked: set[str] = set()
    for expression in expressions(it):
        for name in names(expression):
            asked.add(name)
            if name.startswith("dpd:"):
                assert name in recorded, f"{name} is recorded by nobody"
                continue
            known = listed(name, it.versions)
            assert name in PROMETHEUS_OWN or (known is not None and known.exports(name)), f"nobody exports {name}: {expression}"
    assert {name for name in asked if name.startswith("vllm:")}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_series_is_asked_as_what_it_is(kind: str) -> None:
    """A rate of a gauge, a quantile of a counter or a bare counter say something, and it is wrong."""
    it = one(kind)
    for expression in expressions(it):
        for selector in selectors(parsed(expression)):
            known = listed(selector.name, it.versions)
            if known is None:
                continue
            of, ending = kind_of(selector.name, known)
            if of == "counter":
                assert f"{selector.name}{{" in expression
                place = expression.index(f"{selector.name}{{")
                assert expression[:place].endswith(("rate(", "increase(", "absent(")), expression
                # Python's client adds _total to every counter; other exporters do not.
                assert ending == ("_total" if known.software in ("vllm", "lmcache") else ""), expression
            elif of == "histogram":
                assert ending in ("_bucket", "_sum", "_count"), expression
            elif of == "gauge":
                assert ending == "", expression


def test_an_image_with_another_vllm_is_asked_by_its_own_list() -> None:
    """The lists are those of the version in the image: a name that came later is not there."""
    old = changed("operator", {})
    assert old.versions.vllm == "0.19.0"
    assert listed("vllm:admission_rejections_total", old.versions).exports("vllm:prompt_tokens_total")  # type: ignore[union-attr]
    assert not listed("vllm:no_such_thing", old.versions).exports("vllm:no_such_thing")  # type: ignore[union-attr]


def test_engines_and_exporters_are_told_apart_where_the_add_on_names_pods_in_its_way() -> None:
    theirs, ours = one("operator", "hyperpod_add_on"), one("llm-d", "hyperpod_add_on")
    assert 'pod_name=~"decode-' in " ".join(record.expression for record in records(theirs))
    assert "pod_name" not in rules.compact(ours)
    assert "pod_name" not in rules.compact(one("operator", "in_cluster"))


def test_one_endpoint_is_not_taken_for_another_whose_name_begins_like_it() -> None:
    import re

    for kind, right, wrong in (
        ("operator", "prefill-llama-70b-6d4f9c7b5-x2x9z", "prefill-llama-70b-b-6d4f9c7b5-x2x9z"),
        ("llm-d", "llama-70b-prefill-0c8d4a3d-6d4f9c7b5-x2x9z", "llama-70b-b-prefill-0c8d4a3d-6d4f9c7b5-x2x9z"),
        ("wide", "deepseek-r1-prefill-cdda5f6f-0-1", "deepseek-r1-x-prefill-cdda5f6f-0-1"),
    ):
        pattern = one(kind).prefill.pattern
        assert re.fullmatch(pattern, right), pattern
        assert not re.fullmatch(pattern, wrong), pattern
    grouped = changed("llm-d", {"endpoints[0].workload": "disaggregated_set"})
    assert re.fullmatch(grouped.decode.pattern, "llama-70b-0c8d4a3d-0-5f7c-decode-1")
    assert not re.fullmatch(grouped.decode.pattern, "llama-70b-0c8d4a3d-0-5f7c-prefill-1")
