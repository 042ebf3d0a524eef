"""The process: exit codes, encodings, terminals, closed pipes, interrupts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

import commands.check
from commands.main import _run, cli
from dpd import __version__
from tests.commands.support import Dpd, in_terminal, process
from tests.support import ROOT


def test_the_version(dpd: Dpd) -> None:
    assert dpd("--version").out == f"dpd {__version__}\n"


def test_help_shows_every_command_with_examples(dpd: Dpd) -> None:
    for arguments in (("--help",), ("-h",)):
        outcome = dpd(*arguments)
        assert outcome.code == 0
        assert all(name in outcome.out for name in ("init", "check", "explain", "render", "schema", "Examples:", "Exit codes:"))


@pytest.mark.parametrize("name", ["init", "check", "explain", "render", "schema"])
def test_every_command_has_help(dpd: Dpd, name: str) -> None:
    outcome = dpd(name, "--help")
    assert outcome.code == 0
    assert "Usage: dpd " + name in outcome.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("chek",), "Did you mean 'check'?"),
        (("zzz",), "There are: init, check"),
        (("check", "--jsno"), "No such option"),
        (("check", "--today", "yesterday"), "yesterday"),
        (("explain",), "Name a check id"),
        (("render", "--output"), "requires an argument"),
        (("x" * 10_000,), "No such command"),
    ],
)
def test_a_wrong_call_exits_with_2(dpd: Dpd, arguments: tuple[str, ...], says: str) -> None:
    outcome = dpd(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert says in outcome.err
    assert len(outcome.err) < 1_000


def test_an_internal_error_asks_for_a_report_and_shows_its_place_only_when_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("hf_" + "a1B2" * 8)

    monkeypatch.setattr(commands.check, "chosen", broken)
    assert _run(["check"]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "dpd itself failed (RuntimeError: (hidden)). Please report it" in said
    assert _run(["--debug", "check"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_a_fault_of_the_machine_is_told_as_such(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "manifests")

    monkeypatch.setattr(commands.check, "chosen", full)
    assert _run(["check"]) == 3
    assert capsys.readouterr().err == "Error: No space left on device (manifests)\n"


def test_an_interrupt_ends_without_a_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.check, "chosen", interrupted)
    assert _run(["check"]) == 130
    assert capsys.readouterr().err == "\nStopped.\n"


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    command = f"'{sys.executable}' -m commands.main explain --all 2>&1 >&3 | cat; exit ${{PIPESTATUS[0]}}"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        ["bash", "-c", command.replace(">&3", f">&{writer}")], cwd=ROOT, capture_output=True, pass_fds=[writer], timeout=60, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stdout, done.stderr) == (141, b"", b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_any_encoding_of_the_output_will_do(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "dev.yaml").write_text("app: Zürich…🙂\n", encoding="utf-8")
    done = process("check", tmp_path / "dev.yaml", PYTHONIOENCODING=encoding)
    assert done.returncode == 1
    assert b"CFG005" in done.stdout
    assert done.stderr == b""


def test_the_c_locale_will_do() -> None:
    done = process("check", LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (done.returncode, done.stderr) == (0, b"")


def test_redirected_output_holds_no_colour() -> None:
    done = process("check", "environments/dev.yaml", FORCE_COLOR="1", TERM="xterm-256color")
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize("columns", [1, 20, 80, 400])
def test_a_terminal_of_any_width_shows_colours(columns: int) -> None:
    shown = in_terminal(columns, "check", "environments/dev.yaml")
    assert "\x1b[" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("settings", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_none(settings: dict[str, str]) -> None:
    shown = in_terminal(80, "check", "environments/dev.yaml", **settings)
    assert "\x1b" not in shown
    assert "1 file checked" in shown


def test_checking_imports_neither_rich_nor_the_charts_nor_cdk() -> None:
    program = (
        "import sys; from commands.main import _run; code = _run(['check']); "
        "print(sorted({'rich', 'cdk8s', 'aws_cdk', 'jsii', 'boto3', 'commands.render'} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    assert process("check", closed / "dev.yaml").returncode == 1


def test_commands_are_listed_as_they_are_found() -> None:
    context = click.Context(cli)
    assert all(cli.get_command(context, name) is not None for name in cli.list_commands(context))


def test_an_interrupt_by_signal() -> None:
    program = (
        "import sys, time, commands.check as c; c.chosen = lambda _: (print('x', flush=True), time.sleep(30)); "
        "from commands.main import _run; sys.exit(_run(['check']))"
    )
    child = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=30) == 130
    assert child.stderr.read() == b"\nStopped.\n"
