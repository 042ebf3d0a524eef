"""Controllers are installed when an endpoint asks for them, pinned, and one after another."""

import json
from itertools import pairwise
from typing import Any

import pytest
from aws_cdk import Stage

from charts.render import render_all
from dpd.catalog.controllers import all_controllers
from dpd.environment.environment import Environment
from stacks.stage import EnvironmentStage
from tests.stacks.support import Template, synthesized
from tests.stacks.test_addons import by_name, joined
from tests.support import LLMD_EXAMPLE, base

E = "endpoints[0]."
GATEWAY: dict[str, Any] = {f"{E}routing.gateway": {}}
TRIGGER = {"workspace_url": "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1", "query": "up", "target": 1}
SCALED: dict[str, Any] = {f"{E}prefill.autoscaling": {"min_replicas": 1, "max_replicas": 2, "prometheus": [TRIGGER]}}
OPERATOR = {**base()["endpoints"][0], "name": "other"}


def bare(stage: Stage, environment: Environment) -> None:
    """The stacks without the endpoints' own objects: only what stands before them is looked at here."""
    EnvironmentStage(stage, environment, render_all(environment.model_copy(update={"endpoints": ()})))


def addons(changes: dict[str, Any] | None = None) -> Template:
    endpoints = {"endpoints": base(LLMD_EXAMPLE)["endpoints"], "gate.deploy": False}
    return synthesized(bare, {**endpoints, **(changes or {})}).templates["addons"]


def charts(template: Template) -> dict[str, dict[str, Any]]:
    return {made["Release"]: made for made in template.properties("Custom::AWSCDK-EKS-HelmChart")}


def values(template: Template, release: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(joined(charts(template)[release]["Values"]))
    return found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({f"{E}workload": "disaggregated_set"}, ["lws"]),
        ({f"{E}decode.expert_parallel": {"nodes": 1}}, ["lws"]),
        (SCALED, ["keda"]),
        (GATEWAY, ["aws-load-balancer-controller", "istio-base", "istiod"]),
        ({**GATEWAY, "endpoints[1]": OPERATOR}, ["istio-base", "istiod"]),
        ({**SCALED, "endpoints[1]": OPERATOR}, []),
        ({**GATEWAY, "cluster.add_ons": {"istio": {"install": False}}}, ["aws-load-balancer-controller"]),
        ({**SCALED, "cluster.add_ons": {"keda": {"install": False}}}, []),
    ],
)  # fmt: skip
def test_an_endpoint_gets_what_it_asks_for_and_nothing_else(changes: dict[str, Any], expected: list[str]) -> None:
    assert sorted(charts(addons(changes))) == expected


def test_charts_are_pinned_waited_for_and_installed_in_order() -> None:
    template = addons({**GATEWAY, **SCALED, f"{E}workload": "disaggregated_set"})
    known = {release: chart for controller in all_controllers().values() for release, chart in controller.charts.items()}
    found = charts(template)
    assert set(found) == set(known)
    for release, made in found.items():
        chart = known[release]
        assert (made["Chart"], made["Version"], made["Namespace"], made["Repository"]) == (
            chart.chart, chart.version, chart.namespace, chart.repository,
        )  # fmt: skip
        assert made["Wait"] is True
        assert int(made["Timeout"].removesuffix("s")) < 900
        assert int(made["ServiceTimeout"]) <= 3600
    ids = {
        made["Properties"]["Release"]: (id_, made.get("DependsOn", [])) for id_, made in template.of("Custom::AWSCDK-EKS-HelmChart").items()
    }
    order = list(known)
    for before, after in pairwise(order):
        assert ids[before][0] in ids[after][1], after


def test_nothing_is_installed_before_the_add_ons() -> None:
    template = addons(SCALED)
    last, _ = by_name(template)["aws-fsx-csi-driver"]
    (keda,) = template.of("Custom::AWSCDK-EKS-HelmChart").values()
    assert last in keda["DependsOn"]


def test_the_operator_s_add_on_is_for_its_endpoints() -> None:
    name = "amazon-sagemaker-hyperpod-inference"
    assert name not in by_name(addons())
    assert name in by_name(addons({"endpoints[1]": OPERATOR}))
    assert name in by_name(addons({"endpoints": []}))


def test_istio_is_told_to_know_pools() -> None:
    assert values(addons(GATEWAY), "istiod")["pilot"]["env"]["ENABLE_GATEWAY_API_INFERENCE_EXTENSION"] == "true"


@pytest.mark.parametrize(("workload", "expected"), [("disaggregated_set", True), ("deployments", False)])
def test_sets_of_roles_are_switched_on_where_there_is_one(workload: str, expected: bool) -> None:
    changes = {f"{E}workload": workload, f"{E}decode.expert_parallel": {"nodes": 1}}
    assert values(addons(changes), "lws") == {"enableDisaggregatedSet": expected}


@pytest.mark.parametrize(
    ("changes", "id_", "account"),
    [(SCALED, "Autoscaler", "keda:keda-operator"), (GATEWAY, "LoadBalancers", "kube-system:aws-load-balancer-controller")],
)
def test_each_controller_has_a_role_for_its_own_account(changes: dict[str, Any], id_: str, account: str) -> None:
    template = addons(changes)
    text, _ = template.resources[id_]["Properties"]["AssumeRolePolicyDocument"]["Fn::Sub"]
    assert f"system:serviceaccount:{account}" in text
    said = json.dumps([made["Values"] for made in charts(template).values()])
    assert f'"{id_}", "Arn"' in said


def test_definitions_come_with_a_digest_and_from_a_tag() -> None:
    made = addons(GATEWAY).one("Custom::DpdDefinitions")
    expected = {"gateways.gateway.networking.k8s.io", "httproutes.gateway.networking.k8s.io", "inferencepools.inference.networking.k8s.io"}
    assert expected <= set(made["Definitions"])
    for name, file in made["Definitions"].items():
        plural, group = name.split(".", 1)
        assert file["Url"].startswith("https://raw.githubusercontent.com/")
        assert file["Url"].endswith(f"{group}_{plural}.yaml")
        assert "/v" in file["Url"]
        assert len(file["Sha256"]) == 64
    assert not addons(SCALED).of("Custom::DpdDefinitions")


def test_who_defines_may_touch_those_definitions_alone() -> None:
    template = addons(GATEWAY)
    entry = next(made for made in template.properties("AWS::EKS::AccessEntry") if made["KubernetesGroups"] == ["dpd:definers"])
    assert "AccessPolicies" not in entry
    (rights,) = [
        text for made in template.properties("Custom::AWSCDK-EKS-KubernetesResource") if "dpd-definers" in (text := made["Manifest"])
    ]
    role = next(body for body in json.loads(rights) if body["kind"] == "ClusterRole")
    (rule,) = role["rules"]
    assert rule["apiGroups"] == ["apiextensions.k8s.io"]
    assert rule["resourceNames"] == list(template.one("Custom::DpdDefinitions")["Definitions"])
    assert "*" not in json.dumps(role)
