"""Rules about the answers themselves."""

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from dpd.checks.files import examine
from dpd.checks.registry import Context, run
from dpd.finding import Finding, Level
from dpd.preflight import store
from dpd.preflight.facts import Facts, Reason, Unanswered
from dpd.preflight.questions import questions
from dpd.preflight.store import Reading
from tests.checks.answers import TAKEN, good, said
from tests.checks.cases import ADOPTED_CLUSTER
from tests.support import EXAMPLE, LLMD_EXAMPLE, TODAY, environment

OWN = ("PRE001", "PRE002", "PRE003", "PRE004", "PRE005")


def of(reading: Reading | None, today: date = TODAY, **given: Any) -> list[Finding]:
    return [one for one in run(environment(**given), Context(today=today, preflight=reading)) if one.id.startswith("PRE")]


def test_an_account_that_was_not_asked_is_said() -> None:
    (found,) = of(Reading("preflight/dev.json"))
    assert (found.id, found.level) == ("PRE001", Level.INFO)
    assert "dpd preflight -e dev" in found.fix


def test_rules_over_a_file_alone_know_of_no_folder() -> None:
    assert not of(None)


def test_a_file_that_cannot_be_read_stops() -> None:
    (found,) = of(Reading("preflight/dev.json", fault="is not JSON"))
    assert (found.id, found.stops) == ("PRE002", True)


@pytest.mark.parametrize("place", [{"account": "444455556666"}, {"region": "us-west-2"}])
def test_answers_of_another_place_count_for_nothing(place: dict[str, Any]) -> None:
    facts = good(environment(), {("bootstrap", "hnb659fds"): None}, **place)
    (found,) = of(Reading("preflight/dev.json", facts))
    assert (found.id, found.level) == ("PRE003", Level.WARNING)


@pytest.mark.parametrize(("days", "says"), [(7, ""), (8, "8 days old"), (-1, ""), (-2, "is to come")])
def test_age(days: int, says: str) -> None:
    found = of(Reading("preflight/dev.json", good(environment())), TAKEN.date() + timedelta(days))
    assert [one.id for one in found] == (["PRE004"] if says else [])
    assert all(says in one.message and one.level is Level.WARNING for one in found)


@pytest.mark.parametrize("example", [EXAMPLE, LLMD_EXAMPLE], ids=lambda path: path.stem)
def test_an_account_in_which_all_is_right(example: Path) -> None:
    known = environment(example=example)
    assert not of(Reading("preflight/dev.json", good(known)), example=example)


def test_no_question_passes_without_an_answer() -> None:
    for asked in (environment(), environment(ADOPTED_CLUSTER), environment(example=LLMD_EXAMPLE)):
        for question in questions(asked):
            facts = good(asked, {(question.kind, question.subject): ...})
            found = [one for one in run(asked, Context(TODAY, Reading("preflight/dev.json", facts))) if one.id == "PRE005"]
            assert [(one.path, one.level) for one in found] == [(question.path, Level.WARNING)]
            assert "UNKNOWN" in found[0].message


@pytest.mark.parametrize(
    ("reason", "says", "fix", "level"),
    [
        ("denied", "the caller may not servicequotas:GetServiceQuota", "allow servicequotas:GetServiceQuota", Level.WARNING),
        ("throttled", "too many calls", "later run", Level.WARNING),
        ("unreachable", "could not be reached", "later run", Level.WARNING),
        ("refused", "AWS refused servicequotas:GetServiceQuota: Oddity", "later run", Level.WARNING),
        ("no_call", "no AWS call tells: Oddity", "by hand", Level.INFO),
    ],
)
def test_why_there_is_no_answer(reason: Reason, says: str, fix: str, level: Level) -> None:
    subject = "ml.p5.48xlarge for cluster usage"
    why = Unanswered(kind="quota", subject=subject, action="servicequotas:GetServiceQuota", reason=reason, said="Oddity")
    (found,) = said({}, {("quota", subject): ...}, open_=(why,))
    assert says in found.message
    assert fix in found.fix
    assert found.level is level


def test_what_the_file_asks_for_since_is_not_known() -> None:
    facts = good(environment())
    grown = environment({"cluster.groups.decode.instance_type": "ml.p5en.48xlarge"})
    found = [one for one in run(grown, Context(TODAY, Reading("preflight/dev.json", facts))) if one.id.startswith("PRE")]
    assert {one.id for one in found} == {"PRE005"}
    assert all("nobody asked" in one.message for one in found)


def test_the_checks_read_the_file_beside_the_environments(tmp_path: Path) -> None:
    file = tmp_path / "environments" / "dev.yaml"
    file.parent.mkdir()
    file.write_bytes(EXAMPLE.read_bytes())
    facts = good(environment(), {("bootstrap", "hnb659fds"): None})
    place = store.path_for(file)
    assert place == tmp_path / "preflight" / "dev.json"
    place.parent.mkdir()
    place.write_text(facts.text(), encoding="utf-8")
    examined = examine([file], Context(TODAY))
    assert [one.id for one in examined.findings if one.stops] == ["PRE011"]
    assert examined.findings[0].file == str(file)
    place.write_text(facts.text()[:-10], encoding="utf-8")
    assert [one.id for one in examine([file], Context(TODAY)).findings if one.stops] == ["PRE002"]


def test_the_file_is_read_as_it_was_written() -> None:
    for asked in (environment(), environment(ADOPTED_CLUSTER)):
        facts = good(asked, open_=(Unanswered(kind="key", subject="x", action="kms:DescribeKey", reason="denied"),))
        assert Facts.model_validate_json(facts.text()) == facts
        assert Facts.model_validate_json(facts.text()).text() == facts.text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "JSON"),
        ("[]", "is not what dpd preflight wrote"),
        ("{", "JSON"),
        ('{"version": 2}', "version 1"),
        ('{"version": 1}', "environment"),
        (good(environment()).text().replace("Z", ""), "taken_at"),
        (good(environment()).text().replace('"limit": 2000.0', '"limit": "many"', 1), "answers.quota"),
        ("\udcff", "JSON"),
    ],
)
def test_what_is_no_file_of_answers(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "dev.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    reading = store.read(file)
    assert reading.facts is None
    assert says in reading.fault


def test_a_file_that_is_too_large_or_a_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "dev.json").mkdir()
    assert "cannot be read" in store.read(tmp_path / "dev.json").fault
    (tmp_path / "big.json").write_bytes(b" " * 5_000_001)
    assert "too large" in store.read(tmp_path / "big.json").fault


def test_a_newer_tool_may_have_asked_more(tmp_path: Path) -> None:
    file = tmp_path / "dev.json"
    file.write_text(good(environment()).text().replace('"environment"', '"weather": "fine", "environment"', 1), encoding="utf-8")
    assert store.read(file).facts == good(environment())


def test_times_are_kept_with_their_zone() -> None:
    taken = datetime(2026, 11, 29, 1, tzinfo=timezone(timedelta(hours=2)))
    assert Facts.model_validate_json(good(environment(), taken_at=taken).text()).taken_at == taken
