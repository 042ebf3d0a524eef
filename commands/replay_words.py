"""A replayed day in words and in JSON."""

from collections.abc import Iterator
from typing import Any, Final

from commands.report import Line
from dpd.scaling.compare import POLICY, Replay
from dpd.scaling.replay import Played

JSON_VERSION: Final = 1
_HEAD: Final = ("", "P:D at first", "within both", "GPU-hours", "good/GPU-hour", "longest TTFT", "changes")


def rows(replay: Replay) -> list[tuple[str, ...]]:
    """The arms side by side, head first."""
    return [_HEAD, *(_row(played) for played in replay.played)]


def _row(played: Played) -> tuple[str, ...]:
    return (
        played.arm.name, f"{played.arm.prefillers}:{played.arm.decoders}", f"{played.goodput_share:.1%}", f"{played.gpu_hours:,.0f}",
        f"{played.good_per_gpu_hour:,.0f}", seconds(played.worst_queue_seconds), str(played.changes),
    )  # fmt: skip


def seconds(value: float) -> str:
    """A time that people can read at a glance."""
    return f"{value / 60:,.0f} min" if value >= 600 else f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"  # noqa: PLR2004


def verdict(replay: Replay) -> str:
    """What the day says of the policy, in a sentence."""
    ours, *others = replay.played
    defaults, equal, static = others
    saved = 1 - ours.gpu_hours / static.gpu_hours
    return (
        f"The token policy holds both objectives for {ours.goodput_share:.1%} of the requests with {ours.gpu_hours:,.0f} GPU-hours: "
        f"{saved:.0%} less than all pods all day ({static.goodput_share:.1%}); KEDA's defaults hold {defaults.goodput_share:.1%}, "
        f"a fixed ratio of as many GPU-hours {equal.goodput_share:.1%}"
    )


def lead(replay: Replay) -> str:
    """What was replayed."""
    system = replay.system
    return (
        f"Up to {replay.prefill.most} prefillers and {replay.decode.most} decoders of {system.decode.engine.model.name} on "
        f"{system.decode.engine.gpu.name}, TP{system.prefill.engine.tensor_parallel} and TP{system.decode.engine.tensor_parallel}; "
        f"a burst of {max(phase.rate for phase in replay.day.phases):.3g} requests a second; "
        f"a pod starts in {seconds(system.start_seconds)}"
    )


def notes(replay: Replay) -> tuple[str, ...]:
    """What to keep in mind."""
    nodes = (
        "GPU-hours are those of pods. A node of an instance group is billed whether a pod stands on it or not: what a role gives back "
        "saves money once its nodes go, or do the other role's work (dpd rebalance)."
    )
    signals = (
        f"The signals divide by {replay.prefill_velocity:,.0f} prompt tokens and {replay.decode_velocity:,.0f} answer tokens a second and "
        "pod, whatever the phase: on a cluster nobody tells the autoscaler what the traffic is either."
    )
    defaults = (
        "KEDA's defaults scale both roles by requests a second, with the targets that are right for the ordinary hours at "
        f"{replay.prefill.full:.0%} of their velocity, over a CloudWatch period of 300 s, with Kubernetes' own pace."
    )
    model = (
        "A fluid of tokens and sequences with the queue of random arrivals on top: work is shared evenly, nothing is preempted and no "
        "transfer fails. It compares policies; it promises no milliseconds."
    )
    jumps = (
        "No autoscaler meets a jump that is over before a pod has started. Headroom does: a lower utilization, or a higher min_replicas."
    )
    return nodes, signals, defaults, model, jumps


def lines(replay: Replay) -> Iterator[Line]:
    """The report for a terminal."""
    ours = replay.played[0]
    yield (
        (f"{verdict(replay)}.", "bold green" if ours.goodput_share >= max(p.goodput_share for p in replay.played[1:3]) else "bold yellow"),
    )
    yield ((f"{lead(replay)}.", "dim"),)
    yield ()
    table = rows(replay)
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEAD))]
    for number, row in enumerate(table):
        style = "dim" if number == 0 else "bold" if row[0] == POLICY else ""
        cells = (cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths, strict=True)))
        yield (("  ".join(cells).rstrip(), style),)
    yield ()
    yield (("Pods that keep up with each phase (matched rates):", ""),)
    for one in replay.matched:
        phase = one.phase
        what = f"{phase.name:<16} {phase.mean_rate:6.2f}/s  {phase.input_tokens:7,.0f} tokens, {phase.cached_share:4.0%} cached"
        yield (("  ", ""), (f"{what}  {one.prefillers:5.2f} : {one.decoders:.2f}", ""))
    yield ()
    yield (("The policy in the file, with these velocities. Put in what you measured:", ""),)
    for name, policy, velocity in (
        ("prefill", replay.prefill, replay.prefill_velocity),
        ("decode", replay.decode, replay.decode_velocity),
    ):
        bounds = f"min_replicas: {max(1, policy.least)}, max_replicas: {policy.most}"
        asked = f"tokens: {{prometheus: <address>, tokens_per_second: {velocity:.0f}}}"
        yield (("  ", ""), (f"{name}: {{…, autoscaling: {{{bounds}, {asked}}}}}", ""))
    yield ()
    for note in notes(replay):
        yield (("- ", ""), (note, "dim"))


def as_dict(replay: Replay) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "version": JSON_VERSION,
        "verdict": verdict(replay),
        "velocities": {"prefill": round(replay.prefill_velocity), "decode": round(replay.decode_velocity)},
        "ceilings": {"prefill": replay.prefill.most, "decode": replay.decode.most},
        "phases": [
            {
                "name": one.phase.name, "begins": one.phase.begins, "ends": one.phase.ends,
                "requests_per_second": round(one.phase.mean_rate, 4),
                "input_tokens": round(one.phase.input_tokens), "output_tokens": round(one.phase.output_tokens),
                "cached_share": one.phase.cached_share, "prefillers": round(one.prefillers, 3), "decoders": round(one.decoders, 3),
            }
            for one in replay.matched
        ],
        "arms": [
            {
                "name": played.arm.name, "prefillers": played.arm.prefillers, "decoders": played.arm.decoders,
                "goodput_share": round(played.goodput_share, 5), "good_requests": round(played.good), "requests": round(played.requests),
                "gpu_hours": round(played.gpu_hours, 2), "longest_mean_ttft_seconds": round(played.worst_queue_seconds, 3),
                "changes": played.changes,
            }
            for played in replay.played
        ],
    }  # fmt: skip
