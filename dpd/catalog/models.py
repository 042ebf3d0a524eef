"""Model shapes: what the arithmetic needs to know of a model."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from dpd.catalog.tables import yaml_table

Attention = Literal["gqa", "mla"]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Layers, heads and sizes of a decoder-only transformer.

    ``kv_layers`` counts the layers that keep a growing KV cache (all of them, unless some are linear or
    sliding-window attention: ``window_layers`` keep at most ``window_tokens``). ``kv_rank`` is the width of the
    compressed KV of multi-head latent attention (``kv_lora_rank + qk_rope_head_dim``), 0 otherwise.
    ``weight_bytes`` is the size of the checkpoint that is loaded. ``experts`` is 0 for a dense model.
    """

    name: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    max_positions: int
    dtype: str
    dtype_bytes: float
    weight_dtype_bytes: float
    parameters: float
    weight_bytes: float
    attention: Attention
    kv_rank: int = 0
    window_layers: int = 0
    window_tokens: int = 0
    experts: int = 0
    gated: bool = False
    hub_id: str = ""
    revision: str = ""
    sources: tuple[str, ...] = ()

    def with_parameters(self, parameters: float) -> "ModelShape":
        """The same shape with another parameter count, the weights scaled with it."""
        return replace(self, parameters=parameters, weight_bytes=self.weight_bytes * parameters / self.parameters)


def _shape(name: str, row: dict[str, object]) -> ModelShape:
    fields = {**row, "sources": tuple(row["sources"])}  # type: ignore[arg-type]
    return ModelShape(name=name, **fields)  # type: ignore[arg-type]


@cache
def find(name: str) -> ModelShape | None:
    """Return the shape of a model in the catalog, or ``None``."""
    row = yaml_table("models").get(name)
    return None if row is None else _shape(name, row)


def names() -> tuple[str, ...]:
    """Names of all models in the catalog, in file order."""
    return tuple(yaml_table("models"))
