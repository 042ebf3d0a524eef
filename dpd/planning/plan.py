"""Everything that a plan says: the verdict, what the chosen layout needs, what it costs, and how the file must change."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dpd.catalog.prices import Price, PriceBook
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.planning.bands import Banded, banded
from dpd.planning.calibration import NONE, Calibration
from dpd.planning.candidate import Candidate, Case, Outcome
from dpd.planning.case import at_rate, default_chunk, nodes_of, of_file
from dpd.planning.closed_form import NoEstimateError, estimate, worker
from dpd.planning.needs import Sizing, size
from dpd.planning.patch import Patch, patch_of
from dpd.planning.sweep import Ask, Sweep, closed_form, holds, sweep
from dpd.planning.verdict import FACTORS, Decision, Verdict, decide, decision_of, finalists
from dpd.sizing.cost import TokenCost, purchase_of, token_cost

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class LayoutCost:
    """What the nodes of a layout cost. Everything is ``None`` where no source states a price."""

    candidate: Candidate
    nodes: int
    price: Price | None
    tokens: TokenCost | None


@dataclass(frozen=True, slots=True)
class Point:
    """One layout at one rate."""

    rate_per_second: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Curve:
    """A layout over several rates."""

    candidate: Candidate
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole answer. ``engine`` says who gave it; ``notes`` what a reader must know besides."""

    environment: str
    endpoint: str
    source: str
    case: Case
    calibration: Calibration
    engine: str
    sweep: Sweep
    verdict: Verdict
    current: Outcome | None
    """The layout that the file asks for."""
    sizing: Sizing | None
    costs: tuple[LayoutCost, ...]
    curves: tuple[Curve, ...]
    patch: Patch | None
    strained: frozenset[Candidate]
    """Layouts that were tried with more requests, which is to a worker what the asked traffic is to a slower one, and that hold then."""
    second: Decision | None
    """What the closed form advises for the same finalists; ``None`` where it is the engine, or cannot say."""
    notes: tuple[str, ...]

    def banded(self, outcome: Outcome) -> Banded:
        """Latencies and goodput of an outcome as ranges."""
        return banded(outcome, self.calibration.bands, percentile=self.case.goal.percentile)

    def surely(self, outcome: Outcome) -> bool:
        """Whether a layout holds the objectives at the bad end of the bands too.

        A band is a factor, and jumps where a queue or the cliff of inter-token latency is near: so the layout must also have been tried
        with more requests, by the lower end of the capacity band, and must hold then.
        """
        found, goal = self.banded(outcome), self.case.goal
        return (
            holds(outcome, self.case)
            and found.ttft_tail.high <= goal.ttft_ms
            and found.itl_tail.high <= goal.itl_ms
            and outcome.candidate in self.strained
            and outcome.capacity_per_second * self.calibration.bands.capacity.low >= self.case.rate_per_second
        )

    def perhaps(self, outcome: Outcome) -> bool:
        """Whether a layout holds the objectives at the good end of the bands."""
        found, goal = self.banded(outcome), self.case.goal
        return not outcome.saturated and found.ttft_tail.low <= goal.ttft_ms and found.itl_tail.low <= goal.itl_ms

    @property
    def certain(self) -> bool:
        """Whether the chosen layout holds its objectives at the bad end of the bands too."""
        return self.surely(self.verdict.chosen)

    @property
    def rejected(self) -> tuple[Outcome, ...]:
        """The layouts that would be advised instead, had they not missed the objectives."""
        default, tuned, split = finalists(self.case, self.sweep)
        before = {
            Decision.DO_NOT: (), Decision.TUNE_CHUNK: (default,), Decision.DISAGGREGATE: (default, tuned),
            Decision.NONE: (default, tuned, split),
        }[self.verdict.decision]  # fmt: skip
        return tuple(dict.fromkeys(one for one in before if one is not None))

    @property
    def settled(self) -> bool:
        """Whether no measurement within the bands would turn the advice, and the closed form does not contradict it."""
        kept = self.certain or self.verdict.decision is Decision.NONE
        return kept and not any(map(self.perhaps, self.rejected)) and self.second in (None, self.verdict.decision)


def impossible(case: Case, calibration: Calibration = NONE) -> str:
    """Why no number of these GPUs holds the objectives, even for one request alone; empty when some might."""
    workers = []
    for ranks in range(1, case.instance.gpus + 1):
        try:
            workers.append(worker(case, ranks, case.max_model_len, calibration))
        except NoEstimateError:
            continue
    if not workers:
        return ""
    tokens = sorted(request.input_tokens for request in case.requests)
    prompt = tokens[min(len(tokens) - 1, math.ceil(case.goal.percentile / 100 * len(tokens)) - 1)]
    first = 1e3 * min(one.prompt_seconds(prompt) for one in workers)
    gap = 1e3 * min(one.decode_seconds(1, case.mean_input_tokens) for one in workers)
    if first > case.goal.ttft_ms:
        return (
            f"a prompt of {prompt:,} tokens takes about {_rounded(first)} ms on {case.instance.gpu} at best, alone and without a queue; "
            f"the TTFT objective is {case.goal.ttft_ms:,g} ms"
        )
    if gap > case.goal.itl_ms:
        return (
            f"one decode step takes about {_rounded(gap)} ms on {case.instance.gpu} at best, with one sequence; the inter-token objective "
            f"is {case.goal.itl_ms:,g} ms"
        )
    return ""


def _rounded(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}"


