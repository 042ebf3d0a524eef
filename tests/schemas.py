"""Any object against the schema that the API server would use: Kubernetes' own, or that of a CRD file."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema
import kubernetes_validate
import yaml

_FREE: Final = "x-kubernetes-preserve-unknown-fields"


def is_core(body: dict[str, Any]) -> bool:
    """Whether Kubernetes itself defines the object: its groups have no dot, or end in k8s.io without being a project's."""
    group = body["apiVersion"].rpartition("/")[0]
    return "." not in group or group in {"networking.k8s.io", "rbac.authorization.k8s.io"}


def check(body: dict[str, Any], crds: Path, *, kubernetes_version: str = "1.34", release: str = "") -> None:
    """Refuse what the API server would refuse or prune. ``release``, the end of a file's name, chooses among several of one kind."""
    if is_core(body):
        kubernetes_validate.validate(body, kubernetes_version, strict=True)
    else:
        jsonschema.Draft202012Validator(_schema(crds, body["apiVersion"], body["kind"], release)).validate(body)


@cache
def _schema(crds: Path, api_version: str, kind: str, release: str) -> dict[str, Any]:
    group, _, name = api_version.rpartition("/")
    for file in sorted(crds.glob(f"{group}_*{release}.yaml")):
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        if content["spec"]["names"]["kind"] == kind:
            version = next(version for version in content["spec"]["versions"] if version["name"] == name)
            found = _closed(version["schema"]["openAPIV3Schema"])
            assert isinstance(found, dict)
            found["properties"] |= {"metadata": {"type": "object"}, "apiVersion": {"const": api_version}, "kind": {"const": kind}}
            return found
    raise LookupError(f"no file in {crds} defines {kind} of {api_version}")


def _closed(node: Any) -> Any:
    """An OpenAPI schema of Kubernetes as JSON schema that admits no unknown field."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _closed(value) for key, value in node.items()}
    if node.pop("x-kubernetes-int-or-string", False) is True:
        node.pop("anyOf", None)
        node["type"] = ["integer", "string"]
    if (
        isinstance(node.get("properties"), dict)
        and "additionalProperties" not in node
        and not node.get(_FREE)
        and node.get("type") == "object"
    ):
        node["additionalProperties"] = False
    return node
