"""How long a start may take."""

from hypothesis import given
from hypothesis import strategies as st

from dpd.catalog import models
from dpd.sizing.startup import deploy_timeout_seconds, startup_budget_seconds

LLAMA = models.find("llama-3.3-70b-instruct")
assert LLAMA is not None


def test_the_budget_of_seventy_billion_parameters() -> None:
    assert LLAMA is not None
    # 141.1 GB at 500 MB/s = 282 s, + 600 s, in whole minutes
    assert startup_budget_seconds(LLAMA) == 900
    assert deploy_timeout_seconds(LLAMA) == 3600


@given(st.floats(1e6, 2e12))
def test_larger_weights_get_more_time(parameters: float) -> None:
    assert LLAMA is not None
    small, large = LLAMA.with_parameters(parameters), LLAMA.with_parameters(parameters * 2)
    assert startup_budget_seconds(small) <= startup_budget_seconds(large)
    assert startup_budget_seconds(small) % 60 == 0
    assert deploy_timeout_seconds(large) >= max(3600, 2 * startup_budget_seconds(large))
