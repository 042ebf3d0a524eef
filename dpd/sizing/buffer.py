"""The buffer in which a decoder receives KV (``PD_BUFFER_SIZE``): slots, prompts that fit, and the least that works.

LMCache cuts a prompt into chunks of 256 tokens and gives each a slot until decode begins. A rank's buffer holds that rank's share of
every chunk. LMCache's own proxy counts the whole model's KV against it, which is more by the tensor parallel size:
https://github.com/LMCache/LMCache/blob/dev/examples/disagg_prefill/disagg_proxy_server.py
"""

import math
from dataclasses import dataclass
from typing import Final

from dpd.catalog.models import ModelShape
from dpd.catalog.serving import lmcache_chunk_tokens
from dpd.sizing.memory import GIB, kv_bytes_per_token_per_rank

FEWEST_IN_FLIGHT: Final = 2
"""Hand-overs in flight for each prefiller: one on its way, one that the decoder has not taken yet (simulated at p5 speed)."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """The PD buffer of one rank of a decoder."""

    model: ModelShape
    tensor_parallel: int
    kv_dtype: str = "auto"

    @property
    def slot_bytes(self) -> float:
        """Bytes of one chunk on one rank."""
        return lmcache_chunk_tokens() * kv_bytes_per_token_per_rank(self.model, self.tensor_parallel, self.kv_dtype)

    def prompt_slots(self, tokens: float) -> int:
        """Slots that a prompt takes: whole chunks."""
        return math.ceil(tokens / lmcache_chunk_tokens())

    def prompt_bytes(self, tokens: float) -> float:
        """Bytes that a prompt takes on one rank. Every layer is moved in full."""
        return self.prompt_slots(tokens) * self.slot_bytes

    def slots(self, gib: float) -> int:
        """Slots of a buffer of so many GiB."""
        return math.floor(gib * GIB / self.slot_bytes)

    def prompts(self, gib: float, tokens: float) -> int:
        """Prompts of ``tokens`` tokens that wait in it at the same time."""
        return self.slots(gib) // self.prompt_slots(tokens)

    def prompts_by_whole_model(self, gib: float, tokens: float) -> int:
        """The same when every slot is counted with the KV of all ranks, as LMCache's proxy does."""
        return math.floor(gib * GIB / (self.slot_bytes * self.tensor_parallel)) // self.prompt_slots(tokens)

    def floor_gib(self, longest_tokens: float, in_flight: float = FEWEST_IN_FLIGHT) -> int:
        """The least buffer in whole GiB: ``max(2, in flight) x whole chunks of the longest prompt``, rounded up."""
        return math.ceil(max(FEWEST_IN_FLIGHT, math.ceil(in_flight)) * self.prompt_bytes(longest_tokens) / GIB)
