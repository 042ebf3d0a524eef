"""The replayed day: what flows in flows out, queues grow where they must, and the arms are compared fairly."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpd.planning.candidate import Candidate
from dpd.planning.case import case_of
from dpd.planning.closed_form import estimate
from dpd.planning.traffic import Traffic
from dpd.scaling.compare import DEFAULTS, EQUAL, POLICY, STATIC, Replay
from dpd.scaling.day import DAY_SECONDS, Day, Phase
from dpd.scaling.question import Ask, ReplayError, replay_of
from dpd.scaling.replay import Arm, System, Work, play
from tests.support import EXAMPLE, LLMD_EXAMPLE, environment

WHOLE = {"endpoints[0].prefill.tensor_parallel": 8, "endpoints[0].prefill.replicas": 1, "endpoints[0].routing.threshold_tokens": 0}


def replayed(**more: object) -> Replay:
    return replay_of(environment(example=LLMD_EXAMPLE), 0, Ask(**{"ceilings": (8, 4), **more}))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def day() -> Replay:
    return replayed()


def level(rate: float, tokens: float = 4000, cached: float = 0.0, answer: float = 300) -> Day:
    """A day on which nothing changes."""
    return Day((Phase("flat", 0, DAY_SECONDS, rate, rate, tokens, answer, cached),), (1.0,) * (DAY_SECONDS // 60))


def test_the_same_seed_is_the_same_day_and_another_one_is_not(day: Replay) -> None:
    assert replayed() == day
    assert replayed(seed=1).day != day.day


def test_all_arms_get_the_same_requests(day: Replay) -> None:
    assert len({round(played.requests, 6) for played in day.played}) == 1
    assert [played.arm.name for played in day.played] == [POLICY, DEFAULTS, EQUAL, STATIC]


@pytest.mark.parametrize("more", [{}, {"seed": 7}, {"input_tokens": 6000, "output_tokens": 150}, {"start_seconds": 240.0}])
def test_the_policy_beats_what_costs_as_much(more: dict[str, object]) -> None:
    ours, defaults, equal, static = replayed(**more).played
    assert ours.goodput_share > max(defaults.goodput_share, equal.goodput_share) + 0.03
    assert ours.gpu_hours < 0.75 * static.gpu_hours
    assert equal.gpu_hours == pytest.approx(ours.gpu_hours, rel=0.15)


def test_requests_alone_do_not_see_a_wave_of_long_prompts(day: Replay) -> None:
    (wave,) = [phase for phase in day.day.phases if phase.name == "long contexts"]
    last_hour = [[m.good_share for m in played.moments if wave.ends - 3600 <= m.second < wave.ends] for played in day.played[:2]]
    ours, defaults = (sum(shares) / len(shares) for shares in last_hour)
    assert ours > 0.98
    assert defaults < 0.5


def test_roles_scale_apart(day: Replay) -> None:
    """Shared prefixes take prefillers away while decoders stay; long contexts bring prefillers and take decoders away."""
    at = {phase.name: phase for phase in day.day.phases}
    last = {
        name: next(m for m in reversed(day.played[0].moments) if m.second < at[name].ends - 60)
        for name in ("shared prefixes", "long contexts")
    }
    assert last["shared prefixes"].prefillers < last["shared prefixes"].decoders
    assert last["long contexts"].prefillers > 3 * last["long contexts"].decoders


def test_bounds_hold_at_every_moment(day: Replay) -> None:
    for played in day.played:
        assert all(1 <= m.prefillers <= 8 and 1 <= m.decoders <= 4 for m in played.moments)


def test_more_pods_are_never_worse_and_cost_more(day: Replay) -> None:
    small, large = (play(day.day, day.system, Arm("", pods, 4)) for pods in (4, 8))
    assert large.good >= small.good
    assert large.gpu_hours > small.gpu_hours


def test_gpu_hours_count_pods_that_start(day: Replay) -> None:
    fixed = play(day.day, day.system, Arm("", 2, 1))
    assert fixed.gpu_hours == pytest.approx(24 * (2 * 4 + 1 * 8))
    slow = replay_of(environment(example=LLMD_EXAMPLE), 0, Ask(ceilings=(8, 4), start_seconds=1800.0)).played[0]
    ready = sum(m.prefillers * 4 + m.decoders * 8 for m in slow.moments) * 15 / 3600
    assert slow.gpu_hours > ready


@settings(max_examples=8, deadline=None)
@given(share=st.floats(0.2, 0.9))
def test_below_capacity_nothing_piles_up_and_above_it_everything_does(share: float) -> None:
    system = SYSTEM
    work = Work.of(level(1.0).phases[0], system)
    prefill, decode = work.pods(1.0, system, 1.0)
    most = 1 / max(prefill, decode)
    below, above = (play(level(most * factor), system, Arm("", 1, 1)) for factor in (share, 1 + share))
    assert below.moments[-1].queued_tokens < 1
    assert below.moments[-1].waiting < 1
    queues = [m.queued_tokens / work.uncached + m.waiting for m in above.moments[200::200]]
    assert all(after > before for before, after in pairwise(queues))
    assert above.goodput_share < 0.2


def test_a_cache_that_holds_prompts_makes_prefillers_idle_and_no_decoder() -> None:
    plain, cached = (Work.of(level(1.0, cached=share).phases[0], SYSTEM).pods(1.0, SYSTEM, 1.0) for share in (0.0, 0.8))
    assert cached[0] < 0.35 * plain[0]
    assert cached[1] == plain[1]


def test_capacity_and_latency_are_those_of_the_planner_s_closed_form() -> None:
    """The same endpoint at a steady rate: what it takes at most, and the mean latency well below that."""
    known = environment(WHOLE, example=EXAMPLE)
    endpoint = known.endpoints[0]
    lengths = {"lognormal": {"median": 4000, "p95": 10737}}
    traffic = Traffic.model_validate(
        {
            "version": 1, "arrival": {"rate_per_second": 2.0}, "requests": 3000,
            "input_tokens": {"lognormal": {**lengths["lognormal"], "max": 15000}}, "output_tokens": {"fixed": 300},
        }
    )  # fmt: skip
    case, _ = case_of(known, endpoint, traffic)
    case = replace(case, most_sequences=32, gpu_memory_utilization=endpoint.decode.gpu_memory_utilization)
    outcome = estimate(Candidate.disaggregated(1, 1, 8), case)
    system = replay_of(known, 0, Ask(ceilings=(1, 1))).system
    work = Work.of(level(2.0).phases[0], system)
    ours = 1 / max(work.pods(1.0, system, 1.0))
    assert ours == pytest.approx(outcome.capacity_per_second, rel=0.15)
    steady = play(level(2.0), system, Arm("", 1, 1)).moments[-1]
    assert steady.ttft * 1e3 == pytest.approx(sum((outcome.ttft_ms.p50, outcome.ttft_ms.p90)) / 2, rel=0.6)
    assert steady.itl * 1e3 == pytest.approx(outcome.itl_mean_ms, rel=0.1)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"endpoints[0].prefill.group": "nowhere"}, "endpoints[0].prefill.group"),
        ({"cluster.groups.decode.instance_type": "ml.g5.48xlarge"}, "endpoints[0].decode.tensor_parallel"),
        ({"endpoints[0].prefill.efa_devices": 0}, "endpoints[0].decode.efa_devices"),
        ({"endpoints[0].model.max_model_len": 4096}, "endpoints[0].model.max_model_len"),
    ],
)
def test_what_cannot_be_replayed_says_where(changes: dict[str, object], path: str) -> None:
    with pytest.raises(ReplayError) as raised:
        replay_of(environment(changes, example=LLMD_EXAMPLE), 0, Ask())
    assert raised.value.path == path
    assert raised.value.fix


def test_ceilings_are_those_of_the_file_else_what_the_nodes_hold() -> None:
    scaled = {"endpoints[0].prefill.autoscaling": {"min_replicas": 1, "max_replicas": 3, "tokens": {"prometheus": "http://p:9090"}}}
    found = replay_of(environment({**scaled, "cluster.groups.decode.max_count": 2}, example=LLMD_EXAMPLE), 0, Ask())
    assert (found.prefill.most, found.decode.most) == (3, 2)


SYSTEM: System = replay_of(environment(WHOLE, example=EXAMPLE), 0, Ask(ceilings=(1, 1))).system
