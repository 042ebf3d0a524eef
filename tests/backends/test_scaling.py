"""The signals: which series they read, that each is exported by the pinned software, and what guards them."""

import re
from pathlib import Path
from typing import Any

import pytest

from dpd.backends.backend import backend
from dpd.backends.scaling import NoVelocityError, RecordingRule, Signal, recording_rules, signals
from dpd.backends.site import Site
from dpd.catalog.engines import lists
from dpd.catalog.images import default_image
from tests.support import EXAMPLE, LLMD_EXAMPLE, environment

WORKSPACE = "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1"
E = "endpoints[0]."
SCALED: dict[str, Any] = {
    f"{E}{role}.autoscaling": {"min_replicas": 1, "max_replicas": 3, "tokens": {"prometheus": WORKSPACE}} for role in ("prefill", "decode")
}
_SERIES = re.compile(r"(?:vllm:|llm_d_epp_)[a-z_0-9]+")


def of(role: str, example: Path = LLMD_EXAMPLE, changes: dict[str, Any] | None = None) -> dict[str, Signal]:
    known = environment({**SCALED, **(changes or {})}, example=example)
    return {signal.name: signal for signal in signals(known.endpoints[0], role, Site.of(known))}


def rules(example: Path) -> tuple[RecordingRule, ...]:
    known = environment(SCALED, example=example)
    return recording_rules(known.endpoints[0], Site.of(known))


@pytest.mark.parametrize(("example", "name"), [(EXAMPLE, "operator"), (LLMD_EXAMPLE, "llm-d")])
def test_every_series_is_one_that_the_pinned_software_exports(example: Path, name: str) -> None:
    queries = [signal.query for role in ("prefill", "decode") for signal in of(role, example).values()]
    found = {series for text in [*queries, *(rule.expression for rule in rules(example))] for series in _SERIES.findall(text)}
    assert found
    engine, picker = lists("vllm", default_image(name).vllm), lists("llm-d-picker", "0.10.0")
    unknown = {series for series in found if not (engine if series.startswith("vllm:") else picker).exports(series)}
    assert unknown == set()


@pytest.mark.parametrize("example", [EXAMPLE, LLMD_EXAMPLE])
def test_every_series_is_of_this_endpoint_s_own_pods(example: Path) -> None:
    for role in ("prefill", "decode"):
        for signal in of(role, example).values():
            selectors = re.findall(r"(?:vllm:|llm_d_epp_)[a-z_0-9]+(\{[^}]*\})?", signal.query)
            assert selectors
            assert all('namespace="inference"' in each and "llama-70b" in each for each in selectors)


def test_the_picker_s_count_is_only_of_pods_that_it_still_knows() -> None:
    query = of("prefill")["prefill-backlog"].query
    assert "llm_d_epp_inflight_tokens" in query
    assert re.search(r'"endpoint_name", "\(\.\+\)"\) and on \(target_pod\) label_replace\(llm_d_epp_per_endpoint_queue_size', query)


@pytest.mark.parametrize("strategy", ["kv_aware", "round_robin"])
def test_a_picker_that_counts_no_tokens_is_not_asked(strategy: str) -> None:
    query = of("prefill", changes={f"{E}routing.strategy": strategy})
    assert "llm_d_epp" not in query["prefill-backlog"].query
    assert "vllm:num_requests_waiting" in query["prefill-backlog"].query


def test_the_operator_s_router_counts_none_either() -> None:
    assert "llm_d_epp" not in of("prefill", EXAMPLE)["prefill-backlog"].query


@pytest.mark.parametrize("example", [EXAMPLE, LLMD_EXAMPLE])
def test_sums_and_no_averages_over_pods(example: Path) -> None:
    for role in ("prefill", "decode"):
        for signal in of(role, example).values():
            assert not re.search(r"\bavg\s*(\(|by)", signal.query)


def test_the_velocity_of_the_file_counts_and_the_target_is_the_share_that_is_full() -> None:
    signal = of("prefill", changes={f"{E}prefill.autoscaling.tokens.tokens_per_second": 12345.0})["prefill-rate"]
    assert "/ 12345 > 0" in signal.query
    assert signal.target == 0.7


def test_backlog_is_what_the_objective_leaves() -> None:
    plain = of("prefill", changes={f"{E}prefill.autoscaling.tokens.tokens_per_second": 8192.0})["prefill-backlog"]
    assert plain.target == pytest.approx((2.0 - 4096 / 8192) * 2 / 3, abs=0.01)
    assert of("prefill", changes={f"{E}prefill.autoscaling.tokens.backlog_seconds": 0.5})["prefill-backlog"].target == 0.5


def test_an_expert_parallel_role_has_a_cache_for_each_rank() -> None:
    changes = {
        f"{E}decode.expert_parallel": {"nodes": 2},
        f"{E}decode.tensor_parallel": 1,
        f"{E}decode.autoscaling.tokens.tokens_per_second": 900.0,
    }
    found = of("decode", changes=changes)
    assert found["decode-kv"].query.endswith("/ 16")
    assert found["decode-places"].query.endswith(f"/ {16 * 32}")
    with pytest.raises(NoVelocityError):
        of("decode", changes={**changes, f"{E}decode.autoscaling.tokens.tokens_per_second": None})


def test_names_of_another_endpoint_that_begins_alike_do_not_match() -> None:
    query = of("prefill", EXAMPLE)["prefill-rate"].query
    (pattern,) = set(re.findall(r'pod=~"([^"]+)"', query))
    assert re.fullmatch(pattern, "prefill-llama-70b-6f9c7d5b8c-x2x4z")
    assert not re.fullmatch(pattern, "prefill-llama-70b-long-6f9c7d5b8c-x2x4z")


@pytest.mark.parametrize("example", [EXAMPLE, LLMD_EXAMPLE])
def test_recording_rules_say_what_each_signal_wants_and_what_pods_really_do(example: Path) -> None:
    found = [(rule.record, rule.labels["role"], rule.labels.get("signal", "")) for rule in rules(example)]
    assert found == [
        ("dpd:replicas_wanted", "prefill", "prefill-rate"),
        ("dpd:replicas_wanted", "prefill", "prefill-spread"),
        ("dpd:replicas_wanted", "prefill", "prefill-backlog"),
        ("dpd:replicas_wanted", "decode", "decode-rate"),
        ("dpd:replicas_wanted", "decode", "decode-kv"),
        ("dpd:replicas_wanted", "decode", "decode-places"),
        ("dpd:token_velocity", "prefill", ""),
        ("dpd:token_velocity", "decode", ""),
    ]


def test_the_operator_takes_the_signals_through_its_own_resource() -> None:
    known = environment(SCALED)
    (body,) = backend("operator").objects(known.endpoints[0], Site.of(known))
    scaling = body["spec"]["pdSpec"]["autoScalingSpec"]
    prefill, decode = (
        [each["name"] for each in scaling[f"{role}AutoScaling"]["prometheusTriggerList"]] for role in ("prefill", "decoding")
    )
    assert prefill == ["prefill-rate", "prefill-spread", "prefill-backlog"]
    assert decode == ["decode-rate", "decode-kv", "decode-places"]
    (first, *_) = scaling["prefillAutoScaling"]["prometheusTriggerList"]
    assert (first["serverAddress"], first["targetValue"], first["metricType"]) == (WORKSPACE, 0.7, "Average")
    assert scaling["prefillAutoScaling"]["scaleDownStabilizationTime"] == 900
