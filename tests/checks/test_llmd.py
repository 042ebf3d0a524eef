"""Rules of the llm-d backend, and those of the operator that must not speak of it."""

from typing import Any

import pytest

from dpd.backends.llmd.build import build
from dpd.backends.site import Site
from dpd.catalog.controllers import all_controllers
from dpd.catalog.images import default_image
from dpd.catalog.llmd import llmd
from dpd.checks.llmd import RESOURCES_OF_AN_ENDPOINT
from dpd.finding import Level
from tests.support import LLMD_EXAMPLE, REMOVE, base, environment, findings

E = "endpoints[0]."
IMAGE = {"repository": "example.com/vllm", "tag": "1", "vllm": "0.23.0", "nixl": "1.2.0", "digest": f"sha256:{'0' * 64}"}


def image(**parts: str) -> dict[str, Any]:
    return {f"{E}image": {**IMAGE, **parts}}


def said(changes: dict[str, Any] | None, id: str) -> list[tuple[str, Level]]:
    return [(one.path, one.level) for one in findings(changes, id=id, example=LLMD_EXAMPLE)]


@pytest.mark.parametrize(
    ("id", "path", "wrong", "right", "level"),
    [
        ("LLD001", f"{E}image.vllm", image(vllm="0.21.9"), image(vllm="0.22.0"), Level.ERROR),
        ("LLD001", f"{E}image.nixl", image(nixl="0.9.0"), image(nixl="1.0.0"), Level.ERROR),
        ("LLD002", f"{E}image.nixl", image(nixl="1.3.1"), image(nixl="1.3.3"), Level.WARNING),
        ("LLD002", f"{E}image.nixl", image(nixl="1.3.2"), image(nixl="1.2.0"), Level.WARNING),
        ("LLD003", f"{E}kv.block_size", {f"{E}kv.block_size": 32}, {f"{E}kv.block_size": 64}, Level.WARNING),
        ("LLD003", f"{E}kv.block_size", {f"{E}kv.block_size": 16}, {f"{E}kv.block_size": REMOVE}, Level.WARNING),
        ("LLD004", f"{E}decode.privileged", {f"{E}decode.privileged": True}, {}, Level.WARNING),
        ("LLD005", f"{E}image", {}, image(), Level.INFO),
        ("LLD006", f"{E}deploy_timeout_seconds", {f"{E}deploy_timeout_seconds": 60}, {f"{E}deploy_timeout_seconds": 86400}, Level.WARNING),
        (
            "LLD006",
            f"{E}deploy_timeout_seconds",
            {f"{E}deploy_timeout_seconds": 86400, f"{E}workload": "disaggregated_set"},
            {f"{E}workload": "disaggregated_set"},
            Level.WARNING,
        ),
        ("PAR003", f"{E}decode.tensor_parallel", {f"{E}decode.tensor_parallel": 2}, {}, Level.ERROR),
        ("RUN007", f"{E}environment.USER", {f"{E}environment": {"USER": "me"}}, {f"{E}environment": {"USERS": "me"}}, Level.ERROR),
        (
            "RUN007",
            f"{E}environment.LMCACHE_LOCAL_CPU",
            {f"{E}environment": {"LMCACHE_LOCAL_CPU": "True"}},
            {f"{E}environment": {"VLLM_LOGGING_LEVEL": "DEBUG"}},
            Level.ERROR,
        ),
        ("RUN009", f"{E}image.repository", image(repository="vllm/vllm-openai"), image(repository="a.example/llm-d-aws"), Level.ERROR),
        ("RUN010", f"{E}image", image(vllm="0.26.0"), image(), Level.WARNING),
        ("RUN011", f"{E}image", {f"{E}image": {key: value for key, value in IMAGE.items() if key != "digest"}}, {}, Level.INFO),
        ("NAM002", f"{E}name", {f"{E}name": "a" * 44}, {f"{E}name": "a" * 43}, Level.ERROR),
        ("SRC001", f"{E}model.source.lustre", {f"{E}model.source": {"lustre": {"path": "/a"}}, "storage.lustre": REMOVE}, {}, Level.ERROR),
        ("OPR009", f"{E}decode.autoscaling", {f"{E}decode.autoscaling": {"min_replicas": 1, "max_replicas": 1}}, {}, Level.ERROR),
    ],
)  # fmt: skip
def test_the_smallest_wrong_and_the_nearest_right(id: str, path: str, wrong: dict[str, Any], right: dict[str, Any], level: Level) -> None:
    assert (path, level) in said(wrong, id)
    assert not said(right, id)


