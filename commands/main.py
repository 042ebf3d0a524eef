"""The ``dpd`` command: finds the subcommand, and turns whatever happens into words and an exit code.

0 is success; 1 a mistake in what the user wrote, or findings that stop; 2 a wrong call; 3 a fault of the machine, the
network or this tool. 130 and 141 are what shells expect after Ctrl-C and after a reader that went away.
"""

import contextlib
import gc
import importlib
import os
import sys
import traceback
from typing import Any, Final, NoReturn

import click

from dpd import __version__

MISTAKE, USAGE, FAULT, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 130, 141
_COMPLETION: Final = "_DPD_COMPLETE"
"""Set by shells that complete a command line."""
_COMMANDS: Final = (
    "init",
    "check",
    "explain",
    "plan",
    "calibrate",
    "replay",
    "preflight",
    "rehearse",
    "stage-model",
    "render",
    "doctor",
    "status",
    "rebalance",
    "review",
    "promote",
    "destroy",
    "schema",
)


class _Lazy(click.Group):
    """A group that imports a command when it is called: ``dpd check`` must not pay for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        found = getattr(importlib.import_module(f"commands.{cmd_name.replace('-', '_')}"), "command")  # noqa: B009
        assert isinstance(found, click.Command)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        with contextlib.suppress(IndexError):
            _refuse_unknown(ctx, args[0])
        return super().resolve_command(ctx, args)


def _refuse_unknown(ctx: click.Context, name: str) -> None:
    if name in _COMMANDS or name.startswith("-"):
        return
    import difflib  # noqa: PLC0415

    near = difflib.get_close_matches(name[:40], _COMMANDS, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(_COMMANDS)}."
    ctx.fail(f"No such command {name[:40]!r}. {hint}")


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  dpd init --model llama-3.3-70b-instruct --instance-type ml.p5.48xlarge \\
           --az-id use2-az1 --account 111122223333
  dpd check                       # every file in environments/
  dpd explain MEM001              # why a check exists
  dpd plan environments/prod.yaml --traffic docs/traffic.yaml   # two roles, or not?
  dpd preflight -e dev            # ask the account, before anything is billed
  dpd stage-model -e dev          # bring the weights into the model bucket
  dpd render -o manifests         # the Kubernetes manifests, for review or GitOps
  dpd doctor -e dev               # prove a deployment from here

Exit codes: 0 fine, 1 findings or mistakes, 2 wrong call, 3 fault of the machine or of dpd.""",
)
@click.version_option(__version__, prog_name="dpd", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def cli(*, debug: bool) -> None:
    """Disaggregated prefill and decode on SageMaker HyperPod, from one environment file.

    Check it, explain what a check says, and render what will run, before anything is paid for.
    """
    click.get_current_context().obj = {"debug": debug}


def main() -> NoReturn:
    """Run the command line and exit."""
    # Looking for plugins of pydantic reads the metadata of every installed package; this tool has none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A command ends before garbage would matter; looking for it while modules are imported takes a twentieth of the time.
    gc.disable()
    _speak_any_encoding()
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    try:
        if _COMPLETION in os.environ:
            cli.main(arguments, prog_name="dpd")
        with cli.make_context("dpd", [*arguments]) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        # Python flushes again at exit and would complain; what is left has no reader.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (KeyboardInterrupt, click.Abort):
        click.echo("\nStopped.", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:  # noqa: BLE001, RUF100 - the last line of defence: a user never sees a traceback
        return _fault(error, debug="--debug" in arguments)
    return code if isinstance(code, int) else 0


def _fault(error: Exception, *, debug: bool) -> int:
    from dpd.finding import safe  # noqa: PLC0415

    if debug:
        traceback.print_exception(error)
    elif isinstance(error, OSError):
        place = f" ({safe(str(error.filename))})" if error.filename else ""
        click.echo(f"Error: {error.strerror or type(error).__name__}{place}", err=True)
    else:
        said = safe(f"{type(error).__name__}: {error}", most=200)
        click.echo(f"Error: dpd itself failed ({said}). Please report it with this line; dpd --debug … shows where.", err=True)
    return FAULT


def _speak_any_encoding() -> None:
    """A terminal that cannot show a character gets a question mark, not an exception."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
