"""The gate's parts alone: reading, counters, answers, prompts, comparison, report."""

import json
import string
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from health_gate import completions, prompts, series
from health_gate.answers import compare
from health_gate.completions import Answer, is_chat
from health_gate.kubernetes import mebibytes
from health_gate.reading import BadSpec
from health_gate.report import Report, shortened
from health_gate.result import CHECKS, Outcome, Patience, Result, check, failed, passed, unknown
from health_gate.run import explained
from health_gate.spec import Spec
from hypothesis import given
from hypothesis import strategies as st

from tests.lambdas.health_gate.world import World


def document(**changes: Any) -> dict[str, Any]:
    made = World(pods_port=8000)
    made.changes = changes
    return made.document()


def endpoint(**changes: Any) -> dict[str, Any]:
    made = World(pods_port=8000)
    made.endpoint_changes = changes
    return made.document()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (document(zone_id=1), "spec.zone_id must be of type str"),
        (document(surplus=1), "spec.surplus is not a field"),
        (document(groups=[]), "spec.groups must be an object"),
        (document(groups={"a": {"instance_type": "x", "count": True}}), "spec.groups.a.count must be of type int"),
        (document(security_groups="sg"), "spec.security_groups must be a list"),
        (document(endpoints=[{}]), r"spec.endpoints\[0\].name is missing"),
        (endpoint(pods={}), "endpoint chat lacks pods.decode"),
        (endpoint(logs={"decision": "("}), "logs.decision is not a regular expression"),
        (endpoint(logs={"retrieved": "Retrieved (?P<got>x)"}), "logs.retrieved lacks the group needed"),
        (endpoint(kv_floor_gb_per_second="1"), "must be of type float"),
    ],
)
def test_a_wrong_spec_is_refused_at_its_place(content: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSpec, match=words):
        Spec.parse(json.dumps(content))


def test_a_refused_spec_shows_no_value() -> None:
    with pytest.raises(BadSpec) as caught:
        Spec.parse(json.dumps(document(zone_id={"password": "hunter2"})))
    assert "hunter2" not in str(caught.value)


def test_whole_numbers_are_rates_too() -> None:
    assert Spec.parse(json.dumps(endpoint(kv_floor_gb_per_second=3))).endpoints[0].kv_floor_gb_per_second == 3.0


def test_one_endpoint_of_many_and_none() -> None:
    spec = Spec.parse(json.dumps(document()))
    assert spec.only("llm/chat").endpoints == spec.endpoints
    with pytest.raises(BadSpec, match=r"known: chat"):
        spec.only("other")


@pytest.mark.parametrize(
    ("text", "mib"), [("5120Mi", 5120), ("5Gi", 5120), ("1048576Ki", 1024), ("1048576", 1), (0, 0), ("", 0), ("odd", 0), ("5m", 0)]
)
def test_quantities(text: str, mib: float) -> None:
    assert mebibytes(text) == mib


