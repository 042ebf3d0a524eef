"""``dpd init``: write a first environment file."""

import os
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from commands.clock import with_today
from commands.files import write_whole
from dpd.finding import shown

if TYPE_CHECKING:
    from dpd.catalog.models import ModelShape

_NEEDED: Final = ("model", "instance_type", "az_id", "account")


@click.command(
    "init",
    short_help="Write a first environment file.",
    epilog="""\b
Example:
  dpd init --model llama-3.3-70b-instruct --instance-type ml.p5.48xlarge \\
           --az-id use2-az1 --account 111122223333 --name dev""",
)
@click.option("--model", help="Model: a name of the catalog, or the path of a Hugging Face config.json.")
@click.option("--instance-type", help="HyperPod instance type of the prefill and decode nodes, such as ml.p5.48xlarge.")
@click.option("--az-id", help="AZ id (not name) in which the capacity is, such as use2-az1. It decides the Region.")
@click.option("--account", help="AWS account id, 12 digits.")
@click.option("--app", default="dpd", show_default=True, help="Application; stacks are called <app>-<name>-<part>.")
@click.option("--name", help="Environment; the file is called after it.  [default: dev]")
@click.option("--capacity", type=click.Choice(["on_demand", "spot"]), default="on_demand", show_default=True, help="How nodes are bought.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write.  [default: environments/<name>.yaml]")
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
@with_today
def command(*, app: str, name: str | None, capacity: str, output: Path | None, force: bool, today: date, **given: str | None) -> int:
    """Write a commented environment file for one model on one prefill and one decode node.

    Parallelism, lengths and buffer sizes follow from the model and the GPUs. What is missing is asked for on a terminal,
    and never in CI. The file is only written when dpd check finds no error in it.
    """
    from commands import report  # noqa: PLC0415
    from commands.starter import Answers, text  # noqa: PLC0415
    from dpd.checks.registry import Context, run  # noqa: PLC0415
    from dpd.environment.load import load_text  # noqa: PLC0415
    from dpd.finding import in_order  # noqa: PLC0415
    from dpd.sizing.starter import first_layout  # noqa: PLC0415

    path = _path(name, output)
    if path.exists() and not force:
        raise click.ClickException(f"{path} exists. Choose another --name or --output, or overwrite it with --force.")
    chosen = _complete(given)
    shape, config = _model(chosen["model"])
    try:
        answers = Answers(
            path=path,
            app=_label("app", app),
            account=chosen["account"],
            zone=chosen["az_id"],
            capacity=capacity,
            model=shape,
            config=config,
            instance=_instance(chosen["instance_type"]),
        )
        content = text(answers, first_layout(shape, answers.instance))
    except ValueError as error:
        raise click.ClickException(f"{error}.") from None
    loaded = load_text(content, path)
    found = run(loaded.environment, Context(today=today)) if loaded.environment else []
    findings = in_order([*loaded.findings, *map(loaded.placed, found)])
    if stops := [finding for finding in findings if finding.stops]:
        report.write(stops, files=1, stream=sys.stderr)
        click.echo(f"{path} was not written.", err=True)
        return 1
    write_whole(path, content)
    report.write(findings, files=1, stream=sys.stdout)
    click.echo(f"Wrote {path}. Next: read it, then dpd check {path}")
    return 0


def _path(name: str | None, output: Path | None) -> Path:
    if output is None:
        return Path("environments") / f"{_label('name', name or 'dev')}.yaml"
    if output.is_dir():
        raise click.UsageError(f"--output: {output} is a folder; name the file.")
    _label("output", output.stem)
    if name is not None and output.stem != name:
        raise click.UsageError(f"The file's name is the environment's name: --output {output} and --name {name} differ.")
    return output


def _label(option: str, value: str) -> str:
    from dpd.environment.types import dns_label  # noqa: PLC0415

    try:
        return dns_label(value)
    except ValueError as error:
        raise click.UsageError(f"--{option}: {shown(value)}: {error}.") from None


def _complete(given: dict[str, str | None]) -> dict[str, str]:
    """Ask for what is missing, or say all of it at once when there is nobody to ask."""
    missing = [key for key in _NEEDED if not given[key]]
    chosen = {key: value for key in _NEEDED if (value := given[key])}
    if missing and not _somebody_is_there():
        options = ", ".join(f"--{key.replace('_', '-')} ({_hint(key)})" for key in missing)
        raise click.UsageError(f"Missing: {options}.")
    for key in missing:
        chosen[key] = click.prompt(f"{key.replace('_', ' ')} ({_hint(key)})", value_proc=_accept(key))
    return {key: _accept(key)(value) for key, value in chosen.items()}


def _somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")


def _hint(key: str) -> str:
    from dpd.catalog import instances, models  # noqa: PLC0415

    return {
        "model": f"{', '.join(models.names())} or the path of a config.json",
        "instance_type": ", ".join(instances.operator_dpd_types()),
        "az_id": "such as use2-az1",
        "account": "12 digits",
    }[key]


def _accept(key: str) -> Any:
    """A function that returns an answer, or raises ``UsageError`` with the reason against it."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415

    from dpd.environment.types import AccountId, AvailabilityZoneId  # noqa: PLC0415

    def typed(kind: Any, value: str) -> str:
        try:
            TypeAdapter(kind).validate_python(value)
        except ValidationError as error:
            said = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise click.UsageError(f"--{key.replace('_', '-')}: {shown(value)} {said}.") from None
        return value

    def accept(value: str) -> str:
        value = value.strip()
        if key in ("account", "az_id"):
            return typed(AccountId if key == "account" else AvailabilityZoneId, value)
        if key == "model":
            _model(value)
        else:
            _instance(value)
        return value

    return accept


def _model(name: str) -> tuple["ModelShape", Path | None]:
    """The shape of a catalog model or of a config.json, and the path of the latter."""
    from dpd.catalog import models  # noqa: PLC0415
    from dpd.environment.huggingface import shape_of  # noqa: PLC0415

    if (found := models.find(name)) is not None:
        return found, None
    path = Path(name)
    if path.suffix != ".json":
        raise click.UsageError(f"--model: {shown(name)} is neither in the catalog ({', '.join(models.names())}) nor a config.json.")
    try:
        return shape_of(path), path
    except ValueError as error:
        raise click.UsageError(f"--model: {error}.") from None


def _instance(name: str) -> Any:
    from dpd.catalog import instances  # noqa: PLC0415

    allowed = instances.operator_dpd_types()
    if name not in allowed:
        why = "is not an instance type that is known here" if instances.find(name) is None else "is not among the types that AWS names"
        raise click.UsageError(
            f"--instance-type: {shown(name)} {why} for disaggregated prefill and decode with the inference operator: {', '.join(allowed)}."
        )
    return instances.find(name)
