"""Which one environment a command means, and with which credentials it asks AWS."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from commands.files import chosen

if TYPE_CHECKING:
    from aws_reads.session import Clients

FAULT: Final = 3


class UnableError(click.ClickException):
    """Nothing could be asked: the fault is not the environment's."""

    exit_code = FAULT


def _of_pairs(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> None:
    """Take the environment's name from ``env=NAME``, whichever of ``-c`` and ``-e`` says it."""
    for pair in given:
        key, sign, value = pair.partition("=")
        if key != "env" or not sign or not value:
            raise click.BadParameter(f"{pair[:63]!r} is not env=NAME")
        if context.params.get("name") not in (None, value):
            raise click.BadParameter("names another environment than the option before it")
        context.params["name"] = value


def with_environment(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``file`` and ``name``: a path, or ``-e NAME``, or ``-c env=NAME`` as `cdk` takes it."""
    for decorate in (
        click.option(
            "-c",
            "--context",
            multiple=True,
            callback=_of_pairs,
            expose_value=False,
            help="`env=NAME`, as `cdk` takes it: the same as -e NAME.",
        ),
        click.option("-e", "--env", "name", is_eager=True, help="The environment of this name in environments/."),
        click.argument("file", required=False, type=click.Path(path_type=Path)),
    ):
        command = decorate(command)
    return command


def with_credentials(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``profile`` and ``role_arn``."""
    command = click.option("--role-arn", help="Role to assume, with the profile's credentials.")(command)
    return click.option("--profile", help="AWS profile.")(command)


def one_file(file: Path | None, name: str | None) -> Path:
    """The file of the one environment that is meant. Raises ``ClickException`` when it is none or several."""
    files = chosen([file] if file else [])
    found = [path for path in files if name in (None, path.stem)]
    if len(found) != 1:
        raise click.ClickException(f"Name one environment with -e. There are: {', '.join(path.stem for path in files)}.")
    return found[0]


def clients(*, profile: str | None, role_arn: str | None, region: str) -> "Clients":
    """Clients with credentials. Raises ``UnableError`` at once when there are none."""
    try:
        from aws_reads.session import Clients, CredentialsError, open_session  # noqa: PLC0415 - only who asks AWS pays for it
    except ImportError as error:
        raise UnableError(f"{error.name} is not installed. Install it with: pip install 'hyperpod-dpd[doctor]'") from None
    try:
        return Clients(open_session(profile=profile, role_arn=role_arn, region=region), region)
    except CredentialsError as error:
        raise UnableError(str(error)) from None


def known_clients(*, name: str, account: str, profile: str | None, role_arn: str | None, region: str) -> "Clients":
    """The same, of somebody whom AWS knows, in the account of the environment ``name``. Raises ``UnableError``."""
    made = clients(profile=profile, role_arn=role_arn, region=region)
    from aws_reads.session import CredentialsError, caller  # noqa: PLC0415

    try:
        found, _ = caller(made)
    except CredentialsError as error:
        raise UnableError(str(error)) from None
    if found != account:
        raise UnableError(f"The credentials are of account {found}; {name} is in {account}. Name another --profile.")
    return made
