"""What owns the pods, how they are replaced, and who may call them."""

from typing import Any

import pytest

from tests.backends.llmd.objects import Body, E, made, of_role, pod
from tests.checks.cases import ADOPTED_NETWORK

ROLES = ("prefill", "decode")
SCALED = {"min_replicas": 1, "max_replicas": 4}
SET = {E + "workload": "disaggregated_set"}


def kinds(changes: dict[str, Any] | None = None) -> list[str]:
    return [body["kind"] for body in made(changes)]


def the_set(changes: dict[str, Any] | None = None) -> Body:
    (found,) = (body for body in made({**SET, **(changes or {})}) if body["kind"] == "DisaggregatedSet")
    return found


def test_objects_come_before_the_pods_that_need_them() -> None:
    guards = ["NetworkPolicy", "PodDisruptionBudget"] * 2
    assert kinds() == ["PersistentVolume", "PersistentVolumeClaim", "ServiceAccount", *guards, "Deployment", "Deployment"]
    assert kinds(SET)[-1:] == ["DisaggregatedSet"]


@pytest.mark.parametrize("changes", [{}, SET], ids=["deployments", "set"])
def test_every_object_says_who_made_it_and_where_it_is(changes: dict[str, Any]) -> None:
    for body in made(changes):
        assert body["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "hyperpod-dpd"
        assert body["kind"] == "PersistentVolume" or body["metadata"]["namespace"] == "inference"


@pytest.mark.parametrize("role", ROLES)
def test_a_deployment_selects_its_own_pods(role: str) -> None:
    spec = of_role(role)["spec"]
    selected, labels = spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]
    assert selected.items() <= labels.items()
    assert selected == {"llm-d.ai/guide": "llama-70b", "dpd/revision": selected["dpd/revision"], "llm-d.ai/role": role}
    assert labels["llm-d.ai/model"] == "llama-70b"


def test_another_model_or_engine_never_meets_the_old_pods() -> None:
    newer = {E + "image": {"repository": "a.example/b", "tag": "v9", "vllm": "0.27.1", "nixl": "1.4.0"}}
    old, new = of_role("decode"), of_role("decode", changes=newer)
    assert old["metadata"]["name"] != new["metadata"]["name"]
    assert old["spec"]["selector"] != new["spec"]["selector"]
    same = of_role("decode", changes={E + "decode.max_concurrent_sequences": 8})
    assert same["metadata"]["name"] == old["metadata"]["name"]


@pytest.mark.parametrize(
    ("arguments", "strangers"),
    [
        (["--dtype", "float16"], True), (["--quantization=fp8"], True), (["--attention_backend", "FLASHINFER"], True),
        (["--no-calculate-kv-scales"], True), (["--seed", "1"], False), (["--seed", "--dtype-of-something-else"], False),
    ],
    ids=str,
)  # fmt: skip
def test_arguments_that_shape_the_cache_part_old_and_new_pods(arguments: list[str], strangers: bool) -> None:
    changed = of_role("decode", changes={E + f"{role}.extra_args": arguments for role in ROLES})
    assert (changed["metadata"]["name"] != of_role("decode")["metadata"]["name"]) is strangers


@pytest.mark.parametrize(("surge", "missing"), [(0, 1), (1, 0)])
def test_an_update_needs_no_spare_gpu_unless_the_file_says_there_is_one(surge: int, missing: int) -> None:
    changes = {E + "prefill.max_surge": surge, "cluster.groups.prefill.count": 2}
    wanted = {"maxSurge": surge, "maxUnavailable": missing}
    assert of_role("prefill", changes=changes)["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": wanted}
    role = the_set(changes)["spec"]["roles"][0]
    assert role["spec"]["rolloutStrategy"] == {"type": "RollingUpdate", "rollingUpdateConfiguration": wanted}


@pytest.mark.parametrize("role", ROLES)
def test_kubernetes_waits_for_the_weights(role: str) -> None:
    startup = pod(role)["containers"][0]["startupProbe"]
    assert of_role(role)["spec"]["progressDeadlineSeconds"] > startup["periodSeconds"] * startup["failureThreshold"]
    assert of_role(role, changes={E + "deploy_timeout_seconds": 7200})["spec"]["progressDeadlineSeconds"] == 7200


def test_the_autoscaler_has_the_number_of_pods_for_itself() -> None:
    scaled = {E + "prefill.autoscaling": SCALED}
    assert "replicas" not in of_role("prefill", changes=scaled)["spec"]
    assert of_role("decode", changes=scaled)["spec"]["replicas"] == 1
    prefill, decode = the_set(scaled)["spec"]["roles"]
    assert prefill["scaling"] == {"mode": "External"}
    assert "replicas" not in prefill["spec"]
    assert "scaling" not in decode
    assert decode["spec"]["replicas"] == 1


