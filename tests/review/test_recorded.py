"""Whole reviews of real assemblies: a change of an argument, of a group and of the AZ, each with its verdict."""

import json
from typing import Any, Final

import pytest

from dpd.review.assembly import Assembly
from dpd.review.compare import Review, Verdict, compare
from dpd.review.library import Library
from dpd.review.machine import as_json
from pages.review import review_page
from pages.review_markdown import review_markdown
from tests.review.conftest import Synthesize

SPARE: Final = {"cluster.groups.spare": {"instance_type": "ml.p5.48xlarge", "count": 1, "capacity": "on_demand"}}
ARGUMENT: Final = {"endpoints[0].prefill.extra_args": ["--max-num-batched-tokens", "4096"]}
ZONE: Final = {"network.gpu_subnet.availability_zone_id": "use2-az2"}


def reviewed(before: Assembly, after: Assembly, library: Library) -> Review:
    return compare(before, after, library)


def test_nothing_changes_between_two_syntheses_of_one_file(assembly: Synthesize, library: Library) -> None:
    found = reviewed(assembly({}), assembly({}), library)
    assert found.verdict is Verdict.NOTHING
    assert "Nothing changes" in review_markdown(found, before="a", after="b")


def test_an_argument_restarts_pods_and_is_proven_again(assembly: Synthesize, library: Library) -> None:
    found = reviewed(assembly({}), assembly(ARGUMENT), library)
    assert (found.verdict, found.dangers, found.proven_again) == (Verdict.CHANGES, (), ("dev",))
    (change,) = found.objects
    assert (change.kind, change.folder, change.consequences) == ("InferenceEndpointConfig", "llama-70b", ("restarts pods",))
    types = {resource.type for resource in found.templates.resources}
    assert types == {"Custom::AWSCDK-EKS-KubernetesResource", "Custom::DpdHealthGate", "AWS::Scheduler::Schedule"}


def test_a_group_that_goes_is_dangerous(assembly: Synthesize, library: Library) -> None:
    found = reviewed(assembly(SPARE), assembly({}), library)
    assert [danger.kind for danger in found.dangers] == ["instance group removed"]
    assert "group spare" in review_markdown(found, before="a", after="b")
    (gone,) = [change.finding["id"] for change in found.findings if not change.new]
    assert gone == "PLC007"
    (cost,) = found.costs
    assert any("spare" in line.what for line in cost.lines)


def test_a_group_that_comes_is_not(assembly: Synthesize, library: Library) -> None:
    assert reviewed(assembly({}), assembly(SPARE), library).verdict is Verdict.CHANGES


def test_another_zone_takes_everything_with_it(assembly: Synthesize, library: Library) -> None:
    found = reviewed(assembly({}), assembly(ZONE), library)
    told = {(danger.kind, danger.resource) for danger in found.dangers}
    assert told >= {
        ("replaced", "GpuSubnet"),
        ("availability zone changed", "GpuSubnet"),
        ("replaced", "LustreFileSystem"),
        ("nodes moved", "HyperPodCluster"),
    }


@pytest.mark.parametrize("changes", [ARGUMENT, SPARE, ZONE])
def test_all_forms_say_the_same(changes: dict[str, Any], assembly: Synthesize, library: Library) -> None:
    found = reviewed(assembly({}), assembly(changes), library)
    comment = review_markdown(found, before="main", after="now")
    page = review_page(found, before="main", after="now")
    machine = json.loads(as_json(found))
    assert machine["verdict"] == found.verdict.value
    assert len(comment) < 65_536
    assert review_page(found, before="main", after="now") == page
    for danger in found.dangers:
        assert danger.resource in comment
        assert danger.resource in page
    for word in ("<script", "http://", "src="):
        assert word not in page.replace("http://www.w3.org", "")


def test_an_environment_that_comes_or_goes_is_told(assembly: Synthesize, library: Library) -> None:
    whole = assembly({})
    nothing = Assembly(whole.folder, {}, {})
    came, went = compare(nothing, whole, library), compare(whole, nothing, library)
    assert (came.added, came.verdict) == (("dev",), Verdict.CHANGES)
    assert (went.removed, went.verdict) == (("dev",), Verdict.DANGEROUS)
    assert {danger.kind for danger in went.dangers} >= {"removed", "left behind"}
    assert "environments gone: dev" in review_markdown(went, before="a", after="b")