def test_huge_pages_are_asked_for_in_the_file() -> None:
    pages = {f"{E}prefill.hugepages_mib": 5120, f"{E}decode.hugepages_mib": 5120}
    assert said({f"{E}environment": {"FI_EFA_USE_HUGE_PAGE": "1"}}, "RUN008")
    assert not said({**pages, f"{E}environment": {"FI_EFA_USE_HUGE_PAGE": "1"}}, "RUN008")


@pytest.mark.parametrize(
    ("id", "changes"),
    [
        ("OPR001", {f"{E}routing.strategy": "kv_aware"}),
        ("OPR004", {f"{E}decode.replicas": 2}),
        ("OPR005", {f"{E}prefill.replicas": 3}),
        ("OPR014", {f"{E}decode.max_surge": 1}),
        ("NAM001", {f"{E}namespace": "n" * 50}),
        ("MEM004", {f"{E}model.max_model_len": 131072}),
        ("PAR005", {f"{E}model.catalog": "gpt-oss-120b"}),
        ("PLC009", {"cluster.groups.decode.taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}),
        ("CLU018", {"region": "ap-southeast-5", "network.gpu_subnet.availability_zone_id": "apse5-az1"}),
        ("INS006", {"cluster.groups.decode.instance_type": "ml.g6e.48xlarge"}),
    ],
)  # fmt: skip
def test_what_is_true_of_the_operator_is_not_said_of_llmd(id: str, changes: dict[str, Any]) -> None:
    assert not said(changes, id)


def test_the_example_stops_for_nothing_and_warns_of_nothing() -> None:
    assert {one.level for one in findings(example=LLMD_EXAMPLE)} == {Level.INFO}


def test_the_set_is_consistent() -> None:
    known, server = llmd(), default_image("llm-d")
    assert (server.vllm, server.nixl) == (known.versions["vllm"].version, known.versions["nixl"].version)
    assert {image.tag for name, image in known.images.items() if name != "envoy"} == {f"v{known.versions['router'].version}"}
    for digest in (server.digest, *(image.digest for image in known.images.values())):
        assert digest.startswith("sha256:")
        assert len(digest) == 71
    for name, controller in all_controllers().items():
        assert name not in known.versions or known.versions[name].version == controller.version
    for part in known.versions.values():
        assert not part.oldest or tuple(map(int, part.oldest.split("."))) <= tuple(map(int, part.version.split(".")))


def test_system_nodes_have_slots_for_controllers_too() -> None:
    closed = {f"cluster.groups.{group}.taints": [{"key": "gpu", "effect": "NoSchedule"}] for group in ("prefill", "decode")}
    small: dict[str, Any] = {**closed, "cluster.groups.system": {"instance_type": "ml.c5.2xlarge", "count": 1}}
    behind: dict[str, Any] = {**small, f"{E}routing.gateway": {}}
    (plain,), (more,) = (findings(changes, id="CAP008", example=LLMD_EXAMPLE) for changes in (small, behind))
    assert plain.message.startswith("13 for the add-ons + 2 for the cluster")
    assert more.message.startswith("13 for the add-ons + 3 for controllers + 2 for the cluster")


@pytest.mark.parametrize("namespace", ["istio-system", "lws-system", "keda"])
def test_namespaces_of_controllers_are_theirs(namespace: str) -> None:
    assert said({f"{E}namespace": namespace}, "NAM006") == [(f"{E}namespace", Level.ERROR)]


@pytest.mark.parametrize("changes", [{}, {f"{E}routing.gateway": {}}, {f"{E}routing.strategy": "kv_aware"}])
def test_the_longest_name_that_passes_is_short_enough_for_every_object(changes: dict[str, Any]) -> None:
    known = environment({f"{E}name": "a" * 43, **changes}, example=LLMD_EXAMPLE)
    assert not said({f"{E}name": "a" * 43, **changes}, "NAM002")
    for body in build(known.endpoints[0], Site.of(known)):
        assert len(body["metadata"]["name"]) <= 63, body["kind"]
        assert all(len(value) <= 63 for value in body["metadata"]["labels"].values())


def test_a_stack_holds_so_many_endpoints() -> None:
    # "LLD007"
    one = base(LLMD_EXAMPLE)["endpoints"][0]
    most = 400 // RESOURCES_OF_AN_ENDPOINT
    many = [{**one, "name": f"e-{number}"} for number in range(most + 1)]
    (found,) = findings({"endpoints": many}, id="LLD007")
    assert (found.path, found.limit) == ("endpoints", f"{most} llm-d endpoints")
    assert not findings({"endpoints": many[:-1]}, id="LLD007")
