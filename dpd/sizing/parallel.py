"""How a model is split over the GPUs of a pod, and how two differently split roles can hand KV to each other."""

from enum import StrEnum

from dpd.catalog.models import ModelShape


class Connector(StrEnum):
    """What carries KV from prefill to decode."""

    LMCACHE = "LMCache"
    NIXL = "NIXL"


def heads_split(model: ModelShape, tensor_parallel: int) -> bool:
    """Whether every rank gets the same number of attention heads."""
    return model.heads % tensor_parallel == 0


def kv_heads_split(model: ModelShape, tensor_parallel: int) -> bool:
    """Whether every rank gets the same number of KV heads, or every head the same number of copies. Latent attention has none."""
    if model.attention == "mla":
        return True
    return model.kv_heads % tensor_parallel == 0 or tensor_parallel % model.kv_heads == 0


def usable_tensor_parallel(model: ModelShape, gpus: int) -> tuple[int, ...]:
    """The sizes up to ``gpus`` that split a model evenly."""
    return tuple(size for size in range(1, gpus + 1) if heads_split(model, size) and kv_heads_split(model, size))


def pair_problem(connector: Connector, prefill: int, decode: int, *, latent: bool) -> str:
    """Why two tensor parallel sizes cannot hand KV to each other; empty when they can.

    LMCache pairs rank with rank, so the sizes are equal. NIXL lets a decode rank read a part of a prefill rank's heads:
    the decode size is a multiple of the prefill size; with latent attention, whose KV is whole on every rank, any pair
    works.
    """
    if prefill == decode or (connector is Connector.NIXL and latent):
        return ""
    if connector is Connector.LMCACHE:
        return f"{connector} pairs rank with rank, so prefill {prefill} and decode {decode} must be equal"
    if prefill > decode:
        return f"with {connector} prefill {prefill} may not be more than decode {decode}"
    return "" if decode % prefill == 0 else f"with {connector} decode {decode} must be a multiple of prefill {prefill}"
