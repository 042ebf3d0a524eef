"""What a plan does to a file: only values change, the result says the layout, and the checks find nothing new."""

from pathlib import Path
from typing import Any

import pytest

from commands.plan_words import patched
from dpd.checks.registry import Context, run
from dpd.environment.environment import Environment
from dpd.environment.load import load_text
from dpd.environment.yaml_edit import edited as edited_text
from dpd.planning.candidate import Candidate, Case
from dpd.planning.case import of_file
from dpd.planning.closed_form import estimate
from dpd.planning.needs import size
from dpd.planning.patch import Patch, patch_of
from tests.planning.simulated import case
from tests.support import EXAMPLE, TODAY, environment

E = "endpoints[0]"


def patch(candidate: Candidate, changes: dict[str, Any] | None = None, *, gpus: int = 16, rate: float = 2.0) -> Patch:
    there = environment(changes)
    asked: Case = case(rate, gpus=gpus)
    outcome = estimate(candidate, asked)
    sized = size(there.endpoints[0], asked, outcome)
    return patch_of(there, 0, asked, outcome, sized.buffer_floor_gib, sized.sequences)


def said(found: Patch) -> dict[str, Any]:
    return {edit.path: edit.after for edit in found.edits}


def test_the_layout_of_the_file_needs_no_change() -> None:
    found = patch(Candidate.disaggregated(1, 1, 8, threshold_tokens=4096))
    assert found.edits == ()
    assert found.by_hand == ()


def test_whole_nodes_keep_their_groups() -> None:
    found = patch(Candidate.disaggregated(2, 1, 8, threshold_tokens=2048), gpus=24)
    assert said(found) == {
        f"{E}.prefill.replicas": 2, f"{E}.routing.threshold_tokens": 2048, "cluster.groups.prefill.count": 2,
    }  # fmt: skip


def test_parts_of_nodes_share_a_group() -> None:
    found = patch(Candidate.disaggregated(3, 1, 4, threshold_tokens=4096))
    assert said(found) == {
        f"{E}.prefill.replicas": 3, f"{E}.prefill.tensor_parallel": 4, f"{E}.decode.tensor_parallel": 4, f"{E}.prefill.group": "decode",
        "cluster.groups.decode.count": 2, "cluster.groups.prefill.count": 0,
    }  # fmt: skip
    assert "share the nodes of decode" in found.by_hand[0]


def test_many_sequences_raise_the_limit_and_few_leave_it() -> None:
    many = patch(Candidate.disaggregated(3, 1, 4, threshold_tokens=4096), rate=5.0)
    assert said(many)[f"{E}.decode.max_concurrent_sequences"] > 32
    asked = patch(Candidate.disaggregated(3, 1, 4, threshold_tokens=4096), {f"{E}.decode.max_concurrent_sequences": 200}, rate=5.0)
    assert f"{E}.decode.max_concurrent_sequences" not in said(asked)


def test_a_small_buffer_grows_and_a_large_one_stays() -> None:
    assert said(patch(Candidate.disaggregated(1, 1, 8, threshold_tokens=4096), {f"{E}.kv.buffer_gib": 1})) == {f"{E}.kv.buffer_gib": 2}


def test_autoscaling_still_contains_the_replicas() -> None:
    scaled = {f"{E}.prefill.autoscaling": {"min_replicas": 3, "max_replicas": 4}, f"{E}.prefill.replicas": 3}
    found = said(patch(Candidate.disaggregated(1, 1, 8, threshold_tokens=4096), scaled))
    assert found[f"{E}.prefill.autoscaling.min_replicas"] == 1
    assert found[f"{E}.prefill.autoscaling.max_replicas"] == 1
    grows = {**scaled, "cluster.groups.prefill.max_count": 4}
    assert f"{E}.prefill.autoscaling.max_replicas" not in said(patch(Candidate.disaggregated(1, 1, 8, threshold_tokens=4096), grows))


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate.disaggregated(3, 1, 4, threshold_tokens=2048),
        Candidate.disaggregated(1, 3, 4),
        Candidate.disaggregated(2, 1, 8, threshold_tokens=512),
    ],
    ids=lambda candidate: candidate.name,
)
def test_the_patched_file_says_the_layout_and_passes_the_checks(candidate: Candidate) -> None:
    found = patch(candidate, gpus=candidate.gpus)
    text = EXAMPLE.read_text(encoding="utf-8")
    after = edited_text(text, [edit.change for edit in found.edits])
    loaded = load_text(after, Path("dev.yaml"))
    assert isinstance(loaded.environment, Environment)
    assert of_file(loaded.environment.endpoints[0]) == candidate
    assert [finding.id for finding in run(loaded.environment, Context(today=TODAY)) if finding.stops] == []
    comments = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    assert [line for line in after.splitlines() if line.lstrip().startswith("#")] == comments
    assert after.count("\n") == text.count("\n")


def test_nothing_to_patch_leaves_the_text() -> None:
    class NoPatch:
        patch = None

    assert patched(NoPatch(), "a: 1\n") == "a: 1\n"  # type: ignore[arg-type]
