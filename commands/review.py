"""``dpd review``: what a change would do, before anybody approves it."""

import contextlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from dpd.review.assembly import Assembly, NotAnAssemblyError, read
from dpd.review.compare import Review, Verdict, compare
from dpd.review.library import LibraryError, aws_library

ROOT: Final = Path(__file__).resolve().parents[1]
CHANGES, DANGEROUS = 10, 20
_LAST_LINES: Final = 15


class _RefusedError(Exception):
    """What was asked for cannot be compared; the text says why."""


@click.command(
    "review",
    epilog="""\b
Exit codes:
  0  nothing changes
  10 changes
  20 dangerous changes (10 with --allow-replace)
  1  what was asked for cannot be compared
  3  a fault of this machine""",
)
@click.option("--base", required=True, metavar="REF|FOLDER", help="What stands today: a git ref, or the folder of a cloud assembly.")
@click.option("--after", metavar="REF|FOLDER", help="What would stand. Default: the files as they are now.")
@click.option("-e", "--env", "name", help="Compare this environment alone.")
@click.option(
    "--markdown", type=click.Path(path_type=Path), help="Write the comment for a pull request to this file instead of the terminal."
)
@click.option("--html", type=click.Path(path_type=Path), help="Write the page to this file.")
@click.option("--json", "json_", type=click.Path(path_type=Path), help="Write everything for machines to this file.")
@click.option("--allow-replace", is_flag=True, help="Dangerous changes were looked at: exit as for other changes.")
def command(
    base: str, after: str | None, name: str | None, markdown: Path | None, html: Path | None, json_: Path | None, *, allow_replace: bool
) -> None:  # fmt: skip
    """Compare two states offline: AWS resources, Kubernetes objects, findings, cost, and what is dangerous."""
    from pages.review_markdown import review_markdown  # noqa: PLC0415 - only a review pays for its pages

    with tempfile.TemporaryDirectory(prefix="dpd-review-") as scratch:
        try:
            old, before_name = _assembly(base, Path(scratch, "base"))
            new, after_name = _assembly(after, Path(scratch, "after"))
            if name is not None:
                old, new = _narrowed(old, new, name)
            review = compare(old, new, aws_library(ROOT))
        except (_RefusedError, NotAnAssemblyError) as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(1)
        except LibraryError as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(3)
    comment = review_markdown(review, before=before_name, after=after_name)
    if html is not None:
        from pages.review import review_page  # noqa: PLC0415

        _write(html, review_page(review, before=before_name, after=after_name))
    if json_ is not None:
        from dpd.review.machine import as_json  # noqa: PLC0415

        _write(json_, as_json(review))
    if markdown is not None:
        _write(markdown, comment)
    else:
        click.echo(comment, nl=False)
    sys.exit(exit_code(review, allow_replace=allow_replace))


def exit_code(review: Review, *, allow_replace: bool) -> int:
    """0, 10 or 20."""
    if review.verdict is Verdict.DANGEROUS and not allow_replace:
        return DANGEROUS
    return 0 if review.verdict is Verdict.NOTHING else CHANGES


def _narrowed(old: Assembly, new: Assembly, name: str) -> tuple[Assembly, Assembly]:
    if name not in (*old.environments, *new.environments):
        raise _RefusedError(f"neither state has an environment {name[:60]!r}; there are: {', '.join(new.environments)}")
    return old.only(name), new.only(name)


def _assembly(given: str | None, scratch: Path) -> tuple[Assembly, str]:
    """Read or make an assembly; returns it with what to call it."""
    if given is None:
        return read(_synthesized(Path.cwd(), ROOT / "app.py", scratch, "the files as they are now")), "the files as they are now"
    if (folder := Path(given)).is_dir():
        return read(folder), str(folder)
    commit = _commit(given)
    tree = scratch / "tree"
    with _archive(commit) as archive:
        archive.extractall(tree, filter="data")
    app = tree / "app.py"
    place = _inside_repository(tree)
    return read(_synthesized(place, app if app.is_file() else ROOT / "app.py", scratch, given)), f"{given} ({commit[:9]})"


def _inside_repository(tree: Path) -> Path:
    """The folder of a tree that is where the command was called in the repository."""
    return tree / _git("rev-parse", "--show-prefix").strip()


def _commit(ref: str) -> str:
    if ref.startswith("-"):
        raise _RefusedError(f"{ref[:80]!r} is neither a folder nor a git ref")
    try:
        return _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").strip()
    except _RefusedError as error:
        raise _RefusedError(f"{ref[:80]!r} is neither a folder nor a git ref of this repository") from error


@contextlib.contextmanager
def _archive(commit: str) -> Iterator[tarfile.TarFile]:
    top = _git("rev-parse", "--show-toplevel").strip()
    done = subprocess.run(["git", "archive", "--format=tar", commit], cwd=top, capture_output=True, check=False)  # noqa: S603, S607
    if done.returncode:
        raise _RefusedError(f"git could not write out {commit[:9]}: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        yield archive


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607
    except OSError as error:
        raise _RefusedError(f"git cannot be run: {error.strerror}; give folders of cloud assemblies instead") from error
    if done.returncode:
        raise _RefusedError(done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"git {arguments[0]} failed")
    return done.stdout


def _synthesized(folder: Path, app: Path, scratch: Path, name: str) -> Path:
    """Run the app of a tree, with that tree's own code, and return its assembly."""
    outdir = scratch / "cdk.out"
    settings = {**os.environ, "CDK_OUTDIR": str(outdir), "AWS_EC2_METADATA_DISABLED": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    scratch.mkdir(parents=True, exist_ok=True)
    if not folder.is_dir():
        raise _RefusedError(f"{name} has no folder {folder.name}")
    done = subprocess.run([sys.executable, str(app)], cwd=folder, env=settings, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-_LAST_LINES:])
        raise _RefusedError(f"{name} cannot be synthesized:\n{said}")
    return outdir


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
