"""What the router of the vLLM project accepts: read from the Python part of its wheel, which hands every flag to the rest."""

import ast
from collections.abc import Iterator
from typing import Any, Final

from scripts.engine_lists.source import Sources
from scripts.engine_lists.vllm import Entry, explicit

_MODULES: Final = ("vllm_router.router_args", "vllm_router.launch_router")


def lists(sources: Sources) -> dict[str, dict[str, Any]]:
    """Every list of one version, by table."""
    return {"flags": dict(sorted(item for module in _MODULES for item in _flags(sources, module)))}


def _flags(sources: Sources, module: str) -> Iterator[tuple[str, Entry]]:
    for node in ast.walk(sources.tree(module)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument" and node.args:
            name = _text(node.args[0])
            if name.startswith("--"):
                yield name, explicit(sources, module, node, {})


def _text(node: ast.expr) -> str:
    """A text, or the fixed parts of one with a prefix that is empty on the command line."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