EXPOSITION = """# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop"} 3.0
vllm:request_success_total{engine="0",finished_reason="length"} 1e1 1700000000
vllm:request_success_total_created{engine="0"} 99
tokens{source="external",path="a\\"b}c"} 7
tokens{source="local"} 5
broken{ 1
not_a_number{} many
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vllm:request_success_total", 13.0),
        ('tokens{source="external"}', 7.0),
        ('tokens{source="local"}', 5.0),
        ("tokens", 12.0),
        ('tokens{source="other"}', 0),
        ("absent", None),
        ("broken", None),
        ("not_a_number", None),
    ],
)
def test_series(name: str, value: float | None) -> None:
    assert series.total(series.parse(EXPOSITION, [name]), name) == value


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a 1", "a 3", 2.0),
        ("a 1", "a 1", 0.0),
        ("", "a 3", 3.0),
        ("a 3", "a 1", None),
        ("a 3", "", None),
        ("b 1", "b 5", 4.0),
        ("a 1\nb 1", "a 2\nb 9", 1.0),
        (None, "a 1", None),
        ("a 1", None, None),
    ],
)
def test_rises(before: str | None, after: str | None, expected: float | None) -> None:
    """A counter that fell belongs to a server that began anew: nothing is known."""
    old, new = (None if text is None else series.parse(text, ["a", "b"]) for text in (before, after))
    assert series.rise(old, new, ["a", "b"]) == expected


@given(st.text(string.hexdigits, min_size=16, max_size=16), st.integers(0, 400_000), st.integers(1, 8))
def test_prompts_are_as_long_as_asked_and_a_sentence_longer_at_most(nonce: str, characters: int, divisor: int) -> None:
    made = prompts.prompt(nonce, characters, divisor)
    assert made.text.startswith(nonce)
    assert made.characters >= characters
    assert made.characters < max(characters, 300) + len(prompts.SENTENCE)
    assert made.estimate == made.characters // divisor


def test_prompts_are_not_in_a_repr() -> None:
    assert "river" not in repr(prompts.prompt("nonce", 1000, 4))
    assert "secret words" not in repr(Answer(text="secret words", tokens=["secret words"]))


@pytest.mark.parametrize(("path", "chat"), [("v1/chat/completions", True), ("/v1/chat/completions/", True), ("v1/completions", False)])
def test_paths(path: str, chat: bool) -> None:
    assert is_chat(path) is chat


CHANCES = "log-probabilities"


def answer(words: str, *, others: dict[int, dict[str, float]] | None = None, chance: float = -0.1, ids: list[int] | None = None) -> Answer:
    tokens = words.split()
    candidates = [{token: chance, **(others or {}).get(place, {})} for place, token in enumerate(tokens)]
    return Answer(
        text=words,
        tokens=tokens,
        logprobs=[chance] * len(tokens),
        candidates=candidates,
        completion_tokens=len(tokens),
        token_ids=ids or [],
    )


@pytest.mark.parametrize(
    ("ours", "reference", "difference", "compared"),
    [
        (answer("a b c d"), answer("a b c d"), "", "text"),
        (answer("a b c d", ids=[1, 2]), answer("a b c d", ids=[1, 2]), "", "token ids"),
        (answer("a b c d", ids=[1, 2]), answer("a b c e", ids=[1, 3]), "token 4 is another one, and it was no tie", CHANCES),
        (answer("a b x d"), answer("a b c d"), "token 3 is another one, and it was no tie", CHANCES),
        (answer("a b x d", others={2: {"c": -0.2}}), answer("a b c y", others={2: {"x": -0.25}}), "", CHANCES),
        (
            answer("a b x d", others={2: {"c": -0.2}}),
            answer("a b c y", others={2: {"x": -2.0}}),
            "token 3 is another one, and it was no tie",
            "log-probabilities",
        ),
        (answer("a b c x"), answer("a b c d", chance=-3), "token 1 is the same, its log-probability is not", CHANCES),
        (answer("a b c d e"), answer("a b c d"), "one answer is longer", CHANCES),
        (answer("a"), answer("a b c d e"), "1 tokens against 5", "length"),
        (answer("yes"), answer("yes"), "", "text"),
        (
            Answer(text="a b", completion_tokens=2),
            Answer(text="a c", completion_tokens=2),
            "other tokens, and no log-probabilities to compare",
            "text",
        ),
    ],
)
def test_comparison(ours: Answer, reference: Answer, difference: str, compared: str) -> None:
    assert compare(ours, reference, 0.2) == (difference, compared)


CHAT = {
    "choices": [
        {
            "message": {"content": "one two"},
            "logprobs": {"content": [{"token": "one", "logprob": -1, "top_logprobs": [{"token": "one", "logprob": -1}]}]},
            "token_ids": [5, 6],
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2},
}
PLAIN = {
    "choices": [
        {"text": "one two", "logprobs": {"tokens": ["one"], "token_logprobs": [-1.0], "top_logprobs": [{"one": -1.0}]}, "token_ids": [5, 6]}
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2},
}
EVENTS = [{"choices": [{"delta": {"content": word}}]} for word in ("one ", "two")] + [{"choices": [], "usage": CHAT["usage"]}]
STREAM = b": comment\n\n" + b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in EVENTS) + b"data: [DONE]\n\n"


def read(*chunks: bytes) -> Answer:
    found = Answer()
    completions._read(found, iter(chunks), 0)
    return found


@pytest.mark.parametrize("body", [CHAT, PLAIN])
def test_both_kinds_of_answer_are_read_alike(body: dict[str, Any]) -> None:
    found = read(json.dumps(body).encode())
    assert (found.text, found.prompt_tokens, found.completion_tokens, found.error) == ("one two", 9, 2, "")
    assert (found.tokens, found.logprobs, found.candidates, found.token_ids) == (["one"], [-1.0], [{"one": -1.0}], [5, 6])


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_a_stream_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    found = read(*(STREAM[a:b] for a, b in pairwise(places)))
    assert (found.text, found.prompt_tokens, found.completion_tokens, found.error) == ("one two", 9, 2, "")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "the body is not JSON"),
        (b"[]", "the body is not JSON"),
        (b'{"error": {"type": "decoder_error", "message": "quote of a prompt"}}', "an error in the body: decoder_error"),
        (b'{"error": "quote of a prompt"}', "an error in the body: unnamed"),
        (b'{"object": "error", "type": "Bad<Request>", "message": "quote of a prompt"}', "an error in the body: Bad?Request?"),
        (b'data: {"choices": []}\n\ndata: {"error": {"code": 400}}\n\n', "an error in the body: 400"),
        (b"data: half an ev", "the body is not JSON"),
    ],
)
def test_a_bad_body_is_an_error_whatever_the_status(body: bytes, error: str) -> None:
    assert read(body).error == error


def report(*results: Result) -> Report:
    return Report("dev", results, 0, 1)


def named(result: Result, id: str) -> Result:
    return replace(result, id=id)


YES, NO, MAYBE = passed("good"), failed("bad", "mend it"), unknown("dark", "light it", patience=Patience.GRACE)
LATER = failed("young", "wait", patience=Patience.DEADLINE)


@pytest.mark.parametrize(
    ("results", "outcome"),
    [([YES], "PASS"), ([YES, NO], "FAIL"), ([YES, MAYBE], "UNKNOWN"), ([MAYBE, NO], "FAIL"), ([], "UNKNOWN")],
)
def test_outcomes(results: list[Result], outcome: str) -> None:
    assert report(*results).outcome.value == outcome


@pytest.mark.parametrize(("waited", "order"), [(0, ["no", "later", "maybe"]), (301, ["maybe", "no", "later"])])
def test_the_first_cause_comes_first(waited: float, order: list[str]) -> None:
    found = report(named(YES, "yes"), named(LATER, "later"), named(MAYBE, "maybe"), named(NO, "no"))
    assert [result.id for result in found.causes(waited)] == order


@given(st.text(), st.integers(3, 200))
def test_shortened_texts_fit_and_stay_text(text: str, limit: int) -> None:
    short = shortened(text, limit)
    assert len(short.encode("utf-8", "surrogatepass")) <= limit
    assert short == text or short.endswith("...")


def test_table_and_json_hold_the_same() -> None:
    found = report(named(YES, "aws.one"), named(NO, "aws.two"))
    assert found.table().splitlines()[0] == "FAIL  dev, 2 checks in 1.0 s"
    assert "-> mend it" in found.table()
    assert [result["outcome"] for result in json.loads(found.as_json())["results"]] == ["PASS", "FAIL"]
    assert json.loads(found.as_json())["causes"] == ["aws.two"]


def test_a_surprise_is_unknown_and_shows_no_message() -> None:
    try:
        raise KeyError("the prompt of a customer")
    except KeyError as error:
        found = explained(error)
    assert (found.outcome, found.patience) == (Outcome.UNKNOWN, Patience.GRACE)
    assert "customer" not in found.summary + found.remedy


def test_ids_are_unique() -> None:
    with pytest.raises(ValueError, match=r"two checks are called aws\.cluster"):
        check("aws.cluster", proves="", cannot="")(lambda _: None)


def test_every_need_is_a_check_of_the_same_layer() -> None:
    for each in CHECKS.values():
        assert all(CHECKS[need].layer == each.layer for need in each.needs), each.id
