"""A plan in words and in JSON. Latencies are only ever said as ranges."""

import difflib
import math
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final

from commands.report import Line
from dpd.environment.yaml_edit import edited
from dpd.planning.candidate import Band, Outcome
from dpd.planning.plan import LayoutCost, Plan
from dpd.planning.sweep import holds
from dpd.planning.verdict import FACTORS, Decision, best_default
from dpd.sizing.cost import CostItem

JSON_VERSION: Final = 1
HOLDS: Final = "holds"
OPEN: Final = "depends on calibration"
"""What is said of an advice that a measurement within the ranges may turn."""
_STYLE: Final = {
    Decision.DISAGGREGATE: "bold green", Decision.DO_NOT: "bold yellow", Decision.TUNE_CHUNK: "bold cyan", Decision.NONE: "bold red",
}  # fmt: skip
_SECOND: Final = 1e3
_PERCENT: Final = 0.01
_COLUMNS: Final = ("", "TTFT p50", "TTFT p{}", "inter-token p50", "inter-token p{}", "goodput/s", "takes up to", "")


def number(value: float) -> str:
    """Two significant digits: no estimate here is better than that."""
    if not math.isfinite(value):
        return "∞"
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 else f"{rounded:g}"  # noqa: PLR2004


def span(band: Band, unit: str = "ms") -> str:
    """A range with its unit; from a second on in seconds."""
    low, high = band.low, band.high
    if not math.isfinite(low):
        return "never"
    if unit == "ms" and low >= _SECOND:
        low, high, unit = low / _SECOND, high / _SECOND, "s"
    one, other = number(low), number(high)
    return f"{one} {unit}".rstrip() if one == other else f"{one}-{other} {unit}".rstrip()


def layouts(plan: Plan) -> list[tuple[str, Outcome]]:
    """The layouts worth a line, with what each is: the chosen one, the best of the other kind, vLLM's defaults, the file's own."""
    named = [
        ("chosen", plan.verdict.chosen), ("runner-up", plan.verdict.runner_up),
        ("vLLM's chunk", best_default(plan.sweep, plan.case)), ("the file's", plan.current),
    ]  # fmt: skip
    found: dict[Any, tuple[str, Outcome]] = {}
    for name, outcome in named:
        if outcome is not None:
            said = found.get(outcome.candidate)
            found[outcome.candidate] = (f"{said[0]}, {name}" if said else name, outcome)
    return list(found.values())


def row(plan: Plan, outcome: Outcome) -> tuple[str, ...]:
    """The numbers of one layout, as ranges."""
    seen, capacity = plan.banded(outcome), plan.calibration.bands.capacity.times(outcome.capacity_per_second)
    return (
        span(seen.ttft_p50), span(seen.ttft_tail), span(seen.itl_p50), span(seen.itl_tail), span(seen.goodput_per_second, ""),
        span(capacity, "requests/s"), state(plan, outcome),
    )  # fmt: skip


def state(plan: Plan, outcome: Outcome) -> str:
    """Whether a layout holds the objectives, and how surely."""
    if not holds(outcome, plan.case):
        return "saturated" if outcome.saturated else "misses"
    return HOLDS if plan.surely(outcome) else "holds at best"


def head(plan: Plan) -> Iterator[Line]:
    """The advice with its reason, what was asked, and the layouts that matter."""
    case, verdict = plan.case, plan.verdict
    open_ = ("" if plan.settled else f" ({OPEN})", "bold")
    yield (f"{plan.endpoint} of {plan.environment}: ", "bold"), (str(verdict.decision), _STYLE[verdict.decision]), open_
    yield ("  ", ""), (f"{verdict.chosen.candidate.name}, on {case.gpus} x {case.instance.gpu} ({case.instance.type})", "")
    yield ("  ", ""), (verdict.reason, "")
    for name, said in facts(plan):
        yield ("  ", ""), (f"{name}: ", "dim"), (said, "")
    yield ()
    yield from _table(plan)


