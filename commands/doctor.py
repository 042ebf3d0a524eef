"""``dpd doctor``: prove a deployed environment from here, with the checks of the health gate."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from commands.clock import with_today
from commands.files import chosen

if TYPE_CHECKING:
    from health_gate.spec import Spec

    from dpd.environment.environment import Environment

FAULT: Final = 3
_GATE: Final = Path(__file__).parents[1] / "lambda"
"""Where the gate is in a checkout; an installed package has it beside this one."""
_DISABLED: Final = "AWS_EC2_METADATA_DISABLED"
_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})


_STANDARD_OUTPUT: Final = Path("-")


def _environment_of(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> None:
    """Take the environment's name from ``env=NAME``, whichever of ``-c`` and ``-e`` says it."""
    for pair in given:
        key, sign, value = pair.partition("=")
        if key != "env" or not sign or not value:
            raise click.BadParameter(f"{pair[:63]!r} is not env=NAME")
        if context.params.get("name") not in (None, value):
            raise click.BadParameter("names another environment than the option before it")
        context.params["name"] = value


class Unable(click.ClickException):
    """Nothing could be examined: the fault is not the environment's."""

    exit_code = FAULT


@click.command(
    "doctor",
    short_help="Prove a deployed environment, and say what is wrong with it.",
    epilog="""\b
Examples:
  dpd doctor -c env=dev
  dpd doctor -c env=prod --endpoint llama-70b --profile prod --json report.json
  dpd doctor environments/dev.yaml --json - | jq '.results[] | select(.outcome != "PASS")'

Exit codes: 0 proven, 1 not proven, 3 could not look (no credentials, AWS does not answer).""",
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("-e", "--env", "name", is_eager=True, help="The environment of this name in environments/.")
@click.option(
    "-c",
    "--context",
    multiple=True,
    callback=_environment_of,
    expose_value=False,
    help="`env=NAME`, as `cdk` takes it: the same as -e NAME.",
)
@click.option("--endpoint", help="Only this endpoint, as name or namespace/name.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Write the whole report as JSON too. `-`: to the standard output, and the table to the other.",
)
@click.option("--keep-going", is_flag=True, help="Examine later layers although an earlier one is not proven.")
@click.option("--profile", help="AWS profile.")
@click.option("--region", help="Region to ask. Default: the file's.")
@with_today
def command(
    *,
    file: Path | None,
    name: str | None,
    endpoint: str | None,
    json_file: Path | None,
    keep_going: bool,
    profile: str | None,
    region: str | None,
    today: date,
) -> int:
    """Run the checks of the health gate with your own credentials, through the Kubernetes API, and print the report as a table.

    It sends a handful of prompts to every endpoint and changes nothing. The API must be reachable from here, and your role
    needs an access entry of the cluster that may read nodes and pods, and use the proxies of pods and of the routers' Services.
    """
    environment = _environment(file, name, today)
    if environment is None:
        return 1
    import_gate()
    from health_gate.clients import clients  # noqa: PLC0415
    from health_gate.run import run  # noqa: PLC0415

    session = _session(profile, region or environment.region)
    _know_caller(session, environment)
    spec, left_out = _spec(environment, _outputs(session, environment), endpoint)
    if region:
        spec = replace(spec, region=region)
    for part in left_out:
        click.echo(f"Not examined: {part}, because the outputs of its stack cannot be read.", err=True)
    report = run(spec, clients(spec, direct=False, session=session), keep_going=keep_going)
    click.echo(report.table().rstrip(), err=json_file == _STANDARD_OUTPUT)
    if json_file:
        _write(json_file, report.as_json())
    return 1 if report.open else 0


def _write(file: Path, text: str) -> None:
    if file == _STANDARD_OUTPUT:
        click.echo(text)
        return
    try:
        file.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise Unable(f"The report cannot be written to {file}: {error.strerror}.") from None


def _environment(file: Path | None, name: str | None, today: date) -> "Environment | None":
    """The environment, or ``None`` when its file is wrong, which is then said."""
    from commands import report  # noqa: PLC0415
    from dpd.checks.files import examine  # noqa: PLC0415
    from dpd.checks.registry import Context  # noqa: PLC0415

    found = [path for path in chosen([file] if file else []) if name in (None, path.stem)]
    if len(found) != 1:
        known = ", ".join(path.stem for path in chosen([file] if file else []))
        raise click.ClickException(f"Name one environment with -e. There are: {known}.")
    examined = examine(found, Context(today=today))
    if examined.stops or not examined.environments:
        report.write([finding for finding in examined.findings if finding.stops], files=1, stream=sys.stderr)
        return None
    return examined.environments[0]


def import_gate() -> None:
    """Make the gate importable. Raises ``Unable`` when what it needs is not installed."""
    if _GATE.joinpath("health_gate").is_dir() and str(_GATE) not in sys.path:
        sys.path.insert(0, str(_GATE))
    try:
        import botocore.session  # noqa: F401, PLC0415
        import health_gate.run  # noqa: F401, PLC0415
    except ImportError as error:
        raise Unable(f"{error.name} is not installed. Install it with: pip install 'hyperpod-dpd[doctor]'") from None


def _session(profile: str | None, region: str) -> Any:
    """A session with credentials. Raises ``Unable`` at once when there are none."""
    import botocore.session  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    # A laptop has no instance metadata, and waiting for it would take seconds. On an instance: AWS_EC2_METADATA_DISABLED=false.
    os.environ.setdefault(_DISABLED, "true")
    try:
        session = botocore.session.get_session()
        if profile:
            session.set_config_variable("profile", profile)
        session.set_config_variable("region", region)
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise Unable(f"The AWS credentials cannot be used: {error}") from None
    if credentials is None:
        raise Unable(
            f"No AWS credentials. Sign in (aws sso login), name a --profile, or on an EC2 instance set {_DISABLED}=false to use its role."
        )
    return session


def _know_caller(session: Any, environment: "Environment") -> None:
    """Raise ``Unable`` unless AWS answers and knows the caller, and the account is the environment's."""
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    config = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 1})
    try:
        account = session.create_client("sts", config=config).get_caller_identity()["Account"]
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "an error")
        hint = " They have expired: sign in again." if code in _EXPIRED else ""
        raise Unable(f"AWS does not accept the credentials ({code}).{hint}") from None
    except BotoCoreError as error:
        raise Unable(f"AWS cannot be asked who the caller is ({type(error).__name__}).") from None
    if account != environment.account:
        raise Unable(f"The credentials are of account {account}; {environment.name} is in {environment.account}. Name another --profile.")


