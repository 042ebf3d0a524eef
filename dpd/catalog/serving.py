"""What AWS and vLLM say about serving a model in two roles."""

from dataclasses import dataclass
from typing import Any

from dpd.catalog.tables import yaml_table


def _value(name: str) -> Any:
    return yaml_table("serving")[name]["value"]


def operator_pod_slots() -> int:
    """Pod slots that the inference operator's add-on needs."""
    return int(_value("operator_pod_slots"))


def smallest_system_type() -> str:
    """The smallest instance type that AWS recommends for the operator's pods."""
    return str(_value("smallest_system_type"))


def small_parameters() -> float:
    """Parameters below which a model counts as small."""
    return float(_value("small_parameters_billion")) * 1e9


def all2all_refused() -> tuple[str, ...]:
    """Expert-parallel backends that cannot run over EFA."""
    return tuple(_value("all2all_needs_ibgda"))


def all2all_usable() -> tuple[str, ...]:
    """Expert-parallel backends that can."""
    return tuple(_value("all2all_on_efa"))


def lmcache_chunk_tokens() -> int:
    """Tokens per chunk that LMCache moves at once."""
    return int(_value("lmcache_chunk_tokens"))


def least_kv_gb_per_second() -> float:
    """Rate of a hand-over, in GB/s per rank, below which EFA was not used."""
    return float(yaml_table("serving")["kv_transfer"]["least_gb_per_second"])


def kv_share_of_line_rate() -> float:
    """Share of its EFA devices' line rate that a healthy hand-over reaches at least."""
    return float(yaml_table("serving")["kv_transfer"]["share_of_line_rate"])


def kv_link_efficiency() -> float:
    """Share of the line rate that one hand-over reaches, until it is measured."""
    return float(yaml_table("serving")["kv_link"]["efficiency"])


def kv_link_fixed_seconds() -> float:
    """What a transfer takes besides its bytes."""
    return float(yaml_table("serving")["kv_link"]["fixed_seconds"])


@dataclass(frozen=True, slots=True)
class BatchDefaults:
    """vLLM's own ``max_num_batched_tokens`` and ``max_num_seqs``."""

    chunk_tokens: int
    sequences: int


def batch_defaults(gpu: str, memory_gib: float) -> BatchDefaults:
    """What vLLM's server takes on a GPU when nobody says."""
    row = yaml_table("serving")["batch_defaults"]
    large = memory_gib >= row["least_gib"] and gpu not in row["not"]
    return BatchDefaults(**row["large" if large else "other"])


@dataclass(frozen=True, slots=True)
class Worth:
    """The load from which AWS finds disaggregation worth its nodes."""

    dense_parameters: float
    input_tokens: int
    output_tokens: int
    requests_per_second: int


def worth() -> Worth:
    """AWS's advice on when to disaggregate."""
    row = yaml_table("serving")["worth"]
    return Worth(row["dense_parameters_billion"] * 1e9, row["input_tokens"], row["output_tokens"], row["requests_per_second"])
