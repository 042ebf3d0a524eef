"""Fourth layer: requests through the router, and who worked on them."""

from typing import Final

from health_gate import probe
from health_gate.probe import Exchange
from health_gate.result import Evidence, Result, check, failed, passed, unknown
from health_gate.spec import PREFILL
from health_gate.view import EndpointView

_FALLBACK: Final = "https://github.com/ai-dynamo/dynamo/pull/4220"
_FEW_PIECES: Final = 3


def _evidence(exchange: Exchange) -> dict[str, Evidence]:
    answer = exchange.answer
    return {
        "status": answer.status,
        "characters": exchange.prompt.characters,
        "estimated_tokens": exchange.prompt.estimate,
        "prompt_tokens": answer.prompt_tokens,
        "seconds": round(answer.seconds, 3),
        "way": exchange.way,
    }


def _bad(exchange: Exchange, what: str) -> Result | None:
    """The result when there was no good answer."""
    answer = exchange.answer
    if not answer.error:
        return None
    remedy = "Read the router's log and the decoder's at this moment."
    if "in the body" in answer.error:
        remedy = "The router answered 200 before the decoder failed: read the decoder's log; a smoke test on the status would have passed."
    elif answer.status == 404:  # noqa: PLR2004
        remedy = "The served model name or the path is wrong: compare --served-model-name with what clients send."
    elif answer.status == 400:  # noqa: PLR2004
        remedy = "The server refuses the request: compare the prompt's length with max_model_len, and the API's path."
    return failed(f"{what} was not answered: {answer.error}.", remedy).with_evidence(**_evidence(exchange))


def _used(view: EndpointView, exchange: Exchange) -> tuple[float, list[str], bool]:
    return exchange.rise(view.pods(PREFILL), view.endpoint.series.requests)


def _went_through(view: EndpointView, exchange: Exchange, what: str) -> Result:
    """A prompt that must use prefill: the prefill pods' counters must have risen, and the router must not deny it.

    Other clients raise the counters too, so a line that denies it counts more.
    """
    rose, blind, known = _used(view, exchange)
    evidence = {**_evidence(exchange), "prefill_requests": rose if known else None}
    said, source = probe.decision(view, exchange)
    # Counters of decisions are shared with other clients, as those of requests are; only a line is of this very prompt.
    denied = said is False and source == "router log"
    if rose > 0 and not denied:
        return passed(f"{what} went through prefill.").with_evidence(**evidence, proven_by="counters")
    remedy = "Look why the router falls back to the decoder: its log, the workers' labels, and the threshold in characters / 4."
    if said is False:
        text = f"{what} was answered without prefill: the router decided against it."
        return failed(text, remedy).with_evidence(**evidence, shown_by=source)
    if not blind:
        text = f"{what} was answered, but no prefill pod worked on it" + (", although the router says so." if said else ".")
        return failed(text, remedy, link=_FALLBACK).with_evidence(**evidence)
    if said:
        return passed(f"{what} went through prefill, says the router.").with_evidence(**evidence, proven_by=source)
    return unknown(
        f"Nobody can say whether {what.lower()} used prefill: no counters of {', '.join(blind[:3])}, no word of the router's.",
        "Let the gate reach the workers' metrics port, or read the router's log or counters.",
    ).with_evidence(**evidence)


def _stayed_away(view: EndpointView, exchange: Exchange) -> Result:
    """A prompt that must not use prefill. Other clients' requests also raise the counters, so the router's own word comes first."""
    rose, blind, known = _used(view, exchange)
    evidence = {**_evidence(exchange), "prefill_requests": rose if known else None}
    if known and not blind and rose == 0:
        return passed("A short prompt went straight to the decoder.").with_evidence(**evidence, proven_by="counters")
    said, source = probe.decision(view, exchange)
    if said is False:
        return passed("A short prompt went straight to the decoder, says the router.").with_evidence(**evidence, proven_by=source)
    if said or rose > 0:
        return failed(
            "A prompt below the threshold went through prefill.", "Compare the router's threshold with routing.threshold_tokens."
        ).with_evidence(**evidence)
    return unknown(
        "Nobody can say whether a short prompt used prefill: neither counters nor the router's word can be read.",
        "Let the gate reach the workers' metrics port, or read the router's log or counters.",
    ).with_evidence(**evidence)


