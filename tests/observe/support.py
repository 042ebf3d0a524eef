"""Endpoints of every kind, and the real programs that read what is made of them."""

import re
import shutil
from functools import cache
from typing import Any

import promql_parser as promql
import pytest

from dpd.backends.emitted import Versions
from dpd.catalog.engines import Lists, any_version, lists
from dpd.observe.watched import Watched, watched
from tests.support import EXAMPLE, LLMD_EXAMPLE, ROOT, environment

EXAMPLES = {
    "operator": EXAMPLE,
    "llm-d": LLMD_EXAMPLE,
    "wide": ROOT / "docs" / "example-wide-ep.yaml",
    "tiers": ROOT / "docs" / "example-tiers.yaml",
}
PATHS = ("hyperpod_add_on", "managed_prometheus", "in_cluster", "none")

PREFIXES = {
    "vllm:": "vllm",
    "lmcache:": "lmcache",
    "llm_d_epp_": "llm-d-picker",
    "DCGM_": "dcgm-exporter",
    "kube_": "kube-state-metrics",
    "node_amazonefa_": "efa-counters",
}
PROMETHEUS_OWN = {"up", "ALERTS"}


@cache
def one(kind: str, path: str = "none") -> Watched:
    """The first endpoint of an example."""
    return watched(environment({"observe.metrics": path}, example=EXAMPLES[kind]))[0]


def changed(kind: str, changes: dict[str, Any]) -> Watched:
    return watched(environment(changes, example=EXAMPLES[kind]))[0]


def parsed(expression: str) -> Any:
    """An expression as Prometheus' own grammar reads it. Raises ``ValueError``."""
    return promql.parse(expression.replace("$__rate_interval", "5m"))


def selectors(node: Any) -> list[Any]:
    """Every selector of series in a parsed expression."""
    kind = type(node).__name__
    if kind == "VectorSelector":
        return [node]
    if kind == "MatrixSelector":
        return [node.vector_selector if hasattr(node, "vector_selector") else node.vs]
    children = {
        "BinaryExpr": ("lhs", "rhs"),
        "AggregateExpr": ("expr", "param"),
        "ParenExpr": ("expr",),
        "UnaryExpr": ("expr",),
        "SubqueryExpr": ("expr",),
    }.get(kind, ())
    found = [one for name in children if (child := getattr(node, name, None)) is not None for one in selectors(child)]
    if kind == "Call":
        found += [one for argument in node.args for one in selectors(argument)]
    return found


def names(expression: str) -> set[str]:
    """Names of all series that an expression asks for."""
    return {selector.name for selector in selectors(parsed(expression))}


def listed(name: str, versions: Versions) -> Lists | None:
    """The stamped lists that must have a series, or ``None`` for a name that belongs to nobody."""
    software = next((software for begin, software in PREFIXES.items() if name.startswith(begin)), "")
    version = {"vllm": versions.vllm, "lmcache": versions.lmcache}.get(software, "")
    if not software:
        return None
    return lists(software, version) if version or software not in ("vllm", "lmcache") else any_version(software)


def kind_of(name: str, known: Lists) -> tuple[str, str]:
    """Kind of the family that a series belongs to, and the ending that it has besides."""
    table = known.table("metrics")
    family = name if name in table else re.sub(r"_(total|bucket|sum|count)$", "", name)
    return str(table[family].get("kind", "")), name.removeprefix(family)


promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt-get install prometheus)")