def make(
    environment: Environment, index: int, case: Case, *, source: str, ask: Ask | None = None, calibration: Calibration = NONE,
    prices: PriceBook | None = None, progress: Progress = lambda _what, _done, _of: None, notes: tuple[str, ...] = (),
) -> Plan:  # fmt: skip
    """Plan one endpoint. Raises ``ValueError`` when no layout can be estimated; its message says why."""
    engine = ask or closed_form(calibration)
    endpoint = environment.endpoints[index]
    current = of_file(endpoint, default_chunk(case))
    found = sweep(case, engine, also=(current,), progress=lambda done, of: progress("layouts", done, of))
    found = _with_capacity(found, case, calibration)
    if not found.colocated:
        raise ValueError(why_none(found))
    three = [one for one in finalists(case, found) if one is not None]
    outcomes = {one.candidate: one for one in three}
    elsewhere = _elsewhere(case, three, engine, progress)
    verdict = decide(case, found, elsewhere)
    split = verdict.disaggregated
    sized = size(endpoint, case, split, calibration) if split is not None else None
    shown = sorted(
        outcomes,
        key=lambda candidate: (
            candidate != verdict.chosen.candidate,
            verdict.runner_up is None or candidate != verdict.runner_up.candidate,
        ),
    )
    return Plan(
        environment=environment.name,
        endpoint=endpoint.name,
        source=source,
        case=case,
        calibration=calibration,
        engine=verdict.chosen.engine,
        sweep=found,
        verdict=verdict,
        current=next((one for one in found.disaggregated if one.candidate == current), None),
        sizing=sized,
        costs=tuple(_cost(environment, endpoint, case, outcomes[candidate], prices or PriceBook()) for candidate in shown),
        curves=_curves(case, shown, elsewhere),
        patch=patch_of(environment, index, case, split, sized.buffer_floor_gib, sized.sequences) if split and sized else None,
        strained=_strained(case, [*outcomes, current], (engine, closed_form(calibration)) if ask else (engine,), calibration),
        second=_second(case, found, calibration) if ask else None,
        notes=notes,
    )


def _strained(case: Case, candidates: list[Candidate], engines: Iterable[Ask], calibration: Calibration) -> frozenset[Candidate]:
    """The candidates that hold, by every engine, as many more requests as the capacity band leaves open."""
    strain = at_rate(case, 1 / calibration.bands.capacity.low)
    answers = [engine(list(dict.fromkeys(candidates)), strain, lambda: None)[0] for engine in engines]
    return frozenset.intersection(*(frozenset(one.candidate for one in found if holds(one, strain)) for found in answers))


def _second(case: Case, found: Sweep, calibration: Calibration) -> Decision | None:
    """The closed form's advice for the same finalists."""
    try:
        default, tuned, split = (one and estimate(one.candidate, case, calibration) for one in finalists(case, found))
    except NoEstimateError:
        return None
    assert default is not None
    assert tuned is not None
    return decision_of(case, default, tuned, split)[0]


def why_none(found: Sweep) -> str:
    """Why a sweep is empty: what is said of the largest worker holds for the smaller ones."""
    return found.left_out[0].why if found.left_out else "the GPUs do not divide into workers that split the model evenly"


def _with_capacity(found: Sweep, case: Case, calibration: Calibration) -> Sweep:
    """Simulated outcomes do not know the rate at which they saturate: the closed form says it."""

    def known(outcome: Outcome) -> Outcome:
        if outcome.capacity_per_second < math.inf:
            return outcome
        try:
            return replace(outcome, capacity_per_second=estimate(outcome.candidate, case, calibration).capacity_per_second)
        except NoEstimateError:
            return outcome

    return replace(
        found,
        colocated=tuple(map(known, found.colocated)),
        disaggregated=tuple(map(known, found.disaggregated)),
        threshold_curve=tuple(map(known, found.threshold_curve)),
    )


def _cost(environment: Environment, endpoint: Endpoint, case: Case, outcome: Outcome, prices: PriceBook) -> LayoutCost:
    group = environment.cluster.groups[endpoint.decode.group]
    price = prices.find("instance", case.instance.type, purchase_of(group))
    candidate = outcome.candidate
    nodes = nodes_of(candidate, case)
    tokens = token_cost(
        nodes * price.usd_per_hour, rate_per_second=min(case.rate_per_second, outcome.capacity_per_second),
        input_tokens=case.mean_input_tokens, output_tokens=case.mean_output_tokens,
    ) if price else None  # fmt: skip
    return LayoutCost(candidate, nodes, price, tokens)


def _elsewhere(case: Case, outcomes: list[Outcome], ask: Ask, progress: Progress) -> dict[tuple[Candidate, float], Outcome]:
    """The finalists at other rates."""
    found = {(outcome.candidate, 1.0): outcome for outcome in outcomes}
    candidates = list(dict.fromkeys(outcome.candidate for outcome in outcomes))
    for step, factor in enumerate(FACTORS, 1):
        if factor != 1:
            found |= {(one.candidate, factor): one for one in ask(candidates, at_rate(case, factor), lambda: None)[0]}
        progress("rates", step, len(FACTORS))
    return found


def _curves(case: Case, candidates: list[Candidate], elsewhere: dict[tuple[Candidate, float], Outcome]) -> tuple[Curve, ...]:
    return tuple(
        Curve(
            candidate,
            tuple(
                Point(case.rate_per_second * factor, elsewhere[candidate, factor]) for factor in FACTORS if (candidate, factor) in elsewhere
            ),
        )
        for candidate in candidates
    )


def advises_roles(plan: Plan) -> bool:
    """Whether the file may be changed to what the plan says: only where two roles are what it advises."""
    return plan.verdict.decision is Decision.DISAGGREGATE
