"""What may differ between two environments of one release, and what may not."""

from pathlib import Path
from typing import Any

import pytest

from dpd.promotion.allowed import BUILT_IN
from dpd.promotion.compare import differences, release
from dpd.review.assembly import NotAnAssemblyError, read
from tests.promotion.made import DIGEST, IMAGE, OTHER_DIGEST, STAGING, assembly, typed
from tests.support import LLMD_EXAMPLE, REMOVE, ROOT

Changes = dict[str, Any]
REVISION = "endpoints[0].model.revision"
IEC = "InferenceEndpointConfig/llama-70b"


def found(tmp_path: Path, changes: Changes, before: Changes | None = None, *, example: Path | None = None) -> list[tuple[str, str]]:
    kind = {"example": example} if example else {}
    folder = assembly(tmp_path / "out", typed("dev", before, **kind), typed("staging", {**STAGING, **changes}, **kind))
    whole = read(folder)
    return [(each.id, each.path) for each in differences(release(whole, "dev"), release(whole, "staging"))]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "region": "us-west-2",
            "network.gpu_subnet.availability_zone_id": "usw2-az1",
            "network.control_plane_availability_zone_ids": ["usw2-az2", "usw2-az3"],
        },
        {"network.gpu_subnet.availability_zone_id": "use2-az2", "network.control_plane_availability_zone_ids": ["use2-az1", "use2-az3"]},
        {"tags": {"owner": "somebody-else", "cost-center": "1"}},
        {"cluster.groups.prefill.count": 4, "endpoints[0].prefill.replicas": 4},
        {"cluster.groups.decode.count": 2, "endpoints[0].decode.replicas": 2},
        {"storage.models": {"bucket": {"existing": "weights-of-staging", "region": "us-east-2"}}},
    ],
)
def test_names_places_and_numbers_differ_without_a_word(tmp_path: Path, changes: Changes) -> None:
    assert found(tmp_path, changes) == []


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"endpoints[0].routing.threshold_tokens": 2048}, "spec.pdSpec.routingThreshold"),
        ({"endpoints[0].prefill.extra_args": ["--max-num-batched-tokens", "4096"]}, "spec.pdSpec.prefillSpec.args"),
        ({"endpoints[0].kv.buffer_gib": 16}, "spec.worker.environmentVariables[PD_BUFFER_SIZE].value"),
        ({"endpoints[0].environment": {"VLLM_LOGGING_LEVEL": "DEBUG"}}, "spec.worker.environmentVariables[VLLM_LOGGING_LEVEL]"),
    ],
)
def test_what_pods_and_routes_are_made_of_may_not_differ_unless_it_is_declared(tmp_path: Path, changes: Changes, where: str) -> None:
    refused = found(tmp_path / "a", changes)
    assert {id_ for id_, _ in refused} == {"PRM005"}
    assert where in {path.split(" ")[-1] for _, path in refused}
    own = [{"object": IEC, "field": path.split(" ")[-1], "reason": "measured for this load"} for _, path in refused]
    assert found(tmp_path / "b", {**changes, "promotion": {"differences": own}}) == []


def test_the_own_account_stands_for_itself_and_that_of_another_environment_for_a_mistake(tmp_path: Path) -> None:
    team = {"endpoints[0].environment": {"TEAM": "of 111122223333"}}
    assert [id_ for id_, _ in found(tmp_path, team, team)] == ["PRM005"]
    assert found(tmp_path / "b", {"endpoints[0].environment": {"TEAM": "of 222233334444"}}, team) == []


@pytest.mark.parametrize(
    ("image", "says"),
    [
        ({**IMAGE, "digest": OTHER_DIGEST}, "PRM007"),
        ({key: value for key, value in IMAGE.items() if key != "digest"}, "PRM007"),
        ({**IMAGE, "repository": "222233334444.dkr.ecr.us-east-2.amazonaws.com/vllm"}, None),
        ({**IMAGE, "tag": "another-tag"}, None),
    ],
)
def test_an_image_is_told_by_its_digest_and_by_nothing_else(tmp_path: Path, image: dict[str, Any], says: str | None) -> None:
    assert {id_ for id_, _ in found(tmp_path, {"endpoints[0].image": image})} == ({says} if says else set())


