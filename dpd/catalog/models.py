"""Model shapes: what the arithmetic needs to know of a model."""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from dpd.catalog.tables import yaml_table

Attention = Literal["gqa", "mla"]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Layers, heads and sizes of a decoder-only transformer.

    All layers keep a growing KV cache, unless some are linear attention (``linear_layers``, with a state of fixed size) or
    sliding-window attention: ``window_layers`` keep at most ``window_tokens``. ``kv_rank`` is the width of the
    compressed KV of multi-head latent attention (``kv_lora_rank + qk_rope_head_dim``), 0 otherwise.
    ``weight_bytes`` is the size of the checkpoint that is loaded. ``experts`` is 0 for a dense model; of a mixture,
    each token goes through ``experts_per_token`` of them, and so through ``active_parameters``.
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
    linear_layers: int = 0
    experts: int = 0
    experts_per_token: int = 0
    active_parameters: float = 0.0
    gated: bool = False
    hub_id: str = ""
    revision: str = ""
    sources: tuple[str, ...] = ()

    def with_parameters(self, parameters: float) -> "ModelShape":
        """The same shape with another parameter count, the weights scaled with it."""
        factor = parameters / self.parameters
        return replace(
            self, parameters=parameters, weight_bytes=self.weight_bytes * factor, active_parameters=self.active_parameters * factor
        )

    @property
    def parameters_per_token(self) -> float:
        """Parameters that one token is multiplied with: all of a dense model, the active ones of a mixture of experts."""
        return self.active_parameters or self.parameters

    def weight_bytes_read(self, tokens: float) -> float:
        """Bytes of weights that a step with so many tokens reads: a mixture reads the experts that any of them chose (expected value)."""
        if not self.experts or not self.experts_per_token:
            return self.weight_bytes
        chosen = self.experts_per_token / self.experts
        if chosen >= 1:
            return self.weight_bytes
        in_experts = (self.parameters - self.parameters_per_token) / (1 - chosen)
        return self.weight_bytes * (1 - in_experts / self.parameters * math.pow(1 - chosen, tokens))


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
