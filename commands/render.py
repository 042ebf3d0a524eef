"""``dpd render``: write the Kubernetes manifests without AWS and without CDK."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from commands.clock import with_today
from commands.files import chosen

if TYPE_CHECKING:
    from charts.render import Rendered
    from dpd.environment.environment import Environment

_LUSTRE_OUTPUTS: Final = ("LustreFileSystemId", "LustreDnsName", "LustreMountName")
"""Outputs of the storage stack, in the order of the placeholders in ``dpd.backends.site``."""


@click.command(
    "render",
    short_help="Write the Kubernetes manifests, one object in a file.",
    epilog="""\b
Examples:
  dpd render -o manifests
  cdk deploy -c env=prod 'prod/*' --outputs-file outputs.json && dpd render --env prod --outputs outputs.json""",
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--env", "name", help="Render this environment only.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("manifests"), show_default=True, help="Folder to write to.")
@click.option(
    "--outputs", type=click.Path(path_type=Path), help="File of `cdk deploy --outputs-file`: fills in what only a deployment knows."
)
@with_today
def command(*, files: tuple[Path, ...], name: str | None, output: Path, outputs: Path | None, today: date) -> int:
    """Write <folder>/<environment>/<endpoint>/ for environment files (by default environments/*.yaml), for review or GitOps.

    The files are checked first; nothing is written when an error is left.
    """
    from commands import report  # noqa: PLC0415
    from dpd.checks.files import examine  # noqa: PLC0415
    from dpd.checks.registry import Context  # noqa: PLC0415

    paths = _narrowed(chosen(files), name)
    deployed = _deployed(outputs)
    examined = examine(paths, Context(today=today))
    if examined.stops:
        report.write([finding for finding in examined.findings if finding.stops], files=len(paths), stream=sys.stderr)
        return 1
    import_charts()
    from charts.render import OBSERVE_FOLDER, render_examined, write, write_documents  # noqa: PLC0415 - cdk8s takes longer to import than the checks take to run

    ready, unfit = render_examined(examined.environments)
    if unfit:
        report.write(unfit, files=len(paths), stream=sys.stderr)
        return 1
    if deployed is not None:
        ready = [_filled(rendered, environment, deployed) for rendered, environment in zip(ready, examined.environments, strict=True)]
    try:
        written = [write(rendered, output) for rendered in ready]
        documents = [write_documents(rendered, output / OBSERVE_FOLDER) for rendered in ready if rendered.documents]
    except FileExistsError as error:
        raise click.ClickException(f"{error}.") from None
    for rendered, manifests in zip(ready, written, strict=True):
        click.echo(f"{output / rendered.environment}: {len(manifests)} manifests")
        if left := rendered.placeholders():
            click.echo(f"  still to fill in: {', '.join(left)} (give --outputs after a deployment)")
    if documents:
        click.echo(f"{output / OBSERVE_FOLDER}: {sum(map(len, documents))} dashboards and files of rules")
    return 0


def _narrowed(paths: list[Path], name: str | None) -> list[Path]:
    found = [path for path in paths if name in (None, path.stem)]
    if not found:
        known = ", ".join(path.stem for path in paths)
        raise click.ClickException(f"There is no environment {str(name)[:60]!r}. There are: {known}.")
    return found


class _NotInstalled(click.ClickException):
    exit_code = 3


def import_charts() -> None:
    """Raises ``ClickException`` when what renders is not installed: the checks need much less than the charts."""
    own = Path(sys.executable).with_name("node")
    if "JSII_NODE" not in os.environ and own.is_file():
        os.environ["JSII_NODE"] = str(own)  # the one beside this Python, whether or not its environment is activated
    if shutil.which(os.environ.get("JSII_NODE", "node")) is None:
        raise _NotInstalled("Node.js, on which cdk8s runs, is not found. Install it with: pip install 'hyperpod-dpd[render]'")
    try:
        import cdk8s  # noqa: F401, PLC0415
    except ImportError as error:
        raise _NotInstalled(f"{error.name} is not installed. Install it with: pip install 'hyperpod-dpd[render]'") from None


def _deployed(path: Path | None) -> Mapping[str, Any] | None:
    """The outputs of a deployment: stack name -> output -> value."""
    if path is None:
        return None
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise click.ClickException(f"{path} is not JSON.") from None
    if not isinstance(found, dict):
        raise click.ClickException(f"{path} must be a JSON object of stacks, as cdk deploy --outputs-file writes it.")
    return found


def _filled(rendered: "Rendered", environment: "Environment", deployed: Mapping[str, Any]) -> "Rendered":
    """Put the outputs of the environment's storage stack where placeholders stand."""
    from dpd.backends.site import PLACEHOLDERS  # noqa: PLC0415
    from dpd.environment.names import STORAGE, Names  # noqa: PLC0415

    stack = Names.of(environment).stack(STORAGE)
    outputs = deployed.get(stack)
    known = outputs if isinstance(outputs, dict) else {}
    output_of = dict(zip(PLACEHOLDERS, _LUSTRE_OUTPUTS, strict=True))
    if missing := [output_of[mark] for mark in rendered.placeholders() if not isinstance(known.get(output_of[mark]), str)]:
        raise click.ClickException(f"The outputs of stack {stack} lack {', '.join(missing)}: deploy it, or render without --outputs.")
    values = {mark: known[name] for mark, name in output_of.items() if name in known}

    return rendered.filled(values)
