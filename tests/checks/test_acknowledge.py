"""What a file accepts stops nothing, unless nothing could be built of it."""

from typing import Any

import pytest

from dpd.backends.operator.build import build
from dpd.backends.site import Site
from dpd.checks.registry import Context, checks, run
from dpd.environment.environment import Environment
from dpd.finding import Finding
from tests.checks.cases import ADOPTED_BUCKET, source
from tests.checks.test_scaling import CLUSTER, scaled, tokens
from tests.checks.test_two_mistakes import CASES
from tests.support import REMOVE, TODAY, base, environment

REASON = "seen and accepted"
BINDING: dict[str, dict[str, Any]] = {
    "INS001": {"cluster.groups.decode.instance_type": "ml.p9.48xlarge"},
    "PLC005": {"endpoints[0].decode.group": "nowhere"},
    "ADR003": {"network.gpu_subnet.cidr": "10.192.0.0/16", "network.vpc_cidr": "10.192.0.0/17"},
    "ADR005": {"network.vpc_cidr": "10.192.0.0/27"},
    "NAM003": {"app": "a" * 40},
    "NAM004": {"endpoints[1]": {**base()["endpoints"][0], "namespace": "other"}},
    "NAM011": {"app": "a" * 20, "endpoints[0].namespace": "b" * 40, **source("lustre", {"path": "/checkpoints/x"})},
    "LUS001": {"storage.lustre": {}},
    "BKT003": {**ADOPTED_BUCKET, "storage.models.bucket.existing": "our..weights"},
    "NET001": {"network.egress": REMOVE},
    "CLU008": {"cluster.add_ons": {"cert-manager": {"version": "latest"}}},
    "CLU019": {"region": "eu-west-3"},
    "SRC001": {**source("lustre", {"path": "/models"}), "storage.lustre": REMOVE},
    "BCK001": {"endpoints[0].routing.strategy": "load"},
    "BCK002": {"endpoints[0].kv.buffer_gib": REMOVE},
    "BCK003": {"endpoints[0].kv.eviction": "lru"},
    "BCK004": {"endpoints[0].workload": "disaggregated_set"},
    "BCK005": {"endpoints[0].backend": "llm-d", "endpoints[0].exposure.sagemaker_endpoint": "a"},
    "BCK006": {"endpoints[0].objectives.priority": 1},
    "BCK007": {"endpoints[0].image": {"repository": "example.com/vllm", "tag": "1", "vllm": "0.23.0", "nixl": "1.2.0"}},
    "SCL006": {**tokens(), "cluster.groups.prefill.instance_type": "ml.g5.48xlarge"},
    "SCL007": scaled(tokens={"prometheus": CLUSTER}),
}
"""Of these files something needed is missing, or two things would be one."""


def accepted(changes: dict[str, Any]) -> tuple[Environment, list[Finding]]:
    """The file with every error accepted, and what is then said."""
    errors = {finding.id for finding in run(environment(changes), Context(today=TODAY)) if finding.stops}
    entries = [{"id": id_, "reason": REASON} for id_ in sorted(errors)]
    accepting = environment({**changes, "acknowledge": entries})
    return accepting, run(accepting, Context(today=TODAY))


@pytest.mark.parametrize("id", BINDING)
def test_what_cannot_be_built_cannot_be_accepted(id: str) -> None:
    _, found = accepted(BINDING[id])
    assert id in {finding.id for finding in found if finding.stops}
    assert id in {finding.value for finding in found if finding.id == "ACK001" and "nothing can be built" in finding.message}


def test_every_binding_check_is_in_the_table() -> None:
    assert set(BINDING) == {check.id for check in checks() if check.binding}


def test_whatever_else_is_accepted_can_be_built() -> None:
    built = 0
    for case in CASES:
        accepting, found = accepted(case.wrong)
        if not any(finding.stops for finding in found):
            assert all(finding.acknowledged in ("", REASON) for finding in found)
            for endpoint in accepting.endpoints:
                assert build(endpoint, Site.of(accepting))["spec"]["pdSpec"]
                built += 1
    assert built
