"""What a GPU can do: its peak rates, and how much of them a serving engine gets."""

from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from dpd.catalog.tables import csv_table, yaml_table

WORK: Final = ("compute", "attention", "exchange_us_per_mb", "layer_us", "weights")
"""The five parts of a step's time, in the order of the columns of ``speeds.csv``."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peak rates of one GPU. ``system`` is what NVIDIA's simulator calls a node of it, empty where it has no such tables."""

    name: str
    bf16_tflops: float
    fp8_tflops: float
    hbm_gb_per_second: float
    system: str
    engine_version: str
    sources: tuple[str, ...]


class Work(NamedTuple):
    """How long the parts of a step take: the first two and the last as multiples of the ideal time, the others in microseconds."""

    compute: float
    attention: float
    exchange_us_per_mb: float
    layer_us: float
    weights: float


@dataclass(frozen=True, slots=True)
class Speed:
    """Prefill and decode of one kind of model on so many GPUs of a kind. The errors are against the tables that it was fitted to."""

    prefill: Work
    decode: Work
    prefill_worst_error: float
    decode_worst_error: float


@cache
def find(name: str) -> Gpu | None:
    """The GPU of this name (as in the table of instance types), or ``None``."""
    row = yaml_table("gpus").get(name)
    return None if row is None else Gpu(name=name, **{**row, "sources": tuple(row["sources"])})


def names() -> tuple[str, ...]:
    """GPUs with known rates, in file order."""
    return tuple(yaml_table("gpus"))


@cache
def speed(gpu: str, family: str, tensor_parallel: int) -> Speed | None:
    """The speed of a family of models (``dense``, ``fp8``, ``experts``, ``experts_4bit``, ``latent``); ``None`` where none was fitted."""
    for row in csv_table("speeds"):
        if (row["gpu"], row["family"], int(row["tensor_parallel"])) == (gpu, family, tensor_parallel):
            prefill, decode = (Work(*(float(row[f"{phase}_{part}"]) for part in WORK)) for phase in ("prefill", "decode"))
            return Speed(prefill, decode, float(row["prefill_worst_error"]), float(row["decode_worst_error"]))
    return None