@check(
    "traffic.short",
    proves="A prompt below the threshold is answered by the decoder alone, by counters or the router's log.",
    cannot="Anything about other short prompts: batches and languages are estimated differently.",
    seconds=120,
)
def short(view: EndpointView) -> Result:
    """A short prompt through the router."""
    exchange = probe.short(view)
    if bad := _bad(exchange, "A short prompt"):
        return bad
    if probe.split(view, exchange.prompt):
        return _went_through(view, exchange, "A short prompt (the threshold is below it)")
    return _stayed_away(view, exchange)


@check(
    "traffic.long",
    proves="A prompt above the threshold is answered, and a prefill pod worked on it, by counters or the router's log, not by status.",
    cannot="That the decoder used what prefill made; the KV layer shows that.",
    seconds=180,
    needs=("traffic.short",),
)
def long(view: EndpointView) -> Result:
    """A long prompt through the router."""
    if view.endpoint.threshold_tokens >= view.endpoint.max_model_len:
        return failed("No prompt that fits reaches the threshold.", "Lower routing.threshold_tokens below model.max_model_len.")
    exchange = probe.long(view)
    return _bad(exchange, "A long prompt") or _went_through(view, exchange, "A long prompt")


@check(
    "traffic.limit",
    proves="A prompt near max_model_len is answered, through prefill.",
    cannot="Several such prompts at once: the KV buffer may hold only some.",
    seconds=300,
    needs=("traffic.long",),
)
def limit(view: EndpointView) -> Result:
    """A prompt near the longest that fits."""
    exchange = probe.limit(view)
    return _bad(exchange, "A prompt near the limit") or _went_through(view, exchange, "A prompt near the limit")


@check(
    "traffic.stream",
    proves="An answer arrives piece by piece.",
    cannot="That a proxy between client and router does not buffer.",
    seconds=300,
    needs=("traffic.long",),
)
def stream(view: EndpointView) -> Result:
    """A streamed answer."""
    exchange = probe.streams(view)[-1]
    if bad := _bad(exchange, "A streamed prompt"):
        return bad
    times = exchange.answer.chunk_times
    if len(set(times)) < _FEW_PIECES:
        return failed("The answer came in one lump.", "Something buffers between router and decoder.", pieces=len(times))
    return passed("The answer streams.", pieces=len(times))


@check(
    "traffic.latency",
    proves="Time to first token and between tokens of a single long prompt, held against the endpoint's objectives.",
    cannot="Latency under load: one request is no percentile.",
    needs=("traffic.stream",),
)
def latency(view: EndpointView) -> Result:
    """Latency, best of up to three."""
    answers = [exchange.answer for exchange in probe.streams(view) if not exchange.answer.error]
    best_ttft, best_itl = min(answer.ttft_ms for answer in answers), min(answer.itl_ms for answer in answers)
    evidence: dict[str, Evidence] = {"ttft_ms": round(best_ttft, 1), "itl_ms": round(best_itl, 2), "requests": len(answers)}
    wanted = view.endpoint.objectives
    if wanted is None:
        return passed("Recorded; the endpoint has no objectives.").with_evidence(**evidence)
    evidence |= {"ttft_objective_ms": wanted.ttft_ms, "itl_objective_ms": wanted.itl_ms}
    if best_ttft > wanted.ttft_ms or best_itl > wanted.itl_ms:
        return failed(
            f"Even alone a request is slower than promised: TTFT {best_ttft:.0f} ms of {wanted.ttft_ms:.0f}, "
            f"ITL {best_itl:.1f} ms of {wanted.itl_ms:.1f}.",
            "Seconds of TTFT point at TCP or host staging instead of EFA; else reconsider the objectives or tensor parallelism.",
        ).with_evidence(**evidence)
    return passed("Within the objectives.").with_evidence(**evidence)
