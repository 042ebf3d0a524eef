"""``dpd status``: one endpoint's state in the terminal: its roles, the paths of requests, KV throughput, the last gate."""

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from commands.clock import with_today
from commands.one import UnableError, one_file, with_credentials, with_environment

if TYPE_CHECKING:
    from aws_reads.gate_report import LastReport
    from aws_reads.session import Clients
    from commands.endpoint_state import RoleState, State
    from commands.report import Line
    from dpd.environment.environment import Environment

_DEADLINE_SECONDS: Final = 60.0
_ENOUGH: Final = 0.9
_HOUR: Final = 3600


@click.command(
    "status",
    short_help="Print one endpoint's state: roles, paths, KV throughput, last gate.",
    epilog="""\b
Examples:
  dpd status -e prod
  dpd status -e prod --endpoint llama-70b --seconds 30
  dpd status -e prod --format json | jq .kv

It reads pods and their metrics through the Kubernetes API and the newest report of the health
gate, and sends no prompt. Exit codes: 0 it serves and the last gate, if any, passed; 1 not;
3 could not look.""",
)
@with_environment
@click.option("--endpoint", help="The endpoint, when the file has several: name or namespace/name.")
@click.option("--seconds", type=click.FloatRange(0, 300), default=5, show_default=True, help="Time between two looks at the counters.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print.")
@with_credentials
@with_today
def command(
    *, file: Path | None, name: str | None, endpoint: str | None, seconds: float, form: str, profile: str | None, role_arn: str | None,
    today: date,
) -> int:  # fmt: skip
    """Print how an endpoint fares now. Your role needs what `dpd doctor` needs, and may read the log bucket."""
    from commands import report  # noqa: PLC0415
    from dpd.environment.load import load  # noqa: PLC0415
    from dpd.planning.case import CaseError, endpoint_of  # noqa: PLC0415

    loaded = load(one_file(file, name))
    if loaded.environment is None:
        report.write(loaded.findings, files=1, stream=sys.stderr)
        return 1
    environment = loaded.environment
    try:
        index, _ = endpoint_of(environment, endpoint.rpartition("/")[2] if endpoint else None)
    except CaseError as error:
        raise click.ClickException(f"{str(error)[:1].upper()}{str(error)[1:]}; {error.fix}.") from None
    state, asked, gate_environment = _state(environment, environment.endpoints[index].name, seconds, profile, role_arn)
    last, why = _last(asked, environment, gate_environment, today) if environment.gate.deploy else (None, "the file deploys no gate")
    passed = _passed(last, state.endpoint.key)
    if form == "json":
        click.echo(json.dumps({**_as_dict(state), "gate": _gate_dict(last, why, state.endpoint.key)}, indent=2))
    else:
        report.show([*_lines(state), *_gate_lines(last, why, state.endpoint.key)], sys.stdout)
    return 0 if state.serves and passed is not False else 1


def _as_dict(state: "State") -> dict[str, Any]:
    from commands.endpoint_state import as_dict  # noqa: PLC0415

    return as_dict(state)


def _state(
    environment: "Environment", endpoint: str, seconds: float, profile: str | None, role_arn: str | None
) -> "tuple[State, Clients, str]":
    """The state, clients to ask more with, and what the gate calls the environment. Raises ``UnableError``."""
    from commands.doctor import import_gate  # noqa: PLC0415

    import_gate()
    from eks_api.reasons import Denied, Impossible, Waiting  # noqa: PLC0415
    from health_gate.clients import clients as gate_clients  # noqa: PLC0415
    from health_gate.spec import Spec  # noqa: PLC0415

    from aws_reads.session import Clients, CredentialsError, caller, open_session  # noqa: PLC0415
    from commands.endpoint_state import read  # noqa: PLC0415
    from dpd.gate.spec import document, without_reports  # noqa: PLC0415

    text, _ = without_reports(document(environment), {})
    spec = Spec.parse(text).only(endpoint)
    try:
        session = open_session(profile=profile, role_arn=role_arn, region=environment.region)
        asked = Clients(session, environment.region)
        account, _ = caller(asked)
    except CredentialsError as error:
        raise UnableError(str(error)) from None
    if account != environment.account:
        raise UnableError(f"The credentials are of account {account}; {environment.name} is in {environment.account}.")
    deadline = time.monotonic() + seconds + _DEADLINE_SECONDS
    kubernetes = None
    try:
        kubernetes = gate_clients(spec, direct=False, session=session).kubernetes()
        return read(kubernetes, spec.endpoints[0], seconds, deadline), asked, spec.environment
    except Denied as error:
        raise UnableError(f"{error} dpd doctor says what your role needs.") from None
    except Impossible as error:
        raise UnableError(str(error)) from None
    except Waiting as error:
        raise UnableError(f"{error} The API must be reachable from here.") from None
    finally:
        if kubernetes is not None:
            kubernetes.close()


