"""Environment files of a given size, made from the shipped dev environment."""

import copy
from pathlib import Path
from typing import Any

import yaml

DEV = Path(__file__).parent.parent / "docs" / "example.yaml"
LLMD = DEV.with_name("example-llm-d.yaml")


def with_endpoints(count: int, example: Path = DEV) -> dict[str, Any]:
    """The dev environment, or another example, with ``count`` endpoints and nodes enough for all of them and their routers."""
    content: dict[str, Any] = yaml.safe_load(example.read_text(encoding="utf-8"))
    for group in ("prefill", "decode"):
        content["cluster"]["groups"][group]["count"] = count
    content["cluster"]["groups"]["system"]["count"] = max(2, count)
    first = content["endpoints"][0]
    if example == LLMD and count > 1:
        # One stack does not hold a hundred: whoever has so many applies the rendered manifests.
        content["acknowledge"] = [{"id": "LLD007", "reason": "manifests are applied from a repository"}]
    content["endpoints"] = [copy.deepcopy(first) | {"name": f"llama-{index:03}"} for index in range(count)]
    return content


def folder_of(parent: Path, name: str, environments: dict[str, dict[str, Any]]) -> Path:
    """Write environment files into ``<parent>/<name>/environments`` and return ``<parent>/<name>``."""
    folder = parent / name
    (folder / "environments").mkdir(parents=True)
    for file, content in environments.items():
        (folder / "environments" / f"{file}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return folder
