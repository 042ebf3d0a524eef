"""`dpd promote` against the real client library, with every way in which a proof can be missing."""

import io
import json
import time
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from tests.commands.support import Dpd
from tests.lambdas.health_gate.aws_calls import Calls, Refuse
from tests.promotion.made import STAGING, assembly, report, typed

BUCKET = "llama-dpd-dev-logs-111122223333-us-east-2"
REVISION = "6f6073b423013f6a7d4d9f39144961bfbfbc386b"
QUIET = {"llama-dpd-dev-gate-Failed": "OK"}


class Account:
    """The account of dev: reports by key, and alarms by name."""

    def __init__(self) -> None:
        self.account, self.alarms, self.reports = "111122223333", dict(QUIET), dict[str, bytes]()
        self.later: dict[str, str] = {}
        self.calls = Calls(
            {
                "GetCallerIdentity": lambda _: {"Account": self.account, "Arn": f"arn:aws:iam::{self.account}:role/release", "UserId": "U"},
                "ListObjectsV2": self._listed,
                "GetObject": self._object,
                "DescribeAlarms": self._states,
            }
        )

    def stores(self, content: bytes | dict[str, Any], *, hours_ago: float = 0.5) -> None:
        """Keep a report where the gate keeps it."""
        began = time.gmtime(time.time() - hours_ago * 3600)
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.reports[f"health-gate/llama-dpd-dev/{time.strftime('%Y/%m/%d/%H%M%S', began)}.json"] = body

    def _listed(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["Bucket"] == BUCKET
        return {"Contents": [{"Key": key} for key in sorted(self.reports) if key.startswith(asked["Prefix"])]}

    def _object(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["Key"] not in self.reports:
            raise Refuse("NoSuchKey", 404)
        return {"Body": io.BytesIO(self.reports[asked["Key"]])}

    def _states(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["AlarmNamePrefix"] == "llama-dpd-dev-"
        found = {**self.alarms}
        self.alarms.update(self.later)
        return {"MetricAlarms": [{"AlarmName": name, "StateValue": state} for name, state in found.items()], "CompositeAlarms": []}


def passed(hours_ago: float = 0.5, **changes: Any) -> dict[str, Any]:
    return {**report(typed("dev"), started=time.time() - hours_ago * 3600), **changes}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    made = Account()
    monkeypatch.setattr(botocore.session, "get_session", lambda: made.calls.session)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return made


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return assembly(tmp_path_factory.mktemp("release") / "cdk.out", typed("dev"), typed("staging", STAGING))


def promote(dpd: Dpd, release: Path, *more: str | Path) -> Any:
    return dpd("promote", "--from", "dev", "--to", "staging", "--assembly", release, *more)


def test_what_passed_may_go(dpd: Dpd, account: Account, release: Path, tmp_path: Path) -> None:
    account.stores(passed())
    said = promote(dpd, release, "--json", tmp_path / "verdict.json")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("May go: llama-dpd-dev ")
    verdict = json.loads((tmp_path / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["refused"] is False
    assert verdict["report"].startswith(f"s3://{BUCKET}/health-gate/llama-dpd-dev/")


def test_nothing_is_changed(dpd: Dpd, account: Account, release: Path) -> None:
    account.stores(passed())
    assert promote(dpd, release, "--watch-minutes", "1").code == 0
    assert {name for name, _ in account.calls.made} == {"GetCallerIdentity", "ListObjectsV2", "GetObject", "DescribeAlarms"}


@pytest.mark.parametrize(
    ("content", "id_"),
    [
        (None, "PRM001"),
        (b"not JSON", "PRM001"),
        (passed(outcome="FAIL", counts={"PASS": 36, "FAIL": 1}, causes=["kv.moved inference/llama-70b"]), "PRM002"),
        (passed(outcome="UNKNOWN", counts={"PASS": 36, "UNKNOWN": 1}), "PRM002"),
        (passed(hours_ago=30), "PRM003"),
        (passed(digest="0" * 64), "PRM004"),
        (passed(digest=""), "PRM004"),
    ],
)
def test_a_report_that_proves_nothing_refuses(dpd: Dpd, account: Account, release: Path, content: Any, id_: str) -> None:
    if content is not None:
        account.stores(content)
    said = promote(dpd, release)
    assert said.code == 1
    assert f"error {id_} " in said.err
    assert "Refused: llama-dpd-dev" in said.err


def test_the_newest_report_counts_and_an_older_one_that_passed_does_not_help(dpd: Dpd, account: Account, release: Path) -> None:
    account.stores(passed(), hours_ago=2)
    account.stores(passed(outcome="FAIL", counts={"FAIL": 1}), hours_ago=0.1)
    said = promote(dpd, release)
    assert said.code == 1
    assert "PRM002" in said.err


def test_a_report_before_midnight_is_found(dpd: Dpd, account: Account, release: Path) -> None:
    account.stores(passed(hours_ago=20), hours_ago=20)
    assert promote(dpd, release).code == 0


def test_an_alarm_that_is_raised_while_somebody_watches_refuses(dpd: Dpd, account: Account, release: Path) -> None:
    account.stores(passed())
    account.later = {"llama-dpd-dev-gate-Failed": "ALARM"}
    assert promote(dpd, release).code == 0
    said = promote(dpd, release, "--watch-minutes", "2")
    assert said.code == 1
    assert "PRM010" in said.err


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"complete": True, "source": f"hub:meta-llama/Llama-3.3-70B-Instruct@{REVISION}"}, ""),
        ({"complete": True, "source": "s3://elsewhere/Llama/"}, ""),
        ({"complete": True, "source": f"hub:meta-llama/Llama-3.3-70B-Instruct@{'0' * 40}"}, "is not the commit that was copied"),
        ({"complete": False, "source": f"hub:meta-llama/Llama-3.3-70B-Instruct@{REVISION}"}, "is not complete"),
        ([], "is not complete"),
    ],
)
def test_the_record_of_a_copy_speaks_for_the_revision(dpd: Dpd, account: Account, release: Path, record: Any, says: str) -> None:
    account.stores(passed())
    account.reports["dpd-staging/Llama-3.3-70B-Instruct/manifest.json"] = json.dumps(record).encode()
    said = promote(dpd, release)
    assert (said.code, says in said.err) == (1 if says else 0, True), said.err


@pytest.mark.parametrize("alarms", [{}, {"llama-dpd-dev-gate-Failed": "INSUFFICIENT_DATA"}])
def test_alarms_that_nobody_knows_refuse(dpd: Dpd, account: Account, release: Path, alarms: dict[str, str]) -> None:
    account.stores(passed())
    account.alarms = alarms
    assert promote(dpd, release, "--watch-minutes", "1").code == 1


@pytest.mark.parametrize("operation", ["ListObjectsV2", "GetObject", "DescribeAlarms", "GetCallerIdentity"])
def test_what_aws_refuses_is_no_verdict(dpd: Dpd, account: Account, release: Path, operation: str) -> None:
    account.stores(passed())

    def refuse(_: dict[str, Any]) -> dict[str, Any]:
        raise Refuse("AccessDenied", 403)

    account.calls.answers[operation] = refuse
    said = promote(dpd, release, "--watch-minutes", "1")
    assert said.code == 3
    assert "AccessDenied" in said.err
    assert "May go" not in said.out


def test_credentials_of_another_account_are_no_verdict(dpd: Dpd, account: Account, release: Path) -> None:
    account.account = "999999999999"
    said = promote(dpd, release)
    assert said.code == 3
    assert "dev is in 111122223333" in said.err


def test_a_file_is_read_without_any_call(dpd: Dpd, account: Account, release: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(passed()), encoding="utf-8")
    assert promote(dpd, release, "--report", file).code == 0
    assert account.calls.made == []
    said = promote(dpd, release, "--report", tmp_path / "none.json")
    assert said.code == 1
    assert "cannot be read" in said.err


def test_differences_are_said_field_by_field(dpd: Dpd, account: Account, tmp_path: Path) -> None:
    account.stores(passed())
    other = assembly(tmp_path / "cdk.out", typed("dev"), typed("staging", {**STAGING, "endpoints[0].routing.threshold_tokens": 2048}))
    said = promote(dpd, other)
    assert said.code == 1
    assert "error PRM005 dev -> staging InferenceEndpointConfig inference/llama-70b spec.pdSpec.routingThreshold" in said.err
    assert "value: 2048" in said.err
    assert "limit: 4096" in said.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--from", "dev", "--to", "dev"], 2, "name the same environment"),
        (["--from", "dev", "--to", "prod"], 1, "it has: dev, staging"),
        (["--from", "dev", "--to", "staging", "--assembly", "nowhere"], 1, "make synth"),
    ],
)
def test_what_cannot_be_compared_is_told(dpd: Dpd, release: Path, arguments: list[str], code: int, says: str) -> None:
    where = [] if "--assembly" in arguments else ["--assembly", str(release)]
    said = dpd("promote", *where, *arguments)
    assert (said.code, says in said.err) == (code, True), said.err
