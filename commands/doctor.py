"""``dpd doctor``: prove a deployed environment from here, with the checks of the health gate."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from commands.clock import with_today
from commands.one import UnableError, known_clients, one_file, with_credentials, with_environment

if TYPE_CHECKING:
    from health_gate.spec import Spec

    from dpd.environment.environment import Environment

_GATE: Final = Path(__file__).parents[1] / "lambda"
"""Where the gate is in a checkout; an installed package has it beside this one."""


_STANDARD_OUTPUT: Final = Path("-")


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
@with_environment
@click.option("--endpoint", help="Only this endpoint, as name or namespace/name.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Write the whole report as JSON too. `-`: to the standard output, and the table to the other.",
)
@click.option("--keep-going", is_flag=True, help="Examine later layers although an earlier one is not proven.")
@with_credentials
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
    role_arn: str | None,
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
    from health_gate.clients import clients as clients_of  # noqa: PLC0415
    from health_gate.run import run  # noqa: PLC0415

    session = known_clients(
        name=environment.name, account=environment.account, profile=profile, role_arn=role_arn, region=region or environment.region
    ).session
    spec, left_out = _spec(environment, _outputs(session, environment), endpoint)
    if region:
        spec = replace(spec, region=region)
    for part in left_out:
        click.echo(f"Not examined: {part}, because the outputs of its stack cannot be read.", err=True)
    report = run(spec, clients_of(spec, direct=False, session=session), keep_going=keep_going)
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
        raise UnableError(f"The report cannot be written to {file}: {error.strerror}.") from None


def _environment(file: Path | None, name: str | None, today: date) -> "Environment | None":
    """The environment, or ``None`` when its file is wrong, which is then said."""
    from commands import report  # noqa: PLC0415
    from dpd.checks.files import examine  # noqa: PLC0415
    from dpd.checks.registry import Context  # noqa: PLC0415

    examined = examine([one_file(file, name)], Context(today=today))
    if examined.stops or not examined.environments:
        report.write([finding for finding in examined.findings if finding.stops], files=1, stream=sys.stderr)
        return None
    return examined.environments[0]


def import_gate() -> None:
    """Make the gate importable. Raises ``UnableError`` when what it needs is not installed."""
    if _GATE.joinpath("health_gate").is_dir() and str(_GATE) not in sys.path:
        sys.path.insert(0, str(_GATE))
    try:
        import botocore.session  # noqa: F401, PLC0415
        import health_gate.run  # noqa: F401, PLC0415
    except ImportError as error:
        raise UnableError(f"{error.name} is not installed. Install it with: pip install 'hyperpod-dpd[doctor]'") from None


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
