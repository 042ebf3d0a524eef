"""The folder as it is uploaded: what HyperPod and bash demand of it, and that it needs no network."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.lifecycle.node import SCRIPTS

FILES = sorted(SCRIPTS.iterdir())
SHELL = [path for path in FILES if path.suffix == ".sh"]
NETWORK = r"\b(?:curl|wget|git|dnf|yum|apt|apt-get|pip3?|npm|aws|docker|nc|ssh|scp|rsync)\b|/dev/tcp/|169\.254\.169\.254"


def commands(path: Path) -> str:
    """A script without its comments."""
    return "\n".join(re.sub(r"(?:^|\s)#.*", "", line) for line in path.read_text(encoding="ascii").splitlines())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_text_is_ascii_with_unix_line_ends_and_small(path: Path) -> None:
    content = path.read_bytes()
    assert b"\r" not in content
    assert content.endswith(b"\n")
    content.decode("ascii")
    assert len(content) < 16_000


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_bash_can_read_it(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_no_network(path: Path) -> None:
    assert not re.search(NETWORK, commands(path))


def test_the_search_for_network_finds_some() -> None:
    assert re.search(NETWORK, "  sudo apt-get update")
    assert re.search(NETWORK, "curl -s x")
    assert not re.search(NETWORK, "mount /opt/sagemaker; raw_apt_name=1")


@pytest.mark.parametrize("name", ["on_create.sh", "lustre_efa.sh"])
def test_what_is_run_is_executable_and_names_its_shell(name: str) -> None:
    path = SCRIPTS / name
    assert path.read_text(encoding="ascii").startswith("#!/bin/bash\n")
    assert os.access(path, os.X_OK)


def test_every_neighbour_that_is_named_exists_and_every_file_is_used() -> None:
    named = {name for path in SHELL for name in re.findall(r"\$\{HERE\}/([\w.]+)", commands(path))}
    assert named <= {path.name for path in FILES}
    assert {path.name for path in FILES} == named | {"on_create.sh"}
