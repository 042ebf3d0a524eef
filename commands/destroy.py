"""``dpd destroy``: take an environment down in the one order that leaves nothing behind."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from commands.one import UnableError, clients

if TYPE_CHECKING:
    from aws_reads.session import Clients
    from dpd.promotion.teardown import Step, Teardown

Value = TypeVar("Value")

_LOOK_SECONDS: Final = 15
_ROOT: Final = Path(__file__).parents[1]


@click.command(
    "destroy",
    short_help="Take an environment down, in order; --dry-run says what would go and stay.",
    epilog="""\b
Examples:
  dpd destroy -e dev --dry-run
  dpd destroy -e dev --profile dev-admin
  dpd destroy -e dev --confirm dev        # where nobody can be asked

Exit codes: 0 done, 1 refused or a stack could not be deleted, 3 could not look (no credentials, AWS does not answer).""",
)
@click.option("-e", "--env", "name", required=True, help="Environment to take down.")
@click.option(
    "--assembly",
    type=click.Path(path_type=Path),
    default=Path("cdk.out"),
    show_default=True,
    help="Folder of the assembly that runs there.",
)
@click.option("--dry-run", is_flag=True, help="Print the order, what is kept and what would be left behind. Asks AWS nothing.")
@click.option("--confirm", metavar="NAME", help="The environment's name, in place of typing it.")
@click.option("--wait-minutes", type=click.IntRange(1, 240), default=30, show_default=True, help="How long to wait for others to clean up.")
@click.option("--profile", help="AWS profile.")
def command(*, name: str, assembly: Path, dry_run: bool, confirm: str | None, wait_minutes: int, profile: str | None) -> int:
    """Delete the stacks of an environment: custom resources of the operator first, then add-ons, HyperPod before EKS, network last."""
    from dpd.promotion.teardown import teardown  # noqa: PLC0415
    from dpd.review.assembly import NotAnAssemblyError, read  # noqa: PLC0415

    try:
        plan = teardown(read(assembly), name)
    except NotAnAssemblyError as error:
        raise click.ClickException(f"{error}.") from None
    if dry_run:
        _say(plan)
        return 0
    known = _clients(plan, profile)
    standing = _standing(known, plan)
    if not standing:
        click.echo(f"No stack of {plan.name} stands.")
        return 0
    _say(plan)
    _confirmed(plan, confirm)
    for step in standing:
        _before(step, plan, known, wait_minutes)
        _destroy(step, assembly, plan, profile)
    click.echo(f"Every stack of {plan.name} is gone. See above for what is kept and what may be left.")
    return 0


def _say(plan: "Teardown") -> None:
    click.echo(f"{plan.name}, account {plan.account}, {plan.region}. Stacks, in this order:")
    for number, step in enumerate(plan.steps, 1):
        click.echo(f"  {number}. {step.stack}{' (protected)' if step.protected else ''}: {step.why}")
    click.echo("Kept on purpose, and paid for until you delete it:")
    for step in plan.steps:
        for kept in step.kept:
            click.echo(f"  {kept.type} {kept.name or kept.id} of {step.stack} ({kept.how})")
    click.echo("Held by no template; look for it afterwards:")
    for left in plan.left:
        click.echo(f"  {left.what}: {left.find}")
    if plan.protected:
        click.echo(_lifting(plan, [step.stack for step in plan.protected]))


def _lifting(plan: "Teardown", stacks: list[str]) -> str:
    commands = [
        f"  aws cloudformation update-termination-protection --no-enable-termination-protection --region {plan.region} --stack-name {stack}"
        for stack in stacks
    ]
    file = f"environments/{plan.environment}.yaml"
    how = f"Termination protection is on. Lift it with termination_protection: false in {file} and a deployment, or:"
    return "\n".join([how, *commands])


def _clients(plan: "Teardown", profile: str | None) -> "Clients":
    known = clients(profile=profile, role_arn=None, region=plan.region)
    from aws_reads.session import CredentialsError, caller  # noqa: PLC0415

    try:
        account, _ = caller(known)
    except CredentialsError as error:
        raise UnableError(str(error)) from None
    if account != plan.account:
        raise UnableError(f"The credentials are of account {account}; {plan.environment} is in {plan.account}. Name another --profile.")
    return known


def _standing(known: "Clients", plan: "Teardown") -> "list[Step]":
    """The stacks that exist. Raises ``ClickException`` when one of them is protected."""
    from aws_reads.teardown import protection  # noqa: PLC0415

    states = {step: _asked(partial(protection, known, step.stack)) for step in plan.steps}
    if protected := [step.stack for step, state in states.items() if state]:
        raise click.ClickException(f"Nothing was deleted. {_lifting(plan, protected)}")
    return [step for step, state in states.items() if state is not None]


def _confirmed(plan: "Teardown", confirm: str | None) -> None:
    if confirm is None:
        if not sys.stdin.isatty():
            raise click.UsageError("Nobody can be asked here; give --confirm with the environment's name.")
        confirm = click.prompt(f"Type the environment's name to delete it ({plan.environment})")
    if confirm != plan.environment:
        raise click.ClickException(f"Nothing was deleted: {confirm[:60]!r} is not the environment's name.")


def _before(step: "Step", plan: "Teardown", known: "Clients", minutes: int) -> None:
    """Wait for whoever has to clean up before a stack may go."""
    from aws_reads.teardown import endpoint_left, interfaces, load_balancers  # noqa: PLC0415
    from dpd.environment.names import ADDONS, NETWORK  # noqa: PLC0415

    if step.part == ADDONS:
        _gone("the operator to remove load balancers", lambda: load_balancers(known, plan.eks_cluster), minutes)
        for endpoint in plan.sagemaker_endpoints:
            _gone("the operator to remove its SageMaker endpoint", partial(endpoint_left, known, endpoint), minutes)
    if step.part == NETWORK:
        _gone("network interfaces to go", lambda: interfaces(known, step.stack), minutes)


def _gone(what: str, look: Callable[[], list[str]], minutes: int) -> None:
    """Look until nothing is found. Raises ``ClickException`` with what is left when the time is up."""
    rounds = minutes * 60 // _LOOK_SECONDS
    for left in range(rounds, -1, -1):
        if not (found := _asked(look)):
            return
        if left == rounds:
            click.echo(f"Waiting for {what}: {len(found)} left.")
        if left:
            time.sleep(_LOOK_SECONDS)
    shown = "\n".join(f"  {each}" for each in found)
    raise click.ClickException(f"After {minutes} minutes these are still there; remove what holds them, then run this again:\n{shown}")


def _asked(look: Callable[[], Value]) -> Value:
    from aws_reads.release import UnreadableError  # noqa: PLC0415

    try:
        return look()
    except UnreadableError as error:
        raise UnableError(str(error)) from None


def _destroy(step: "Step", assembly: Path, plan: "Teardown", profile: str | None) -> None:
    cdk = shutil.which("cdk", path=f"{_ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if cdk is None:
        raise UnableError("The CDK command line is not installed. Install it with: make setup")
    words = [cdk, "destroy", "--app", str(assembly), "--exclusively", "--force", step.key]
    words += ["--profile", profile] if profile else []
    click.echo(f"Deleting {step.stack} ...")
    if (done := subprocess.run(words, check=False)).returncode:  # noqa: S603 - our own words; the name is a key of the assembly
        raise click.ClickException(
            f"cdk destroy {step.key} ended with {done.returncode}; {plan.name} is partly deleted: cure it and run this again."
        )
