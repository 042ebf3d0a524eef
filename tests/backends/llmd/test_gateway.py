"""The Gateway: one for each endpoint, inside the VPC, and as patient as its answers are long."""

from typing import Any

import pytest
import yaml

from dpd.backends.llmd.gateway import objects
from tests.backends.llmd.routers import GATEWAY, MOE, ROUTING, E, given, made, one

PATIENT = {f"{ROUTING}gateway": {"request_timeout_seconds": 1200, "idle_timeout_seconds": 1800}}


def test_without_one_there_is_nothing() -> None:
    assert objects(*given()) == ()


def test_kinds_in_the_order_in_which_they_are_applied() -> None:
    endpoint, site = given({**GATEWAY, E + "objectives.priority": 1})
    assert [body["kind"] for body in objects(endpoint, site)] == [
        "InferencePool", "InferenceObjective", "DestinationRule", "ConfigMap", "Gateway", "HTTPRoute",
    ]  # fmt: skip


def test_the_pool_has_both_roles_of_one_revision_and_a_port_for_each_rank() -> None:
    pool = one("InferencePool", {**MOE, **GATEWAY})
    assert pool["metadata"]["name"].endswith(pool["spec"]["selector"]["matchLabels"]["dpd/revision"])
    assert "llm-d.ai/role" not in pool["spec"]["selector"]["matchLabels"]
    assert [port["number"] for port in pool["spec"]["targetPorts"]] == list(range(8000, 8008))


def test_the_pool_asks_the_pickers_own_service() -> None:
    reference = one("InferencePool", GATEWAY)["spec"]["endpointPickerRef"]
    service = one("Service", GATEWAY, "llama-70b-picker")
    assert reference["name"] == service["metadata"]["name"]
    assert reference["port"]["number"] in {port["port"] for port in service["spec"]["ports"]}
    (asked,) = (port for port in service["spec"]["ports"] if port["port"] == 9002)
    assert asked["appProtocol"] == "kubernetes.io/h2c"


def test_istios_rule_is_for_the_host_that_the_gateway_asks() -> None:
    """https://github.com/llm-d/llm-d/issues/616: a rule for another host changes nothing."""
    rule, service = one("DestinationRule", GATEWAY)["spec"], one("Service", GATEWAY, "llama-70b-picker")["metadata"]
    assert rule["host"] == f"{service['name']}.{service['namespace']}.svc.cluster.local"
    assert rule["trafficPolicy"]["tls"] == {"mode": "SIMPLE", "insecureSkipVerify": True}


def test_no_limit_to_the_life_of_a_connection_cuts_a_request() -> None:
    pool = one("DestinationRule", GATEWAY)["spec"]["trafficPolicy"]["connectionPool"]
    assert "maxConnectionDuration" not in pool["tcp"]
    assert "maxRequestsPerConnection" not in pool["http"]


def test_the_load_balancer_stays_inside_the_vpc() -> None:
    annotations = one("Gateway", GATEWAY)["spec"]["infrastructure"]["annotations"]
    assert annotations["service.beta.kubernetes.io/aws-load-balancer-scheme"] == "internal"
    assert yaml.safe_load(one("ConfigMap", GATEWAY, "llama-70b-gateway")["data"]["service"]) == {"spec": {"type": "LoadBalancer"}}


@pytest.mark.parametrize(("changes", "request_limit", "idle"), [(GATEWAY, "0s", 900), (PATIENT, "1200s", 1800)], ids=["default", "given"])
def test_patience_is_the_same_everywhere(changes: dict[str, Any], request_limit: str, idle: int) -> None:
    """https://github.com/llm-d-incubation/llm-d-deployer/issues/339: the default of 300 seconds cut long answers."""
    assert one("HTTPRoute", changes)["spec"]["rules"][0]["timeouts"] == {"request": request_limit}
    annotations = one("Gateway", changes)["spec"]["infrastructure"]["annotations"]
    key = "service.beta.kubernetes.io/aws-load-balancer-listener-attributes.TCP-80"
    assert annotations[key] == f"tcp.idle_timeout.seconds={idle}"
    assert one("DestinationRule", changes)["spec"]["trafficPolicy"]["connectionPool"]["http"]["idleTimeout"] == f"{idle}s"


def test_the_route_leads_from_its_own_gateway_to_its_own_pool() -> None:
    """https://github.com/istio/istio/issues/58392: with several pools behind one Gateway the first one's picker was asked for all."""
    (rule,) = one("HTTPRoute", GATEWAY)["spec"]["rules"]
    assert [(ref["kind"], ref["name"]) for ref in rule["backendRefs"]] == [
        ("InferencePool", one("InferencePool", GATEWAY)["metadata"]["name"])
    ]
    (parent,) = one("HTTPRoute", GATEWAY)["spec"]["parentRefs"]
    assert parent["name"] == one("Gateway", GATEWAY)["metadata"]["name"]
    (listener,) = one("Gateway", GATEWAY)["spec"]["listeners"]
    assert listener["allowedRoutes"] == {"namespaces": {"from": "Same"}}


def test_istio_runs_pickers_for_this_gateway() -> None:
    assert one("Gateway", GATEWAY)["metadata"]["labels"]["istio.io/enable-inference-extproc"] == "true"
    assert one("Gateway", GATEWAY)["spec"]["infrastructure"]["parametersRef"]["name"] == "llama-70b-gateway"


@pytest.mark.parametrize("priority", [-10, 0, 100])
def test_a_priority_is_an_objective_of_the_pool(priority: int) -> None:
    changes = {**GATEWAY, E + "objectives.priority": priority}
    objective = one("InferenceObjective", changes)
    assert objective["spec"]["priority"] == priority
    assert objective["spec"]["poolRef"]["name"] == one("InferencePool", changes)["metadata"]["name"]
    assert not [body for body in made(GATEWAY) if body["kind"] == "InferenceObjective"]
