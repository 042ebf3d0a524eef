"""``dpd stage-model``: bring weights into the model bucket, inside AWS, and show how far it is."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from commands.one import FAULT, UnableError, clients, one_file, with_credentials, with_environment

if TYPE_CHECKING:
    from dpd.environment.endpoint import Endpoint
    from dpd.environment.environment import Environment
    from dpd.staging import Job

_LOOK_SECONDS: Final = 5.0
_SOURCE, _PREFIX = "STAGE_FROM", "STAGE_PREFIX"
_GIB: Final = 1 << 30


@click.command(
    "stage-model",
    short_help="Bring weights into the model bucket, inside AWS.",
    epilog="""\b
Examples:
  dpd stage-model -e dev --endpoint llama-70b --dry-run
  dpd stage-model -e dev --endpoint llama-70b
  dpd stage-model -e prod --endpoint llama-70b --from s3://our-weights/Llama-3.3-70B-Instruct/

Exit codes: 0 every file is there and checked, 1 it cannot be done, 3 it broke off: start it again and it goes on.""",
)
@with_environment
@click.option("--endpoint", help="The endpoint that reads the weights. Default: the only one.")
@click.option("--from", "source", help="hub:<owner>/<name>@<commit> or s3://<bucket>/<prefix>. Default: the catalog's repository.")
@click.option("--dry-run", is_flag=True, help="Say what would be copied, and ask nobody.")
@click.option("--no-follow", is_flag=True, help="Start it, and do not wait.")
@with_credentials
def command(
    *, file: Path | None, name: str | None, endpoint: str | None, source: str | None, dry_run: bool, no_follow: bool, profile: str | None,
    role_arn: str | None,
) -> int:  # fmt: skip
    """Start the build of the stack `weights` that copies a model's files into the folder that an endpoint reads.

    Files that are there already are not copied again, and each is checked by its SHA-256. A build that runs is followed instead
    of started twice; Ctrl-C stops the watching and not the copy.
    """
    from dpd.checks.network import closed  # noqa: PLC0415
    from dpd.staging import CannotStageError, job, record_key  # noqa: PLC0415

    environment = _environment(one_file(file, name))
    if environment is None:
        return 1
    try:
        wanted = job(environment, _endpoint(environment, endpoint), source, closed=closed(environment))
    except CannotStageError as error:
        raise click.ClickException(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
    click.echo(f"From     {wanted.source}")
    click.echo(f"To       s3://{wanted.bucket}/{wanted.prefix} (about {wanted.expected_bytes / _GIB:,.0f} GiB)")
    click.echo(f"Record   s3://{wanted.bucket}/{record_key(wanted.prefix)}")
    click.echo(f"Project  {wanted.project}, in account {environment.account}, {environment.region}")
    if dry_run:
        return 0
    known = clients(profile=profile, role_arn=role_arn, region=environment.region)
    build = _asking(lambda: _running(known("codebuild"), wanted) or _started(known("codebuild"), wanted))
    click.echo(f"Build    {build}")
    if no_follow:
        return 0
    return _followed(known("codebuild"), known("logs"), build, environment.name)


def _environment(path: Path) -> "Environment | None":
    """The environment, or ``None`` when its file cannot be read, which is then said. Other findings do not hinder a copy."""
    from commands import report  # noqa: PLC0415
    from dpd.environment.load import load  # noqa: PLC0415

    loaded = load(path)
    if loaded.environment is None:
        report.write(loaded.findings, files=1, stream=sys.stderr)
    return loaded.environment


def _endpoint(environment: "Environment", name: str | None) -> "Endpoint":
    found = [one for one in environment.endpoints if name in (None, one.name, f"{one.namespace}/{one.name}")]
    if len(found) != 1:
        known = ", ".join(f"{one.namespace}/{one.name}" for one in environment.endpoints) or "none"
        raise click.ClickException(f"Name one endpoint with --endpoint. There are: {known}.")
    return found[0]


def _asking(ask: Callable[[], Any]) -> Any:
    """What AWS answers; its refusals in words."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    from aws_reads.session import UNREACHABLE  # noqa: PLC0415

    try:
        return ask()
    except ClientError as error:
        code = error.response["Error"].get("Code", "")
        if code == "ResourceNotFoundException":
            raise click.ClickException("There is no such project in the account: deploy the stack weights first.") from None
        raise UnableError(f"AWS refuses {error.operation_name} ({code[:60]}).") from None
    except UNREACHABLE as error:
        raise UnableError(f"AWS cannot be reached ({type(error).__name__}).") from None


def _running(codebuild: Any, wanted: "Job") -> str:
    """The build that fills the same folder now; empty when none does."""
    ids = codebuild.list_builds_for_project(projectName=wanted.project, sortOrder="DESCENDING").get("ids", ())
    for build in codebuild.batch_get_builds(ids=list(ids[:20])).get("builds", ()) if ids else ():
        variables = {one["name"]: one["value"] for one in build["environment"].get("environmentVariables", ())}
        if build["buildStatus"] == "IN_PROGRESS" and variables.get(_PREFIX) == wanted.prefix:
            if variables.get(_SOURCE) != wanted.source:
                raise click.ClickException(f"{build['id']} fills that folder from {variables.get(_SOURCE)} now. Wait for it, or stop it.")
            return str(build["id"])
    return ""


def _started(codebuild: Any, wanted: "Job") -> str:
    given = [{"name": name, "value": value} for name, value in ((_SOURCE, wanted.source), (_PREFIX, wanted.prefix))]
    return str(codebuild.start_build(projectName=wanted.project, environmentVariablesOverride=given)["build"]["id"])


def _followed(codebuild: Any, logs: Any, id_: str, environment: str) -> int:
    """Print what the build says until it ends. Returns the exit code."""
    token = ""
    while True:
        (build,) = _asking(lambda: codebuild.batch_get_builds(ids=[id_]))["builds"]
        token = _printed(logs, build.get("logs", {}), token)
        if (status := build["buildStatus"]) != "IN_PROGRESS":
            break
        time.sleep(_LOOK_SECONDS)
    if status == "SUCCEEDED":
        click.echo(f"The weights are there. Next: dpd preflight -e {environment}")
        return 0
    click.echo(f"The build ended as {status}.", err=True)
    return 1 if status == "FAILED" else FAULT


def _printed(logs: Any, place: dict[str, Any], token: str) -> str:
    """Print the new lines of the copy; returns where the next look begins."""
    if not place.get("groupName") or not place.get("streamName"):
        return token
    from botocore.exceptions import ClientError  # noqa: PLC0415

    while True:
        given = {"logGroupName": place["groupName"], "logStreamName": place["streamName"], "startFromHead": True}
        try:
            answer = logs.get_log_events(**given, **({"nextToken": token} if token else {}))
        except ClientError:
            return token  # the stream comes with its first line, and a caller that may not read logs still learns how it ends
        for event in answer["events"]:
            if (line := event["message"].rstrip()).startswith("stage: "):
                click.echo(line.removeprefix("stage: "))
        if answer["nextForwardToken"] == token:
            return token
        token = answer["nextForwardToken"]
