"""What flags of the vLLM server mean to disaggregated serving. Which flags there are is in the lists of `dpd.catalog.engines`."""

from functools import cache
from typing import cast

from dpd.catalog.engines import any_version, opposite
from dpd.catalog.tables import yaml_table


@cache
def short_forms() -> dict[str, str]:
    """Short forms of any known version, with the flag that they stand for."""
    flags = any_version("vllm").table("flags")
    return {short: name for name, entry in flags.items() for short in entry.get("short", ())}


@cache
def opposites() -> dict[str, str]:
    """Names that only turn off another flag, with that flag: ``--disable-lora`` is about ``--enable-lora``."""
    flags = any_version("vllm").table("flags")
    return {opposite(name): name for name, entry in flags.items() if entry.get("paired") and opposite(name) not in flags}


def reasons(table: str) -> dict[str, str]:
    """``managed`` (flag to the field it follows from) or ``refused`` (flag to the reason)."""
    return {f"--{name}": str(text) for name, text in yaml_table("vllm_flags")[table].items()}


def refused_values() -> dict[str, dict[str, str]]:
    """Values that break the endpoint, by flag, with the reason."""
    return {f"--{name}": values for name, values in yaml_table("vllm_flags")["refused_values"].items()}


def named(table: str) -> frozenset[str]:
    """``multiply_gpus`` or ``same_in_both_roles``."""
    return frozenset(f"--{name}" for name in cast("list[str]", yaml_table("vllm_flags")[table]))
