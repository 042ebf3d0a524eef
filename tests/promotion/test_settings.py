"""The release file and its mistakes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd.promotion.settings import ReleaseSettings, against, load
from tests.support import REMOVE, ROOT, edited, environment

EXAMPLE = ROOT / "docs" / "pipeline.yaml"
ENVIRONMENTS = [environment({}, name=name) for name in ("dev", "staging", "prod")]


def content() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    return found


def test_the_example_is_right() -> None:
    settings, findings = load(EXAMPLE)
    assert settings is not None
    assert findings == []
    assert list(against(settings, ENVIRONMENTS)) == []


@pytest.mark.parametrize(
    ("changes", "id_", "path"),
    [
        ({"codepipeline": REMOVE, "github": REMOVE}, "CFG005", ""),
        ({"stages": []}, "CFG005", "stages"),
        ({"stages[0].enviroment": "dev"}, "CFG003", "stages[0].enviroment"),
        ({"stages[0].soak_minutes": -1}, "CFG005", "stages[0].soak_minutes"),
        ({"stages[2].allow_replace": "yes"}, "CFG005", "stages[2].allow_replace"),
        ({"codepipeline.account": 444455556666}, "CFG005", "codepipeline.account"),
        (
            {"codepipeline.source.connection_arn": "arn:aws:codestar-connections:us-east-2:444455556666:connection/0a1b"},
            "CFG005",
            "codepipeline.source.connection_arn",
        ),
        ({"github.repository": "example"}, "CFG005", "github.repository"),
        ({"github.repository": "example/*"}, "CFG005", "github.repository"),
        ({"github.owner_id": "example"}, "CFG005", "github.owner_id"),
        ({"github.provider": REMOVE}, "CFG002", "github.provider"),
        ({"app": "a-name-that-is-too-long-for-buckets"}, "CFG005", "app"),
    ],
)
def test_a_mistake_is_said_with_its_place(tmp_path: Path, changes: dict[str, Any], id_: str, path: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(edited(changes, content())), encoding="utf-8")
    settings, findings = load(file)
    assert settings is None
    assert [(each.id, each.path) for each in findings] == [(id_, path)]
    assert all(each.line or not each.path for each in findings)


@pytest.mark.parametrize("text", [None, "", "- a", "version: ["])
def test_a_file_that_cannot_be_read_is_no_traceback(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "pipeline.yaml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    settings, findings = load(file)
    assert settings is None
    assert [each.id for each in findings] == ["CFG001"]


@pytest.mark.parametrize(
    ("changes", "gates", "found"),
    [
        ({"stages[1].environment": "qa"}, {}, [("REL001", "stages[1].environment")]),
        ({"stages[1].environment": "dev"}, {}, [("REL001", "stages[1].environment")]),
        ({}, {"gate.deploy": False}, [("REL002", "stages[0].environment"), ("REL002", "stages[1].environment")]),
        ({"stages[2].soak_minutes": 30}, {}, [("REL002", "stages[2].soak_minutes")]),
        ({"stages[2].soak_minutes": 30}, {"gate.schedule_minutes": 30}, []),
        ({"stages[1].soak_minutes": 0}, {"gate.schedule_minutes": None}, [("REL002", "stages[2].soak_minutes")]),
        ({"codepipeline.region": "eu-west-1"}, {}, [("REL003", "stages[1].soak_minutes"), ("REL003", "stages[2].soak_minutes")]),
        ({"codepipeline.region": "eu-west-1", "codepipeline.monitoring_sink_arn": REMOVE}, {}, []),
    ],
)
def test_what_the_environments_do_not_bear_out(changes: dict[str, Any], gates: dict[str, Any], found: list[tuple[str, str]]) -> None:
    settings = ReleaseSettings.model_validate(edited(changes, content()))
    known = [environment(gates, name=name) for name in ("dev", "staging", "prod")]
    assert [(each.id, each.path) for each in against(settings, known)] == found