def test_no_declaration_lets_another_image_pass(tmp_path: Path) -> None:
    declared = {"promotion": {"differences": [{"object": IEC, "field": "spec.worker", "reason": "all of the worker"}]}}
    ids = [id_ for id_, _ in found(tmp_path, {"endpoints[0].image": {**IMAGE, "digest": OTHER_DIGEST}, **declared})]
    assert "PRM007" in ids
    assert DIGEST != OTHER_DIGEST


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ({}, {REVISION: "b" * 40}, "model.revision"),
        ({}, {REVISION: REMOVE}, "model.revision"),
        ({REVISION: REMOVE}, {REVISION: REMOVE}, "model.revision"),
        ({}, {"endpoints[0].model.catalog": "llama-3.1-70b-instruct"}, "model.name"),
    ],
)
def test_the_model_and_its_revision_must_be_the_same_and_known(tmp_path: Path, before: Changes, after: Changes, path: str) -> None:
    refused = [where for id_, where in found(tmp_path, after, before) if id_ == "PRM008"]
    assert [where.split(" ")[-1] for where in refused] == [path]


def test_an_object_of_one_environment_alone_is_refused_unless_it_is_declared(tmp_path: Path) -> None:
    lustre = {"endpoints[0].model.source": {"lustre": {"path": "/checkpoints/Llama"}}}
    assert {"PRM005", "PRM006"} == {id_ for id_, _ in found(tmp_path / "a", lustre)}
    reason = "weights on Lustre"
    own = [
        {"object": IEC, "field": "spec.modelSourceConfig", "reason": reason},
        {"object": "PersistentVolume/{prefix}-inference-lustre", "reason": reason},
        {"object": "PersistentVolumeClaim", "reason": reason},
    ]
    assert found(tmp_path / "b", {**lustre, "promotion": {"differences": own}}) == []


def test_a_declaration_that_matches_nothing_is_said(tmp_path: Path) -> None:
    declared = {"promotion": {"differences": [{"object": IEC, "field": "spec.routing", "reason": "misspelled, of course"}]}}
    assert found(tmp_path, declared) == [("PRM009", "promotion.differences[0]")]


def test_llm_d_objects_are_compared_by_what_their_names_stand_for(tmp_path: Path) -> None:
    """Claims and volumes on the model bucket carry a digest of its name."""
    assert {id_ for id_, _ in found(tmp_path / "a", {}, example=LLMD_EXAMPLE)} <= {"PRM008"}
    assert "PRM005" in {id_ for id_, _ in found(tmp_path / "b", {"endpoints[0].routing.threshold_tokens": 999}, example=LLMD_EXAMPLE)}


def test_a_field_holds_what_is_below_it_and_not_what_begins_like_it() -> None:
    (place,) = [each for each in BUILT_IN if each.field == "spec.tags"]
    assert place.holds("InferenceEndpointConfig", "a", "spec.tags[owner].value")
    assert not place.holds("InferenceEndpointConfig", "a", "spec.tagsOfOthers")
    assert not place.holds("Deployment", "a", "spec.tags")
    assert not place.holds("InferenceEndpointConfig", "a", "")


def test_an_assembly_without_the_environment_or_of_an_older_tool_is_refused(tmp_path: Path) -> None:
    whole = read(assembly(tmp_path / "out", typed("dev")))
    with pytest.raises(NotAnAssemblyError, match="it has: dev"):
        release(whole, "prod")
    del whole.summaries["dev"]["promotion"]
    with pytest.raises(NotAnAssemblyError, match="make synth"):
        release(whole, "dev")


def test_every_built_in_difference_is_in_the_document() -> None:
    page = (ROOT / "docs" / "promotion.md").read_text(encoding="utf-8")
    for place in BUILT_IN:
        assert f"`{place}`" in page
