"""From an environment to files: what is written, where, and that it is the same every time."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from charts.manifest import Manifest, chart_of
from charts.render import Rendered, render, render_all, render_endpoint, to_yaml, write
from charts.site import Site
from dpd.environment.environment import Environment
from dpd.environment.load import load
from dpd.environment.names import MANAGED_BY, cluster_labels
from tests.support import ROOT, base, environment

EXAMPLES = sorted((ROOT / "environments").glob("*.yaml"))


def example(path: Path) -> Environment:
    loaded = load(path)
    assert loaded.environment is not None, loaded.findings
    return loaded.environment


def files(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield str(file.relative_to(folder)), file.read_text(encoding="utf-8")


def config_map(name: str = "a", **data: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def labelled() -> dict[str, Any]:
    """With the labels that all objects of this tool have."""
    return {**config_map(), "metadata": {"name": "a", "labels": cluster_labels()}}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_manifest_says_who_made_it(path: Path) -> None:
    made = render_all(example(path)).manifests()
    assert {manifest.body["metadata"]["labels"]["app.kubernetes.io/managed-by"] for manifest in made} == {MANAGED_BY}


def test_manifests_of_dev(snapshot: SnapshotAssertion) -> None:
    rendered = render(environment())
    assert {
        f"{folder}/{manifest.path}": to_yaml(manifest) for folder, group in rendered.folders().items() for manifest in group
    } == snapshot


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_core_objects_of_every_example_are_legal(path: Path) -> None:
    made = example(path)
    for manifest in render(made).manifests():
        if "." not in manifest.body["apiVersion"]:
            kubernetes_validate.validate(manifest.body, made.cluster.kubernetes_version, strict=True)


def test_folders_come_in_the_order_of_application() -> None:
    extra = Manifest(path="configmap-a.yaml", body=config_map())
    rendered = render(environment(), cluster=(extra,))
    assert list(rendered.folders()) == ["_cluster", "_namespaces/inference", "llama-70b", "_gate"]
    assert [manifest.kind for manifest in rendered.manifests()][:3] == ["ConfigMap", "Namespace", "InferenceEndpointConfig"]


def test_lustre_is_mounted_where_weights_are_read_from_it() -> None:
    rendered = render(environment({"endpoints[0].model.source": {"lustre": {"path": "/checkpoints/llama"}}}))
    kinds = [(manifest.kind, manifest.namespace) for manifest in rendered.namespaces["inference"]]
    assert kinds == [("Namespace", ""), ("PersistentVolume", ""), ("PersistentVolumeClaim", "inference")]


def test_one_endpoint_alone_is_what_it_is_among_all() -> None:
    made = environment()
    assert render_endpoint(made.endpoints[0], Site.of(made)) == render(made).endpoints["llama-70b"]


def test_no_endpoint_no_manifest(tmp_path: Path) -> None:
    rendered = render(environment({"endpoints": []}))
    assert (rendered.endpoints, rendered.namespaces) == ({}, {})
    assert {path.parent.name for path in write(rendered, tmp_path)} == {"_gate"}
    assert write(render(environment({"endpoints": [], "gate.deploy": False})), tmp_path) == []
    assert list(files(tmp_path)) == []


def test_two_writes_and_two_hash_seeds_give_the_same_bytes(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from charts.render import render, write; from dpd.environment.load import load\n"
        "for file in sys.argv[2:]: write(render(load(Path(file)).environment), Path(sys.argv[1]))"
    )
    results = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        for _ in range(2):
            subprocess.run(
                [sys.executable, "-c", code, str(folder), *map(str, EXAMPLES)],
                check=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONHASHSEED": seed},
            )
        results.append(dict(files(folder)))
    assert results[0] == results[1]
    assert "dev/llama-70b/inferenceendpointconfig-llama-70b.yaml" in results[0]


def test_written_files_hold_what_was_rendered(tmp_path: Path) -> None:
    rendered = render(environment())
    written = write(rendered, tmp_path)
    assert written == sorted(tmp_path.rglob("*.yaml"))
    bodies = {str(path.relative_to(tmp_path / "dev")): yaml.safe_load(path.read_text(encoding="utf-8")) for path in written}
    assert bodies == {f"{folder}/{manifest.path}": manifest.body for folder, group in rendered.folders().items() for manifest in group}


def test_stale_files_go_and_neighbours_stay(tmp_path: Path) -> None:
    (tmp_path / "dev" / "old").mkdir(parents=True)
    (tmp_path / "dev" / "old" / "a.yaml").write_text(to_yaml(Manifest("a.yaml", labelled())))
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "b.yaml").write_text("b: 1")
    (tmp_path / "notes.txt").write_text("mine")
    write(render(environment()), tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dev", "notes.txt", "staging"]
    assert not (tmp_path / "dev" / "old").exists()
    assert (tmp_path / "staging" / "b.yaml").read_text() == "b: 1"


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "main.py").write_text("mine")
    with pytest.raises(FileExistsError, match=r"main\.py"):
        write(render(environment()), tmp_path)
    assert list(files(tmp_path)) == [("dev/main.py", "mine")]


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "dev").write_text("mine")
    with pytest.raises(FileExistsError, match="is a file"):
        write(render(environment()), tmp_path)
    assert list(files(tmp_path)) == [("dev", "mine")]


def test_a_failed_write_leaves_the_old_files(tmp_path: Path) -> None:
    good = Rendered("dev", {"e": (Manifest("a.yaml", labelled()),)}, {})
    write(good, tmp_path)
    before = list(files(tmp_path))
    unwritable = Rendered("dev", {"e": (Manifest("a" * 300, config_map()),)}, {})
    with pytest.raises(OSError, match="too long"):
        write(unwritable, tmp_path)
    assert list(files(tmp_path)) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["dev"]


TRICKY = [
    "1e3",
    "0o17",
    "0x1F",
    "y",
    "N",
    "yes",
    "on",
    "true",
    "null",
    "~",
    "1.34",
    "0",
    "-1",
    ".5",
    "1_000",
    "=",
    "2026-01-01",
    "",
    " a",
    "a: b",
    "#",
]


@pytest.mark.parametrize("text", TRICKY)
def test_texts_stay_texts(text: str) -> None:
    written = to_yaml(Manifest("a.yaml", config_map(key=text)))
    assert yaml.safe_load(written)["data"]["key"] == text
    if text in {"1e3", "0o17", "y", "N"}:  # read as text by PyYAML either way, and not by Kubernetes
        assert f'"{text}"' in written


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_yaml_round_trip(value: Any) -> None:
    body = {"apiVersion": "v1", "value": value}
    assert yaml.safe_load(to_yaml(Manifest("a.yaml", body))) == body


def test_equal_parts_are_written_in_full() -> None:
    part = {"a": "b"}
    assert "&" not in to_yaml(Manifest("a.yaml", {"x": part, "y": part}))


def test_any_body_survives_cdk8s() -> None:
    body = {
        **config_map("a"),
        "spec": {
            "zeta": 1,
            "alpha": [{"n": "0", "f": 0.75, "t": True}],
            "empty": {},
            "none": [],
            "k.v/x": "${TOKEN}",
            "deep": {"a": {"b": {"c": 1}}},
        },
    }
    (manifest,) = chart_of([body])
    assert manifest.body == body
    assert list(manifest.body["spec"]) == list(body["spec"])
    assert manifest.path == "configmap-a.yaml"


def test_a_hundred_endpoints_have_a_folder_each() -> None:
    one = base()["endpoints"][0]
    many = [{**one, "name": f"llama-{index}", "namespace": f"team-{index % 3}"} for index in range(100)]
    rendered = render(environment({"endpoints": many, "gate.deploy": False}))
    assert len(rendered.endpoints) == 100
    assert list(rendered.namespaces) == ["team-0", "team-1", "team-2"]
    assert len({(manifest.kind, manifest.namespace, manifest.name) for manifest in rendered.manifests()}) == 103
