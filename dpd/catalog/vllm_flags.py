"""Command-line flags of the vLLM server."""

from dataclasses import dataclass
from functools import cache
from typing import cast

from dpd.catalog.tables import yaml_table


@dataclass(frozen=True, slots=True)
class VllmFlags:
    """Flags of one vLLM version, with their leading dashes, and the short form of some of them."""

    version: str
    flags: frozenset[str]
    short: dict[str, str]


@cache
def flags_of(version: str) -> VllmFlags | None:
    """Every flag of a version, or ``None`` for a version that the catalog has not read."""
    row = yaml_table("vllm_flags")["versions"].get(version)
    if row is None:
        return None
    long = frozenset(f"--{name}" for name in row["flags"])
    return VllmFlags(version, long, {f"-{name}": f"--{flag}" for name, flag in row["short"].items()})


def versions() -> tuple[str, ...]:
    """vLLM versions whose flags are known, oldest first."""
    return tuple(yaml_table("vllm_flags")["versions"])


@cache
def short_forms() -> dict[str, str]:
    """Short forms of any known version."""
    return {short: flag for version in versions() if (known := flags_of(version)) for short, flag in known.short.items()}


def reasons(table: str) -> dict[str, str]:
    """``managed`` (flag to the field it follows from) or ``refused`` (flag to the reason)."""
    return {f"--{name}": str(text) for name, text in yaml_table("vllm_flags")[table].items()}


def refused_values() -> dict[str, dict[str, str]]:
    """Values that break the endpoint, by flag, with the reason."""
    return {f"--{name}": values for name, values in yaml_table("vllm_flags")["refused_values"].items()}


def named(table: str) -> frozenset[str]:
    """``multiply_gpus`` or ``same_in_both_roles``."""
    return frozenset(f"--{name}" for name in cast("list[str]", yaml_table("vllm_flags")[table]))
