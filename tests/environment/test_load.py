"""Bad files: every mistake at its exact place, once, in words, and never an exception or a credential."""

import copy
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dpd.checks.registry import Context, run
from dpd.environment.environment import Environment
from dpd.environment.load import Loaded, load, load_text
from dpd.environment.mistakes import _homes, keys_at
from dpd.environment.yaml_file import Place, YamlError, place_of
from dpd.finding import Finding
from tests.support import EXAMPLE, REMOVE, ROOT, TODAY, base, edited

FILE = EXAMPLE
TEXT = FILE.read_text(encoding="utf-8")
SECRET = "hf_" + "a1B2" * 8
PATHS = tuple(home.replace("[]", "[0]").replace(".<name>", ".n1") for home in _homes())


def findings_of(content: Any) -> list[Finding]:
    return load_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), FILE).findings


def findings(changes: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding.id, finding.path) for finding in findings_of(edited(changes))]


def forced(content: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    """The content with a value at a place, whatever stands in the way."""
    content = copy.deepcopy(content)
    here: Any = content
    for part, after in pairwise(place):
        if not isinstance(_at(here, part), list if isinstance(after, int) else dict):
            _put(here, part, [] if isinstance(after, int) else {})
        here = _at(here, part)
    _put(here, place[-1], value)
    return content


def _at(holder: Any, part: str | int) -> Any:
    if isinstance(holder, list):
        return holder[part] if isinstance(part, int) and part < len(holder) else None
    return holder.get(part)


def _put(holder: Any, part: str | int, value: Any) -> None:
    if isinstance(holder, list) and part == len(holder):
        holder.append(value)
    else:
        holder[part] = value


def test_the_shipped_files_are_read_without_a_finding() -> None:
    for file in sorted((ROOT / "environments").glob("*.yaml")):
        loaded = load(file)
        assert loaded.findings == []
        assert loaded.environment is not None
        assert loaded.environment.name == file.stem


def test_no_union_is_left_whose_branches_pydantic_would_all_report() -> None:
    """Otherwise one mistake is several findings, at places that the file does not have."""

    def unions(schema: Any) -> Iterator[Any]:
        if isinstance(schema, dict):
            if schema.get("type") == "union":
                yield schema
            for inner in schema.values():
                yield from unions(inner)
        elif isinstance(schema, list | tuple):
            for inner in schema:
                yield from unions(inner)

    Environment.model_rebuild(force=True)
    assert list(unions(Environment.__pydantic_core_schema__)) == []


# fmt: off
ONE_FINDING_EACH: tuple[tuple[dict[str, Any], list[tuple[str, str]]], ...] = (
    # Every union of a word and a mapping: a wrong word, a wrong type, a mapping that lacks or has too much.
    ({"cluster.api_access": "public"}, [("CFG005", "cluster.api_access")]),
    ({"cluster.api_access": 7}, [("CFG005", "cluster.api_access")]),
    ({"cluster.api_access": ["private"]}, [("CFG005", "cluster.api_access")]),
    ({"cluster.api_access": {}}, [("CFG002", "cluster.api_access.public_cidrs")]),
    ({"cluster.api_access": {"public_cidrs": []}}, [("CFG005", "cluster.api_access.public_cidrs")]),
    ({"cluster.api_access": {"public_cidrs": ["0.0.0.0/0"]}}, [("CFG005", "cluster.api_access.public_cidrs[0]")]),
    ({"cluster.api_access": {"public_cidrs": "203.0.113.0/24"}}, [("CFG004", "cluster.api_access.public_cidrs")]),
    ({"cluster.api_access": {"public_cidrs": ["203.0.113.0/24"]}}, []),
    ({"cluster.groups.prefill.capacity": "reserved"}, [("CFG005", "cluster.groups.prefill.capacity")]),
    ({"cluster.groups.prefill.capacity": False}, [("CFG005", "cluster.groups.prefill.capacity")]),
    (
        {"cluster.groups.prefill.capacity": {"training_plan_arn": 3, "az": "x"}},
        [
            ("CFG002", "cluster.groups.prefill.capacity.availability_zone_id"),
            ("CFG003", "cluster.groups.prefill.capacity.az"),
            ("CFG004", "cluster.groups.prefill.capacity.training_plan_arn"),
        ],
    ),
    ({"storage.models.bucket": "my-bucket"}, [("CFG005", "storage.models.bucket")]),
    ({"storage.models.bucket": {"existing": "my-bucket"}}, [("CFG002", "storage.models.bucket.region")]),
    ({"storage.models.bucket": {"existing": "my-bucket", "region": "us-east-2"}}, []),
    ({"storage.encryption_key": "alias/mine"}, [("CFG005", "storage.encryption_key")]),
    ({"storage.encryption_key": {"existing": "alias/mine"}}, [("CFG005", "storage.encryption_key.existing")]),
    ({"endpoints[0].kv.shared_tier": "redis"}, [("CFG005", "endpoints[0].kv.shared_tier")]),
    ({"endpoints[0].kv.shared_tier": {"redis": 1}}, [("CFG004", "endpoints[0].kv.shared_tier")]),
    ({"endpoints[0].kv.shared_tier": "redis://cache.internal:6379"}, []),
    ({"endpoints[0].kv.shared_tier": "rediss://10.1.2.3:65535"}, []),
    *(
        ({"endpoints[0].kv.shared_tier": f"redis://{host}"}, [("CFG005", "endpoints[0].kv.shared_tier")])
        for host in ("a:0", "a:65536", "a:99999", "-:6379", "a-.b:6379", "a..b:6379", "localhost:6379", "127.0.0.1:6379", "0.0.0.0:6379")
    ),
    ({"endpoints[0].environment": {"A": 1}}, [("CFG004", "endpoints[0].environment.A")]),
    ({"endpoints[0].environment": {"A": {"secret": "s"}}}, [("CFG002", "endpoints[0].environment.A.key")]),
    ({"endpoints[0].environment": {"A": {"secret": "S!", "key": "k"}}}, [("CFG005", "endpoints[0].environment.A.secret")]),
    ({"endpoints[0].environment": {"A": {"secret": "s", "key": "k"}, "B": "text"}}, []),
    # Keys of mappings that look like words of the machinery.
    ({"endpoints[0].environment": {"str": {"secret": "s"}}}, [("CFG002", "endpoints[0].environment.str.key")]),
    ({"endpoints[0].environment": {"SecretKey": 1}}, [("CFG004", "endpoints[0].environment.SecretKey")]),
    ({"endpoints[0].environment": {"1A": "x"}}, [("CFG005", "endpoints[0].environment.1A")]),
    ({"cluster.groups.Big": {"instance_type": "ml.c5.4xlarge", "count": 1}}, [("CFG005", "cluster.groups.Big")]),
    ({"cluster.groups.labels": {"instance_type": "ml.c5.4xlarge", "count": "1"}}, [("CFG004", "cluster.groups.labels.count")]),
    ({"cluster.groups.prefill.labels": {"a.b/c": 1}}, [("CFG004", "cluster.groups.prefill.labels.a.b/c")]),
    # Exactly one of several.
    ({"endpoints[0].model.source": {}}, [("CFG005", "endpoints[0].model.source")]),
    ({"endpoints[0].model.source": {"s3": {"prefix": "a/"}, "lustre": {"path": "/a"}}}, [("CFG005", "endpoints[0].model.source")]),
    ({"endpoints[0].model.source": {"volume": {}}}, [("CFG005", "endpoints[0].model.source.volume")]),
    (
        {"endpoints[0].model.source": {"volume": {"host_path": "/opt/dlami/nvme/a", "path": "b"}}},
        [("CFG005", "endpoints[0].model.source.volume")],
    ),
    ({"endpoints[0].model.catalog": REMOVE}, [("CFG005", "endpoints[0].model")]),
    ({"endpoints[0].model.config": "config.json"}, [("CFG005", "endpoints[0].model")]),
    ({"endpoints[0].model.catalog": "gpt-7"}, [("CFG005", "endpoints[0].model")]),
    ({"endpoints[0].model.catalog": REMOVE, "endpoints[0].model.config": "missing.json"}, [("CFG005", "endpoints[0].model")]),
    # Numbers at their limits.
    ({"cluster.groups.system.count": -1}, [("CFG005", "cluster.groups.system.count")]),
    ({"cluster.groups.system.count": 6759}, [("CFG005", "cluster.groups.system.count")]),
    ({"cluster.groups.system.count": 2.0}, [("CFG004", "cluster.groups.system.count")]),
    ({"cluster.groups.system.count": "2"}, [("CFG004", "cluster.groups.system.count")]),
    ({"cluster.groups.system.count": True}, [("CFG004", "cluster.groups.system.count")]),
    ({"endpoints[0].prefill.replicas": 0}, [("CFG005", "endpoints[0].prefill.replicas")]),
    ({"endpoints[0].prefill.gpu_memory_utilization": 1}, [("CFG005", "endpoints[0].prefill.gpu_memory_utilization")]),
    ({"endpoints[0].prefill.gpu_memory_utilization": 0.9}, []),
    # What YAML makes of values without quotes.
    ({"account": 111122223333}, [("CFG005", "account")]),
    ({"cluster.kubernetes_version": 1.34}, [("CFG005", "cluster.kubernetes_version")]),
    ({"app": False}, [("CFG004", "app")]),
    ({"tags": {"a": 1}}, [("CFG004", "tags.a")]),
    ({"version": 2}, [("CFG005", "version")]),
    ({"version": "1"}, [("CFG005", "version")]),
    # Places.
    ({"network.gpu_subnet.availability_zone_id": "us-east-2a"}, [("CFG005", "network.gpu_subnet.availability_zone_id")]),
    ({"network.gpu_subnet.availability_zone_id": "dummy1a"}, [("CFG005", "network.gpu_subnet.availability_zone_id")]),
    ({"network.gpu_subnet.availability_zone_id": "usw2-lax1-az1"}, []),
    ({"network.gpu_subnet.cidr": "10.1.0.1/16"}, [("CFG005", "network.gpu_subnet.cidr")]),
    ({"network.gpu_subnet.cidr": "10.1.0.0/255.255.0.0"}, [("CFG005", "network.gpu_subnet.cidr")]),
    ({"network.gpu_subnet.cidr": "10.1.0.0"}, [("CFG005", "network.gpu_subnet.cidr")]),
    ({"network.gpu_subnet.cidr": "10.0.0.0/8"}, [("CFG005", "network.gpu_subnet.cidr")]),
    ({"network.gpu_subnet.cidr": "2001:db8::/32"}, [("CFG005", "network.gpu_subnet.cidr")]),
    ({"endpoints": {}}, [("CFG004", "endpoints")]),
    ({"endpoints": None}, [("CFG004", "endpoints")]),
    ({"endpoints[0]": "llama"}, [("CFG004", "endpoints[0]")]),
    ({"network": []}, [("CFG004", "network")]),
    ({"tags": "a=b"}, [("CFG004", "tags")]),
    ({"tags": {"aws:mine": "x"}}, [("CFG005", "tags.aws:mine")]),
    ({"acknowledge": [{"id": "MEM001", "reason": "short"}]}, [("CFG005", "acknowledge[0].reason")]),
)
# fmt: on


@pytest.mark.parametrize(("changes", "expected"), ONE_FINDING_EACH)
def test_one_finding_at_each_place(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert sorted(findings(changes)) == sorted(expected)


@pytest.mark.parametrize(
    ("path", "value", "fix"),
    [
        ("cluster.groups.prefill.instance_typ", "x", "did you mean instance_type?"),
        ("endpoints[0].kv.bufferGib", 1, "did you mean buffer_gib?"),
        ("endpoints[0].kv.buffer-gib", 1, "did you mean buffer_gib?"),
        ("endpoints[0].tensor_parallel", 1, "tensor_parallel belongs to endpoints[].prefill or endpoints[].decode"),
        ("kubernetes_version", 1, "kubernetes_version belongs to cluster"),
        ("endpoints[0].vpc_cidr", 1, "vpc_cidr belongs to network"),
        ("storage.models.zzz", 1, "remove it; the keys here are bucket"),
        ("regoin", 1, "did you mean region?"),
    ],
)
def test_an_unknown_key_is_told_what_was_meant(path: str, value: Any, fix: str) -> None:
    (finding,) = findings_of(edited({path: value}))
    assert (finding.id, finding.path) == ("CFG003", path)
    assert finding.fix.startswith(fix)


def test_keys_at_every_place_are_those_of_the_model() -> None:
    assert "instance_type" in keys_at(("cluster", "groups", "labels"))
    assert "training_plan_arn" in keys_at(("cluster", "groups", "labels", "capacity"))
    assert keys_at(("cluster", "groups", "a", "labels")) == []
    assert keys_at(("endpoints", 3, "environment", "A")) == ["secret", "key"]
    assert keys_at(("nowhere", "at", "all")) == []


@pytest.mark.parametrize("path", PATHS)
def test_any_value_at_any_place_is_read_or_refused_in_words(path: str) -> None:
    place = place_of(path)
    values: list[Any] = [None, True, 0, -1, 10**15, 1.5, "", "x" * 10_000, "\u202e🙂\x1b[2J", [], {}, [[1]], {"x": {"y": 1}}, "2026-11-29"]
    for value in values:
        loaded = _validated(forced(base(), place, value))
        for finding in loaded.findings:
            assert finding.id in {"CFG002", "CFG003", "CFG004", "CFG005"}
            assert finding.path, finding
            assert finding.message, finding
            assert finding.fix, finding
            for text in (finding.message, finding.value, finding.limit, finding.fix, finding.path):
                assert text.isprintable()
                assert len(text) < 1_000


def test_a_wrong_type_is_found_at_every_place() -> None:
    """A list inside a list is right nowhere, so that every single field must refuse it, at itself or just inside."""
    free = re.compile(r"\.raw\.(?:spec|\w+)")
    for path in PATHS:
        if free.search(path):
            continue
        found = [finding.path for finding in _validated(forced(base(), place_of(path), [[1]])).findings]
        assert any(place.startswith(path) for place in found), path


def _validated(content: dict[str, Any]) -> Loaded:
    from dpd.environment.load import _validated
    from dpd.environment.yaml_file import Document

    return _validated(Loaded(file="dev.yaml"), Document(content), FILE)


@pytest.mark.parametrize("name", ["Dev", "a_b", "1a", "-a", "a.b", "x" * 64, "dév", "a-", "ä" * 500])
def test_the_name_of_the_file_is_the_name_of_the_environment(name: str) -> None:
    (finding,) = load_text(TEXT, Path(f"{name}.yaml")).findings
    assert finding.id == "CFG006"
    assert len(finding.message) < 400


def test_everything_is_said_at_once_with_its_line() -> None:
    text = (
        TEXT.replace("region: us-east-2", "regoin: us-east-2")
        .replace("count: 2", "count: 010")
        .replace("capacity: on_demand", "capacity: no", 1)
    )
    text = text.replace("threshold_tokens: 4096", "threshold_tokens: -4") + "    name: again\n"
    found = {(finding.id, finding.path): finding.line for finding in load_text(text, FILE).findings}
    lines = {word: number for number, line in enumerate(text.splitlines(), 1) for word in re.findall(r"[\w]+", line)}
    assert found == {
        ("CFG002", "region"): 1,
        ("CFG003", "regoin"): lines["regoin"],
        ("CFG007", "cluster.groups.system.count"): lines["010"],
        ("CFG005", "cluster.groups.prefill.capacity"): lines["no"],
        ("CFG005", "endpoints[0].routing.threshold_tokens"): lines["threshold_tokens"],
        ("CFG007", "endpoints[0].name"): lines["again"],
    }


@pytest.mark.parametrize(
    "text",
    [
        f"{SECRET}: 1\n",
        f"app: {SECRET}\n",
        f"{SECRET}\n",
        f"version: {{{SECRET}: 1, {SECRET}: 2}}\n",
        f"app: *{SECRET}\n",
        f"app: !{SECRET} x\n",
        f"app: '{SECRET}\n",
        f"'{SECRET}' : [\n",
        TEXT.replace("llama-3.3-70b-instruct", SECRET),
        TEXT.replace("catalog: llama-3.3-70b-instruct", f"config: {SECRET}/config.json"),
        TEXT.replace("10.1.0.0/16", SECRET),
        TEXT.replace("use2-az1", SECRET),
        TEXT.replace("count: 2", f"count: {SECRET}"),
        TEXT.replace("prefill: {group", f"prefill: {{hf_token: {SECRET}, group"),
        TEXT.replace("kv: {", f"environment: {{HF_TOKEN: [{SECRET}], '{SECRET}': 1, 'a {SECRET}': x}}\n    kv: {{"),
        TEXT.replace("source: {s3", f"source: {{hub: {{model_id: a/b, revision: main, token: {SECRET}}}, s3"),
    ],
)
def test_a_credential_is_never_repeated(text: str) -> None:
    try:
        shown = repr(load_text(text, FILE).findings)
    except YamlError as error:
        shown = repr(error)
    assert shown != "[]"
    assert SECRET not in shown
    assert SECRET[:16] not in shown


def test_a_password_without_a_known_shape_is_hidden_by_its_key() -> None:
    found = findings_of(edited({"endpoints[0].model.source": {"hub": {"model_id": "a/b", "revision": "0" * 40, "token": "hunter2"}}}))
    assert [finding.id for finding in found] == ["CFG004"]
    assert "hunter2" not in repr(found)


_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates() | st.binary(max_size=9)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=6
)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(PATHS), _values), min_size=1, max_size=4))
def test_any_change_of_values_is_read_or_refused(changes: list[tuple[str, Any]]) -> None:
    content = base()
    for path, value in changes:
        content = forced(content, place_of(path), value)
    try:
        loaded = load_text(yaml.safe_dump(content, allow_unicode=True), FILE)
    except YamlError:
        return
    assert (loaded.environment is None) == bool(loaded.findings)
    if loaded.environment is not None:
        run(loaded.environment, Context(today=TODAY))


@settings(max_examples=150)
@given(st.data())
def test_any_change_of_the_text_is_read_or_refused(data: st.DataObject) -> None:
    text = TEXT
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        text = text[:start] + data.draw(st.text(max_size=6)) + text[start + data.draw(st.integers(0, 12)) :]
    try:
        loaded = load_text(text, FILE)
    except YamlError:
        return
    assert (loaded.environment is None) == bool(loaded.findings)
    if loaded.environment is not None:
        run(loaded.environment, Context(today=TODAY))


def test_a_file_with_thousands_of_mistakes_says_the_first_ones() -> None:
    found = load_text(TEXT + "".join(f"k{number}: 1\n" for number in range(5_000)), FILE).findings
    assert len(found) == 201
    assert found[-1].message == "has 4,800 more mistakes, which are not listed"
