"""Disaggregate, do not, or tune the chunk size first: the decision, with its reason and what would turn it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from dpd.planning.candidate import Candidate, Case, Outcome
from dpd.planning.case import at_rate, default_chunk
from dpd.planning.closed_form import cliff_per_second
from dpd.planning.sweep import Sweep, closed_form, holds, rank, sweep

FACTORS: Final = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""The rates at which the layouts are compared, as multiples of the asked one."""
_HARDLY, _FEW_TIMES, _MANY_TIMES = 1.005, 2, 100
_NEAR: Final = 0.15
"""How much of an objective may be left for a result to be called near its limit."""


class Decision(StrEnum):
    """What the planner advises."""

    DISAGGREGATE = "disaggregate"
    DO_NOT = "do not disaggregate"
    TUNE_CHUNK = "tune chunk size first"
    NONE = "no layout holds the objectives"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision for the chosen layout. ``runner_up`` is the best of the other kind; ``flips`` say what would turn the decision."""

    decision: Decision
    chosen: Outcome
    runner_up: Outcome | None
    reason: str
    flips: tuple[str, ...]
    headroom: float
    """How much more traffic the chosen layout takes before a queue grows, as a share of the rate."""
    holds_to: float | None
    """The largest of the tried multiples of the rate up to which the chosen layout holds the objectives; ``None`` where it does not."""

    @property
    def disaggregated(self) -> Outcome | None:
        """The better layout with prefillers of the two."""
        return next((outcome for outcome in (self.chosen, self.runner_up) if outcome and outcome.candidate.prefillers), None)


def finalists(case: Case, found: Sweep) -> tuple[Outcome, Outcome, Outcome | None]:
    """The best colocated layout with vLLM's own chunk size, with any, and the best with two roles. Raises ``ValueError`` for none."""
    default, tuned = best_default(found, case), _best(found.colocated, case)
    if default is None or tuned is None:
        raise ValueError("no layout of this model on these GPUs can be estimated")
    return default, tuned, _best(found.disaggregated, case)


Elsewhere = Mapping[tuple[Candidate, float], Outcome]
"""Outcomes at other rates, by candidate and factor."""


def decide(case: Case, found: Sweep, elsewhere: Elsewhere) -> Verdict:
    """Compare the finalists, and look where the comparison would turn. Raises ``ValueError`` for an empty sweep."""
    default, tuned, split = finalists(case, found)
    decision, chosen = decision_of(case, default, tuned, split)
    return Verdict(
        decision=decision,
        chosen=chosen,
        runner_up=split if not chosen.candidate.prefillers else tuned,
        reason=_reason(decision, case, default, tuned, split),
        flips=tuple(_flips(case, decision, (default, tuned, split), elsewhere)),
        headroom=chosen.capacity_per_second / case.rate_per_second - 1,
        holds_to=_holds_to(case, chosen, elsewhere),
    )


def _holds_to(case: Case, chosen: Outcome, elsewhere: Elsewhere) -> float | None:
    found = None
    for factor in (one for one in FACTORS if one >= 1):
        there = chosen if factor == 1 else elsewhere.get((chosen.candidate, factor))
        if there is None or not holds(there, at_rate(case, factor)):
            break
        found = factor
    return found


def best_default(found: Sweep, case: Case) -> Outcome | None:
    """The best colocated layout that leaves vLLM's chunk size as it is."""
    return _best((one for one in found.colocated if one.candidate.chunk_tokens == default_chunk(case)), case)


def _best(outcomes: Iterable[Outcome], case: Case) -> Outcome | None:
    return min(outcomes, key=lambda outcome: (rank(outcome, case), -outcome.candidate.threshold_tokens, outcome.candidate), default=None)


def decision_of(case: Case, default: Outcome, tuned: Outcome, split: Outcome | None) -> tuple[Decision, Outcome]:
    """The advice for three finalists, each taken at its word, and the layout that it names."""
    if holds(default, case):
        return Decision.DO_NOT, default
    if holds(tuned, case):
        return Decision.TUNE_CHUNK, tuned
    if split is not None and holds(split, case):
        return Decision.DISAGGREGATE, split
    best = _best([one for one in (tuned, split) if one is not None], case)
    assert best is not None
    return Decision.NONE, best


def missed(outcome: Outcome, case: Case) -> str:
    """Which objectives an outcome misses, in words; empty when it holds all."""
    goal = case.goal
    parts = []
    if outcome.saturated:
        parts.append(f"it takes {_few(outcome.capacity_per_second)} requests/s of {_few(case.rate_per_second)}")
    if outcome.ttft_ms.at(goal.percentile) > goal.ttft_ms:
        parts.append(f"p{goal.percentile} TTFT is {_times(outcome.ttft_ms.at(goal.percentile) / goal.ttft_ms)} the objective")
    if outcome.itl_ms.at(goal.percentile) > goal.itl_ms:
        parts.append(f"p{goal.percentile} inter-token latency is {_times(outcome.itl_ms.at(goal.percentile) / goal.itl_ms)} the objective")
    if not parts and outcome.goodput_share < goal.goodput_share:
        parts.append(f"{outcome.goodput_share:.0%} of the requests are within both limits, {goal.goodput_share:.0%} are promised")
    return ", ".join(parts)