@pytest.mark.parametrize("role", ROLES)
def test_one_pod_at_a_time_may_leave_its_node(role: str) -> None:
    budget = of_role(role, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1, "with a minimum instead, a single pod would keep its node from repair"
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["selector"] == of_role(role)["spec"]["selector"]


def test_a_set_holds_the_same_pods() -> None:
    spec = the_set()["spec"]
    assert spec["slices"] == 1
    assert [role["name"] for role in spec["roles"]] == list(ROLES)
    for role in spec["roles"]:
        assert "groupIdentity" not in role["spec"], "0.10 does not know it"
        group = role["spec"]["leaderWorkerTemplate"]
        assert group["size"] == 1
        assert group["restartPolicy"] == "None"
        assert group["workerTemplate"] == of_role(role["name"])["spec"]["template"]


def peers(role: str, changes: dict[str, Any] | None = None) -> list[tuple[str, tuple[Any, ...]]]:
    """Who is let in, in a word, with the ports."""
    policy = of_role(role, "NetworkPolicy", changes)["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["podSelector"] == of_role(role, changes=changes)["spec"]["selector"]
    return [
        (_word(peer), tuple((port["port"], port.get("endPort", port["port"])) for port in rule.get("ports", ())))
        for rule in policy["ingress"]
        for peer in rule["from"]
    ]


def _word(peer: Body) -> str:
    if "ipBlock" in peer:
        return str(peer["ipBlock"]["cidr"])
    selector = next(iter(peer.values()))["matchLabels"]
    known = ("app.kubernetes.io/component", "llm-d.ai/role", "gateway.networking.k8s.io/gateway-name", "dpd/scrapes-metrics")
    return next(f"{key.rpartition('/')[2]}={selector[key]}" for key in known if key in selector)


SERVER, ENGINE, SIDE, EVENTS = ((port, port) for port in (8000, 8200, 5600, 5556))
CONTROL_PLANE = ("10.192.2.0/24", "10.192.3.0/24")


def test_who_may_call_a_prefiller() -> None:
    assert peers("prefill") == [
        ("component=picker", (SERVER,)),
        ("role=decode", (SIDE, SERVER)),
        *((cidr, (SERVER,)) for cidr in CONTROL_PLANE),
        ("scrapes-metrics=true", (SERVER,)),
    ]


def test_who_may_call_a_decoder() -> None:
    assert peers("decode") == [
        ("component=picker", (SERVER,)),
        ("role=prefill", (SIDE,)),
        *((cidr, (SERVER, ENGINE)) for cidr in CONTROL_PLANE),
        ("scrapes-metrics=true", (ENGINE,)),
    ]


def test_requests_through_a_gateway_come_from_its_pods() -> None:
    behind: dict[str, Any] = {E + "routing.gateway": {}}
    assert ("gateway-name=llama-70b-gateway", (SERVER,)) in peers("decode", behind)
    assert not [word for word, _ in peers("prefill", behind) if word.startswith("gateway-name")]
    assert not [word for word, _ in peers("decode") if word.startswith("gateway-name")]


@pytest.mark.parametrize("role", ROLES)
def test_the_router_may_listen_to_block_events(role: str) -> None:
    assert peers(role, {E + "routing.strategy": "kv_aware"})[0] == ("component=picker", (SERVER, EVENTS))


def test_in_an_adopted_network_the_gate_comes_from_its_subnets() -> None:
    words = [word for word, _ in peers("decode", ADOPTED_NETWORK)]
    assert {"10.192.0.0/24", "10.192.1.0/24"} < set(words)
    assert not {*CONTROL_PLANE} & set(words)


@pytest.mark.parametrize("role", ROLES)
def test_nobody_is_let_in_by_a_selector_of_everything(role: str) -> None:
    for rule in of_role(role, "NetworkPolicy")["spec"]["ingress"]:
        assert rule["from"]
        assert rule["ports"]
        for peer in rule["from"]:
            assert all(selector for selector in peer.values())


@pytest.mark.parametrize("role", ROLES)
def test_pods_of_another_revision_are_strangers(role: str) -> None:
    revision = of_role(role)["metadata"]["labels"]["dpd/revision"]
    for rule in of_role(role, "NetworkPolicy")["spec"]["ingress"]:
        for peer in rule["from"]:
            if "llm-d.ai/role" in str(peer):
                assert peer["podSelector"]["matchLabels"]["dpd/revision"] == revision


def test_the_workers_account_has_no_token() -> None:
    (account,) = (body for body in made() if body["kind"] == "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    assert account["metadata"]["name"] == pod("prefill")["serviceAccountName"] == pod("decode")["serviceAccountName"]