def lines(plan: Plan, *, items: Sequence[CostItem], diff: str) -> Iterator[Line]:
    """The whole report for a terminal."""
    yield from head(plan)
    if plan.sizing is not None:
        yield ()
        yield ((f"What {plan.sizing.candidate.name} needs", "bold"),)
        yield from (((f"  {name}: ", "dim"), (said, "")) for name, said in needs(plan))
    yield ()
    yield (("Cost", "bold"),)
    yield from (((f"  {name}: ", "dim"), (said, "")) for name, said in costs(plan, items))
    yield ()
    yield (("What would change the advice", "bold"),)
    yield from (((f"  - {flip}", ""),) for flip in plan.verdict.flips)
    yield ()
    yield (("Change of the file", "bold"),)
    yield from _patch(plan, diff)
    yield ()
    yield (("How far to trust this", "bold"),)
    yield from (((f"  - {note}", ""),) for note in trust(plan))


def _table(plan: Plan) -> Iterator[Line]:
    percentile = plan.case.goal.percentile
    head = tuple(column.format(percentile) for column in _COLUMNS)
    rows = [(f"{outcome.candidate.name} ({name})", *row(plan, outcome)) for name, outcome in layouts(plan)]
    widths = [max(len(line[at]) for line in (head, *rows)) for at in range(len(head))]
    yield ((_columns(head, widths), "dim"),)
    for at, line in enumerate(rows):
        yield ((_columns(line, widths), "" if at else "bold"),)


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """What was asked."""
    case, goal = plan.case, plan.case.goal
    yield (
        "traffic",
        (
            f"{number(case.rate_per_second)} requests/s ({plan.source}); prompts of {case.mean_input_tokens:,.0f} tokens, answers of "
            f"{case.mean_output_tokens:,.0f} in the mean"
        ),
    )
    yield (
        "objectives",
        (
            f"TTFT {goal.ttft_ms:,g} ms and inter-token latency {goal.itl_ms:,g} ms at p{goal.percentile}; "
            f"{goal.goodput_share:.0%} of the requests within both"
        ),
    )
    yield "engine", f"{plan.engine}; {plan.calibration.words}"
    verdict = plan.verdict
    if verdict.holds_to is not None:
        most, more = case.rate_per_second * verdict.holds_to, "at least " if verdict.holds_to == FACTORS[-1] else ""
        until = f"the objectives hold up to {more}{verdict.holds_to:g} times this traffic ({number(most)}/s)"
        yield "headroom", f"{until}, a queue grows for ever from {number(1 + verdict.headroom)} times on; both by the estimate"
    if verdict.runner_up is not None:
        yield "runner-up", verdict.runner_up.candidate.name


def needs(plan: Plan) -> Iterator[tuple[str, str]]:
    """What the layout with prefillers needs."""
    sizing = plan.sizing
    assert sizing is not None
    crossing = sizing.handover
    start = f"{sizing.start[0]} to {sizing.start[1]} of {sum(sizing.start)} workers would be the place to start"
    yield "ratio", f"the traffic keeps {number(sizing.work_ratio)} prefillers busy for each decoder: {start}"
    yield "KV memory", f"a decoder holds {sizing.kv_room_tokens:,} tokens; about {sizing.kv_needed_tokens:,} are in use in the mean"
    if sizing.buffer_gib is not None:
        yield "PD buffer", f"at least {sizing.buffer_floor_gib} GiB on each rank of a decoder; the file has {sizing.buffer_gib} GiB"
    way = f"{crossing.efa_devices} EFA devices ({number(crossing.gb_per_second)} GB/s)"
    yield "hand-over", f"{crossing.prompt_tokens:,} tokens are {number(crossing.gib)} GiB: {span(crossing.total_ms)} over {way}"
    busy = f"{number(100 * crossing.utilisation)} % busy" if crossing.utilisation >= _PERCENT else "less than 1 % busy"
    yield "KV link", f"{busy}: it is {'the bottleneck' if crossing.bottleneck else 'not the bottleneck'}"


def costs(plan: Plan, items: Sequence[CostItem]) -> Iterator[tuple[str, str]]:
    """What it costs: each layout, and what is billed with no request at all. No price without its date."""
    for cost in plan.costs:
        yield cost.candidate.name, _cost(plan, cost)
    for item in items:
        yield f"at rest, {item.what}", str(item).removeprefix(f"{item.what}: ")
    known = sum(item.usd_per_hour or 0.0 for item in items)
    missing = [item.what for item in items if item.usd_per_hour is None]
    days = sorted({item.price.as_of for item in items if item.price})
    without = f"; without {', '.join(missing)}, whose prices no source states" if missing else ""
    if days:
        yield "at rest, all that is known", f"{known:,.2f} USD/h, at prices of {_days(days)}{without}"


