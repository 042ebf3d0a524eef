"""AWS's own comparison of templates (`@aws-cdk/cloudformation-diff`), asked once for all stacks. It needs no network."""

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

Template = dict[str, Any]
Answer = dict[str, Any]
Library = Callable[[Mapping[str, tuple[Template, Template]]], dict[str, Answer]]
"""Compares pairs of templates by stack. The answer's form is that of ``template_diff.mjs``."""

_SCRIPT: Final = Path(__file__).with_name("template_diff.mjs")
_PACKAGE: Final = Path("node_modules", "@aws-cdk", "cloudformation-diff")
_SECONDS: Final = 120


class LibraryError(RuntimeError):
    """The library is not installed, or it failed."""


def aws_library(modules: Path) -> Library:
    """The library as it is installed in ``modules``. Raises ``LibraryError`` when it is not there."""
    node = shutil.which("node")
    if node is None or not (modules / _PACKAGE).is_dir():
        missing = "Node is" if node is None else f"{_PACKAGE.relative_to('node_modules')} is"
        raise LibraryError(f"{missing} not installed; `make setup` installs it")

    def compare(pairs: Mapping[str, tuple[Template, Template]]) -> dict[str, Answer]:
        question = json.dumps({"modules": str(modules), "pairs": pairs})
        try:
            done = subprocess.run([node, str(_SCRIPT)], input=question, capture_output=True, text=True, timeout=_SECONDS, check=True)  # noqa: S603
        except subprocess.TimeoutExpired as error:
            raise LibraryError(f"the comparison of templates took more than {_SECONDS} s") from error
        except subprocess.CalledProcessError as error:
            said = next((line for line in reversed(error.stderr.splitlines()) if "Error" in line), "no reason given")
            raise LibraryError(f"the comparison of templates failed: {said.strip()}") from error
        answer: dict[str, Answer] = json.loads(done.stdout)
        return answer

    return compare
