"""Sixth layer: the answer through prefill and decode is the answer of the decoder alone.

A corrupted transfer gives status 200 and wrong tokens (https://github.com/vllm-project/vllm/issues/49238).
"""

from typing import Final

from health_gate import probe
from health_gate.completions import Answer
from health_gate.result import Evidence, Result, check, failed, passed, unknown
from health_gate.spec import DECODE
from health_gate.view import EndpointView

_ENOUGH: Final = 4
_CORRUPT: Final = "https://github.com/vllm-project/vllm/issues/49238"


@check(
    "answers.match",
    proves="At temperature 0 the answer through prefill and decode equals the decoder's own answer to the same prompt: the same tokens, or "
    "a first difference between candidates whose log-probabilities are within the tolerance.",
    cannot="That the model is good: both ways may be wrong together.",
    seconds=300,
)
def match(view: EndpointView) -> Result:
    """The same prompt twice.

    The decoder is asked first, with a prompt nobody has sent before, so it must compute everything itself. A salt keeps
    what it caches apart (vLLM's ``cache_salt``); the counters then show that the second answer still took its KV from
    prefill, else the comparison would prove nothing.
    """
    prompt = probe.long_prompt(view)
    reference = probe.direct(view, prompt, salt=view.clock.nonce())
    if reference.error:
        return failed(f"The decoder alone does not answer: {reference.error}.", "Read the decoder's log; the prompt is not the cause.")
    exchange = probe.send(view, prompt)
    answer = exchange.answer
    if answer.error:
        return failed(f"The prompt was not answered: {answer.error}.", "Read the router's log and the decoder's.")
    rose, _, known = exchange.rise(view.pods(DECODE), view.endpoint.series.external_tokens)
    evidence: dict[str, Evidence] = {
        "prompt_tokens": answer.prompt_tokens,
        "answer_tokens": answer.completion_tokens,
        "external_tokens": rose if known else None,
        "tolerance": view.endpoint.logprob_tolerance,
    }
    if not (rose > 0 if known else any(int(line["got"]) > 0 for line in probe.retrieved(view, exchange))):
        return unknown(
            "Nothing shows that the second answer took its KV from prefill, so the comparison proves nothing.",
            "The engine must keep salted prompts apart (cache_salt), or have its prefix cache off.",
        ).with_evidence(**evidence)
    if len(set(answer.text.strip())) == 1 and answer.completion_tokens >= _ENOUGH:
        return failed(
            "The answer is one character again and again.", "The weights or the KV dtype are broken; ask the decoder alone to tell which."
        ).with_evidence(**evidence)
    difference, compared = compare(answer, reference, view.endpoint.logprob_tolerance)
    evidence["compared"] = compared
    if difference:
        return failed(
            f"Through prefill the model answers differently: {difference}.",
            "KV is corrupted on its way or does not belong to this prompt: both roles need the same image, tensor parallel size, "
            "block size and KV dtype; restart both together.",
            link=_CORRUPT,
        ).with_evidence(**evidence)
    return passed("Both ways give the same answer.").with_evidence(**evidence)


def compare(answer: Answer, reference: Answer, tolerance: float) -> tuple[str, str]:
    """How two answers differ (empty: they do not), and what was compared. No text is shown."""
    if min(answer.completion_tokens, reference.completion_tokens) < min(
        _ENOUGH, max(answer.completion_tokens, reference.completion_tokens)
    ):
        return f"{answer.completion_tokens} tokens against {reference.completion_tokens}", "length"
    if answer.token_ids and reference.token_ids:
        if answer.token_ids == reference.token_ids:
            return "", "token ids"
    elif answer.text == reference.text:
        return "", "text"
    if not (answer.tokens and reference.tokens and answer.candidates and reference.candidates):
        return "other tokens, and no log-probabilities to compare", "text"
    return _first_difference(answer, reference, tolerance), "log-probabilities"


def _first_difference(answer: Answer, reference: Answer, tolerance: float) -> str:
    ours = zip(answer.tokens, answer.logprobs, answer.candidates, strict=False)
    theirs = zip(reference.tokens, reference.logprobs, reference.candidates, strict=False)
    for place, ((one, chance, ways), (other, other_chance, other_ways)) in enumerate(zip(ours, theirs, strict=False), start=1):
        if one != other:
            # After a tie the two contexts differ, so nothing behind it can be compared.
            tie = all(one in each and other in each and abs(each[one] - each[other]) <= tolerance for each in (ways, other_ways))
            return "" if tie else f"token {place} is another one, and it was no tie"
        if abs(chance - other_chance) > tolerance:
            return f"token {place} is the same, its log-probability is not"
    return "" if len(answer.tokens) == len(reference.tokens) else "one answer is longer"