def _days(days: Sequence[date]) -> str:
    return days[0].isoformat() if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _cost(plan: Plan, cost: LayoutCost) -> str:
    nodes = f"{cost.nodes} x {plan.case.instance.type}"
    if cost.price is None or cost.tokens is None:
        return f"{nodes}, price unknown; give one with --price {plan.case.instance.type}=USD"
    tokens = cost.tokens
    return (
        f"{nodes} = {tokens.usd_per_hour:,.2f} USD/h; at this rate {tokens.input:,.2f} USD for a million input tokens or "
        f"{tokens.output:,.2f} for a million output tokens ({tokens.blended:,.2f} for all alike). Price: {cost.price}"
    )


def _patch(plan: Plan, diff: str) -> Iterator[Line]:
    if plan.patch is None:
        yield ((f"  {plan.endpoint} has two roles, and no layout with two roles fits these GPUs.", ""),)
        return
    if plan.verdict.decision is not Decision.DISAGGREGATE:
        yield (("  This file describes two roles. Should you keep them all the same, the best of that kind is", ""),)
        yield ((f"  {plan.patch.candidate.name}:", ""),)
    if not diff:
        yield (("  none: the file asks for it already", ""),)
    for line in diff.splitlines():
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        yield ((f"  {line}", style),)
    yield from (((f"  by hand: {said}", ""),) for said in plan.patch.by_hand)


def trust(plan: Plan) -> Iterator[str]:
    """What a reader must know before relying on the numbers."""
    if not plan.certain and plan.verdict.decision is not Decision.NONE:
        yield (
            "the chosen layout holds its objectives at the good end of the ranges, not at the bad end, or not with "
            f"{number(100 / plan.calibration.bands.capacity.low - 100)} % more requests, which is what a slower engine means: "
            "measure before you promise"
        )
        other = plan.verdict.runner_up
        if other is not None and state(plan, other) == HOLDS:
            yield f"{other.candidate.name} holds them at the bad end too"
    for outcome in filter(plan.perhaps, plan.rejected):
        yield f"{outcome.candidate.name} would hold the objectives at the good end of the ranges, and could be the advice"
    if plan.second is not None and plan.second is not plan.verdict.decision:
        yield f"the two engines disagree: of the same layouts the closed form says: {plan.second}. A limit is near"
    elif plan.second is not None:
        yield "the closed form gives the same advice"
    elif not plan.settled and plan.engine != "simulation":
        yield "so near to an objective a simulation may give another advice than the closed form"
    if not plan.calibration.measured:
        yield "ranges are those of published measurements against these estimates; dpd calibrate narrows them with your own"
    yield "comparisons between layouts are worth more than single numbers: both sides share their errors"
    yield from plan.notes
    yield from (f"left out: {one.what}: {one.why}" for one in plan.sweep.left_out)


def diff_of(before: str, after: str, name: str) -> str:
    """The change of a file as a unified diff, without its two lines of names when nothing changes."""
    return "".join(difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, name, n=1))


def patched(plan: Plan, text: str) -> str:
    """The file with the edits of the plan. Raises ``EditError`` when they do not fit it."""
    return edited(text, [edit.change for edit in plan.patch.edits]) if plan.patch else text


