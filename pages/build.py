"""From a plan to its page."""

from collections.abc import Iterable
from datetime import date
from typing import Final

from dpd.planning import needs
from dpd.planning import plan as planning
from dpd.planning.bands import Banded
from dpd.planning.candidate import Band, Goal, Outcome
from dpd.planning.plan import Plan
from dpd.planning.verdict import Decision
from pages import figures
from pages.figures import Curve, Memory, Picture, Point, Threshold, span_ms
from pages.plan import Number, PlanPage, State, Table, Tone

Pairs = Iterable[tuple[str, str]]
_TONES: Final[dict[Decision, Tone]] = {
    Decision.DISAGGREGATE: "yes", Decision.DO_NOT: "no", Decision.TUNE_CHUNK: "tune", Decision.NONE: "none",
}  # fmt: skip
_SHADED: Final = 2
"""Curves whose band is drawn: the chosen layout and the runner-up."""
_CASES: Final = (
    ("llm-d: prefill and decode disaggregation", "https://github.com/llm-d/llm-d/blob/main/guides/pd-disaggregation/README.md"),
    (
        "Mooncake: vLLM with two roles",
        "https://github.com/kvcache-ai/Mooncake/blob/main/docs/source/performance/vllm/vllm-v1-pd-performance.md",
    ),
    ("vLLM: hand-overs over NIXL", "https://github.com/vllm-project/vllm/pull/51919"),
)


def page_of(plan: Plan, *, facts: Pairs, needs: Pairs, costs: Pairs, trust: Iterable[str], diff: str, today: date) -> PlanPage:
    """The page of a plan. ``facts``, ``needs``, ``costs`` and ``trust`` are the words of the terminal's report."""
    case, verdict = plan.case, plan.verdict
    reason = verdict.reason[:1].upper() + verdict.reason[1:]
    engine = "Simulated" if plan.engine == "simulation" else "Closed form"
    machines = f"{case.gpus} x {case.instance.gpu} ({case.instance.type})"
    lead = f"{case.model.name} on {machines}, {case.rate_per_second:.3g} requests a second. {engine}; {plan.calibration.words}."
    return PlanPage(
        title=f"Plan for {plan.endpoint} in {plan.environment}",
        lead=lead,
        tone=_TONES[verdict.decision],
        headline=str(verdict.decision).capitalize() + ("" if plan.settled else " (depends on calibration)"),
        layout=verdict.chosen.candidate.name,
        reason=reason,
        numbers=tuple(_numbers(plan)),
        flips=tuple(verdict.flips),
        question=(("model", case.model.name), ("nodes", f"{case.gpus // case.instance.gpus} x {case.instance.type}"), *facts),
        pictures=tuple(pictures(plan)),
        candidates=_candidates(plan),
        needs=tuple(needs),
        cost=tuple(costs),
        patch=diff,
        notes=tuple(trust),
        sources=() if plan.calibration.measured else _CASES,
        footer=f"Written by dpd plan on {today.isoformat()}. Every latency is a range; none is a promise.",
    )


def _state(band: Band, goal: float) -> State:
    return "good" if band.high <= goal else "open" if band.low <= goal else "bad"


def _numbers(plan: Plan) -> Iterable[Number]:
    goal, chosen, seen = plan.case.goal, plan.verdict.chosen, plan.banded(plan.verdict.chosen)
    yield Number(
        f"Time to first token, p{goal.percentile}",
        span_ms(seen.ttft_tail),
        f"objective {_ms(goal.ttft_ms)}",
        _state(seen.ttft_tail, goal.ttft_ms),
    )
    yield Number(
        f"Inter-token latency, p{goal.percentile}",
        span_ms(seen.itl_tail),
        f"objective {_ms(goal.itl_ms)}",
        _state(seen.itl_tail, goal.itl_ms),
    )
    low, high = seen.goodput_per_second.low, min(seen.goodput_per_second.high, plan.case.rate_per_second)
    yield Number("Within both objectives", f"{low:.2g} to {high:.2g} /s", f"of {plan.case.rate_per_second:.2g} requests a second")
    if plan.verdict.holds_to is not None:
        most = f"a queue grows from {1 + plan.verdict.headroom:.2g} times on, both by the estimate"
        yield Number("Objectives hold up to", f"{plan.verdict.holds_to:g} times this traffic", most)
    if plan.sizing is not None and chosen.candidate.prefillers:
        crossing = plan.sizing.handover
        yield Number(
            f"Hand-over of {crossing.prompt_tokens:,} tokens", span_ms(crossing.total_ms), f"KV link {crossing.utilisation:.1%} busy"
        )
    cost = next((cost for cost in plan.costs if cost.candidate == chosen.candidate), None)
    if cost is not None and cost.price is not None and cost.tokens is not None:
        dated = f"price as of {cost.price.as_of.isoformat()}"
        yield Number(f"{cost.nodes} nodes" if cost.nodes > 1 else "1 node", f"{cost.tokens.usd_per_hour:,.2f} USD/h", dated)
        yield Number("Per million output tokens", f"{cost.tokens.output:,.2f} USD", f"input {cost.tokens.input:,.2f} USD, {dated}")


