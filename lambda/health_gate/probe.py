"""Requests of one run to one endpoint, each sent once, with the counters around it; the layers above read them."""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from eks_api.http import OK, Failed
from eks_api.reasons import Waiting

from health_gate import prompts
from health_gate.completions import Answer, ask
from health_gate.kubernetes import Pod, Way
from health_gate.prompts import Prompt
from health_gate.series import Samples, merged, parse, rise, together
from health_gate.spec import DECODE, PREFILL, ROUTER
from health_gate.view import EndpointView

_SCRAPE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 5.0
_PASSING: Final = frozenset({0, 502, 503, 504})
_ANSWER_TOKENS: Final = 16
_STREAM_TOKENS: Final = 32
_STREAMS: Final = 3
_NEAR: Final = 0.95
_MARGIN_TOKENS: Final = 96
"""Room for the answer and the chat template."""

FIRST_TOKEN: Final = 1
"""The first token of the answer may come from prefill, and then counts as one of the prompt's."""

Readings = dict[str, Samples | None]


@dataclass(slots=True)
class Exchange:
    """A prompt, its answer, and the counters of all workers, and of whoever decides, before and after."""

    prompt: Prompt
    answer: Answer
    began: float
    way: str
    before: Readings = field(repr=False)
    after: Readings = field(repr=False)

    def rise(self, pods: Iterable[Pod], alternatives: Iterable[str]) -> tuple[float, list[str], bool]:
        """How much a counter rose over some pods, the pods of which that is not known, and whether it is known of any."""
        names = tuple(alternatives)
        changes = {pod.name: rise(self.before.get(pod.name), self.after.get(pod.name), names) for pod in pods}
        known, blind = together(changes)
        return known, blind, len(blind) < len(changes)


def split(view: EndpointView, prompt: Prompt) -> bool:
    """Whether the router should send a prompt through prefill."""
    return prompt.estimate >= view.endpoint.threshold_tokens


def short(view: EndpointView) -> Exchange:
    """A prompt of one line."""
    return _once(view, "short", lambda: _send(view, prompts.plain(view.clock.nonce(), view.endpoint.characters_per_token)))


def long(view: EndpointView) -> Exchange:
    """A prompt above the threshold, of at least two chunks."""
    return _once(view, "long", lambda: _send(view, long_prompt(view)))


def limit(view: EndpointView) -> Exchange:
    """A prompt near the longest that fits, measured by what the long one came to."""

    def send() -> Exchange:
        measured = long(view)
        tokens = max(measured.answer.prompt_tokens, 1)
        target = min(view.endpoint.max_model_len * _NEAR, view.endpoint.max_model_len - _MARGIN_TOKENS)
        characters = int(target * measured.prompt.characters / tokens) - len(prompts.SENTENCE)
        return _send(view, prompts.prompt(view.clock.nonce(), characters, view.endpoint.characters_per_token))

    return _once(view, "limit", send)


def streams(view: EndpointView) -> list[Exchange]:
    """Streamed long prompts: again while the answer is slower than promised, for the first one may be a cold one."""

    def send() -> list[Exchange]:
        found: list[Exchange] = []
        for _ in range(_STREAMS):
            found.append(_send(view, long_prompt(view), stream=True))
            wanted, answer = view.endpoint.objectives, found[-1].answer
            if answer.error or wanted is None or (answer.ttft_ms <= wanted.ttft_ms and answer.itl_ms <= wanted.itl_ms):
                break
        return found

    return view.memory.once(("streams", view.endpoint.key), send)


