"""Rules about the health gate."""

from collections.abc import Iterator

from dpd.catalog import instances
from dpd.checks.registry import Context, Problem, check
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.startup import longest_gate_wait_seconds, startup_budget_seconds

_PAGE = "docs/health-gate.md"
_LIMIT = "https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-cloudformation-customresource.html"


@check(
    "GAT001",
    "The health gate is deployed",
    level=Level.WARNING,
    why="Without the gate a deployment succeeds although KV goes over TCP, prefill is never used or the answers are wrong; nobody is told.",
    link=_PAGE,
)
def deployed(environment: Environment, _: Context) -> Iterator[Problem]:
    """Off."""
    if not environment.gate.deploy:
        fix = "set gate.deploy to true, or accept this; a gate that is already deployed stays until its stack is destroyed"
        yield Problem("gate.deploy", "nothing proves a deployment", fix, value=False)


@check(
    "GAT002",
    "The health gate can wait until a model is loaded",
    level=Level.WARNING,
    why="CloudFormation waits an hour for a custom resource, and the gate needs a part of it to prove. A model that loads longer fails a "
    "deployment that is fine.",
    link=_LIMIT,
)
def waits_long_enough(environment: Environment, _: Context) -> Iterator[Problem]:
    """A start-up budget beyond what the gate can wait."""
    if not environment.gate.deploy:
        return
    most = longest_gate_wait_seconds()
    for index, endpoint in enumerate(environment.endpoints):
        budget = startup_budget_seconds(endpoint.model.shape)
        if budget > most:
            yield Problem(
                f"endpoints[{index}].model",
                f"a pod may take {budget:,} s to start; the gate can wait {most:,} s",
                "deploy the gate again once the endpoint is up, or load from faster storage and accept this",
                value=budget,
                limit=f"at most {most:,} s",
            )


@check(
    "GAT003",
    "What is said of the health gate is not ignored",
    why="A schedule or an address without a gate looks like a watch that is kept, and is none.",
    link=_PAGE,
)
def nothing_ignored(environment: Environment, _: Context) -> Iterator[Problem]:
    """Settings of a gate that is off."""
    gate = environment.gate
    if not gate.deploy and gate.notify:
        yield Problem(
            "gate.notify", "nobody is told, because there is no gate", "remove it, or set gate.deploy to true", value=len(gate.notify)
        )


@check(
    "GAT004",
    "EFA's own counters are read",
    level=Level.WARNING,
    why="A connector counts the bytes that it moves, whatever the network. Only the devices' counters show that they crossed EFA; without "
    "them the rate alone tells EFA from TCP.",
    link=_PAGE,
)
def counters_read(environment: Environment, _: Context) -> Iterator[Problem]:
    """The exporter is off although pods have EFA."""
    gate = environment.gate
    if gate.deploy and not gate.efa_counters and any(_has_efa(environment, endpoint) for endpoint in environment.endpoints):
        fix = "set gate.efa_counters to true, or accept this where no pod may see a node's counters"
        yield Problem("gate.efa_counters", "whether KV crosses EFA is judged by its rate alone", fix, value=False)


def _has_efa(environment: Environment, endpoint: Endpoint) -> bool:
    group = environment.cluster.groups.get(endpoint.decode.group)
    instance = instances.find(group.instance_type) if group else None
    return bool(instance and instance.efa)