def _ms(value: float) -> str:
    return f"{value / 1e3:g} s" if value >= 1e3 else f"{value:g} ms"  # noqa: PLR2004 (milliseconds in a second)


def pictures(plan: Plan) -> Iterable[Picture]:
    """The pictures of a plan, in the order of the page."""
    goal = plan.case.goal
    curves = [
        Curve(curve.candidate.name, curve.candidate.kind, tuple(_point(plan, point, goal) for point in curve.points), number < _SHADED)
        for number, curve in enumerate(plan.curves)
    ]
    yield figures.latency(
        "ttft", f"Time to first token, p{goal.percentile}", curves, goal.ttft_ms, lambda point: (point.ttft, point.ttft_band),
        "Lines are estimates, shades the range of the chosen layout and the runner-up. A cross ends a layout whose queue would grow.",
    )  # fmt: skip
    yield figures.latency(
        "itl", f"Inter-token latency, p{goal.percentile}", curves, goal.itl_ms, lambda point: (point.itl, point.itl_band),
        "A worker with both roles jumps to the length of a prompt's step once enough gaps between tokens hold one.",
    )  # fmt: skip
    yield figures.goodput(
        curves, "Requests within both objectives", "The dotted line is every request. Where a layout leaves it, requests miss an objective."
    )
    thresholds = [_threshold(plan, outcome) for outcome in plan.sweep.threshold_curve]
    if len(thresholds) > 1:
        split = plan.sweep.threshold_curve[0].candidate
        yield figures.thresholds(
            thresholds, f"Routing threshold of {split.name.partition(',')[0]}", (goal.ttft_ms, goal.itl_ms),
            "The decoder reads prompts below the threshold itself. Dashed: the objectives. Dotted: the threshold that is advised.",
        )  # fmt: skip
    if any(point.link_share > 0 for curve in curves for point in curve.points):
        yield figures.link(
            curves, "How busy the KV link is", "Share of the time in which the busiest end of the hand-overs sends or receives."
        )
    if plan.sizing is not None:
        bars = [_memory(one) for one in plan.sizing.memory]
        yield figures.memory(
            bars, f"Memory of one GPU, {plan.sizing.candidate.name.partition(',')[0]}",
            "vLLM's share (weights, activations, KV cache), and beside it the PD buffer and the runtime.",
        )  # fmt: skip


def _point(plan: Plan, point: planning.Point, goal: Goal) -> Point:
    outcome, seen = point.outcome, plan.banded(point.outcome)
    return Point(
        rate=float(f"{point.rate_per_second:.3g}"),
        ttft=outcome.ttft_ms.at(goal.percentile), ttft_band=seen.ttft_tail, itl=outcome.itl_ms.at(goal.percentile), itl_band=seen.itl_tail,
        goodput=outcome.goodput_per_second, goodput_band=seen.goodput_per_second, link_share=outcome.link_utilisation,
        saturated=outcome.saturated,
    )  # fmt: skip


def _threshold(plan: Plan, outcome: Outcome) -> Threshold:
    goal, seen, tokens = plan.case.goal, plan.banded(outcome), outcome.candidate.threshold_tokens
    best = plan.verdict.disaggregated
    requests = plan.case.requests
    return Threshold(
        tokens=tokens,
        ttft=outcome.ttft_ms.at(goal.percentile), ttft_band=seen.ttft_tail, itl=outcome.itl_ms.at(goal.percentile), itl_band=seen.itl_tail,
        handed_over=sum(request.input_tokens >= tokens for request in requests) / len(requests),
        chosen=best is not None and best.candidate == outcome.candidate,
    )  # fmt: skip


def _memory(one: needs.Memory) -> Memory:
    return Memory(one.who, (one.weights_gib, one.activation_gib, one.kv_gib, one.buffer_gib, one.runtime_gib), one.gpu_gib)


def _candidates(plan: Plan) -> Table:
    percentile = plan.case.goal.percentile
    columns = ("layout", "TTFT p50", f"TTFT p{percentile}", "inter-token p50", f"inter-token p{percentile}", "within both", "link", "")
    outcomes = sorted((*plan.sweep.colocated, *plan.sweep.disaggregated), key=lambda one: one.candidate)
    rows = tuple(_row(outcome, plan.banded(outcome)) for outcome in outcomes)
    chosen = next((number for number, one in enumerate(outcomes) if one.candidate == plan.verdict.chosen.candidate), None)
    return Table(columns, rows, chosen)


def _row(outcome: Outcome, seen: Banded) -> tuple[str, ...]:
    link = f"{outcome.link_utilisation:.1%}" if outcome.candidate.prefillers else ""
    return (
        outcome.candidate.name, span_ms(seen.ttft_p50), span_ms(seen.ttft_tail), span_ms(seen.itl_p50), span_ms(seen.itl_tail),
        f"{outcome.goodput_share:.0%}", link, "queue grows" if outcome.saturated else "",
    )  # fmt: skip