def _last(asked: "Clients", environment: "Environment", gate_environment: str, today: date) -> "tuple[LastReport | None, str]":
    """The newest report of the gate, or why there is none here."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    from aws_reads.gate_report import DAYS, code_of, last_report  # noqa: PLC0415
    from aws_reads.session import UNREACHABLE  # noqa: PLC0415
    from dpd.environment.names import REPORT_PREFIX, Names  # noqa: PLC0415

    bucket = Names.of(environment).log_bucket
    try:
        found = last_report(asked, bucket, REPORT_PREFIX, gate_environment, today)
    except ClientError as error:
        code = code_of(error)
        if code in {"NoSuchBucket", "404"}:
            return None, f"there is no bucket {bucket}"
        return None, f"its report cannot be read ({code}): allow s3:ListBucket, s3:GetObject and kms:Decrypt on {bucket}"
    except UNREACHABLE as error:
        return None, f"S3 did not answer ({type(error).__name__})"
    if found is None:
        return None, f"no report of the last {DAYS} days"
    return (found, "") if _results(found) else (None, f"{found.place} is no report of this gate")


def _results(last: "LastReport | None") -> list[dict[str, Any]]:
    found = last.content.get("results") if last else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _open(last: "LastReport | None", endpoint: str) -> list[dict[str, Any]]:
    """What did not pass, of this endpoint and of what all endpoints share."""
    mine = (each for each in _results(last) if each.get("endpoint") in {"", endpoint, None})
    return [each for each in mine if each.get("outcome") != "PASS" and not each.get("skipped")]


def _passed(last: "LastReport | None", endpoint: str) -> bool | None:
    return None if last is None else not _open(last, endpoint)


def _gate_dict(last: "LastReport | None", why: str, endpoint: str) -> dict[str, Any]:
    if last is None:
        return {"outcome": None, "reason": why}
    return {
        "outcome": "PASS" if _passed(last, endpoint) else "FAIL", "started": last.content.get("started"), "report": last.place,
        "open": [{key: each.get(key) for key in ("id", "outcome", "summary", "remedy")} for each in _open(last, endpoint)],
    }  # fmt: skip


def _gate_lines(last: "LastReport | None", why: str, endpoint: str) -> "Iterator[Line]":
    if last is None:
        yield ("gate      ", "bold"), (f"unknown: {why}", "yellow")
        return
    started = last.content.get("started")
    when = f"{datetime.fromtimestamp(started, UTC):%Y-%m-%d %H:%M} UTC" if isinstance(started, int | float) else "at an unknown time"
    broken = _open(last, endpoint)
    measured = _measured(last, endpoint)
    yield ("gate      ", "bold"), ("passed" if not broken else "failed", "green" if not broken else "bold red"), (f", {when}{measured}", "")
    for each in broken:
        yield ("          ", ""), (f"{each.get('outcome')} {each.get('id')}: {each.get('summary')}", "red")
        if each.get("remedy"):
            yield ("          ", ""), (f"-> {each['remedy']}", "")
    yield ("          ", ""), (last.place, "dim")


def _measured(last: "LastReport", endpoint: str) -> str:
    """What the gate measured itself, as it stands in its metrics."""
    found: dict[str, Any] = {}
    for each in _results(last):
        if each.get("endpoint") == endpoint and isinstance(each.get("evidence"), dict):
            found |= each["evidence"]
    said = [
        f"{label} {found[name]:,.4g} {unit}"
        for name, label, unit in (("ttft_ms", "TTFT", "ms"), ("itl_ms", "inter-token", "ms"), ("gb_per_second", "KV", "GB/s"))
        if isinstance(found.get(name), int | float)
    ]
    return f" ({', '.join(said)})" if said else ""


def _lines(state: "State") -> "Iterator[Line]":
    yield (
        (f"{state.endpoint.key}: ", "bold"),
        ("serves" if state.serves else "does not serve", "bold green" if state.serves else "bold red"),
    )
    for role in (*state.roles, state.router):
        yield from _role_lines(role)
    yield from _path_lines(state)
    yield from _kv_lines(state)


def _role_lines(role: "RoleState") -> "Iterator[Line]":
    good = role.ready >= role.wanted
    style = "" if good else "yellow" if role.ready else "bold red"
    restarts = f", {role.restarts} restarts" if role.restarts else ""
    yield (f"{role.name:<10}", "bold"), (f"{role.ready} of {role.wanted} ready{restarts}", style)
    for pod in role.pods:
        yield ("          ", ""), (pod, "dim")
    for trouble in role.troubles:
        yield ("          ", ""), (trouble, "red")
    unit = "prompt tokens/s" if role.name == "prefill" else "answer tokens/s"
    said = [
        f"{role.running:.0f} running" if role.running is not None else "",
        f"{role.waiting:.0f} waiting" if role.waiting is not None else "",
        f"KV cache {role.kv_use:.0%} full at most" if role.kv_use is not None else "",
        f"{role.tokens_per_second:,.0f} {unit}" if role.tokens_per_second is not None else "",
        f"{role.cached_share:.0%} of prompt tokens found in the prefix cache" if role.cached_share is not None else "",
    ]
    if any(said):
        yield ("          ", ""), (", ".join(filter(None, said)), "")
    if role.blind:
        yield ("          ", ""), (f"metrics cannot be read of {', '.join(role.blind)}", "yellow")


def _path_lines(state: "State") -> "Iterator[Line]":
    if state.through_prefill is None:
        yield ("paths     ", "bold"), ("unknown: no request has finished, or nobody counts them", "yellow")
        return
    share = min(1.0, state.through_prefill)
    now = f"; now {min(1.0, state.through_prefill_now):.0%}" if state.through_prefill_now is not None else "; none just now"
    text = f"{share:.0%} of the finished requests through prefill, {1 - share:.0%} on a decoder alone{now}"
    yield ("paths     ", "bold"), (text, "" if share > 0 else "yellow")


def _kv_lines(state: "State") -> "Iterator[Line]":
    crossing, floor = state.crossing, state.endpoint.kv_floor_gb_per_second
    if crossing.total_gb_per_second is None:
        yield ("KV        ", "bold"), ("unknown: nothing has crossed, or the connector exports no counters", "yellow")
    else:
        rate = crossing.now_gb_per_second if crossing.now_gb_per_second is not None else crossing.total_gb_per_second
        low = rate < floor
        which = "now" if crossing.now_gb_per_second is not None else "in the mean, none just now"
        moved = f", {crossing.moved_gb:,.1f} GB in all" if crossing.moved_gb is not None else ""
        text = f"{rate:.2f} GB/s a rank {which}; floor {floor:g}{moved}"
        yield ("KV        ", "bold"), (f"{text}: below the floor, is it EFA?" if low else text, "bold red" if low else "")
        if crossing.posting_share is not None and crossing.posting_share > _ENOUGH:
            text = f"{crossing.posting_share:.0%} of the transfer time is posting: larger blocks, or more posting threads"
            yield ("          ", ""), (text, "yellow")
    for name, count in crossing.failures.items():
        if count:
            yield ("          ", ""), (f"{name} {count:,.0f}", "red")