def as_dict(plan: Plan, *, items: Sequence[CostItem], diff: str) -> dict[str, Any]:
    """The machine-readable plan. Ranges are ``{low, high}``; docs/plan.schema.json describes it."""
    case, verdict, sizing = plan.case, plan.verdict, plan.sizing
    return {
        "version": JSON_VERSION,
        "environment": plan.environment,
        "endpoint": plan.endpoint,
        "engine": plan.engine,
        "calibration": plan.calibration.words,
        "traffic": {
            "source": plan.source, "requests": len(case.requests), "rate_per_second": _plain(case.rate_per_second),
            "mean_input_tokens": _plain(case.mean_input_tokens), "mean_output_tokens": _plain(case.mean_output_tokens), "seed": case.seed,
        },
        "objectives": {
            "ttft_ms": case.goal.ttft_ms, "itl_ms": case.goal.itl_ms, "percentile": case.goal.percentile,
            "goodput_share": case.goal.goodput_share,
        },
        "verdict": {
            "decision": str(verdict.decision), "layout": verdict.chosen.candidate.name, "reason": verdict.reason,
            "runner_up": verdict.runner_up.candidate.name if verdict.runner_up else None, "headroom": _plain(verdict.headroom),
            "holds_to": verdict.holds_to, "certain": plan.certain, "depends_on_calibration": not plan.settled,
            "second_opinion": str(plan.second) if plan.second else None, "would_change": list(verdict.flips),
        },
        "layouts": [_outcome(plan, outcome) for outcome in (*plan.sweep.colocated, *plan.sweep.disaggregated)],
        "left_out": [{"layout": one.what, "why": one.why} for one in plan.sweep.left_out],
        "needs": None if sizing is None else {
            "layout": sizing.candidate.name, "work_ratio": _plain(sizing.work_ratio), "kv_room_tokens": sizing.kv_room_tokens,
            "kv_needed_tokens": sizing.kv_needed_tokens, "buffer_floor_gib": sizing.buffer_floor_gib,
            "handover_ms": _band(sizing.handover.total_ms), "handover_gib": _plain(sizing.handover.gib),
            "efa_devices": sizing.handover.efa_devices, "link_utilisation": _plain(sizing.handover.utilisation),
            "link_is_bottleneck": sizing.handover.bottleneck,
        },
        "costs": [_cost_dict(cost) for cost in plan.costs],
        "at_rest": [
            {
                "what": item.what, "quantity": item.quantity, "unit": item.unit, "usd_per_hour": item.usd_per_hour,
                "as_of": item.price.as_of.isoformat() if item.price else None,
            }
            for item in items
        ],
        "patch": None if plan.patch is None else {
            "layout": plan.patch.candidate.name, "by_hand": list(plan.patch.by_hand), "diff": diff,
            "edits": [{"path": edit.path, "before": edit.before, "after": edit.after} for edit in plan.patch.edits],
        },
        "notes": list(trust(plan)),
    }  # fmt: skip


def _plain(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _band(band: Band) -> dict[str, float | None]:
    return {"low": _plain(band.low), "high": _plain(band.high)}


def _outcome(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    seen, candidate = plan.banded(outcome), outcome.candidate
    return {
        "layout": candidate.name, "kind": candidate.kind, "prefillers": candidate.prefillers, "decoders": candidate.decoders,
        "prefill_tensor_parallel": candidate.prefill_tensor_parallel, "tensor_parallel": candidate.tensor_parallel,
        "chunk_tokens": candidate.chunk_tokens, "threshold_tokens": candidate.threshold_tokens, "state": state(plan, outcome),
        "ttft_ms": {"p50": _band(seen.ttft_p50), f"p{plan.case.goal.percentile}": _band(seen.ttft_tail)},
        "itl_ms": {"p50": _band(seen.itl_p50), f"p{plan.case.goal.percentile}": _band(seen.itl_tail)},
        "e2e_ms": {"p50": _band(seen.e2e_p50), f"p{plan.case.goal.percentile}": _band(seen.e2e_tail)},
        "goodput_per_second": _band(seen.goodput_per_second),
        "capacity_per_second": _band(plan.calibration.bands.capacity.times(outcome.capacity_per_second)),
        "link_utilisation": _plain(outcome.link_utilisation),
    }  # fmt: skip


def _cost_dict(cost: LayoutCost) -> dict[str, Any]:
    tokens, price = cost.tokens, cost.price
    return {
        "layout": cost.candidate.name, "nodes": cost.nodes,
        "usd_per_hour": tokens.usd_per_hour if tokens else None,
        "usd_per_million_input_tokens": _plain(tokens.input) if tokens else None,
        "usd_per_million_output_tokens": _plain(tokens.output) if tokens else None,
        "usd_per_million_tokens": _plain(tokens.blended) if tokens else None,
        "price": {"usd_per_hour": price.usd_per_hour, "basis": price.basis, "region": price.region, "as_of": price.as_of.isoformat(),
                  "url": price.source.url} if price else None,
    }  # fmt: skip