def long_prompt(view: EndpointView) -> Prompt:
    """A fresh prompt above the threshold."""
    tokens = max(view.endpoint.threshold_tokens + view.endpoint.threshold_tokens // 10 + 16, 2 * view.endpoint.chunk_tokens)
    return prompts.prompt(view.clock.nonce(), tokens * view.endpoint.characters_per_token, view.endpoint.characters_per_token)


def send(view: EndpointView, prompt: Prompt) -> Exchange:
    """Send a prompt through the router."""
    return _send(view, prompt)


def direct(view: EndpointView, prompt: Prompt, salt: str) -> Answer:
    """Send a prompt to the decoder alone."""
    wanted = view.endpoint.pods[DECODE]
    pod = view.pods(DECODE)[0]
    way = view.kubernetes.way(pod, wanted.port, view.deadline)
    return ask(way, view.endpoint.path, view.endpoint.served_name, prompt.text, view.deadline, max_tokens=_ANSWER_TOKENS, salt=salt)


def readings(view: EndpointView) -> Readings:
    """Counters of all prefill and decode pods, and of those that decide; ``None`` where they could not be read."""
    wanted, deciding = view.endpoint.series.all, view.endpoint.decisions
    asked = [(role, "/metrics", wanted) for role in (PREFILL, DECODE)]
    if deciding:
        asked.append((deciding.role, deciding.path, (*deciding.split, *deciding.whole)))
    found: Readings = {}
    for role, path, names in asked:
        first, servers = view.endpoint.pods[role].port, view.endpoint.pods[role].servers
        for pod in view.pods(role):
            ways = [view.kubernetes.way(pod, port, view.deadline) for port in range(first, first + servers)]
            found[pod.name] = merged(scrape(way, path, names, view.until(_SCRAPE_SECONDS)) for way in ways)
    return found


def scrape(way: Way, path: str, names: Iterable[str], deadline: float) -> Samples | None:
    """The wanted series of one server; ``None`` when it does not give them."""
    try:
        reply = way.server.send("GET", way.prefix + path, headers=way.headers(), deadline=deadline)
    except Failed:
        return None
    return parse(reply.body.decode("utf-8", "replace"), names) if reply.status == OK else None


def lines(view: EndpointView, role: str, expression: str, since: float) -> list[re.Match[str]] | None:
    """Log lines of a role's pods that match; ``None`` when a log could not be read or the backend writes no such line."""
    if not expression:
        return None
    pattern, found = re.compile(expression), []
    for pod in view.pods(role):
        try:
            text = view.kubernetes.log(pod, view.endpoint.pods[role].container, since, view.deadline)
        except Waiting:
            return None
        found += [match for line in text.splitlines() if (match := pattern.search(line))]
    return found


def decision(view: EndpointView, exchange: Exchange) -> tuple[bool | None, str]:
    """Whether the router split a prompt, and what says so: its log, else counters. ``None`` when nothing does."""

    def look() -> list[re.Match[str]]:
        found = lines(view, ROUTER, view.endpoint.logs.decision, exchange.began)
        return [match for match in found or () if match["estimate"] == str(exchange.prompt.estimate)]

    if view.endpoint.logs.decision and (own := view.wait_for(look, bool, view.spec.deadlines.settle_seconds)):
        return own[-1]["split"] == view.endpoint.logs.decided_yes, "router log"
    return _counted(view, exchange), "router counters"


def _counted(view: EndpointView, exchange: Exchange) -> bool | None:
    """What the counters of decisions say; ``None`` when other requests were decided at the same time, or nothing was counted."""
    wanted = view.endpoint.decisions
    if wanted is None:
        return None
    pods = view.pods(wanted.role)
    if any(exchange.before.get(pod.name) is None or exchange.after.get(pod.name) is None for pod in pods):
        return None
    split, whole = (exchange.rise(pods, names)[0] for names in (wanted.split, wanted.whole))
    return split > 0 if bool(split) != bool(whole) else None


def retrieved(view: EndpointView, exchange: Exchange) -> list[re.Match[str]]:
    """The connector's lines on a prompt, one a rank, told from those on others by the number of tokens."""
    tokens = exchange.answer.prompt_tokens
    low, high = tokens - max(1, view.endpoint.chunk_tokens), tokens + FIRST_TOKEN

    def look() -> list[re.Match[str]]:
        found = lines(view, DECODE, view.endpoint.logs.retrieved, exchange.began)
        return [match for match in found or () if low <= int(match["needed"]) <= high]

    if not view.endpoint.logs.retrieved:
        return []
    return view.wait_for(look, bool, view.spec.deadlines.settle_seconds)


def _once(view: EndpointView, kind: str, make: Callable[[], Exchange]) -> Exchange:
    return view.memory.once((kind, view.endpoint.key), make)


def _router(view: EndpointView) -> Way:
    wanted = view.endpoint.pods[ROUTER]
    found = view.kubernetes.addresses(wanted.namespace, wanted.service, view.deadline)
    if not found:
        raise Waiting(f"The Service {wanted.namespace}/{wanted.service} has no ready address.")
    first = found[0] if found[0].port else replace(found[0], port=wanted.port)
    return view.kubernetes.service_way(wanted.namespace, wanted.service, wanted.service_port, first, view.deadline)


def _send(view: EndpointView, prompt: Prompt, *, stream: bool = False) -> Exchange:
    way = _router(view)
    before = readings(view)
    while True:
        began = view.clock.now()
        answer = ask(
            way,
            view.endpoint.path,
            view.endpoint.served_name,
            prompt.text,
            view.deadline,
            max_tokens=_STREAM_TOKENS if stream else _ANSWER_TOKENS,
            stream=stream,
            request_id=f"health-gate-{view.clock.nonce()}",
        )
        # A router finds its workers some seconds after they are ready; until then it has nobody to ask.
        if not answer.error or answer.status not in _PASSING or view.deadline - time.monotonic() < 3 * _RETRY_SECONDS:
            break
        view.clock.sleep(_RETRY_SECONDS)
    exchange = Exchange(prompt, answer, began, way.kind, before, {})

    def look() -> bool:
        exchange.after = readings(view)
        used, _, known = exchange.rise(view.pods(PREFILL), view.endpoint.series.requests)
        moved, _, counted = exchange.rise(view.pods(DECODE), view.endpoint.series.external_tokens)
        return not answer.error and (used > 0 or not known) and (moved > 0 or not counted)

    # Counters lag behind answers. Of a short prompt one waits for nothing, but long enough to see a wrong rise.
    seconds = view.spec.deadlines.settle_seconds if split(view, prompt) else view.spec.deadlines.settle_seconds / 5
    view.wait_for(look, bool, 0 if answer.error else seconds)
    return exchange
