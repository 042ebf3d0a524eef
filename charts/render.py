"""From an environment to manifests, and from manifests to files."""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from charts import llmd, operator
from charts.gate import gate_objects
from charts.manifest import Manifest, chart_of
from charts.namespace import BUILT_IN, namespace
from charts.observe import observe_objects
from charts.prerequisites import prerequisites
from charts.site import PLACEHOLDERS, Site
from charts.volumes import lustre_objects
from dpd.checks.manifests import beyond_checks
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.environment.names import MANAGED_BY
from dpd.finding import Finding
from dpd.observe.files import files

NAMESPACES_FOLDER: Final = "_namespaces"
CLUSTER_FOLDER: Final = "_cluster"
GATE_FOLDER: Final = "_gate"
OBSERVE_FOLDER: Final = "_observe"

_BACKENDS: Final[dict[str, Callable[[Endpoint, Site], tuple[dict[str, Any], ...]]]] = {
    "operator": operator.objects,
    "llm-d": llmd.objects,
}
_MARK: Final = f"app.kubernetes.io/managed-by: {MANAGED_BY}".encode()
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, slots=True)
class Rendered:
    """All manifests of one environment.

    ``endpoints`` and ``namespaces`` map a name to the objects of that endpoint or namespace, in file order of the
    environment. ``cluster`` holds objects that belong to the whole cluster; whoever installs those passes them in.
    ``gate`` is what the health gate may read, empty without one. ``observe`` is what a Prometheus on the cluster reads, and
    ``documents`` are dashboards and rules for whoever imports them, by file.
    """

    environment: str
    endpoints: Mapping[str, tuple[Manifest, ...]]
    namespaces: Mapping[str, tuple[Manifest, ...]]
    cluster: tuple[Manifest, ...] = field(default=())
    gate: tuple[Manifest, ...] = field(default=())
    observe: tuple[Manifest, ...] = field(default=())
    documents: Mapping[str, str] = field(default_factory=dict)

    def folders(self) -> dict[str, tuple[Manifest, ...]]:
        """Folder, relative to the environment's, of every group of manifests."""
        cluster = {CLUSTER_FOLDER: self.cluster} if self.cluster else {}
        namespaces = {f"{NAMESPACES_FOLDER}/{name}": objects for name, objects in self.namespaces.items()}
        gate = {GATE_FOLDER: self.gate} if self.gate else {}
        observe = {OBSERVE_FOLDER: self.observe} if self.observe else {}
        return {**cluster, **namespaces, **self.endpoints, **gate, **observe}

    def manifests(self) -> tuple[Manifest, ...]:
        """Every manifest, in the order in which they must be applied: cluster, namespaces, endpoints, gate, monitors."""
        return tuple(manifest for group in self.folders().values() for manifest in group)

    def placeholders(self) -> tuple[str, ...]:
        """Marks of values that only a deployment knows and that are still to be filled in."""
        text = json.dumps([manifest.body for manifest in self.manifests()])
        return tuple(mark for mark in PLACEHOLDERS if mark in text)

    def filled(self, values: Mapping[str, str]) -> "Rendered":
        """The same with values in the place of their marks."""
        return replace(
            self,
            endpoints={name: _filled(group, values) for name, group in self.endpoints.items()},
            namespaces={name: _filled(group, values) for name, group in self.namespaces.items()},
            cluster=_filled(self.cluster, values),
            documents={name: _replaced(text, values) for name, text in self.documents.items()},
        )


def _filled(manifests: tuple[Manifest, ...], values: Mapping[str, str]) -> tuple[Manifest, ...]:
    return tuple(replace(manifest, body=_replaced(manifest.body, values)) for manifest in manifests)


def _replaced(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, values) for item in value]
    if isinstance(value, str):
        for mark, known in values.items():
            value = value.replace(mark, known)
    return value


def render(environment: Environment, cluster: tuple[Manifest, ...] = ()) -> Rendered:
    """Render every endpoint and namespace of an environment that the checks accept."""
    site = Site.of(environment)
    return Rendered(
        environment=environment.name,
        endpoints={endpoint.name: render_endpoint(endpoint, site) for endpoint in environment.endpoints},
        namespaces={name: chart_of(bodies) for name, bodies in _namespaces(environment, site).items()},
        cluster=cluster,
        gate=gate_objects(environment) if environment.gate.deploy else (),
        observe=observe_objects(environment),
        documents=files(environment),
    )


def render_all(environment: Environment) -> Rendered:
    """Render an environment with what its cluster needs first, unless the adopted cluster has that already."""
    cluster = environment.cluster
    adopted = cluster.existing is not None and cluster.existing.prerequisites == "exists"
    first = prerequisites(region=environment.region, groups=cluster.groups, repositories=cluster.agent_repositories)
    return render(environment, () if adopted else first)


