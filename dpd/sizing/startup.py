"""How long an endpoint may take to come up."""

import math
from collections.abc import Iterable
from typing import Final

from dpd.catalog import limits
from dpd.catalog.models import ModelShape

SLOWEST_LOAD_MBPS: Final = 500
"""Slowest load of weights that is still taken for healthy, in megabytes per second and pod (our choice)."""
ENGINE_START_SECONDS: Final = 600
"""Image pull, CUDA graphs and kernel compilation."""
OPERATOR_DEFAULT_SECONDS: Final = 3600
GATE_RUN_SECONDS: Final = 600
"""One run of the health gate: a function may take 900, and the longest prompt takes minutes (our choice)."""
GATE_LOOK_SECONDS: Final = 60
"""Between two runs of the health gate while a deployment waits."""
_GATE_RESERVE_SECONDS: Final = 120
_GATE_LEAST_SECONDS: Final = 900


def startup_budget_seconds(model: ModelShape) -> int:
    """Seconds a pod may take from start to ready: weights at the slowest healthy rate, plus the engine, in whole minutes."""
    load = model.weight_bytes / (SLOWEST_LOAD_MBPS * 1e6)
    return math.ceil((load + ENGINE_START_SECONDS) / 60) * 60


def deploy_timeout_seconds(model: ModelShape) -> int:
    """Seconds the operator waits for an endpoint: twice a pod's budget, at least the operator's own default of 3600."""
    return max(OPERATOR_DEFAULT_SECONDS, 2 * startup_budget_seconds(model))


def longest_gate_wait_seconds() -> int:
    """The most that the health gate can wait for an endpoint.

    It must give up before CloudFormation does, since only it knows the reason. The last look may begin one run and one
    pause after the wait is over, and takes a run itself.
    """
    return limits.custom_resource_seconds() - 2 * GATE_RUN_SECONDS - GATE_LOOK_SECONDS - _GATE_RESERVE_SECONDS


def gate_wait_seconds(models: Iterable[ModelShape]) -> int:
    """Seconds the health gate waits: twice the slowest start of a pod, at least 15 minutes, at most what CloudFormation leaves."""
    slowest = max((startup_budget_seconds(model) for model in models), default=0)
    return min(longest_gate_wait_seconds(), max(_GATE_LEAST_SECONDS, 2 * slowest))
