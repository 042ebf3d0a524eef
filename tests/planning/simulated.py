"""Cases for the tests of the simulation, and whether there is a simulator here."""

import random
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

import pytest

from dpd.catalog import instances, models
from dpd.planning.candidate import Case, Goal, Request

needs_simulator: Final = pytest.mark.skipif(
    find_spec("dynamo") is None or find_spec("aiconfigurator_core") is None,
    reason="the extra sim is not installed (make planner; Linux, Python below 3.14)",
)


def poisson(rate: float, count: int, lengths: Sequence[int] = (8000,), output_tokens: int = 256, seed: int = 1) -> tuple[Request, ...]:
    """Requests with independent arrivals, their lengths drawn from a list."""
    chance, now, result = random.Random(seed), 0.0, []
    for _ in range(count):
        now += chance.expovariate(rate) * 1e3
        result.append(Request(now, chance.choice(lengths), output_tokens))
    return tuple(result)


def case(
    rate: float = 2.0, *, model: str = "llama-3.3-70b-instruct", instance: str = "ml.p5.48xlarge", gpus: int = 16, count: int = 200,
    lengths: Sequence[int] = (8000,), output_tokens: int = 256, **changes: Any,
) -> Case:  # fmt: skip
    """A model on 16 H100 under Poisson traffic; pods have the EFA devices of their GPUs."""
    shape, machine = models.find(model), instances.find(instance)
    assert shape is not None
    assert machine is not None
    each = (machine.efa or 0) // machine.gpus
    devices = {ranks: ranks * each for ranks in (1, 2, 4, 8)}
    requests = poisson(rate, count, lengths, output_tokens)
    return Case(shape, machine, gpus, requests, rate, Goal(2000, 50), **({"efa_devices": devices} | changes))
