"""llm-d's documented overlay for AWS comes out of one environment file, but for the differences that are listed with their reasons."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd.backends.arguments import parse
from tests.backends.llmd.objects import Body, of_role

DATA = yaml.safe_load((Path(__file__).parent / "data" / "aws_overlay.yaml").read_text(encoding="utf-8"))
ROLES = ("prefill", "decode")


def fields(deployment: Body) -> Body:
    """A Deployment as a flat mapping, so that lists are compared by what they name and not by their order."""
    spec, template = deployment["spec"], deployment["spec"]["template"]
    pod = template["spec"]
    (server,) = pod["containers"]
    arguments = parse(server["args"][1:])
    values = {argument.flag: " ".join(argument.values) for argument in arguments.known}
    config = json.loads(values.pop("--kv-transfer-config"))
    return {
        "replicas": spec["replicas"],
        "update": spec["strategy"]["rollingUpdate"],
        "patience": spec["progressDeadlineSeconds"],
        **{f"labels.{key}": value for key, value in template["metadata"]["labels"].items()},
        "image": server["image"],
        "command": server["command"],
        "model": server["args"][0],
        **{f"args.{flag}": value for flag, value in values.items()},
        **{
            f"kv.{key}": value
            for key, value in {**config, **config.pop("kv_connector_extra_config")}.items()
            if key in config or key == "backends"
        },
        **{f"env.{entry['name']}": entry.get("value", entry.get("valueFrom")) for entry in server["env"]},
        **{f"ports.{port['name']}": port["containerPort"] for port in server["ports"]},
        **{kind: server["resources"][kind] for kind in ("requests", "limits")},
        **{f"volumes.{volume['name']}": {"emptyDir": volume["emptyDir"]} for volume in pod["volumes"] if volume["emptyDir"]},
        **{f"mounts.{mount['mountPath']}": mount["name"] for mount in server["volumeMounts"]},
        **{kind: probe(server[f"{kind}Probe"]) for kind in ("startup", "liveness", "readiness")},
        "security": server["securityContext"],
        "pause": server["lifecycle"]["preStop"]["sleep"]["seconds"],
        "grace": pod["terminationGracePeriodSeconds"],
        "token": pod["automountServiceAccountToken"],
        "links": pod["enableServiceLinks"],
        **{f"nodes.{key}": value for key, value in pod["nodeSelector"].items()},
        "together": terms(pod["affinity"]["podAffinity"]),
        "apart": terms(pod["affinity"]["podAntiAffinity"]),
        **({f"sidecar.{key}": value for key, value in sidecar(pod["initContainers"][0]).items()} if "initContainers" in pod else {}),
    }


def probe(known: Body) -> Body:
    (how,) = (value for key, value in known.items() if key in {"httpGet", "tcpSocket"})
    return {**how, **{key: value for key, value in known.items() if isinstance(value, int)}}


def terms(affinity: Body) -> str:
    ((kind, (term,)),) = affinity.items()
    return f"{kind.partition('During')[0]} {term['topologyKey']}"


def sidecar(container: Body) -> Body:
    return {
        "args": container["args"],
        "restart": container["restartPolicy"],
        "ports": {port["name"]: port["containerPort"] for port in container["ports"]},
        "resources": container["resources"],
        "readiness": probe(container["readinessProbe"]),
        "security": container["securityContext"],
    }


@pytest.mark.parametrize("role", ROLES)
def test_the_overlay_comes_out_but_for_stated_differences(role: str) -> None:
    documented = {**DATA["documented"]["both"], **DATA["documented"][role]}
    ours = fields(of_role(role, changes=DATA["environment"]))
    stated = {row["field"]: row["ours"] for row in DATA["differences"] if row.get("role", role) == role}
    found = {key: ours.get(key) for key in documented.keys() | ours.keys() if documented.get(key) != ours.get(key)}
    assert found == {key: found.get(key) if value == "*" else value for key, value in stated.items()}


def test_every_difference_has_a_reason() -> None:
    assert all(row["why"] for row in DATA["differences"])
    places = [(row["field"], row.get("role")) for row in DATA["differences"]]
    assert len(places) == len(set(places))


@pytest.mark.parametrize(
    ("field", "value"), [("args.--block-size", "16"), ("kv.backends", ["UCX"]), ("requests", {"cpu": "1"}), ("apart", "none")], ids=str
)
def test_the_comparison_can_fail(field: str, value: Any) -> None:
    ours = {**fields(of_role("decode", changes=DATA["environment"])), field: value}
    documented = {**DATA["documented"]["both"], **DATA["documented"]["decode"]}
    stated = {row["field"]: row["ours"] for row in DATA["differences"] if row.get("role", "decode") == "decode"}
    assert any(ours.get(key) not in (documented.get(key), stated.get(key, documented.get(key))) for key in documented)