def _outputs(session: Any, environment: "Environment") -> Mapping[str, str]:
    """What the deployed stacks say, by placeholder of the spec; less when they cannot be read."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    from dpd.backends.site import LUSTRE_FILE_SYSTEM_ID  # noqa: PLC0415
    from dpd.environment.names import NETWORK, STORAGE, Names  # noqa: PLC0415
    from dpd.gate.spec import EFA_SECURITY_GROUP_ID  # noqa: PLC0415

    names = Names.of(environment)
    found: dict[str, str] = {}
    for part, output, placeholder in (
        (NETWORK, "EfaSecurityGroupId", EFA_SECURITY_GROUP_ID),
        (STORAGE, "LustreFileSystemId", LUSTRE_FILE_SYSTEM_ID),
    ):
        try:
            (stack,) = session.create_client("cloudformation").describe_stacks(StackName=names.stack(part))["Stacks"]
        except (BotoCoreError, ClientError):
            continue
        outputs = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", ())}
        if output in outputs:
            found[placeholder] = outputs[output]
    return found


def _spec(environment: "Environment", values: Mapping[str, str], endpoint: str | None) -> "tuple[Spec, tuple[str, ...]]":
    from health_gate.reading import BadSpec  # noqa: PLC0415
    from health_gate.spec import Spec  # noqa: PLC0415

    from dpd.gate.spec import document, without_reports  # noqa: PLC0415

    text, left_out = without_reports(document(environment), values)
    try:
        spec = Spec.parse(text)
        return (spec.only(endpoint) if endpoint else spec), left_out
    except BadSpec as error:
        raise click.ClickException(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
