"""What LMCache accepts and exports: read from the sources in its wheel."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from scripts.engine_lists.source import Sources, UnknownValueError
from scripts.engine_lists.vllm import Entry, entry, extra_keys, metrics

_METRIC: Final = re.compile(r"lmcache:[a-z0-9_]+")
_VARIABLE: Final = re.compile(r"LMCACHE_[A-Z0-9_]+")
_CONFIG: Final = "lmcache.v1.config"


def lists(sources: Sources) -> dict[str, dict[str, Any]]:
    """Every list of one version, by table."""
    keys = dict(sorted(_keys(sources)))
    return {
        "keys": keys,
        "aliases": {old: {"key": new} for old, new in sorted(_aliases(sources).items())},
        "variables": {name: {} for name in sorted(_variables(sources) - {f"LMCACHE_{key.upper()}" for key in keys})},
        "connector_keys": {key: {} for key in sorted(_connector_keys(sources))},
        "metrics": metrics(sources, _METRIC),
    }


def _connector_keys(sources: Sources) -> set[str]:
    """Keys that LMCache's side of vLLM's connector reads from the connector's free configuration."""
    return {key for name in sources.modules("lmcache.integration.vllm") for key in extra_keys(sources, name)}


def _table(sources: Sources, name: str) -> ast.Dict:
    found = sources.define(_CONFIG, name)
    assert found, name
    assert isinstance(found[1], ast.Assign | ast.AnnAssign)
    assert isinstance(found[1].value, ast.Dict)
    return found[1].value


def _keys(sources: Sources) -> Iterator[tuple[str, Entry]]:
    """Keys of the configuration file; as variables they are in capitals, with ``LMCACHE_`` in front."""
    table = _table(sources, "_CONFIG_DEFINITIONS")
    for key, value in zip(table.keys, table.values, strict=True):
        assert isinstance(key, ast.Constant)
        assert isinstance(value, ast.Dict)
        given = {item.value: node for item, node in zip(value.keys, value.values, strict=True) if isinstance(item, ast.Constant)}
        found = entry(sources, sources.hints((_CONFIG, given["type"])), str(key.value))
        with suppress(UnknownValueError):
            found["default"] = sources.value((_CONFIG, given["default"]))
        yield str(key.value), found


def _aliases(sources: Sources) -> dict[str, str]:
    """Old names of keys, and today's."""
    found = sources.value((_CONFIG, _table(sources, "_CONFIG_ALIASES")))
    assert isinstance(found, dict)
    return found


def _variables(sources: Sources) -> set[str]:
    """Names of environment variables anywhere in the sources."""
    found: set[str] = set()
    for module, text in sources.texts.items():
        if "LMCACHE_" in text:
            texts = {str(node.value) for node in ast.walk(sources.tree(module)) if isinstance(node, ast.Constant)}
            found |= {name for name in texts if _VARIABLE.fullmatch(name) and not name.endswith("_")}
    return found