def render_examined(environments: Iterable[Environment]) -> tuple[list[Rendered], list[Finding]]:
    """Render environments that the checks accept, and say what only their objects show and must stop a synth."""
    ready, unfit = [], []
    for environment in environments:
        rendered = render_all(environment)
        unfit += [found for found in beyond_checks(environment, [manifest.body for manifest in rendered.manifests()]) if found.stops]
        ready.append(rendered)
    return ready, unfit


def render_endpoint(endpoint: Endpoint, site: Site) -> tuple[Manifest, ...]:
    """Render one endpoint with its backend."""
    objects = _BACKENDS[endpoint.backend](endpoint, site)
    return chart_of(objects)


def _namespaces(environment: Environment, site: Site) -> dict[str, tuple[dict[str, Any], ...]]:
    """Objects by namespace. Built-in namespaces are not made; they can still hold a claim."""
    result: dict[str, tuple[dict[str, Any], ...]] = {}
    for name in dict.fromkeys(endpoint.namespace for endpoint in environment.endpoints):
        on_lustre = any(endpoint.namespace == name and endpoint.uses_lustre for endpoint in environment.endpoints)
        made = () if name in BUILT_IN else (namespace(name),)
        mounts = lustre_objects(site.prefix, name, site.lustre) if on_lustre and site.lustre else ()
        if made or mounts:
            result[name] = (*made, *mounts)
    return result


def to_yaml(manifest: Manifest) -> str:
    """An object as YAML: keys in the order in which they were written, no aliases, long lines left alone."""
    return str(yaml.dump(manifest.body, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=4096, allow_unicode=True))


class _Dumper(_DUMPER):  # type: ignore[misc, valid-type]
    """Writes equal parts out in full, and quotes texts that Kubernetes' own YAML reader would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: Any, text: str) -> Any:
    quoted = '"' if _LIKE_ANOTHER_TYPE.fullmatch(text) else None
    # A file within an object is there to be read. PyYAML quotes what a block cannot hold.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else quoted)


# PyYAML leaves 1e3, 0o17 and y bare; Go's reader makes a number or a boolean of them, and the API server refuses the field.
_LIKE_ANOTHER_TYPE: Final = re.compile(r"[-+]?\.?[0-9].*|[yYnN]", re.DOTALL)
_Dumper.add_representer(str, _text)


def write(rendered: Rendered, folder: Path) -> list[Path]:
    """Write the manifests of an environment below ``folder/<environment>``, replacing what was there; returns the files.

    Everything is written beside the old folder first and swapped in at the end, so a reader sees the old set or the new
    one. Raises ``FileExistsError`` when the folder to replace holds a file that is no manifest of this tool, since what it
    replaces is gone, and ``OSError`` when the disk refuses.
    """
    texts = {Path(name, manifest.path): to_yaml(manifest) for name, group in rendered.folders().items() for manifest in group}
    return _swapped(folder, rendered.environment, texts)


def write_documents(rendered: Rendered, folder: Path) -> list[Path]:
    """Write dashboards and files of rules below ``folder/<environment>``, in the same way.

    Not among the manifests: they are no objects of Kubernetes, and ``kubectl apply`` of a folder reads every JSON and YAML file.
    """
    return _swapped(folder, rendered.environment, {Path(name): text for name, text in rendered.documents.items()})


def _swapped(folder: Path, name: str, texts: Mapping[Path, str]) -> list[Path]:
    target = folder / name
    _ours(folder, target)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
    try:
        written = _fill(texts, fresh / "new")
        if target.exists():
            target.rename(fresh / "old")
        try:
            (fresh / "new").rename(target)
        except OSError:
            (fresh / "old").rename(target)
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return [target / file for file in written]


def _fill(texts: Mapping[Path, str], folder: Path) -> list[Path]:
    folder.mkdir(mode=0o755)
    for file, text in sorted(texts.items()):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    return sorted(texts)


def _ours(folder: Path, target: Path) -> None:
    if taken := next((place for place in (folder, target) if place.exists() and not place.is_dir()), None):
        raise FileExistsError(f"{taken} is a file; name another output folder")
    foreign = next((file for file in sorted(target.rglob("*")) if not file.is_dir() and not _made_here(file)), None)
    if foreign is not None:
        raise FileExistsError(f"{target} holds {foreign.relative_to(target)}, which this tool did not write; name another output folder")


def _made_here(file: Path) -> bool:
    """Whether a file has the label that every manifest and every document of this tool has."""
    return file.suffix in (".yaml", ".json") and _MARK in file.read_bytes()
