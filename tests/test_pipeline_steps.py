"""The steps of the release pipeline that are scripts, with an `aws` and a `dpd` that do as the test says."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support import ROOT

AWS = """#!/bin/sh
echo "aws $@" >> "$WORLD/told"
case "$1 $2" in
  "s3api head-object")
    [ -f "$WORLD/released.tar.gz" ] && exit 0
    echo "An error occurred ($(cat "$WORLD/head")) when calling the HeadObject operation" >&2
    exit 254 ;;
  "s3 cp")
    shift 2
    while [ "${1#--}" != "$1" ]; do [ "$1" = --content-type ] && shift; shift; done
    case "$1" in s3://*) cp "$WORLD/released.tar.gz" "$2" ;; *) cp "$1" "$WORLD/stored-$(basename "$2")" ;; esac ;;
esac
"""
DPD = """#!/bin/sh
echo "dpd $@" >> "$WORLD/told"
while [ "$1" != --html ]; do [ "$1" = --base ] && ls "$2" >> "$WORLD/base"; shift; done
echo page > "$2"
exit "$(cat "$WORLD/verdict")"
"""


class World:
    """A folder with both programs, and what they are to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (("aws", AWS), ("dpd", DPD)):
            file = folder / "bin" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
            file.chmod(0o755)
        (folder / "head").write_text("404", encoding="utf-8")
        self.release = folder / "release"
        self.release.mkdir()
        (self.release / "manifest.json").write_text("{}", encoding="utf-8")

    def released(self) -> None:
        with tarfile.open(self.folder / "released.tar.gz", "w:gz") as archive:
            archive.add(self.release, arcname=".")

    def verdict(self, code: int) -> None:
        (self.folder / "verdict").write_text(str(code), encoding="utf-8")

    def run(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "WORLD": str(self.folder), "STAGE": "prod",
            "REVIEWS": "reviews", "RUN": "run-1", "RELEASE": str(self.release), "TMPDIR": str(self.folder), **more,
        }  # fmt: skip
        return subprocess.run([str(ROOT / ".ci" / script)], env=settings, capture_output=True, text=True, check=False)

    @property
    def told(self) -> str:
        return (self.folder / "told").read_text(encoding="utf-8")

    def stored(self, name: str) -> bool:
        return (self.folder / f"stored-{name}").is_file()


@pytest.fixture
def world(tmp_path: Path) -> World:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    return World(tmp_path)


@pytest.mark.parametrize(("verdict", "code"), [(0, 0), (10, 0), (20, 20)])
def test_a_review_is_stored_whatever_it_says_and_stops_what_is_dangerous(world: World, verdict: int, code: int) -> None:
    world.released()
    world.verdict(verdict)
    done = world.run("review")
    assert done.returncode == code, done.stderr
    assert world.stored("prod.html")
    assert "s3://reviews/reviews/run-1/prod.html" in world.told
    assert "--env prod" in world.told
    assert "--allow-replace" not in world.told
    assert "manifest.json" in (world.folder / "base").read_text(encoding="utf-8")


def test_what_is_allowed_is_passed_on_with_its_reason_in_the_log(world: World) -> None:
    world.released()
    world.verdict(10)
    done = world.run("review", ALLOW_REPLACE="agreed on Monday")
    assert done.returncode == 0
    assert "agreed on Monday" in done.stdout
    assert "--allow-replace" in world.told


def test_the_first_release_has_a_page_too(world: World) -> None:
    assert world.run("review").returncode == 0
    assert "first release to prod" in (world.folder / "stored-prod.html").read_text(encoding="utf-8")
    assert "dpd review" not in world.told


@pytest.mark.parametrize("head", ["403", "500"])
def test_a_release_before_that_cannot_be_read_is_not_taken_for_none(world: World, head: str) -> None:
    (world.folder / "head").write_text(head, encoding="utf-8")
    done = world.run("review")
    assert done.returncode == 3
    assert head in done.stderr
    assert not world.stored("prod.html")


@pytest.mark.parametrize("verdict", [1, 3])
def test_a_review_that_could_not_compare_fails(world: World, verdict: int) -> None:
    world.released()
    world.verdict(verdict)
    assert world.run("review").returncode == verdict
    assert not world.stored("prod.html")


def test_what_runs_is_recorded_by_run_and_by_environment_with_a_digest_that_stays(world: World) -> None:
    first, second = world.run("record"), world.run("record")
    assert first.returncode == 0, first.stderr
    assert world.stored("run-1.tar.gz")
    assert world.stored("prod.tar.gz")
    assert first.stdout == second.stdout
    assert len(first.stdout.strip()) == 64