def _times(factor: float) -> str:
    if factor >= _MANY_TIMES:
        return "over a hundred times"
    if factor < _HARDLY:
        return "just over"
    return f"{factor:.2f} times" if factor < _FEW_TIMES else f"{factor:.2g} times"


def _reason(decision: Decision, case: Case, default: Outcome, tuned: Outcome, split: Outcome | None) -> str:
    one = f"colocated {default.candidate.name}"
    if decision is Decision.DO_NOT:
        return (
            f"{one} is estimated to hold the objectives on the same GPUs, with vLLM's own chunk size. Two roles are not needed for that, "
            "and a hand-over adds to TTFT."
        )
    plain = f"{one}: {missed(default, case)}"
    if decision is Decision.TUNE_CHUNK:
        return (
            f"{plain}. With max_num_batched_tokens {tuned.candidate.chunk_tokens} (colocated {tuned.candidate.name}) it is estimated to "
            "hold them: "
            "a prompt is read in shorter stretches between tokens, at the price of a longer TTFT."
        )
    best = f"the best chunk size (colocated {tuned.candidate.name}) does not help enough: {missed(tuned, case)}"
    if decision is Decision.DISAGGREGATE and split is not None:
        return f"{plain}; {best}. {split.candidate.name} reads prompts elsewhere and is estimated to hold the objectives."
    said = f"; {split.candidate.name}: {missed(split, case)}" if split is not None else "; no two roles fit these GPUs"
    return f"colocated {tuned.candidate.name}: {missed(tuned, case)}{said}. More GPUs, a slower rate or looser objectives are needed."


_Three = tuple[Outcome, Outcome, Outcome | None]


def _flips(case: Case, decision: Decision, three: _Three, elsewhere: Elsewhere) -> Iterator[str]:
    """What would turn the decision: the rate, the GPUs, the objectives, the link."""
    default, _, split = three
    yield from _other_rates(case, decision, three, elsewhere)
    if decision is Decision.NONE:
        yield from _more_nodes(case)
    goal = case.goal
    cliff = cliff_per_second(default.candidate, case)
    yield (
        f"the p{goal.percentile} inter-token latency of colocated {default.candidate.name} jumps from one decode step to one stretch of "
        f"prompt at about {_few(cliff, 2)} requests/s; this traffic has {_few(case.rate_per_second)}"
    )
    itl, ttft = default.itl_ms.at(goal.percentile), default.ttft_ms.at(goal.percentile)
    if decision is not Decision.DO_NOT and itl > goal.itl_ms and ttft <= goal.ttft_ms and not default.saturated:
        yield f"an inter-token objective above about {_rounded(itl)} ms at p{goal.percentile}: then {default.candidate.name} is enough"
    if split is not None and split.link_utilisation > 0:
        yield f"a KV link {_rounded(1 / split.link_utilisation)} times slower would be the bottleneck of {split.candidate.name}"
    for outcome in dict.fromkeys(three):
        if outcome is not None and holds(outcome, case) and outcome.ttft_ms.at(goal.percentile) > (1 - _NEAR) * goal.ttft_ms:
            factor = goal.ttft_ms / outcome.ttft_ms.at(goal.percentile)
            yield f"a TTFT {factor:.2g} times as long as estimated: then {outcome.candidate.name} misses its objective"


def _other_rates(case: Case, decision: Decision, three: _Three, elsewhere: Elsewhere) -> Iterator[str]:
    """The nearest lower and the nearest higher rate at which the same layouts give another advice."""
    for word, factors in (
        ("fewer", sorted((one for one in FACTORS if one < 1), reverse=True)),
        ("more", [one for one in FACTORS if one > 1]),
    ):
        for factor in factors:
            there = at_rate(case, factor)
            default, tuned, split = (elsewhere.get((one.candidate, factor)) if one else None for one in three)
            if default is None or tuned is None or (split is None) != (three[2] is None):
                continue
            other, _ = decision_of(there, default, tuned, split)
            if other is not decision:
                yield f"{word} requests: at {_few(there.rate_per_second)}/s ({factor:g} times as many) the advice is: {other}"
                break


def _more_nodes(case: Case) -> Iterator[str]:
    """The first larger number of nodes on which a layout holds, by the closed form."""
    nodes = case.gpus // case.instance.gpus
    for more in sorted({nodes + 1, nodes + 2, 2 * nodes, 3 * nodes}):
        larger = replace(case, gpus=more * case.instance.gpus)
        found = sweep(larger, closed_form())
        default, tuned, split = finalists(larger, found)
        decision, chosen = decision_of(larger, default, tuned, split)
        if decision is not Decision.NONE:
            yield f"more nodes: on {more} instead of {nodes} the closed form's advice is: {decision} ({chosen.candidate.name})"
            return


def _few(value: float, digits: int = 3) -> str:
    """A number with few digits, and never with an exponent."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:g}"


def _rounded(value: float) -> str:
    return f"{float(f'{value:.2g}'):,.0f}"
