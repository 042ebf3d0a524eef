"""Rules about the health gate."""

from collections.abc import Iterator

from dpd.checks.registry import Context, Problem, check
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
