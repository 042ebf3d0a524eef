"""The JSON Schema says of a file what the types say of it."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from dpd.environment.descriptions import descriptions, json_schema
from dpd.environment.environment import Environment
from tests.environment.test_load import ONE_FINDING_EACH
from tests.support import ROOT, base, edited

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

# What a pattern cannot say: sums, calendars, networks of a size, the catalog, and names that AWS keeps.
BEYOND_A_SCHEMA = (
    "cluster.api_access.public_cidrs[0]", "network.gpu_subnet.cidr", "endpoints[0].model", "tags.aws:mine",
    "endpoints[0].model.source.volume",
)  # fmt: skip


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("file", sorted((ROOT / "environments").glob("*.yaml")), ids=lambda file: file.stem)
def test_it_accepts_every_shipped_file_and_they_point_at_it(file: Any) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=../docs/environment.schema.json\n")
    VALIDATOR.validate(yaml.safe_load(text))


@pytest.mark.parametrize(("changes", "expected"), ONE_FINDING_EACH)
def test_it_refuses_what_the_types_refuse(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    valid = VALIDATOR.is_valid(edited(changes))
    if any(isinstance(value, float) and value.is_integer() for value in changes.values()):
        assert valid, "to a JSON Schema 2.0 is an integer"
    elif not expected:
        assert valid
    elif any(path not in BEYOND_A_SCHEMA for _, path in expected):
        assert not valid


@pytest.mark.parametrize("key", sorted(SCHEMA["$defs"]))
def test_every_part_is_closed_and_every_field_described(key: str) -> None:
    part = SCHEMA["$defs"][key]
    assert part["additionalProperties"] is False
    assert part["description"]
    for name, field in part["properties"].items():
        assert field["description"] == descriptions()[key][name]
        assert "title" not in field


def test_class_names_are_unique_so_that_descriptions_cannot_be_mixed_up() -> None:
    fields = {name: set(part.get("properties", {})) for name, part in SCHEMA["$defs"].items()}
    assert all(fields[name] <= set(descriptions()[name]) for name in fields)
    assert set(SCHEMA["properties"]) == set(descriptions()["Environment"])


@pytest.mark.parametrize(
    ("path", "value", "valid"),
    [
        ("endpoints[0].model.source", {"s3": {"prefix": "a/"}, "lustre": None}, True),
        ("endpoints[0].model.source", {"s3": {"prefix": "a/"}, "hub": {"model_id": "a/b", "revision": "0" * 40}}, False),
        ("endpoints[0].model.source", {}, False),
        ("endpoints[0].model", {"source": {"s3": {"prefix": "a/"}}, "max_model_len": 1}, False),
        ("endpoints[0].kv.shared_tier", "xnone", False),
        ("endpoints[0].kv.shared_tier", "tiered_storage", True),
        ("cluster.groups.prefill.labels", {"a": "b"}, True),
        ("cluster.groups.Prefill", {"instance_type": "ml.c5.4xlarge", "count": 1}, False),
        ("endpoints[0].environment", {"1A": "b"}, False),
    ],
)
def test_shapes_of_which_one_must_hold(path: str, value: Any, valid: bool) -> None:
    assert VALIDATOR.is_valid(edited({path: value})) is valid


def test_the_model_agrees_on_null_beside_the_one_that_is_given() -> None:
    content = edited({"endpoints[0].model.source": {"s3": {"prefix": "a/"}, "lustre": None}}, base())
    assert Environment.model_validate(content).endpoints[0].model.source.kind == "s3"


def test_it_is_plain_json() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
