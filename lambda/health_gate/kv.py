"""Fifth layer: the KV cache went from prefill to decode, all of it, as fast as only EFA can.

The evidence is the connector's and the engine's own. EFA's ``rdma_write_bytes`` may stay flat although all is well:
libfabric's writes count as sent bytes (https://github.com/ai-dynamo/nixl/issues/1656).
"""

import re
from collections.abc import Mapping
from typing import Final

from health_gate import probe
from health_gate.patterns import LOGS, named
from health_gate.result import Evidence, Result, check, failed, passed, unknown
from health_gate.series import Samples, total
from health_gate.spec import DECODE, PREFILL, Wire
from health_gate.view import EndpointView

_GUIDE: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-ts-dpd.html"
_COUNTERS: Final = "https://github.com/ai-dynamo/nixl/issues/1656"
_GIGA: Final = 1e9
_SHARE: Final = 0.5
"""Of the KV bytes that EFA must have carried; our own choice, far from both all and nothing."""
_RECOMPUTED: Final = (
    "The decoder computed the prompt again. Both roles need the same image and PYTHONHASHSEED=0, and opposite transfer roles; "
    "the buffer must hold the prompt."
)
_SLOW: Final = (
    "KV does not use EFA: check the pods' EFA devices, FI_PROVIDER, the connector's backend, and that the security group allows all "
    "traffic to and from itself in both directions."
)


