"""How long an endpoint may take to come up."""

import math
from typing import Final

from dpd.catalog.models import ModelShape

SLOWEST_LOAD_MBPS: Final = 500
"""Slowest load of weights that is still taken for healthy, in megabytes per second and pod (our choice)."""
ENGINE_START_SECONDS: Final = 600
"""Image pull, CUDA graphs and kernel compilation."""
OPERATOR_DEFAULT_SECONDS: Final = 3600


def startup_budget_seconds(model: ModelShape) -> int:
    """Seconds a pod may take from start to ready: weights at the slowest healthy rate, plus the engine, in whole minutes."""
    load = model.weight_bytes / (SLOWEST_LOAD_MBPS * 1e6)
    return math.ceil((load + ENGINE_START_SECONDS) / 60) * 60


def deploy_timeout_seconds(model: ModelShape) -> int:
    """Seconds the operator waits for an endpoint: twice a pod's budget, at least the operator's own default of 3600."""
    return max(OPERATOR_DEFAULT_SECONDS, 2 * startup_budget_seconds(model))