def _least(view: EndpointView, prompt_tokens: int) -> int:
    """The tokens that must come from prefill: all whole chunks before the last token, which the decoder computes itself."""
    chunk = max(1, view.endpoint.chunk_tokens)
    return max(1, (prompt_tokens - 1) // chunk * chunk)


def _lines(view: EndpointView) -> list[re.Match[str]]:
    return view.memory.once(("retrieved", view.endpoint.key), lambda: probe.retrieved(view, probe.long(view)))


@check(
    "kv.moved",
    proves="Tokens of the long prompt came to the decoder from outside (N > 0 on every rank that reports).",
    cannot="Over which network; `kv.throughput` shows that.",
    seconds=60,
)
def moved(view: EndpointView) -> Result:
    """Something moved."""
    exchange = probe.long(view)
    own = _lines(view)
    if own:
        empty = sum(int(match["got"]) == 0 for match in own)
        if empty:
            return failed(
                f"{empty} of {len(own)} ranks retrieved 0 tokens.", _RECOMPUTED, link=_GUIDE, prompt_tokens=exchange.answer.prompt_tokens
            )
        return passed("Every rank retrieved tokens.", lines=len(own), tokens=min(int(match["got"]) for match in own), proven_by="log")
    pods, series = view.pods(DECODE), view.endpoint.series
    for names, unit in ((series.external_tokens, "tokens"), (series.kv_bytes, "bytes")):
        rose, blind, known = exchange.rise(pods, names)
        if rose > 0:
            return passed("The decoder took KV from prefill.", proven_by="counters", **{unit: rose})
        if known and not blind:
            return failed(
                f"The decoder took no {unit} from prefill.", _RECOMPUTED, link=_GUIDE, prompt_tokens=exchange.answer.prompt_tokens
            )
    return unknown(
        "Nobody can say whether KV moved: neither the decoder's counters nor the connector's log can be read.",
        "Let the gate reach the decoder's metrics port or read its log; the connector may not have started.",
    )


@check(
    "kv.complete",
    proves="The decoder took every whole chunk of the long prompt from prefill.",
    cannot="That the values are right; `answers.match` shows that.",
    seconds=60,
    needs=("kv.moved",),
)
def complete(view: EndpointView) -> Result:
    """All of it moved. The counter is shared with other clients, so a line on this very prompt comes first."""
    exchange = probe.long(view)
    tokens = exchange.answer.prompt_tokens
    least = _least(view, tokens)
    evidence: dict[str, Evidence] = {"prompt_tokens": tokens, "at_least": least}
    if own := _lines(view):
        worst = min(own, key=lambda match: int(match["got"]))
        got, needed = int(worst["got"]), int(worst["needed"])
        evidence |= {"got": got, "needed": needed, "proven_by": "log"}
        if got < least:
            return failed(f"The decoder retrieved {got} of {needed} tokens.", _RECOMPUTED, link=_GUIDE).with_evidence(**evidence)
        return passed(f"Retrieved {got} out of {needed} tokens.").with_evidence(**evidence)
    rose, blind, known = exchange.rise(view.pods(DECODE), view.endpoint.series.external_tokens)
    evidence |= {"external_tokens": rose if known else None, "proven_by": "counters"}
    if known and rose > tokens + probe.FIRST_TOKEN:
        return unknown(
            "Other requests ran at the same time, so the counter proves nothing.", "Run the gate in a quiet moment."
        ).with_evidence(**evidence)
    if known and rose >= least:
        return passed(f"{rose:.0f} of {tokens} tokens came from prefill.").with_evidence(**evidence)
    if known and not blind:
        return failed(f"Only {rose:.0f} of {tokens} tokens came from prefill.", _RECOMPUTED, link=_GUIDE).with_evidence(**evidence)
    return unknown("The decoder does not say how many tokens came from prefill.", "Let the gate read its counters or log.").with_evidence(
        **evidence
    )


@check(
    "kv.throughput",
    proves="KV moved at least as fast as the floor for the pod's EFA devices, per rank; TCP is far below it.",
    cannot="The best rate that the devices could reach.",
    seconds=60,
    needs=("kv.moved",),
)
def throughput(view: EndpointView) -> Result:
    """Rate of the transfer, in GB/s per rank."""
    exchange, floor = probe.long(view), view.endpoint.kv_floor_gb_per_second
    rates = [float(match["throughput"]) for match in _lines(view) if match.groupdict().get("throughput")]
    source = "log"
    if not rates:
        source = "counters"
        moved_bytes, _, known = exchange.rise(view.pods(DECODE), view.endpoint.series.kv_bytes)
        seconds, _, timed = exchange.rise(view.pods(DECODE), view.endpoint.series.kv_seconds)
        rates = [moved_bytes / seconds / _GIGA] if known and timed and seconds > 0 else []
    if not rates:
        return unknown("Neither log nor counters give a rate.", "Let the gate read the connector's metrics or its log.")
    slowest = min(rates)
    evidence: dict[str, Evidence] = {
        "gb_per_second": round(slowest, 3),
        "floor_gb_per_second": floor,
        "lines": len(rates),
        "proven_by": source,
    }
    if slowest < floor:
        return failed(f"KV moved at {slowest:.2f} GB/s; the floor is {floor:g} GB/s.", _SLOW, link=_GUIDE).with_evidence(**evidence)
    return passed(f"KV moved at {slowest:.1f} GB/s.").with_evidence(**evidence)


@check(
    "kv.failures",
    proves="No transfer failed and none expired while the gate sent its prompts: each pod's failure counters stayed flat, or, where it "
    "exports none, every prompt's KV arrived whole by the connector's log, in which no known error stands.",
    cannot="Failures that the connector neither counts nor logs.",
    seconds=60,
    needs=("kv.moved",),
)
def failures(view: EndpointView) -> Result:
    """Failure counters of both roles; a connector that exports none must have said of every prompt that all of it arrived."""
    first, last = probe.short(view), probe.limit(view)
    around = probe.Exchange(last.prompt, last.answer, first.began, "", first.before, last.after)
    blind = []
    for pod in (*view.pods(PREFILL), *view.pods(DECODE)):
        counted = False
        for name in view.endpoint.series.failures:
            rose, _, known = around.rise([pod], (name,))
            counted |= known
            if rose > 0:
                return failed(
                    f"{name} rose by {rose:.0f} on {pod.name}.",
                    "Transfers fail now and then: read both roles' logs around the gate's prompts.",
                )
        if not counted:
            blind.append(pod.name)
    if not blind:
        return passed("No transfer failed.", proven_by="counters")
    return _by_log(view, first.began, blind)


def _by_log(view: EndpointView, since: float, blind: list[str]) -> Result:
    """What the logs say of the transfers when pods export no failure counter."""
    evidence: dict[str, Evidence] = {"without_counters": ", ".join(blind[:3]), "pods_without_counters": len(blind)}
    prompts = [probe.long(view), probe.limit(view)]
    whole = [min((int(line["got"]) for line in probe.retrieved(view, prompt)), default=0) for prompt in prompts]
    missing = sum(got < _least(view, prompt.answer.prompt_tokens) for got, prompt in zip(whole, prompts, strict=True))
    if missing:
        return unknown(
            f"{len(blind)} pods export no failure counter, and of {missing} prompts no log line says that all KV arrived.",
            "Let the engine export the connector's metrics, or raise its log level so that each transfer has its line.",
        ).with_evidence(**evidence)
    for role in (PREFILL, DECODE):
        for pod in view.pods(role):
            text = view.kubernetes.log(pod, view.endpoint.pods[role].container, since, view.deadline)
            if known := named(text, (*view.endpoint.patterns, *LOGS)):
                return failed(f"{pod.name} logs {known.text!r}.", known.remedy, link=known.link).with_evidence(**evidence)
    return passed("No transfer failed, says the connector's log.", proven_by="log", prompts=len(prompts)).with_evidence(**evidence)


@check(
    "kv.wire",
    proves="While a long prompt moved, EFA's own counters of sent or received bytes rose on the nodes of the pods, by at least half of the "
    "KV bytes where those are known (only where an exporter is known).",
    cannot="Whose bytes they are. A flat rdma_write_bytes alone is no fault.",
    seconds=120,
    needs=("kv.moved",),
)
def wire(view: EndpointView) -> Result | None:
    """Hardware counters around one more long prompt.

    What an RDMA read or write moves counts as sent and received bytes too. Each byte is sent by one node and received by
    another, so the larger of both sums is compared with the bytes of KV.
    """
    wanted = view.endpoint.wire
    if wanted is None:
        return None
    before, dark = _hardware(view, wanted)
    exchange = probe.send(view, probe.long_prompt(view))
    if exchange.answer.error:
        return failed(f"The prompt was not answered: {exchange.answer.error}.", "Read the router's log.")
    kv_bytes = _kv_bytes(view, exchange)
    need = max(1.0, kv_bytes * _SHARE)
    after, _ = view.wait_for(
        lambda: _hardware(view, wanted), lambda found: max(_rises(before, found[0], wanted)[:2]) >= need, view.spec.deadlines.settle_seconds
    )
    sent, received, written = _rises(before, after, wanted)
    evidence: dict[str, Evidence] = {
        "sent_bytes": sent,
        "received_bytes": received,
        "rdma_written_bytes": written,
        "kv_bytes": kv_bytes or None,
        "nodes": len(after),
    }
    if max(sent, received) >= need:
        return passed("EFA's bytes rose with the KV.").with_evidence(**evidence)
    if dark := sorted({*dark, *(before.keys() - after.keys())}):
        return unknown(
            f"EFA's counters cannot be read on {', '.join(dark[:3])}.",
            f"Look at the exporter's pods in {wanted.namespace}, and whether the security group lets the gate reach port {wanted.port}.",
        ).with_evidence(**evidence)
    if sent or received:
        text = f"EFA carried {max(sent, received):,.0f} bytes of {kv_bytes:,.0f} of KV: most of it took another network."
        return failed(text, _SLOW, link=_COUNTERS).with_evidence(**evidence)
    text = "EFA's sent and received bytes are flat: the KV cache took another network."
    return failed(text, _SLOW, link=_COUNTERS).with_evidence(**evidence)


def _kv_bytes(view: EndpointView, exchange: probe.Exchange) -> float:
    """Bytes of KV that a prompt moved, by the decoder's counters, else by its log; 0 when nobody says."""
    rose, blind, known = exchange.rise(view.pods(DECODE), view.endpoint.series.kv_bytes)
    if known and not blind:
        return rose
    return sum(float(line["gigabytes"]) * _GIGA for line in probe.retrieved(view, exchange) if line.groupdict().get("gigabytes"))


def _hardware(view: EndpointView, wanted: Wire) -> tuple[Mapping[str, Samples], list[str]]:
    """EFA's counters by node, and the nodes of the endpoint's workers on which they cannot be read."""
    nodes = {pod.node for role in (PREFILL, DECODE) for pod in view.pods(role)}
    exporters = view.memory.once(
        ("exporters", view.endpoint.key), lambda: view.kubernetes.pods(wanted.namespace, wanted.labels, "", view.deadline)
    )
    names = [name for name in (wanted.sent, wanted.received, wanted.rdma_written) if name]
    found = {}
    for pod in exporters:
        if pod.node in nodes:
            way = view.kubernetes.way(pod, wanted.port, view.deadline)
            if samples := probe.scrape(way, wanted.path, names, view.until(10)):
                found[pod.node] = samples
    return found, sorted(nodes - found.keys())


def _rises(before: Mapping[str, Samples], after: Mapping[str, Samples], wanted: Wire) -> tuple[float, float, float]:
    """Rise of sent, of received and of written bytes over all nodes that were read twice."""

    def rose(series: str) -> float:
        return sum((total(after[node], series) or 0) - (total(before[node], series) or 0) for node in before.keys() & after.keys())

    return rose(wanted.sent), rose(wanted.received), rose(wanted.rdma_written) if wanted.rdma_written else 0.0
